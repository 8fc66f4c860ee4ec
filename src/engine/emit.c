/* The last stage of a block: its rows go into batches. No lock is held here. */
#include <string.h>

#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/thread.h"

/* Elements that wait for later batches may fill this much of the budget. The rest is for the first batch: a
 * block of it can then run alone, and the batch can be finished. Waiting elements can't be made to give way,
 * for their range may have delivered batches already. */
#define STAGED_SHARE(memory) ((memory) / 4 * 3)

/* Rows of a column by index, as a column of its own. */
static int gather(struct cw_arena *arena, const struct cw_column *from, const uint32_t *idx, size_t n,
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

/* The rows of a segment as a block, for the operators after the slots are known. */
static int segment_block(struct cw_runner *r, struct block *b, const struct segment *s, struct cw_block *ret,
                         struct cw_error *err)
{
    const uint32_t *idx = b->idx + s->first;
    *ret = b->b;
    ret->n = s->n;
    ret->faults = NULL;
    ret->status = cw_arena_alloc(&b->arena, s->n, err);
    ret->columns = cw_arena_alloc(&b->arena, b->program->n_values * sizeof(*ret->columns), err);
    uint64_t *eids = b->b.eids ? cw_arena_alloc(&b->arena, s->n * sizeof(*eids), err) : NULL;
    uint64_t *rows = cw_arena_alloc(&b->arena, s->n * sizeof(*rows), err);
    if (!ret->status || !ret->columns || (b->b.eids && !eids) || !rows)
        return err->status;
    ret->all_ok = true;
    for (size_t i = 0; i < s->n; i++) {
        ret->status[i] = b->b.status[idx[i]];
        ret->all_ok &= ret->status[i] == CW_ROW_OK;
        rows[i] = b->b.rows[idx[i]];
        if (eids)
            eids[i] = b->b.eids[idx[i]];
    }
    ret->eids = eids;
    ret->rows = rows;
    for (unsigned v = 0; v < b->program->n_values; v++) {
        int status = gather(&b->arena, &b->b.columns[v], idx, s->n, &ret->columns[v], err);
        if (status < 0)
            return status;
    }
    return cw_block_set_slots(r, b, ret, s, err);
}

/* Whether rows of a segment failed or were replaced. */
static bool idx_needs_care(const struct cw_block *c, const struct segment *s, const uint32_t *idx,
                           bool gathered)
{
    uint8_t all = 0;
    for (size_t i = 0; i < s->n; i++)
        all |= c->status[idx && !gathered ? idx[i] : i];
    return all != CW_ROW_OK;
}

/* Record ids of a segment's rows, into the batch. */
static int put_ids(struct cw_runner *r, struct block *b, const struct segment *s, const uint32_t *idx,
                   struct cw_error *err)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    const struct cw_ref *refs = b->piece->refs + b->at;
    const uint32_t *origin = b->origin, *element = b->element;
    const uint16_t leaf = (uint16_t)b->program->leaf;
    struct cw_record_id *ids = s->assembly->ids + s->slot0;
    struct cw_arena_mark mark = cw_arena_mark(&b->arena);
    const uint64_t *rows = b->b.rows;
    if (idx) {
        uint64_t *picked = cw_arena_alloc(&b->arena, s->n * sizeof(*picked), err);
        if (!picked)
            return err->status;
        for (size_t i = 0; i < s->n; i++)
            picked[i] = rows[idx[i]];
        rows = picked;
    }
    source->ops->ids(source, rows, s->n, ids);
    for (size_t i = 0; i < s->n; i++) {
        size_t row = idx ? idx[i] : i;
        ids[i].pass = refs[origin ? origin[row] : row].pass;
        ids[i].element = element ? element[row] : 0;
        ids[i].leaf = leaf;
        ids[i].flags = 0;
    }
    cw_arena_release(&b->arena, mark);
    return 0;
}

/* Memory for the staged values of a segment. A second attempt (memory was short in a later segment) gets that
 * of the first if it is enough: a function of the user's may give other values now. */
static int stage_bytes(struct cw_runner *r, struct segment *s, size_t bytes, uint8_t **ret,
                       struct cw_error *err)
{
    struct cw_assembly *a = s->assembly;
    if (bytes > s->staged_bytes) {
        struct cw_staged_chunk *chunk;
        bool alone = CW_LOCKED(&r->mutex, (r->alone || r->frugal) && !(r->ranges && r->ranges->rows &&
                                                                       cw_rows_may_be_taken(r, r->ranges)));
        if (!alone && atomic_load(&r->budget.used) + bytes > STAGED_SHARE(r->budget.limit))
            return cw_error_set(
                err, CW_E_BUDGET,
                "%zu bytes more of elements that wait for their batch leave too little for the first of them",
                bytes);
        int status = cw_staged_chunk_new(&r->budget, bytes, &chunk, &s->staged, err);
        if (status < 0)
            return status;
        s->staged_bytes = bytes;
        CW_WITH (&r->mutex) {
            chunk->next = a->chunks;
            a->chunks = chunk;
        }
    }
    *ret = s->staged;
    return 0;
}

/* Rows of a segment. Row i of it is row idx[i] of the block (idx NULL: i), and that of c too unless c was
 * gathered for the segment: then it is row i of c. */
struct rows {
    const struct block *b;
    const struct cw_block *c;
    const struct segment *s;
    const uint32_t *idx;
    bool gathered;
};

static size_t row_of_block(const struct rows *rows, size_t i)
{
    return rows->idx ? rows->idx[i] : i;
}

static size_t row_of_columns(const struct rows *rows, size_t i)
{
    return rows->gathered ? i : row_of_block(rows, i);
}

/* Output k of row i: the row's own, or that of the record it was replaced by. */
static struct cw_tensor row_value(const struct rows *rows, unsigned k, size_t i)
{
    size_t own = row_of_columns(rows, i);
    if (rows->c->status[own] == CW_ROW_REPLACED)
        return rows->b->replaced[row_of_block(rows, i)].values[k];
    return cw_block_row(rows->c, rows->b->program->outputs[k].value, own);
}

/* Rows that were skipped are not there, rows that were replaced are others. */
static void mark_present(const struct rows *rows)
{
    struct cw_assembly *a = rows->s->assembly;
    for (size_t i = 0; i < rows->s->n; i++) {
        uint8_t status = rows->c->status[row_of_columns(rows, i)];
        a->present[rows->s->slot0 + i] = status == CW_ROW_OK || status == CW_ROW_REPLACED;
        if (status == CW_ROW_REPLACED)
            a->ids[rows->s->slot0 + i] = rows->b->replaced[row_of_block(rows, i)].id;
    }
}

static size_t staged_size(const struct rows *rows, const struct cw_layout *l)
{
    size_t bytes = 0;
    for (unsigned k = 0; k < l->n; k++)
        for (size_t i = 0; i < rows->s->n && l->offset[k] == SIZE_MAX; i++)
            if (rows->s->assembly->present[rows->s->slot0 + i]) {
                struct cw_tensor value = row_value(rows, k, i);
                bytes += cw_staged_bytes(&value);
            }
    return bytes;
}

/* A column of fixed type, all rows of which are there. */
static void put_dense(const struct rows *rows, const struct cw_column *column, uint8_t *to, size_t bytes)
{
    const uint32_t *idx = rows->idx;
    size_t n = rows->s->n;
    if (column->data == to)
        return; /* the operator wrote it there */
    if (rows->gathered || !idx)
        memcpy(to, column->data, n * bytes);
    else if (bytes == 8)
        for (size_t i = 0; i < n; i++)
            memcpy(to + 8 * i, column->data + 8 * (size_t)idx[i], 8);
    else
        for (size_t i = 0; i < n; i++)
            memcpy(to + i * bytes, column->data + idx[i] * bytes, bytes);
}

/* Writes the rows of a segment into their slots. */
static int put_rows(struct cw_runner *r, struct thread *t, struct block *b, const struct cw_block *c,
                    struct segment *s, const uint32_t *idx, bool gathered, struct cw_error *err)
{
    const struct cw_layout *l = &r->layout;
    const struct rows rows = {.b = b, .c = c, .s = s, .idx = idx, .gathered = gathered};
    struct cw_assembly *a = s->assembly;
    uint8_t *at = NULL;
    bool plain_rows = c->all_ok || !idx_needs_care(c, s, idx, gathered);
    int status = put_ids(r, b, s, idx, err);
    if (status < 0)
        return status;
    t->emit_rows += s->n;
    memset(a->present + s->slot0, 1, s->n);
    if (!plain_rows)
        mark_present(&rows);
    if (l->n_staged && (status = stage_bytes(r, s, staged_size(&rows, l), &at, err)) < 0)
        return status;
    for (unsigned k = 0; k < l->n; k++) {
        const struct cw_column *column = &c->columns[b->program->outputs[k].value];
        if (l->offset[k] != SIZE_MAX && column->dense && plain_rows) {
            put_dense(&rows, column, a->slab->data + l->offset[k] + s->slot0 * l->row_bytes[k],
                      l->row_bytes[k]);
            continue;
        }
        for (size_t i = 0; i < s->n; i++)
            if (a->present[s->slot0 + i]) {
                struct cw_tensor value = row_value(&rows, k, i);
                cw_assembly_put(a, k, s->slot0 + i, &value, &at);
            }
    }
    return 0;
}

int cw_block_emit(struct cw_runner *r, struct thread *t, struct block *b, struct cw_error *err)
{
    unsigned from, to;
    int status = b->b.status ? 0 : cw_block_start(r, t, b, err);
    if (status < 0)
        return status;
    cw_block_stage_range(b, r->n_points, &from, &to);
    if (b->kept)
        cw_block_keep_dropped(r, b);
    /* every row lives and goes to one batch */
    bool direct = b->n_segments == 1 && b->segments[0].n == b->b.n;
    if (direct) {
        if (!b->b.slots)
            status = cw_block_set_slots(r, b, &b->b, &b->segments[0], err);
        if (status >= 0)
            status = cw_block_run_ops(r, t, b, &b->b, NULL, from, to, err);
        uint64_t begin = cw_cost_now_ns();
        if (status >= 0)
            status = put_rows(r, t, b, &b->b, &b->segments[0], NULL, false, err);
        t->emit_ns += cw_cost_now_ns() - begin;
        return status;
    }
    for (unsigned i = 0; i < b->n_segments && status >= 0; i++) {
        struct segment *s = &b->segments[i];
        uint64_t begin = cw_cost_now_ns();
        if (from == to) {
            status = put_rows(r, t, b, &b->b, s, b->idx + s->first, false, err);
            t->emit_ns += cw_cost_now_ns() - begin;
            continue;
        }
        struct cw_block c;
        status = segment_block(r, b, s, &c, err);
        t->emit_ns += cw_cost_now_ns() - begin;
        if (status >= 0)
            status = cw_block_run_ops(r, t, b, &c, b->idx + s->first, from, to, err);
        begin = cw_cost_now_ns();
        if (status >= 0)
            status = put_rows(r, t, b, &c, s, b->idx + s->first, true, err);
        t->emit_ns += cw_cost_now_ns() - begin;
    }
    return status;
}
