/* What one thread counts while it plans, reads and runs operators. Each thread has its own counts; the engine
 * sums the counts of all threads (engine/profile.h). */
#include "exec/account.h"

#include "base/cost_clock.h"
#include "base/crash.h"

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

int cw_counts_init(struct cw_counts *t, const struct cw_compiled *c, bool detail, struct cw_error *err)
{
    *t = (struct cw_counts){.compiled = c, .ops = calloc(c->pipeline->n_ops, sizeof(*t->ops))};
    if (detail)
        t->values = calloc(cw_n_values(c) + 1, sizeof(*t->values));
    return t->ops && (!detail || t->values) ? 0 : cw_error_nomem(err, 0, "the engine");
}

void cw_counts_deinit(struct cw_counts *t)
{
    free(t->ops);
    free(t->values);
    *t = (struct cw_counts){0};
}

struct cw_turn cw_turn_begin(const struct cw_counts *t, const struct cw_block *c)
{
    struct cw_turn turn = {.n_live = c->n};
    if (!cw_counted())
        return turn;
    if (t->values) {
        for (size_t i = 0; i < c->n && !c->all_ok; i++)
            turn.n_live -= c->status[i] != CW_ROW_OK;
        turn.cpu_ns = cw_cost_cpu_ns();
    }
    turn.start_ns = cw_cost_now_ns();
    return turn;
}

/* Adds rows and bytes of the values that an operator made. */
static void counts_add_values(struct cw_counts *t, unsigned leaf, const struct cw_op *op,
                              const struct cw_block *c)
{
    for (unsigned p = 0; p < op->n_out; p++) {
        struct cw_value_profile *v = &t->values[cw_value_index(t->compiled, leaf, op->out[p].value)];
        for (size_t i = 0; i < c->n && op->out[p].live; i++)
            if (c->status[i] == CW_ROW_OK) {
                v->bytes += cw_block_row(c, op->out[p].value, i).size;
                v->rows++;
            }
    }
}

void cw_turn_end(struct cw_counts *t, unsigned leaf, bool plain, const struct cw_op *op,
                 const struct cw_block *c, const struct cw_turn *turn)
{
    struct cw_op_profile *p = &t->ops[op->index];
    if (!cw_counted())
        return;
    cw_cost_operator(op->desc->name, c->n);
    uint64_t ns = cw_cost_now_ns() - turn->start_ns, cpu_ns = t->values ? cw_cost_cpu_ns() - turn->cpu_ns : 0;
    p->ns += ns;
    p->cpu_ns += cpu_ns;
    p->calls++;
    p->rows += c->n;
    if (plain) {
        p->sampled_ns += ns;
        p->sampled_cpu_ns += cpu_ns;
        p->sampled_rows += c->n;
    }
    if (!t->values)
        return;
    p->live_rows += turn->n_live;
    if (plain && !c->expansion) /* not for flat_map, whose result is not in the block yet */
        counts_add_values(t, leaf, op, c);
}
