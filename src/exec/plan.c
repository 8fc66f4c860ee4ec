/* A plan: the records of consecutive positions of an epoch, and the bytes of those records that can't be read
 * one by one (as in a compressed file). Each of the engine's pieces owns one. */
#include "exec/plan.h"

static bool plan_replaces(const struct cw_sequence *s)
{
    return s->compiled->pipeline->on_error == CW_ON_ERROR_REPLACE;
}

/* Returns the number of positions for which the plan of n positions needs memory at most. */
static uint64_t plan_positions_most(const struct cw_sequence *s, uint64_t n)
{
    return CW_MIN(n + (plan_replaces(s) ? 2 * CW_REPLACE_POSITIONS : 0), s->n_positions);
}

size_t cw_exec_plan_bytes(const struct cw_sequence *s, uint64_t n)
{
    return plan_positions_most(s, n) * sizeof(struct cw_ref) + n * s->n_enumerates * sizeof(uint64_t) +
           (s->needs_load ? CW_MIN(n, s->n_positions) * sizeof(struct cw_tensor) : 0);
}

/* Sets p->positions. p->room is overwritten. */
static int plan_enumerates(struct cw_exec_plan *p, const struct cw_sequence *s, struct cw_epoch *e,
                           struct cw_error *err)
{
    size_t bytes = CW_MAX(p->n, s->piece_size) * s->n_enumerates * sizeof(*p->positions);
    if (!p->positions && !(p->positions = malloc(bytes)))
        return cw_error_nomem(err, bytes, "the plan of a range");
    int r = 0;
    for (unsigned k = 0; k < s->n_enumerates && r >= 0; k++) {
        r = cw_epoch_positions(e, s->enumerates[k].node, p->begin, p->n, p->room, err);
        for (uint64_t i = 0; i < p->n && r >= 0; i++)
            p->positions[k * p->n + i] = p->room[i].row;
    }
    return r;
}

int cw_exec_plan_refs(struct cw_exec_plan *p, const struct cw_sequence *s, struct cw_epoch *e,
                      struct cw_error *err)
{
    uint64_t window = plan_replaces(s) ? CW_REPLACE_POSITIONS : 1, end = p->begin + p->n;
    if (!p->room &&
        !(p->room = malloc(plan_positions_most(s, CW_MAX(p->n, s->piece_size)) * sizeof(*p->room))))
        return cw_error_nomem(err, cw_exec_plan_bytes(s, p->n), "the plan of a range");
    int r = s->n_enumerates ? plan_enumerates(p, s, e, err) : 0;
    if (r < 0)
        return r;
    p->room_begin = p->begin / window * window;
    p->refs = p->room + (p->begin - p->room_begin);
    end = CW_MIN((end + window - 1) / window * window, s->n_positions);
    return cw_epoch_refs(e, p->room_begin, end - p->room_begin, p->room, err);
}

int cw_exec_plan_load(struct cw_exec_plan *p, const struct cw_epoch *e, struct cw_error *err)
{
    const struct cw_sequence *s = e->sequence;
    const struct cw_compiled *c = s->compiled;
    p->raw = calloc(p->n, sizeof(*p->raw));
    bool one = c->n_programs == 1; /* in this case the bytes of all records are loaded at once, to p->raw */
    _cleanup_free_ uint64_t *rows = malloc(p->n * sizeof(*rows)), *at = malloc(p->n * sizeof(*at));
    _cleanup_free_ uint32_t *passes = malloc(p->n * sizeof(*passes));
    _cleanup_free_ struct cw_tensor *some = one ? NULL : malloc(p->n * sizeof(*some));
    struct cw_tensor *raw = one ? p->raw : some;
    int status = p->raw && rows && at && passes && raw
                     ? 0
                     : cw_error_nomem(err, p->n * sizeof(*p->raw), "records");
    for (unsigned leaf = 0; leaf < c->n_programs && status >= 0; leaf++) {
        const struct cw_source *source = s->sources[leaf];
        size_t n = 0;
        if (!source->ops->load)
            continue;
        for (uint64_t i = 0; i < p->n; i++)
            if (p->refs[i].leaf == leaf) {
                rows[n] = p->refs[i].row;
                passes[n] = p->refs[i].pass;
                at[n++] = i;
            }
        const struct cw_load l = {.epoch = e, .rows = rows, .passes = passes, .n = n, .arena = &p->arena};
        status = n ? source->ops->load(source, &l, raw, err) : 0;
        if (status < 0 && status != CW_E_BUDGET)
            cw_error_op(err, c->programs[leaf].ops[0]->desc->name);
        for (size_t i = 0; some && i < n && status >= 0; i++)
            p->raw[at[i]] = raw[i];
    }
    return status;
}

void cw_exec_plan_clear(struct cw_exec_plan *p)
{
    if (p->charged)
        cw_budget_give(p->arena.budget, p->charged);
    p->charged = 0;
    cw_arena_deinit(&p->arena);
    free(CW_STEAL(p->room));
    free(CW_STEAL(p->positions));
    free(CW_STEAL(p->raw));
    p->refs = NULL;
}
