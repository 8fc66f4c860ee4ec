/* Runs the operators after a cut point on the rows of batches that workers sent. The columns of the first
 * operators lie in the batch that came; outputs of fixed size are written directly into the new batch. */
#include "engine/tail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "dataset/sequence.h"

/* Bytes of scratch memory that an arena keeps for its next use, so that the kernel does not zero new pages
 * for each batch. */
#define ARENA_KEEP ((size_t)16 << 20)

struct tail_arena {
    struct tail_arena *next;
    struct cw_arena arena;
};

int cw_tail_init(struct cw_tail *t, const struct cw_compiled *c, const struct cw_cut_point *cut,
                 struct cw_slab_pool *slabs, struct cw_budget *budget, struct cw_error *err)
{
    const struct cw_program *g = &c->programs[0];
    struct cw_program part = *g;
    unsigned n = g->n_ops - cut->first, stage[] = {1, 1, n + 1};
    _cleanup_free_ struct cw_op **ops = calloc(n + 1, sizeof(struct cw_op *));
    if (!ops)
        return cw_error_nomem(err, 0, "a program");
    /* a program begins with its source, which does not run here */
    ops[0] = g->ops[0];
    memcpy(ops + 1, g->ops + cut->first, n * sizeof(struct cw_op *));
    part.ops = ops;
    part.n_ops = n + 1;
    part.stage = stage;
    *t = (struct cw_tail){.compiled = c, .cut = cut, .slabs = slabs};
    pthread_mutex_init(&t->mutex, NULL);
    int r = cw_layout_init(&t->layout, c, budget, err);
    return r < 0 ? r : cw_optimize(&part, 0, c->pipeline->n_ops, true, NULL, &t->optimized, err);
}

void cw_tail_deinit(struct cw_tail *t)
{
    if (!t->cut)
        return;
    while (t->spare) {
        struct tail_arena *a = CW_POP(t->spare);
        cw_arena_deinit(&a->arena);
        free(a);
    }
    cw_layout_deinit(&t->layout);
    cw_optimized_free(t->optimized);
    pthread_mutex_destroy(&t->mutex);
    *t = (struct cw_tail){0};
}

/* Returns an arena, which tail_put_arena takes back. NULL: out of memory. */
static struct tail_arena *tail_get_arena(struct cw_tail *t)
{
    struct tail_arena *a = NULL;
    CW_WITH (&t->mutex)
        a = t->spare ? CW_POP(t->spare) : NULL;
    if (!a && (a = malloc(sizeof(*a))))
        cw_arena_init(&a->arena, t->layout.budget);
    return a;
}

static void tail_put_arena(struct cw_tail *t, struct tail_arena *a)
{
    cw_arena_reset(&a->arena, ARENA_KEEP);
    CW_GUARD(&t->mutex);
    a->next = t->spare;
    t->spare = a;
}

/* ---- the block ---- */

/* One run on a batch. */
struct tail_run {
    struct cw_tail *t;
    const struct cw_batch *in;
    struct cw_assembly *out;
    struct cw_block block;
    uint64_t epoch;
};

/* Sets keys, ids and rows of the block. Its columns are empty. */
static int tail_prepare(struct tail_run *x, uint64_t seed, struct cw_error *err)
{
    const struct cw_compiled *c = x->t->compiled;
    const struct cw_program *g = &c->programs[0];
    struct cw_block *b = &x->block;
    size_t n = b->n;
    uint64_t *keys = cw_block_alloc(b, c->n_keys * sizeof(*keys), err),
             *eids = cw_block_alloc(b, n * sizeof(*eids), err),
             *rows = cw_block_alloc(b, n * sizeof(*rows), err);
    uint8_t **slots = cw_block_alloc(b, g->n_values * sizeof(*slots), err);
    b->status = cw_block_alloc(b, n, err);
    b->columns = cw_block_alloc(b, g->n_values * sizeof(*b->columns), err);
    if (!keys || !eids || !rows || !slots || !b->status || !b->columns)
        return err->status;
    for (unsigned i = 0; i < c->n_keys; i++)
        keys[i] = cw_epoch_draw_key(c, seed, x->epoch, i);
    for (size_t i = 0; i < n; i++) {
        eids[i] = cw_element_id(&c->programs[x->in->ids[i].leaf], &x->in->ids[i]);
        rows[i] = x->in->ids[i].row;
    }
    memset(b->status, CW_ROW_OK, n);
    memset(b->columns, 0, g->n_values * sizeof(*b->columns));
    memset(slots, 0, g->n_values * sizeof(*slots));
    for (unsigned k = 0; k < g->n_outputs; k++)
        if (x->t->layout.offset[k] != SIZE_MAX)
            slots[g->outputs[k].value] = x->out->slab->data + x->t->layout.offset[k];
    b->keys = keys;
    b->eids = eids;
    b->rows = rows;
    b->slots = slots;
    return 0;
}

/* Reads the value that serialize_tensor wrote. False: the bytes are no value of this type. */
static bool tail_parse_tensor(const struct cw_type *type, struct cw_tensor *t)
{
    const uint8_t *at = t->data;
    int64_t ndim;
    uint64_t size = cw_dtype_size(type->dtype), head;
    if (t->size < sizeof(ndim) || t->size % 8)
        return false;
    memcpy(&ndim, at, sizeof(ndim));
    if (ndim < 0 || ndim > CW_MAX_NDIM || (type->ndim >= 0 && ndim != type->ndim))
        return false;
    head = (1 + (uint64_t)ndim) * sizeof(ndim);
    if (t->size < head)
        return false;
    t->ndim = (int)ndim;
    memcpy(t->dims, at + sizeof(ndim), (size_t)ndim * sizeof(ndim));
    for (int d = 0; d < t->ndim; d++)
        if (t->dims[d] < 0 ||
            (type->ndim >= 0 && type->dims[d] != CW_VARIES && type->dims[d] != t->dims[d]) ||
            __builtin_mul_overflow(size, (uint64_t)t->dims[d], &size))
            return false;
    if (size > t->size - head || t->size - head - size >= 8)
        return false;
    t->data = (uint8_t *)t->data + head;
    t->size = size;
    return true;
}

/* Makes column `in` of component k of the batch, without a copy. */
static int tail_read(struct tail_run *x, unsigned k, struct cw_error *err)
{
    const struct cw_cut_input *in = &x->t->cut->inputs[k];
    const struct cw_batch_component *c = &x->in->components[k];
    struct cw_column *to = &x->block.columns[in->value];
    uint8_t *at = c->data;
    if (!c->lengths) {
        *to = (struct cw_column){
            .dense = true, .data = c->data, .stride = cw_type_bytes(&in->type), .type = &in->type};
        return 0;
    }
    int r = cw_block_ragged(&x->block, in->value, err);
    for (size_t i = 0; i < x->block.n && r >= 0; i++) {
        struct cw_tensor *t = &to->rows[i];
        *t = (struct cw_tensor){.data = at, .size = c->lengths[i]};
        at += c->lengths[i];
        if (in->serialized && !tail_parse_tensor(&in->type, t))
            r = cw_error_set(err, CW_E_SERVICE,
                             "a worker sent %zu bytes as a value of component \"%.80s\", which are none of "
                             "its type: use the same version of Cachew for workers and clients",
                             (size_t)c->lengths[i], c->name);
    }
    return r;
}

/* ---- rows that failed ---- */

/* Sets the error of a failed row. The client does not know the record's file. */
static void tail_fault_error(const struct tail_run *x, const struct cw_fault *f, struct cw_error *err)
{
    const struct cw_record_id *record = &x->in->ids[f->row];
    const char *own = f->detail && strlen(f->detail) > 2 ? f->detail + 1 : "}";
    char id[128], detail[CW_ERROR_DETAIL];
    cw_record_print(&x->t->compiled->programs[record->leaf], record, id);
    cw_error_op(err, f->op);
    cw_error_record(err, id);
    cw_error_set(err, CW_E_RECORD, "%s: %s", f->op, f->message);
    int n = snprintf(detail, sizeof(detail), "{\"epoch\":%" PRIu64 "%s%s", x->epoch, *own == '}' ? "" : ",",
                     own);
    cw_error_detail(err, n < (int)sizeof(detail) ? detail : NULL);
}

/* Lists the rows that failed, and notes. Without on_error "skip", the first failed row's error is raised. */
static int tail_take_faults(struct tail_run *x, struct cw_error *err)
{
    bool skip = x->t->compiled->pipeline->on_error == CW_ON_ERROR_SKIP;
    const struct cw_fault *first = NULL;
    for (const struct cw_fault *f = x->block.faults; f; f = f->next) {
        struct cw_quarantined *q;
        if (!f->note && !skip) {
            first = first && first->row < f->row ? first : f;
            continue;
        }
        if (!(q = calloc(1, sizeof(*q))))
            return cw_error_nomem(err, sizeof(*q), "a skipped record");
        *q = (struct cw_quarantined){
            .next = x->out->quarantined, .id = x->in->ids[f->row], .op = f->op, .note = f->note};
        memcpy(q->message, f->message, sizeof(q->message));
        x->out->quarantined = q;
    }
    if (first)
        tail_fault_error(x, first, err);
    return first ? err->status : 0;
}

/* ---- the new batch ---- */

static size_t tail_staged_bytes(const struct tail_run *x)
{
    const struct cw_program *g = &x->t->compiled->programs[0];
    size_t bytes = 0;
    for (unsigned k = 0; k < x->t->layout.n; k++)
        for (size_t i = 0; i < x->block.n && x->t->layout.offset[k] == SIZE_MAX; i++)
            if (x->block.status[i] == CW_ROW_OK) {
                struct cw_tensor value = cw_block_row(&x->block, g->outputs[k].value, i);
                bytes += cw_staged_bytes(&value);
            }
    return bytes;
}

/* Puts output k of all rows into the new batch. *at: memory for staged values. */
static void tail_put(struct tail_run *x, unsigned k, uint8_t **at)
{
    const struct cw_layout *l = &x->t->layout;
    const struct cw_block *b = &x->block;
    unsigned value = x->t->compiled->programs[0].outputs[k].value;
    const struct cw_column *column = &b->columns[value];
    if (l->offset[k] != SIZE_MAX && column->dense && b->all_ok) {
        uint8_t *to = x->out->slab->data + l->offset[k];
        if (to != column->data && b->n)
            memcpy(to, column->data, b->n * l->row_bytes[k]);
        return;
    }
    for (size_t i = 0; i < b->n; i++)
        if (b->status[i] == CW_ROW_OK) {
            struct cw_tensor row = cw_block_row(b, value, i);
            cw_assembly_put(x->out, k, i, &row, at);
        }
}

static int tail_emit(struct tail_run *x, struct cw_error *err)
{
    struct cw_assembly *a = x->out;
    uint8_t *at = NULL;
    int r = tail_take_faults(x, err);
    if (r >= 0)
        r = cw_assembly_add_chunk(a, tail_staged_bytes(x), &at, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < x->block.n; i++) {
        a->present[i] = x->block.status[i] == CW_ROW_OK;
        a->ids[i] = x->in->ids[i];
    }
    for (unsigned k = 0; k < a->layout->n; k++)
        tail_put(x, k, &at);
    a->n_assigned = a->n_done = x->block.n;
    a->closed = true;
    return cw_assembly_finish(a, x->t->slabs, err);
}

static int tail_run_ops(struct tail_run *x, struct cw_op_profile *ops, struct cw_error *err)
{
    const struct cw_optimized *o = x->t->optimized;
    struct cw_counts counts = {.compiled = x->t->compiled, .ops = ops};
    int r = 0;
    for (unsigned i = 1; i < o->n_ops && r >= 0; i++) {
        const struct cw_op *op = o->ops[i];
        if (!op->desc->run || !op->live)
            continue;
        struct cw_turn turn = cw_turn_begin(&counts, &x->block);
        r = op->desc->run(op, &x->block, err);
        cw_turn_end(&counts, 0, false, op, &x->block, &turn);
        if (r < 0)
            cw_error_op(err, op->desc->name);
    }
    return r;
}

int cw_tail_run(struct cw_tail *t, const struct cw_batch *in, uint64_t seed, uint64_t epoch,
                int (*stopped)(void *arg), void *arg, struct cw_op_profile *ops, struct cw_assembly **ret,
                struct cw_error *err)
{
    if (in->n > t->layout.capacity)
        return cw_error_set(err, CW_E_SERVICE,
                            "a worker sent a batch of %u elements: expected at most %llu: use the same "
                            "version of Cachew for workers and clients",
                            in->n, (unsigned long long)t->layout.capacity);
    struct tail_arena *arena = tail_get_arena(t);
    struct tail_run x = {.t = t,
                         .in = in,
                         .epoch = epoch,
                         .block = {.n = in->n,
                                   .n_values = t->compiled->programs[0].n_values,
                                   .all_ok = true,
                                   .arena = arena ? &arena->arena : NULL,
                                   .cancelled = stopped,
                                   .cancel_arg = arg}};
    if (!arena)
        return cw_error_nomem(err, sizeof(*arena), "operators of the client");
    int r = cw_assembly_new(&t->layout, t->slabs, CW_MAX(in->n, 1U), 0, &x.out, err);
    if (r >= 0)
        r = tail_prepare(&x, seed, err);
    for (unsigned k = 0; k < in->n_components && r >= 0; k++)
        r = tail_read(&x, k, err);
    if (r >= 0)
        r = tail_run_ops(&x, ops, err);
    if (r >= 0)
        r = tail_emit(&x, err);
    tail_put_arena(t, arena);
    *ret = r < 0 ? cw_assembly_free(x.out) : x.out;
    return r;
}
