/* Sums of what all threads counted (profile.h), updated with the runner's mutex held after each block. */
#include "engine/account.h"

#include <string.h>

#include "base/cost_clock.h"
#include "base/machine.h"
#include "base/thread.h"
#include "engine/internal.h"

int cw_account_new(struct cw_runner *r, struct cw_error *err)
{
    struct cw_counts sums;
    int status = cw_counts_init(&sums, r->compiled, r->options.detail, err);
    r->profile = (struct cw_profile){.ops = sums.ops,
                                     .n_ops = r->compiled->pipeline->n_ops,
                                     .values = sums.values,
                                     .n_values = sums.values ? cw_n_values(r->compiled) : 0};
    for (unsigned i = 0; i < r->sched.n_threads && status >= 0; i++)
        status = cw_counts_init(&r->sched.threads[i].counts, r->compiled, r->options.detail, err);
    return status;
}

void cw_runner_profile(struct cw_runner *r, struct cw_profile *ret)
{
    struct cw_op_profile *ops = ret->ops;
    struct cw_value_profile *values = ret->values;
    CW_GUARD(&r->sched.mutex);
    *ret = r->profile;
    memcpy(ops, r->profile.ops, r->profile.n_ops * sizeof(*ops));
    if (values && r->profile.n_values)
        memcpy(values, r->profile.values, r->profile.n_values * sizeof(*values));
    ret->ops = ops;
    ret->values = values;
    uint64_t now = cw_now_ns();
    ret->run_ns = (now - r->started_ns) * r->options.threads;
    /* where storage is the limit, a wait that has not ended counts too */
    ret->cold_wall_ns += r->reads.n_blocks || r->read_in.n_pieces ? now - r->reads.since_ns : 0;
    ret->memory_peak = atomic_load(&r->memory.budget.peak);
    ret->threads = r->options.threads;
    ret->positions = r->cache.n_done;
    ret->cached_positions = r->cache.n_cached;
}

uint64_t cw_runner_now_ns(struct cw_runner *r)
{
    const struct cw_profile *p = &r->profile;
    uint64_t busy_ns = 0, cpu_ns = 0;
    if (!cw_cost_modelled())
        return cw_now_ns();
    CW_GUARD(&r->sched.mutex);
    for (unsigned k = 0; k < p->n_ops; k++) {
        busy_ns += p->ops[k].ns;
        cpu_ns += p->ops[k].cpu_ns;
    }
    busy_ns += p->plan_ns + p->read_ns - p->cold_ns + p->emit_ns + p->fetch_ns;
    return CW_MAX(CW_MAX(busy_ns / r->options.threads, cpu_ns / cw_cpu_budget()), r->reads.busy_ns);
}

/* Adds the counts in `from`, an array of structs of uint64_t with `bytes` bytes, to those in `to`, and sets
 * them to 0. */
static void sums_move(void *to, void *from, size_t bytes)
{
    uint64_t *into = to, *more = from;
    for (size_t i = 0; i < bytes / sizeof(*into); i++)
        into[i] += more[i];
    memset(from, 0, bytes);
}

void cw_account_add(struct cw_runner *r, struct compute_thread *t)
{
    struct cw_profile *p = &r->profile;
    struct cw_counts *c = &t->counts;
    if (!cw_counted())
        return;
    for (size_t i = 0; i < p->n_ops; i++)
        c->ops[i].ns = cw_width_share(r, c->ops[i].ns);
    sums_move(p->ops, c->ops, p->n_ops * sizeof(*c->ops)); /* call_ns is counted in the sums at once */
    if (p->n_values)
        sums_move(p->values, c->values, p->n_values * sizeof(*c->values));
    p->plan_ns += cw_width_share(r, c->plan_ns);
    p->read_ns += cw_width_share(r, c->read_ns);
    p->read_bytes += c->read_bytes;
    p->emit_ns += cw_width_share(r, c->emit_ns);
    p->emit_rows += c->emit_rows;
    p->fetch_ns += cw_width_share(r, c->fetch_ns);
    c->plan_ns = c->read_ns = c->read_bytes = c->emit_ns = c->emit_rows = c->fetch_ns = 0;
}

static enum cw_idle account_idle_reason(const struct cw_runner *r)
{
    const struct cw_memory *m = &r->memory;
    const struct cw_range *s = r->ranges;
    if (m->starved == STARVED_ALONE || r->sched.starved || m->consumer_short || m->plan_short || m->low_rows)
        return CW_IDLE_MEMORY;
    if (r->reads.n_blocks || r->read_in.n_pieces)
        return CW_IDLE_READING;
    if (!s || cw_range_head_complete(s) || cw_range_computed(s))
        return CW_IDLE_CONSUMER;
    return m->few_assemblies && m->n_assemblies >= m->max_assemblies ? CW_IDLE_MEMORY : CW_IDLE_OTHER;
}

void cw_account_idle(struct cw_runner *r)
{
    uint64_t start = cw_now_ns();
    enum cw_idle reason = account_idle_reason(r);
    cw_width_idle(r, true);
    pthread_cond_wait(&r->sched.work, &r->sched.mutex);
    cw_width_idle(r, false);
    uint64_t ns = cw_width_share(r, cw_now_ns() - start);
    r->profile.idle_ns += ns;
    r->profile.idle_for_ns[reason] += ns;
}
