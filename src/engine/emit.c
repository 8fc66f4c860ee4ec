/* The last stage of a block: writes its rows into batches. */
#include "engine/emit.h"

#include <string.h>

#include "base/cost_clock.h"
#include "base/thread.h"
#include "engine/internal.h"

/* Staged elements, which wait for their batches, may fill this part of the budget. The rest is for the first
 * batch: a block of it can then run alone, and the batch can be finished. Staged elements can't be dropped,
 * because their range may have delivered batches already. */
#define STAGED_SHARE(memory) ((memory) / 4 * 3)

/* Returns whether rows of a segment failed or were replaced. */
static bool emit_needs_care(const struct cw_block *c, const struct segment *s, const uint32_t *idx,
                            bool gathered)
{
    uint8_t all = 0;
    for (size_t i = 0; i < s->n; i++)
        all |= c->status[idx && !gathered ? idx[i] : i];
    return all != CW_ROW_OK;
}

/* Returns the planned record of row i of a segment, which is row idx[i] of the block (idx NULL: row i). */
static const struct cw_ref *emit_ref(const struct block *b, const uint32_t *idx, size_t i)
{
    return cw_exec_ref(&b->exec, idx ? idx[i] : i);
}

/* Writes the record ids of a segment's rows into the batch. */
static int emit_ids(struct cw_runner *r, struct block *b, const struct segment *s, const uint32_t *idx,
                    struct cw_error *err)
{
    const uint32_t *element = b->exec.element;
    struct cw_record_id *ids = s->assembly->ids + s->slot0;
    struct cw_arena_mark mark = cw_arena_mark(&b->exec.arena);
    const uint64_t *rows = b->exec.block.rows;
    if (idx) {
        uint64_t *picked = cw_arena_alloc(&b->exec.arena, s->n * sizeof(*picked), err);
        if (!picked)
            return err->status;
        for (size_t i = 0; i < s->n; i++)
            picked[i] = rows[idx[i]];
        rows = picked;
    }
    for (size_t begin = 0, end; begin < s->n; begin = end) {
        unsigned leaf = emit_ref(b, idx, begin)->leaf;
        const struct cw_source *source = r->sequence->sources[leaf];
        for (end = begin + 1; end < s->n && emit_ref(b, idx, end)->leaf == leaf;)
            end++;
        source->ops->ids(source, rows + begin, end - begin, ids + begin);
    }
    for (size_t i = 0; i < s->n; i++) {
        const struct cw_ref *ref = emit_ref(b, idx, i);
        ids[i].pass = ref->pass;
        ids[i].element = element ? element[idx ? idx[i] : i] : 0;
        ids[i].leaf = (uint16_t)ref->leaf;
        ids[i].flags = 0;
    }
    cw_arena_release(&b->exec.arena, mark);
    return 0;
}

/* Gets memory for the staged values of a segment. A second attempt (memory was short in a later segment)
 * reuses the memory of the first if it is large enough: a user's function may give other values now. */
static int emit_stage(struct cw_runner *r, struct segment *s, size_t bytes, uint8_t **ret,
                      struct cw_error *err)
{
    struct cw_assembly *a = s->assembly;
    if (bytes > s->staged_bytes) {
        struct cw_staged_chunk *chunk;
        bool alone = CW_LOCKED(&r->sched.mutex,
                               (r->memory.starved == STARVED_ALONE || r->memory.low_rows) &&
                                   !(r->ranges && r->ranges->rows && cw_range_rows_ready(r, r->ranges)));
        if (!alone && atomic_load(&r->memory.budget.used) + bytes > STAGED_SHARE(r->memory.budget.limit))
            return cw_error_set(err, CW_E_BUDGET,
                                "another %zu bytes for elements of later batches would leave too little "
                                "memory to finish the first batch",
                                bytes);
        int status = cw_staged_chunk_new(&r->memory.budget, bytes, &chunk, &s->staged, err);
        if (status < 0)
            return status;
        s->staged_bytes = bytes;
        CW_WITH (&r->sched.mutex) {
            chunk->next = a->chunks;
            a->chunks = chunk;
        }
    }
    *ret = s->staged;
    return 0;
}

/* Rows of a segment. Row i is row idx[i] of the block (idx NULL: row i). It is the same row of c; or, if c
 * was gathered for the segment, row i of c. */
struct emit_rows {
    const struct block *b;
    const struct cw_block *c;
    const struct segment *s;
    const uint32_t *idx;
    bool gathered;
};

static size_t emit_block_row(const struct emit_rows *rows, size_t i)
{
    return rows->idx ? rows->idx[i] : i;
}

static size_t emit_column_row(const struct emit_rows *rows, size_t i)
{
    return rows->gathered ? i : emit_block_row(rows, i);
}

/* Returns output k of row i: the row's own value, or that of the record that replaces it. */
static struct cw_tensor emit_value(const struct emit_rows *rows, unsigned k, size_t i)
{
    size_t own = emit_column_row(rows, i);
    if (rows->c->status[own] == CW_ROW_REPLACED)
        return rows->b->exec.replaced[emit_block_row(rows, i)].values[k];
    return cw_block_row(rows->c, rows->b->exec.program->outputs[k].value, own);
}

/* Marks rows as present, except those that were skipped, and sets the ids of replaced rows. */
static void emit_mark_present(const struct emit_rows *rows)
{
    struct cw_assembly *a = rows->s->assembly;
    for (size_t i = 0; i < rows->s->n; i++) {
        uint8_t status = rows->c->status[emit_column_row(rows, i)];
        a->present[rows->s->slot0 + i] = status == CW_ROW_OK || status == CW_ROW_REPLACED;
        if (status == CW_ROW_REPLACED)
            a->ids[rows->s->slot0 + i] = rows->b->exec.replaced[emit_block_row(rows, i)].id;
    }
}

static size_t emit_staged_size(const struct emit_rows *rows, const struct cw_layout *l)
{
    size_t bytes = 0;
    for (unsigned k = 0; k < l->n; k++)
        for (size_t i = 0; i < rows->s->n && l->offset[k] == SIZE_MAX; i++)
            if (rows->s->assembly->present[rows->s->slot0 + i]) {
                struct cw_tensor value = emit_value(rows, k, i);
                bytes += cw_staged_bytes(&value);
            }
    return bytes;
}

/* Copies a column of fixed size whose rows are all present. */
static void emit_dense(const struct emit_rows *rows, const struct cw_column *column, uint8_t *to,
                       size_t bytes)
{
    const uint32_t *idx = rows->idx;
    size_t n = rows->s->n;
    if (column->data == to)
        return; /* the operator wrote its output there already */
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
static int emit_put_rows(struct cw_runner *r, struct compute_thread *t, struct block *b,
                         const struct cw_block *c, struct segment *s, const uint32_t *idx, bool gathered,
                         struct cw_error *err)
{
    const struct cw_layout *l = &r->layout;
    const struct emit_rows rows = {.b = b, .c = c, .s = s, .idx = idx, .gathered = gathered};
    struct cw_assembly *a = s->assembly;
    uint8_t *at = NULL;
    bool plain_rows = c->all_ok || !emit_needs_care(c, s, idx, gathered);
    int status = emit_ids(r, b, s, idx, err);
    if (status < 0)
        return status;
    t->counts.emit_rows += s->n;
    memset(a->present + s->slot0, 1, s->n);
    if (!plain_rows)
        emit_mark_present(&rows);
    if (l->n_staged && (status = emit_stage(r, s, emit_staged_size(&rows, l), &at, err)) < 0)
        return status;
    for (unsigned k = 0; k < l->n; k++) {
        const struct cw_column *column = &c->columns[b->exec.program->outputs[k].value];
        if (l->offset[k] != SIZE_MAX && column->dense && plain_rows) {
            emit_dense(&rows, column, a->slab->data + l->offset[k] + s->slot0 * l->row_bytes[k],
                       l->row_bytes[k]);
            continue;
        }
        for (size_t i = 0; i < s->n; i++)
            if (a->present[s->slot0 + i]) {
                struct cw_tensor value = emit_value(&rows, k, i);
                cw_assembly_put(a, k, s->slot0 + i, &value, &at);
            }
    }
    return 0;
}

/* Emits a segment. b->exec has exactly its rows, or `idx` says which rows are the segment's. */
static int emit_segment(struct cw_runner *r, struct compute_thread *t, struct block *b, struct segment *s,
                        const uint32_t *idx, struct cw_error *err)
{
    struct cw_exec *x = &b->exec;
    const struct cw_exec_dest dest = cw_assembly_dest(s->assembly, s->slot0);
    struct cw_block some, *c = &x->block;
    bool gathered = idx && !cw_exec_stage_is_empty(x, r->env.n_points);
    int status = 0;
    uint64_t begin = cw_cost_now_ns();
    if (gathered) {
        c = &some;
        status = cw_exec_gather(x, idx, s->n, c, err);
    }
    if (status >= 0 && (gathered || (!idx && !c->slots)))
        status = cw_exec_set_slots(x, c, &dest, err);
    t->counts.emit_ns += cw_cost_now_ns() - begin;
    if (status >= 0 && (gathered || !idx))
        status = cw_exec_run_stage(x, &t->counts, c, idx, r->env.n_points, err);
    begin = cw_cost_now_ns();
    if (status >= 0)
        status = emit_put_rows(r, t, b, c, s, idx, gathered, err);
    t->counts.emit_ns += cw_cost_now_ns() - begin;
    return status;
}

int cw_emit_block(struct cw_runner *r, struct compute_thread *t, struct block *b, struct cw_error *err)
{
    struct cw_exec *x = &b->exec;
    int status = x->block.status ? 0 : cw_exec_start(x, &t->counts, err);
    if (status < 0)
        return status;
    if (x->variant->cached)
        cw_cached_keep_dropped(x);
    /* no row was dropped, and all go to one batch */
    if (b->n_segments == 1 && b->segments[0].n == x->block.n)
        return emit_segment(r, t, b, &b->segments[0], NULL, err);
    for (unsigned i = 0; i < b->n_segments && status >= 0; i++)
        status = emit_segment(r, t, b, &b->segments[i], b->idx + b->segments[i].first, err);
    return status;
}
