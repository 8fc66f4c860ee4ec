/* Runs the source and the operators over the rows of an execution, and replaces or keeps failed rows. */
#include "exec/exec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cost_clock.h"
#include "base/hash.h"
#include "base/philox.h"
#include "exec/cached.h"

#define REPLACE_ATTEMPTS 64 /* records tried as the replacement of a failed row */

void cw_exec_free_faults(struct cw_exec *x)
{
    while (x->faults) {
        struct cw_exec_fault *f = CW_POP(x->faults);
        free(f->detail);
        free(f);
    }
}

void cw_exec_set_program(struct cw_exec *x)
{
    const struct cw_ref *refs = x->plan->refs + x->at;
    x->joint = false;
    for (size_t i = 1; i < x->n_refs; i++)
        x->joint |= refs[i].leaf != refs[0].leaf;
    x->program = &x->env->compiled->programs[x->joint ? 0 : refs[0].leaf];
    if (x->joint)
        x->variant = &x->env->uncached[0];
}

void cw_exec_reset(struct cw_exec *x)
{
    cw_arena_reset(&x->arena, 0);
    x->block = (struct cw_block){.n = x->n_refs};
    x->element = NULL;
    x->reads = (struct cw_exec_reads){0};
    cw_cached_forget(x);
    x->replaced = NULL;
    cw_exec_free_faults(x);
    x->shape = x->prefix_ns = 0;
}

size_t cw_exec_scratch_keep(const struct cw_budget *b)
{
    return atomic_load(&b->used) < atomic_load(&b->limit) / 4 * 3 ? (size_t)16 << 20 : 0;
}

/* ---- operators ---- */

void cw_exec_record_id(const struct cw_exec *x, size_t row, struct cw_record_id *ret)
{
    const struct cw_ref *ref = cw_exec_ref(x, row);
    const struct cw_source *source = cw_exec_source(x, row);
    source->ops->ids(source, &ref->row, 1, ret);
    ret->pass = ref->pass;
    ret->leaf = (uint16_t)ref->leaf;
    ret->flags = 0;
    ret->element = x->element ? x->element[row] : 0;
}

/* Returns the element id of a row. */
static uint64_t exec_eid(const struct cw_exec *x, size_t row)
{
    struct cw_record_id id;
    cw_exec_record_id(x, row, &id);
    return cw_element_id(&x->env->compiled->programs[id.leaf], &id);
}

/* Sets the rows of the source, and the element ids, of a block whose rows are those of its positions. */
static int exec_identify(struct cw_exec *x, struct cw_error *err)
{
    struct cw_block *c = &x->block;
    const struct cw_ref *refs = x->plan->refs + x->at;
    uint64_t *rows = cw_arena_alloc(&x->arena, c->n * sizeof(*rows), err);
    if (!rows)
        return err->status;
    for (size_t i = 0; i < c->n; i++)
        rows[i] = refs[i].row;
    c->rows = rows;
    if (x->env->needs_eids) {
        uint64_t *eids = cw_arena_alloc(&x->arena, c->n * sizeof(*eids), err);
        if (!eids)
            return err->status;
        for (size_t i = 0; i < c->n; i++)
            eids[i] = exec_eid(x, i);
        c->eids = eids;
    }
    return 0;
}

/* Sets up what operators share: c has n rows, and program g runs on it. */
static int exec_prepare_block(struct cw_exec *x, const struct cw_program *g, size_t n, struct cw_block *c,
                              struct cw_error *err)
{
    c->n = n;
    c->arena = &x->arena;
    c->keys = x->epoch->keys;
    c->memo = x->env->sequence->memo;
    c->cancelled = x->cancelled;
    c->cancel_arg = x->cancel_arg;
    c->all_ok = true;
    c->n_values = g->n_values;
    c->status = cw_arena_alloc(&x->arena, n, err);
    c->columns = cw_arena_alloc(&x->arena, g->n_values * sizeof(*c->columns), err);
    if (!c->status || !c->columns)
        return err->status;
    memset(c->status, 0, n);
    memset(c->columns, 0, g->n_values * sizeof(*c->columns));
    return 0;
}

/* Sets up the block that all operators of the execution share. */
static int exec_prepare(struct cw_exec *x, struct cw_error *err)
{
    int status = exec_prepare_block(x, x->program, x->block.n, &x->block, err);
    return status < 0 ? status : exec_identify(x, err);
}

int cw_exec_set_slots(struct cw_exec *x, struct cw_block *c, const struct cw_exec_dest *d,
                      struct cw_error *err)
{
    const struct cw_program *g = x->program;
    if (!d->data)
        return 0;
    uint8_t **slots = cw_arena_alloc(&x->arena, g->n_values * sizeof(*slots), err);
    if (!slots)
        return err->status;
    memset(slots, 0, g->n_values * sizeof(*slots));
    for (unsigned k = 0; k < g->n_outputs; k++)
        if (d->offset[k] != SIZE_MAX)
            slots[g->outputs[k].value] = cw_exec_slot(d, k);
    c->slots = slots;
    return 0;
}

static int exec_run_op(const struct cw_exec *x, const struct cw_program *g, struct cw_counts *t,
                       const struct cw_op *op, struct cw_block *c, struct cw_error *err)
{
    struct cw_turn turn = cw_turn_begin(t, c);
    int status = op->desc->run(op, c, err);
    cw_turn_end(t, g->leaf, x->plain, op, c, &turn);
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, op->desc->name);
    return status;
}

static int exec_replace(struct cw_exec *x, struct cw_counts *t, struct cw_block *c, size_t row, size_t own,
                        struct cw_error *err);

/* Moves the faults of c to x, and with on_error "replace" replaces the rows that failed. Row i of c is row
 * map[i] of x (map NULL: row i). */
static int exec_take_faults(struct cw_exec *x, struct cw_counts *t, struct cw_block *c, const uint32_t *map,
                            struct cw_error *err)
{
    enum cw_on_error on_error = x->env->compiled->pipeline->on_error;
    while (c->faults) {
        struct cw_fault *from = c->faults;
        struct cw_exec_fault *f = calloc(1, sizeof(*f));
        if (!f)
            return cw_error_nomem(err, sizeof(*f), "an error");
        c->faults = from->next;
        x->block.noted |= from->note;
        x->block.failed |= !from->note;
        *f = (struct cw_exec_fault){
            .next = x->faults, .row = map ? map[from->row] : from->row, .op = from->op, .note = from->note};
        snprintf(f->message, sizeof(f->message), "%s", from->message);
        f->detail = from->detail ? strdup(from->detail) : NULL; /* without memory the error lacks it */
        x->faults = f;
        if (on_error == CW_ON_ERROR_REPLACE && !f->note) {
            int status = exec_replace(x, t, c, from->row, f->row, err);
            if (status < 0)
                return status;
            f->replaced = status == 0;
            if (f->replaced)
                c->status[from->row] = CW_ROW_REPLACED;
        }
    }
    return 0;
}

/* Updates the rows that faults name after a flat_map: the faults of a record become those of its first
 * row. */
static void exec_move_faults(struct cw_exec *x, const struct cw_expansion *e)
{
    for (struct cw_exec_fault *f = x->faults; f; f = f->next)
        f->row = CW_FIRST(i, 0, e->n, e->origin[i] >= f->row);
}

/* Gives the faults of rows that were joined to the new rows, and drops all but that of the first failed row
 * of each. */
static int exec_join_faults(struct cw_exec *x, const struct cw_expansion *e, struct cw_error *err)
{
    size_t *first = cw_block_alloc(&x->block, e->n * sizeof(*first), err);
    if (!first)
        return err->status;
    memset(first, 0xff, e->n * sizeof(*first));
    for (const struct cw_exec_fault *f = x->faults; f; f = f->next) {
        size_t row = CW_FIRST(i, 0, e->n, e->origin[i] >= f->row);
        first[row] = f->note ? first[row] : CW_MIN(first[row], f->row);
    }
    for (struct cw_exec_fault **at = &x->faults; *at;) {
        struct cw_exec_fault *f = *at;
        size_t row = CW_FIRST(i, 0, e->n, e->origin[i] >= f->row);
        if (f->note || f->row == first[row]) {
            f->row = row;
            at = &f->next;
        } else {
            *at = f->next;
            free(f->detail);
            free(f);
        }
    }
    return 0;
}

/* Makes the rows that an operator joined the rows of x, one for each position. */
static int exec_join(struct cw_exec *x, const struct cw_expansion *e, struct cw_error *err)
{
    struct cw_block *c = &x->block;
    int status = x->faults ? exec_join_faults(x, e, err) : 0;
    if (status < 0)
        return status;
    x->element = NULL;
    x->shape = 0; /* each position has one row */
    c->origin = NULL;
    c->n = e->n;
    c->status = e->status;
    c->columns = e->columns;
    c->all_ok = true;
    for (size_t i = 0; i < e->n; i++)
        c->all_ok &= e->status[i] == CW_ROW_OK;
    return exec_identify(x, err);
}

/* Makes the rows that an operator left in x->block.expansion the rows of x. */
static int exec_expand(struct cw_exec *x, struct cw_error *err)
{
    struct cw_block *c = &x->block;
    const struct cw_expansion *e = CW_STEAL(c->expansion);
    if (e->joins)
        return exec_join(x, e, err);
    uint32_t *origin = cw_block_alloc(c, e->n * sizeof(*origin), err),
             *element = cw_block_alloc(c, e->n * sizeof(*element), err);
    uint64_t *rows = cw_block_alloc(c, e->n * sizeof(*rows), err),
             *eids = c->eids ? cw_block_alloc(c, e->n * sizeof(*eids), err) : NULL;
    if (!origin || !element || !rows || (c->eids && !eids))
        return err->status;
    c->all_ok = true;
    uint32_t given = 0; /* elements of the record so far */
    for (size_t i = 0; i < e->n; i++) {
        origin[i] = x->block.origin ? x->block.origin[e->origin[i]] : e->origin[i];
        given = i > 0 && origin[i] == origin[i - 1] ? given : 0;
        /* a row that was dropped or failed takes no number, and keeps the id that errors show */
        element[i] = e->status[i] == CW_ROW_OK ? ++given : x->element ? x->element[e->origin[i]] : 0;
        rows[i] = c->rows[e->origin[i]];
        c->all_ok &= e->status[i] == CW_ROW_OK;
    }
    exec_move_faults(x, e);

    struct {
        uint64_t before, origin, status;
    } shape = {x->shape, cw_hash64(e->origin, e->n * sizeof(*e->origin)), cw_hash64(e->status, e->n)};

    x->shape = cw_hash64(&shape, sizeof(shape));
    x->block.origin = origin;
    x->element = element;
    c->n = e->n;
    c->status = e->status;
    c->rows = rows;
    c->raw = NULL; /* the bytes were those of the source's rows */
    c->columns = e->columns;
    for (size_t i = 0; eids && i < e->n; i++)
        eids[i] = exec_eid(x, i);
    c->eids = eids;
    return 0;
}

/* Returns the index of the first operator of a stage; for the stage after the last: the number of
 * operators. */
static unsigned exec_stage_begin(const struct cw_exec *x, unsigned stage)
{
    if (x->joint)
        return CW_MAX(x->program->stage[stage], x->program->n_branch);
    return x->plain ? x->program->stage[stage] : x->variant->optimized->stage[stage];
}

bool cw_exec_stage_is_empty(const struct cw_exec *x, unsigned stage)
{
    return exec_stage_begin(x, stage) == exec_stage_begin(x, stage + 1);
}

/* Drops failed elements before a filter or a batcher, which can't decide about them. If errors are raised,
 * the elements stay, so that the error is found. */
static void exec_drop_failed(const struct cw_exec *x, const struct cw_op *op, struct cw_block *c)
{
    bool decides = op->desc->kind == CW_OP_FILTER || op->desc->kind == CW_OP_FLAT_MAP ||
                   op->desc->kind == CW_OP_BATCHER;
    if (!decides || c->all_ok || x->env->compiled->pipeline->on_error != CW_ON_ERROR_SKIP)
        return;
    for (size_t k = 0; k < c->n; k++)
        if (c->status[k] == CW_ROW_FAILED)
            c->status[k] = CW_ROW_DROPPED;
}

/* Runs operators begin .. end - 1 of program g, as cw_exec_run_stage. */
static int exec_run_ops(struct cw_exec *x, const struct cw_program *g, struct cw_counts *t,
                        struct cw_block *c, const uint32_t *map, unsigned begin, unsigned end,
                        struct cw_error *err)
{
    struct cw_op *const *ops = x->plain || x->joint ? g->ops : x->variant->optimized->ops;
    const struct cw_op *cache_point = cw_cached_cache_point(x->variant->cached);
    for (unsigned i = begin; i < end; i++) {
        const struct cw_op *op = ops[i];
        uint64_t before = t->ops[op->index].ns;
        int status = 0;
        if (x->cache.hit && op->position <= cache_point->position)
            continue;
        if (op == cache_point)
            cw_cached_keep(x, c, map);
        if (op->desc->run && op->live)
            status = exec_run_op(x, g, t, op, c, err);
        if (cache_point && op->position < cache_point->position)
            x->prefix_ns += t->ops[op->index].ns - before;
        if (status >= 0 && c->faults)
            status = exec_take_faults(x, t, c, map, err);
        if (status >= 0 && c->expansion)
            status = exec_expand(x, err);
        if (status < 0)
            return status;
        exec_drop_failed(x, op, c);
    }
    return 0;
}

int cw_exec_run_stage(struct cw_exec *x, struct cw_counts *t, struct cw_block *c, const uint32_t *map,
                      unsigned stage, struct cw_error *err)
{
    return exec_run_ops(x, x->program, t, c, map, exec_stage_begin(x, stage), exec_stage_begin(x, stage + 1),
                        err);
}

/* Runs the source of program g on c, whose row i is row map[i] of x (map NULL: row i). */
static int exec_produce(struct cw_exec *x, const struct cw_program *g, struct cw_counts *t,
                        struct cw_block *c, const uint32_t *map, struct cw_error *err)
{
    const struct cw_source *source = x->env->sequence->sources[g->leaf];
    const struct cw_op *op = g->ops[0];
    struct cw_turn turn = cw_turn_begin(t, c);
    int status = source->ops->produce(source, op, c, err);
    cw_turn_end(t, g->leaf, x->plain, op, c, &turn);
    x->prefix_ns += cw_cost_now_ns() - turn.start_ns;
    if (status >= 0 && c->expansion)
        status = exec_expand(x, err);
    if (status >= 0 && c->faults)
        status = exec_take_faults(x, t, c, map, err);
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, op->desc->name);
    return status;
}

/* ---- rows of several programs ---- */

/* Sorts the rows of x by program: order[first[k]] .. order[first[k + 1] - 1] are the rows of program k. */
static int exec_sort_rows(const struct cw_exec *x, uint32_t **ret_order, size_t **ret_first,
                          struct cw_error *err)
{
    const struct cw_ref *refs = x->plan->refs + x->at;
    struct cw_arena *arena = x->block.arena;
    unsigned n_programs = x->env->compiled->n_programs;
    size_t n = x->block.n, bytes = (n_programs + 2) * sizeof(size_t);
    uint32_t *order = *ret_order = cw_arena_alloc(arena, n * sizeof(*order), err);
    size_t *first = *ret_first = cw_arena_alloc(arena, bytes, err);
    if (!order || !first)
        return err->status;
    memset(first, 0, bytes);
    for (size_t i = 0; i < n; i++)
        first[refs[i].leaf + 2]++;
    for (unsigned k = 2; k < n_programs + 2; k++)
        first[k] += first[k - 1];
    for (size_t i = 0; i < n; i++) /* afterwards first[k + 1] is where the rows of program k end */
        order[first[refs[i].leaf + 1]++] = (uint32_t)i;
    return 0;
}

/* Makes *c the block of the n rows map[] of x, which are those of program g, and runs the branch on it. */
static int exec_run_branch(struct cw_exec *x, const struct cw_program *g, struct cw_counts *t,
                           const uint32_t *map, size_t n, struct cw_block *c, struct cw_error *err)
{
    const struct cw_block *all = &x->block;
    *c = (struct cw_block){0};
    int status = exec_prepare_block(x, g, n, c, err);
    uint64_t *rows = cw_arena_alloc(&x->arena, n * sizeof(*rows), err),
             *eids = all->eids ? cw_arena_alloc(&x->arena, n * sizeof(*eids), err) : NULL;
    struct cw_tensor *raw = all->raw ? cw_arena_alloc(&x->arena, n * sizeof(*raw), err) : NULL;
    if (status < 0 || !rows || (all->eids && !eids) || (all->raw && !raw))
        return err->status;
    for (size_t i = 0; i < n; i++)
        rows[i] = all->rows[map[i]];
    for (size_t i = 0; eids && i < n; i++)
        eids[i] = all->eids[map[i]];
    for (size_t i = 0; raw && i < n; i++)
        raw[i] = all->raw[map[i]];
    c->rows = rows;
    c->eids = eids;
    c->raw = raw;
    status = exec_produce(x, g, t, c, map, err);
    return status < 0 ? status : exec_run_ops(x, g, t, c, map, 1, g->n_branch, err);
}

/* Copies a column of fixed size: row i of `from` to row map[i] of `to`. */
static void exec_scatter(const struct cw_block *c, unsigned value, const uint32_t *map, struct cw_column *to)
{
    const struct cw_column *from = &c->columns[value];
    size_t bytes = to->stride;
    if (from->dense && bytes == 8)
        for (size_t i = 0; i < c->n; i++)
            memcpy(to->data + 8 * (size_t)map[i], from->data + 8 * i, 8);
    else
        for (size_t i = 0; i < c->n; i++)
            if (c->status[i] == CW_ROW_OK)
                memcpy(to->data + map[i] * bytes, cw_block_row(c, value, i).data, bytes);
}

/* Puts the rows of a branch into those of x. */
static void exec_merge(struct cw_exec *x, const struct cw_program *g, const struct cw_block *c,
                       const uint32_t *map)
{
    struct cw_block *all = &x->block;
    for (size_t i = 0; i < c->n && !c->all_ok; i++) {
        all->status[map[i]] = c->status[i];
        all->all_ok &= c->status[i] == CW_ROW_OK;
    }
    for (unsigned k = 0; k < g->n_merged; k++) {
        unsigned value = g->merged[k].value;
        struct cw_column *to = &all->columns[x->program->merged[k].value];
        if (to->dense)
            exec_scatter(c, value, map, to);
        else
            for (size_t i = 0; i < c->n; i++)
                if (c->status[i] == CW_ROW_OK)
                    to->rows[map[i]] = cw_block_row(c, value, i);
    }
}

/* Runs the branch of each program on its rows, and puts the results together. */
static int exec_start_joint(struct cw_exec *x, struct cw_counts *t, struct cw_error *err)
{
    const struct cw_compiled *compiled = x->env->compiled;
    uint32_t *order;
    size_t *first;
    int status = exec_sort_rows(x, &order, &first, err);
    for (unsigned k = 0; k < x->program->n_merged && status >= 0; k++) {
        const struct cw_component *to = &x->program->merged[k];
        status = cw_block_column(&x->block, to->value, &to->type, err);
    }
    for (unsigned k = 0; k < compiled->n_programs && status >= 0; k++) {
        const struct cw_program *g = &compiled->programs[k];
        struct cw_block c;
        if (first[k] == first[k + 1])
            continue;
        status = exec_run_branch(x, g, t, order + first[k], first[k + 1] - first[k], &c, err);
        if (status >= 0)
            exec_merge(x, g, &c, order + first[k]);
    }
    return status;
}

/* Writes the numbers of enumerates that are positions. The rows must be those of the positions. */
static int exec_enumerate(struct cw_exec *x, struct cw_error *err)
{
    const struct cw_sequence *q = x->env->sequence;
    const struct cw_program *g = x->program;
    for (unsigned k = 0; k < q->n_enumerates; k++)
        for (unsigned i = 1; i < g->n_ops; i++) {
            const struct cw_port *out = &g->ops[i]->out[0];
            if (g->ops[i]->position != q->enumerates[k].position || !out->live)
                continue;
            int r = cw_block_dense(&x->block, out->value, &out->type, err);
            if (r < 0)
                return r;
            uint8_t *to = x->block.columns[out->value].data;
            const uint64_t *positions = x->plan->positions + k * x->plan->n + x->at;
            for (size_t row = 0; row < x->block.n; row++) {
                int64_t number = q->enumerates[k].start + (int64_t)positions[row];
                memcpy(to + row * sizeof(number), &number, sizeof(number));
            }
        }
    return 0;
}

int cw_exec_start(struct cw_exec *x, struct cw_counts *t, struct cw_error *err)
{
    int status = exec_prepare(x, err);
    if (status >= 0)
        status = cw_exec_set_slots(x, &x->block, &x->dest, err);
    if (status < 0)
        return status;
    if (x->cache.hit) {
        cw_cached_put_hits(x);
        return exec_enumerate(x, err);
    }
    if (x->joint)
        status = exec_start_joint(x, t, err);
    else if ((status = exec_produce(x, x->program, t, &x->block, NULL, err)) >= 0)
        status = exec_run_ops(x, x->program, t, &x->block, NULL, 1, exec_stage_begin(x, 0), err);
    return status < 0 ? status : exec_enumerate(x, err);
}

/* ---- replacement ---- */

/* Reads the bytes of the record of an execution with one row, which need not be loaded with its plan. */
static int exec_read_single(struct cw_exec *one, struct cw_counts *t, struct cw_error *err)
{
    const struct cw_source *source = cw_exec_source(one, 0);
    if (!source->ops->load)
        return cw_exec_read(one, t, false, err);
    struct cw_tensor *raw = cw_arena_alloc(&one->arena, sizeof(*raw), err);
    const struct cw_ref *ref = &one->plan->refs[one->at];
    const struct cw_load l = {
        .epoch = one->epoch, .rows = &ref->row, .passes = &ref->pass, .n = 1, .arena = &one->arena};
    int status = raw ? source->ops->load(source, &l, raw, err) : err->status;
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, one->program->ops[0]->desc->name);
    one->block.raw = raw;
    one->reads.done = true;
    return status;
}

/* Takes the outputs of the only row, in memory of the arena. */
static int exec_take_single(const struct cw_exec *one, struct cw_arena *arena, struct cw_replaced *ret,
                            struct cw_error *err)
{
    const struct cw_program *g = one->program;
    if (!(ret->values = cw_arena_alloc(arena, g->n_outputs * sizeof(*ret->values), err)))
        return err->status;
    for (unsigned k = 0; k < g->n_outputs; k++)
        ret->values[k] = cw_block_row(&one->block, g->outputs[k].value, 0);
    cw_exec_record_id(one, 0, &ret->id);
    ret->id.flags |= CW_RECORD_REPLACEMENT;
    if (one->env->compiled->keyed)
        memcpy(&ret->bucket, cw_block_row(&one->block, g->bucket_value, 0).data, sizeof(ret->bucket));
    return 0;
}

/* Runs the record x->plan->room[at] through all operators. 0: *ret is filled, with memory of the arena; 1:
 * the record failed or was dropped. */
static int exec_run_single(struct cw_exec *x, struct cw_counts *t, uint64_t at, struct cw_replaced *ret,
                           struct cw_error *err)
{
    const struct cw_exec_plan plan = {.begin = x->plan->room_begin, .refs = x->plan->room};
    const struct cw_program *g = &x->env->compiled->programs[plan.refs[at].leaf];
    const struct cw_exec_variant *variant = &x->env->uncached[g->leaf];
    struct cw_exec one = {.env = x->env,
                          .epoch = x->epoch,
                          .cancelled = x->cancelled,
                          .cancel_arg = x->cancel_arg,
                          .plan = &plan,
                          .program = g,
                          .variant = variant,
                          .at = at,
                          .n_refs = 1,
                          .block.n = 1,
                          .arena = x->arena, /* given back below */
                          .cache.use = CW_CACHE_USE_NONE};
    const struct cw_source *source = cw_exec_source(&one, 0);
    const struct cw_optimized *o = variant->optimized;
    int status = exec_read_single(&one, t, err);
    if (status >= 0)
        status = exec_prepare(&one, err);
    if (status >= 0 && (status = source->ops->produce(source, g->ops[0], &one.block, err)) < 0 &&
        status != CW_E_BUDGET)
        cw_error_op(err, g->ops[0]->desc->name);
    for (unsigned i = 1; i < o->n_ops && status >= 0 && one.block.status[0] == CW_ROW_OK; i++)
        if (o->ops[i]->desc->run && o->ops[i]->live)
            status = exec_run_op(&one, g, t, o->ops[i], &one.block, err);
    if (status >= 0)
        status = one.block.status[0] == CW_ROW_OK ? exec_take_single(&one, &one.arena, ret, err) : 1;
    x->arena = one.arena;
    x->block.arena = &x->arena;
    return status;
}

/* Replaces row `row` of c, which is row `own` of x, by another record. 0: replaced; 1: no record without a
 * fault was found. */
static int exec_replace(struct cw_exec *x, struct cw_counts *t, struct cw_block *c, size_t row, size_t own,
                        struct cw_error *err)
{
    if (!x->replaced) {
        x->replaced = cw_arena_alloc(&x->arena, x->block.n * sizeof(*x->replaced), err);
        if (!x->replaced)
            return err->status;
        memset(x->replaced, 0, x->block.n * sizeof(*x->replaced));
    }
    const struct cw_exec_plan *p = x->plan;
    uint64_t position = p->begin + x->at + own,
             window = position / CW_REPLACE_POSITIONS * CW_REPLACE_POSITIONS;
    uint64_t n = CW_MIN(CW_REPLACE_POSITIONS, x->env->sequence->n_positions - window);
    for (uint32_t k = 0; k < REPLACE_ATTEMPTS; k++) {
        uint32_t words[4];
        cw_block_draw(c, x->env->compiled->n_keys - 1, row, k, words);
        struct cw_arena_mark mark = cw_arena_mark(&x->arena);
        int status = exec_run_single(x, t, window - p->room_begin + cw_integer(words[0], n),
                                     &x->replaced[own], err);
        if (status <= 0)
            return status;
        cw_arena_release(&x->arena, mark);
    }
    return 1;
}

/* Sets the detail of a fault's error: {"epoch": e, "position": p, and the members of the fault's own detail}.
 */
static void exec_set_detail(const struct cw_exec *x, const struct cw_exec_fault *f, struct cw_error *ret)
{
    const char *own = f->detail && strlen(f->detail) > 2 ? f->detail + 1 : "}";
    size_t row = x->block.origin ? x->block.origin[f->row] : f->row;
    char detail[CW_ERROR_DETAIL];
    int n = snprintf(detail, sizeof(detail), "{\"epoch\":%" PRIu64 ",\"position\":%" PRIu64 "%s%s",
                     x->epoch->epoch, x->plan->begin + x->at + row, *own == '}' ? "" : ",", own);
    cw_error_detail(ret, n < (int)sizeof(detail) ? detail : NULL);
}

void cw_exec_fault_error(const struct cw_exec *x, const struct cw_exec_fault *f, struct cw_error *ret)
{
    const struct cw_source *source = cw_exec_source(x, f->row);
    struct cw_record_id record;
    char id[128];
    *ret = (struct cw_error){0};
    cw_exec_record_id(x, f->row, &record);
    cw_record_print(&x->env->compiled->programs[record.leaf], &record, id);
    if (source->ops->path)
        cw_error_file(ret, source->ops->path(source, cw_exec_ref(x, f->row)->row));
    cw_error_op(ret, f->op);
    cw_error_record(ret, id);
    cw_error_set(ret, CW_E_RECORD, "%s: %s", f->op, f->message);
    exec_set_detail(x, f, ret);
}

/* ---- some of the rows ---- */

/* Copies rows of a column, chosen by index, into a new column. */
static int column_gather(struct cw_arena *arena, const struct cw_column *from, const uint32_t *idx, size_t n,
                         struct cw_column *to, struct cw_error *err)
{
    *to = *from;
    if (from->dense) {
        to->data = cw_arena_alloc(arena, n * from->stride, err);
        if (!to->data)
            return err->status;
        if (from->stride == 8)
            for (size_t i = 0; i < n; i++)
                memcpy(to->data + 8 * i, from->data + 8 * (size_t)idx[i], 8);
        else
            for (size_t i = 0; i < n; i++)
                memcpy(to->data + i * from->stride, from->data + idx[i] * from->stride, from->stride);
    } else if (from->rows) {
        to->rows = cw_arena_alloc(arena, n * sizeof(*to->rows), err);
        if (!to->rows)
            return err->status;
        for (size_t i = 0; i < n; i++)
            to->rows[i] = from->rows[idx[i]];
    }
    return 0;
}

int cw_exec_gather(struct cw_exec *x, const uint32_t *idx, size_t n, struct cw_block *ret,
                   struct cw_error *err)
{
    const struct cw_block *from = &x->block;
    *ret = *from;
    ret->n = n;
    ret->faults = NULL;
    ret->status = cw_arena_alloc(&x->arena, n, err);
    ret->columns = cw_arena_alloc(&x->arena, x->program->n_values * sizeof(*ret->columns), err);
    uint64_t *eids = from->eids ? cw_arena_alloc(&x->arena, n * sizeof(*eids), err) : NULL;
    uint64_t *rows = cw_arena_alloc(&x->arena, n * sizeof(*rows), err);
    if (!ret->status || !ret->columns || (from->eids && !eids) || !rows)
        return err->status;
    ret->all_ok = true;
    for (size_t i = 0; i < n; i++) {
        ret->status[i] = from->status[idx[i]];
        ret->all_ok &= ret->status[i] == CW_ROW_OK;
        rows[i] = from->rows[idx[i]];
        if (eids)
            eids[i] = from->eids[idx[i]];
    }
    ret->eids = eids;
    ret->rows = rows;
    int status = 0;
    for (unsigned v = 0; v < x->program->n_values && status >= 0; v++)
        status = column_gather(&x->arena, &from->columns[v], idx, n, &ret->columns[v], err);
    return status;
}
