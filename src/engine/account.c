/* What is counted while it runs (profile.h), per thread, and summed under the mutex after each block. */
#include <string.h>

#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/crash.h"
#include "base/thread.h"

bool cw_counted(void)
{
    return !cw_mutated("uncounted");
}

unsigned cw_value_index(const struct cw_compiled *c, unsigned leaf, unsigned value)
{
    for (unsigned i = 0; i < leaf; i++)
        value += c->programs[i].n_values;
    return value;
}

unsigned cw_n_values(const struct cw_compiled *c)
{
    return cw_value_index(c, c->n_programs, 0);
}

int cw_account_new(struct cw_runner *r, struct cw_error *err)
{
    struct cw_profile *p = &r->profile;
    p->n_ops = r->compiled->pipeline->n_ops;
    p->n_values = r->options.detail ? cw_n_values(r->compiled) : 0;
    bool good = (p->ops = calloc(p->n_ops, sizeof(*p->ops))) &&
                (!r->options.detail || (p->values = calloc(p->n_values + 1, sizeof(*p->values))));
    for (unsigned i = 0; i < r->options.threads && good; i++) {
        struct thread *t = &r->threads[i];
        good = (t->ops = calloc(p->n_ops, sizeof(*t->ops))) &&
               (!r->options.detail || (t->values = calloc(p->n_values + 1, sizeof(*t->values))));
    }
    return good ? 0 : cw_error_nomem(err, 0, "the engine");
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
    if (!cw_counted())
        return;
    for (unsigned k = 0; k < p->n_ops; k++) {
        p->ops[k].ns += t->ops[k].ns;
        p->ops[k].calls += t->ops[k].calls;
        p->ops[k].rows += t->ops[k].rows;
        p->ops[k].sampled_ns += t->ops[k].sampled_ns;
        p->ops[k].sampled_rows += t->ops[k].sampled_rows;
        p->ops[k].cpu_ns += t->ops[k].cpu_ns;
        p->ops[k].sampled_cpu_ns += t->ops[k].sampled_cpu_ns;
        p->ops[k].live_rows += t->ops[k].live_rows; /* call_ns is counted in the sums at once */
    }
    memset(t->ops, 0, p->n_ops * sizeof(*t->ops));
    for (unsigned k = 0; k < p->n_values; k++) {
        p->values[k].rows += t->values[k].rows;
        p->values[k].bytes += t->values[k].bytes;
    }
    if (p->n_values)
        memset(t->values, 0, p->n_values * sizeof(*t->values));
    p->plan_ns += t->plan_ns;
    p->read_ns += t->read_ns;
    p->read_bytes += t->read_bytes;
    p->emit_ns += t->emit_ns;
    p->emit_rows += t->emit_rows;
    p->fetch_ns += t->fetch_ns;
    t->plan_ns = t->read_ns = t->read_bytes = t->emit_ns = t->emit_rows = t->fetch_ns = 0;
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

/* ---- an operator at a block ---- */

struct turn cw_turn_begin(const struct thread *t, const struct cw_block *c)
{
    struct turn turn = {.n_live = c->n};
    if (!cw_counted())
        return turn;
    if (t->r->options.detail) {
        for (size_t i = 0; i < c->n && !c->all_ok; i++)
            turn.n_live -= c->status[i] != CW_ROW_OK;
        turn.cpu_ns = cw_cost_cpu_ns();
    }
    turn.start_ns = cw_cost_now_ns();
    return turn;
}

/* What the values take that an operator made. */
static void count_values(struct thread *t, const struct block *b, const struct cw_op *op,
                         const struct cw_block *c)
{
    for (unsigned p = 0; p < op->n_out; p++) {
        struct cw_value_profile *v =
            &t->values[cw_value_index(t->r->compiled, b->program->leaf, op->out[p].value)];
        for (size_t i = 0; i < c->n && op->out[p].live; i++)
            if (c->status[i] == CW_ROW_OK) {
                v->bytes += cw_block_row(c, op->out[p].value, i).size;
                v->rows++;
            }
    }
}

void cw_turn_end(struct thread *t, const struct block *b, const struct cw_op *op, const struct cw_block *c,
                 const struct turn *turn)
{
    struct cw_op_profile *p = &t->ops[op->index];
    if (!cw_counted())
        return;
    cw_cost_operator(op->desc->name, c->n);
    uint64_t ns = cw_cost_now_ns() - turn->start_ns,
             cpu_ns = t->r->options.detail ? cw_cost_cpu_ns() - turn->cpu_ns : 0;
    p->ns += ns;
    p->cpu_ns += cpu_ns;
    p->calls++;
    p->rows += c->n;
    if (b->plain) {
        p->sampled_ns += ns;
        p->sampled_cpu_ns += cpu_ns;
        p->sampled_rows += c->n;
    }
    if (!t->r->options.detail)
        return;
    p->live_rows += turn->n_live;
    if (b->plain && !c->expansion) /* of flat_map: other rows than these */
        count_values(t, b, op, c);
}
