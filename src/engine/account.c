/* What is counted while it runs (profile.h), per thread, and summed under the mutex after each block. */
#include <string.h>

#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/thread.h"

int cw_account_new(struct cw_runner *r, struct cw_error *err)
{
    struct cw_counts sums;
    int status = cw_counts_init(&sums, r->compiled, r->options.detail, err);
    r->profile = (struct cw_profile){.ops = sums.ops,
                                     .n_ops = r->compiled->pipeline->n_ops,
                                     .values = sums.values,
                                     .n_values = sums.values ? cw_n_values(r->compiled) : 0};
    for (unsigned i = 0; i < r->options.threads && status >= 0; i++)
        status = cw_counts_init(&r->threads[i].counts, r->compiled, r->options.detail, err);
    return status;
}

void cw_runner_profile(struct cw_runner *r, struct cw_profile *ret)
{
    struct cw_op_profile *ops = ret->ops;
    struct cw_value_profile *values = ret->values;
    CW_GUARD(&r->mutex);
    *ret = r->profile;
    memcpy(ops, r->profile.ops, r->profile.n_ops * sizeof(*ops));
    if (values && r->profile.n_values)
        memcpy(values, r->profile.values, r->profile.n_values * sizeof(*values));
    ret->ops = ops;
    ret->values = values;
    uint64_t now = cw_now_ns();
    ret->run_ns = (now - r->started_ns) * r->options.threads;
    /* where storage is the limit that never ends */
    ret->cold_wall_ns += r->n_reading || r->n_reading_in ? now - r->reading_since_ns : 0;
    ret->memory_peak = atomic_load(&r->budget.peak);
    ret->threads = r->options.threads;
    ret->positions = r->n_positions_done;
    ret->cached_positions = r->n_positions_cached;
}

uint64_t cw_runner_now_ns(struct cw_runner *r)
{
    const struct cw_profile *p = &r->profile;
    uint64_t busy_ns = 0, cpu_ns = 0;
    if (!cw_cost_modelled())
        return cw_now_ns();
    CW_GUARD(&r->mutex);
    for (unsigned k = 0; k < p->n_ops; k++) {
        busy_ns += p->ops[k].ns;
        cpu_ns += p->ops[k].cpu_ns;
    }
    busy_ns += p->plan_ns + p->read_ns - p->cold_ns + p->emit_ns + p->fetch_ns;
    return CW_MAX(CW_MAX(busy_ns / r->options.threads, cpu_ns / cw_cpu_budget()), r->cold_ns);
}

void cw_account(struct cw_runner *r, struct thread *t)
{
    struct cw_profile *p = &r->profile;
    struct cw_counts *c = &t->counts;
    if (!cw_counted())
        return;
    for (unsigned k = 0; k < p->n_ops; k++) {
        p->ops[k].ns += c->ops[k].ns;
        p->ops[k].calls += c->ops[k].calls;
        p->ops[k].rows += c->ops[k].rows;
        p->ops[k].sampled_ns += c->ops[k].sampled_ns;
        p->ops[k].sampled_rows += c->ops[k].sampled_rows;
        p->ops[k].cpu_ns += c->ops[k].cpu_ns;
        p->ops[k].sampled_cpu_ns += c->ops[k].sampled_cpu_ns;
        p->ops[k].live_rows += c->ops[k].live_rows; /* call_ns is counted in the sums at once */
    }
    memset(c->ops, 0, p->n_ops * sizeof(*c->ops));
    for (unsigned k = 0; k < p->n_values; k++) {
        p->values[k].rows += c->values[k].rows;
        p->values[k].bytes += c->values[k].bytes;
    }
    if (p->n_values)
        memset(c->values, 0, p->n_values * sizeof(*c->values));
    p->plan_ns += c->plan_ns;
    p->read_ns += c->read_ns;
    p->read_bytes += c->read_bytes;
    p->emit_ns += c->emit_ns;
    p->emit_rows += c->emit_rows;
    p->fetch_ns += c->fetch_ns;
    c->plan_ns = c->read_ns = c->read_bytes = c->emit_ns = c->emit_rows = c->fetch_ns = 0;
}

/* Mutex held. */
static enum cw_idle idle_reason(const struct cw_runner *r)
{
    const struct cw_range *s = r->ranges;
    const struct cw_assembly *a = s ? s->head : NULL;
    if (r->alone || r->starved || r->consumer_short || r->plan_short || r->frugal)
        return CW_IDLE_MEMORY;
    if (r->n_reading || r->n_reading_in)
        return CW_IDLE_READING;
    if (!s || (a && a->closed && a->n_done == a->n_assigned) || (s->over && s->n_blocks == 0))
        return CW_IDLE_CONSUMER;
    return r->few_assemblies && r->n_assemblies >= r->max_assemblies ? CW_IDLE_MEMORY : CW_IDLE_OTHER;
}

void cw_idle(struct cw_runner *r)
{
    uint64_t start = cw_now_ns();
    enum cw_idle reason = idle_reason(r);
    pthread_cond_wait(&r->work, &r->mutex);
    uint64_t ns = cw_now_ns() - start;
    r->profile.idle_ns += ns;
    r->profile.idle_for_ns[reason] += ns;
}
