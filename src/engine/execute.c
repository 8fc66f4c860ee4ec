/* Runs a block: reads its bytes, runs its operators stage by stage, writes its rows into batches. No lock is held here. */
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

#include "base/clock.h"
#include "base/philox.h"
#include "storage/file.h"

#define REPLACE_ATTEMPTS 64

static int cancelled(void *arg)
{
    struct cw_runner *r = arg;
    return atomic_load_explicit(&r->cancelled, memory_order_relaxed);
}

/* ---- bytes ---- */

struct reader { /* one read of neighbouring records */
    struct cw_extent extent;
    size_t first, n;
};

int cw_block_read(struct cw_runner *r, struct thread *t, struct block *b, bool nowait, struct cw_error *err)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    uint64_t start = cw_now_ns();
    size_t n = b->b.n, total = 0;
    if (b->have_raw)
        return 0;
    if (source->ops->load) {
        b->b.raw = b->piece->raw + b->at;
        b->have_raw = true;
        return 0;
    }
    if (!source->ops->locate) {
        b->have_raw = true;
        return 0;
    }
    struct cw_tensor *raw = cw_arena_alloc(&b->arena, n * sizeof(*raw), err);
    struct reader *reads = cw_arena_alloc(&b->arena, n * sizeof(*reads), err);
    if (!raw || !reads)
        return err->status;
    size_t n_reads = 0;
    for (size_t i = 0; i < n; i++) {
        struct cw_extent e;
        int status = source->ops->locate(source, b->piece->refs[b->at + i].row, &e, err);
        if (status < 0)
            return status;
        struct reader *last = n_reads ? &reads[n_reads - 1] : NULL;
        if (last && last->extent.file == e.file && last->extent.offset + last->extent.length == e.offset) {
            last->extent.length += e.length;
            last->n++;
        } else {
            reads[n_reads++] = (struct reader){.extent = e, .first = i, .n = 1};
        }
        raw[i] = (struct cw_tensor){.size = e.length};
        total += e.length;
    }
    for (size_t k = 0; k < n_reads; k++) {
        uint8_t *data = cw_arena_alloc(&b->arena, reads[k].extent.length, err);
        if (!data)
            return err->status;
        int status = cw_file_read(reads[k].extent.file, reads[k].extent.offset, data, reads[k].extent.length, nowait, err);
        if (status != 0) {
            if (status > 0)
                cw_arena_reset(&b->arena, 0);
            return status;
        }
        for (size_t i = reads[k].first; i < reads[k].first + reads[k].n; i++) {
            raw[i].data = data;
            data += raw[i].size;
        }
    }
    b->b.raw = raw;
    b->have_raw = true;
    t->read_bytes += total;
    t->read_ns += cw_now_ns() - start;
    return 0;
}

/* ---- operators ---- */

void cw_row_id(const struct cw_runner *r, const struct block *b, size_t row, struct cw_record_id *ret)
{
    const struct cw_ref *ref = &b->piece->refs[b->at + row];
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    source->ops->ids(source, &ref->row, 1, ret);
    ret->pass = ref->pass;
    ret->leaf = (uint16_t)b->program->leaf;
    ret->flags = 0;
}

/* Everything of a block that is the same for all its operators. */
static int block_prepare(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    const struct cw_program *g = b->program;
    struct cw_block *c = &b->b;
    const struct cw_ref *refs = b->piece->refs + b->at;
    size_t n = c->n;

    c->arena = &b->arena;
    c->keys = b->split->epoch->epoch.keys;
    c->cancelled = cancelled;
    c->cancel_arg = r;
    c->all_ok = true;
    c->status = cw_arena_alloc(&b->arena, n, err);
    c->columns = cw_arena_alloc(&b->arena, g->n_values * sizeof(*c->columns), err);
    uint64_t *rows = cw_arena_alloc(&b->arena, n * sizeof(*rows), err);
    if (!c->status || !c->columns || !rows)
        return err->status;
    memset(c->status, 0, n);
    memset(c->columns, 0, g->n_values * sizeof(*c->columns));
    for (size_t i = 0; i < n; i++)
        rows[i] = refs[i].row;
    c->rows = rows;
    if (r->needs_eids) {
        uint64_t *eids = cw_arena_alloc(&b->arena, n * sizeof(*eids), err);
        struct cw_record_id id;
        if (!eids)
            return err->status;
        for (size_t i = 0; i < n; i++) {
            cw_row_id(r, b, i, &id);
            eids[i] = cw_element_id(g, &id);
        }
        c->eids = eids;
    }
    return 0;
}

/* In a block whose slots are known, operators write outputs of fixed type straight into the batch. */
static int set_slots(struct cw_runner *r, struct block *b, struct cw_block *c, const struct segment *s, struct cw_error *err)
{
    const struct cw_program *g = b->program;
    if (!r->layout.slab_bytes)
        return 0;
    uint8_t **slots = cw_arena_alloc(&b->arena, g->n_values * sizeof(*slots), err);
    if (!slots)
        return err->status;
    memset(slots, 0, g->n_values * sizeof(*slots));
    for (unsigned k = 0; k < g->n_outputs; k++)
        if (r->layout.offset[k] != SIZE_MAX)
            slots[g->outputs[k].value] = s->assembly->slab->data + r->layout.offset[k] + s->slot0 * r->layout.row_bytes[k];
    c->slots = slots;
    return 0;
}

static int run_op(struct thread *t, const struct cw_op *op, struct cw_block *c, bool plain, struct cw_error *err)
{
    struct cw_op_profile *profile = &t->ops[op->index];
    uint64_t start = cw_now_ns();
    int status = op->desc->run(op, c, err);
    uint64_t ns = cw_now_ns() - start;
    profile->ns += ns;
    profile->calls++;
    profile->rows += c->n;
    if (plain)
        profile->sampled_ns += ns;
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, op->desc->name);
    return status;
}

static int replace_row(struct cw_runner *r, struct thread *t, struct block *b, struct cw_block *c, size_t row, size_t own, struct cw_error *err);

/* What a row's failure means is decided where it happens. Row i of c is row map[i] of b (map NULL: i). */
static int settle_faults(struct cw_runner *r, struct thread *t, struct block *b, struct cw_block *c, const uint32_t *map, struct cw_error *err)
{
    enum cw_on_error on_error = r->compiled->pipeline->on_error;
    while (c->faults) {
        struct cw_fault *from = c->faults;
        struct fault *f = calloc(1, sizeof(*f));
        if (!f)
            return cw_error_nomem(err, sizeof(*f), "an error");
        c->faults = from->next;
        *f = (struct fault){.next = b->faults, .row = map ? map[from->row] : from->row, .op = from->op};
        snprintf(f->message, sizeof(f->message), "%s", from->message);
        b->faults = f;
        if (on_error == CW_ON_ERROR_REPLACE) {
            int status = replace_row(r, t, b, c, from->row, f->row, err);
            if (status < 0)
                return status;
            f->replaced = status == 0;
            if (f->replaced)
                c->status[from->row] = CW_ROW_REPLACED;
        }
    }
    return 0;
}

/* Runs ops[from .. to) on c, rows of block b. */
static int run_ops(struct cw_runner *r, struct thread *t, struct block *b, struct cw_block *c, const uint32_t *map, unsigned from, unsigned to,
                   struct cw_error *err)
{
    const struct cw_optimized *o = r->optimized[b->program->leaf];
    struct cw_op *const *ops = b->plain ? b->program->ops : o->ops;
    for (unsigned i = from; i < to; i++) {
        const struct cw_op *op = ops[i];
        int status = 0;
        if (op->desc->run && op->live)
            status = run_op(t, op, c, b->plain, err);
        if (status >= 0 && c->faults)
            status = settle_faults(r, t, b, c, map, err);
        if (status < 0)
            return status;
        /* A filter, or bucket_by_length, can't decide about elements that failed: they are gone. Where errors are raised they stay, to be found. */
        if ((op->desc->kind == CW_OP_FILTER || op->desc->kind == CW_OP_BATCHER) && !c->all_ok &&
            r->compiled->pipeline->on_error == CW_ON_ERROR_SKIP)
            for (size_t k = 0; k < c->n; k++)
                if (c->status[k] == CW_ROW_FAILED)
                    c->status[k] = CW_ROW_DROPPED;
    }
    return 0;
}

static void stage_range(const struct cw_runner *r, const struct block *b, unsigned stage, unsigned *from, unsigned *to)
{
    const unsigned *at = b->plain ? b->program->stage : r->optimized[b->program->leaf]->stage;
    *from = at[stage];
    *to = at[stage + 1];
}

static int start(struct cw_runner *r, struct thread *t, struct block *b, struct cw_error *err)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    const struct cw_op *op = b->program->ops[0];
    int status = block_prepare(r, b, err);
    if (status >= 0 && r->compiled->counted)
        status = set_slots(r, b, &b->b, &b->segments[0], err);
    if (status < 0)
        return status;
    uint64_t begin = cw_now_ns();
    status = source->ops->produce(source, op, &b->b, err);
    t->ops[op->index].ns += cw_now_ns() - begin;
    t->ops[op->index].sampled_ns += b->plain ? cw_now_ns() - begin : 0;
    t->ops[op->index].calls++;
    t->ops[op->index].rows += b->b.n;
    if (status >= 0 && b->b.faults)
        status = settle_faults(r, t, b, &b->b, NULL, err);
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, op->desc->name);
    return status;
}

/* Before slots are given out: which rows get one. */
static int find_live(struct block *b, struct cw_error *err)
{
    b->idx = malloc(b->b.n * sizeof(*b->idx));
    if (!b->idx)
        return cw_error_nomem(err, b->b.n * sizeof(*b->idx), "slots");
    size_t n = 0;
    b->has_failed = false;
    for (size_t i = 0; i < b->b.n; i++) {
        b->idx[n] = (uint32_t)i;
        n += b->b.status[i] != CW_ROW_DROPPED;
        b->has_failed |= b->b.status[i] == CW_ROW_FAILED;
    }
    b->n_live = n;
    return 0;
}

int cw_block_stage(struct cw_runner *r, struct thread *t, struct block *b, struct cw_error *err)
{
    unsigned from, to;
    int status = b->b.status ? 0 : start(r, t, b, err);
    if (status < 0)
        return status;
    stage_range(r, b, b->point, &from, &to);
    status = run_ops(r, t, b, &b->b, NULL, from, to, err);
    return status >= 0 && b->point + 1 == r->n_points && !b->idx ? find_live(b, err) : status;
}

/* ---- replacement ---- */

/* Runs one record through all operators. 0: ret is filled (memory of the block's arena); 1: it failed or was dropped. */
static int run_single(struct cw_runner *r, struct thread *t, struct block *b, uint64_t position, struct replaced *ret, struct cw_error *err)
{
    struct piece *p = b->piece;
    const struct cw_program *g = &r->compiled->programs[p->refs[position].leaf];
    struct block one = {.split = b->split, .piece = p, .program = g, .at = position, .b.n = 1, .arena = b->arena, .plain = false};
    const struct cw_source *source = r->sequence->sources[g->leaf];
    const struct cw_optimized *o = r->optimized[g->leaf];
    int status = cw_block_read(r, t, &one, false, err);
    if (status >= 0)
        status = block_prepare(r, &one, err);
    if (status >= 0)
        status = source->ops->produce(source, g->ops[0], &one.b, err);
    for (unsigned i = 1; i < o->n_ops && status >= 0 && one.b.status[0] == CW_ROW_OK; i++)
        if (o->ops[i]->desc->run && o->ops[i]->live)
            status = run_op(t, o->ops[i], &one.b, false, err);
    if (status >= 0 && one.b.status[0] != CW_ROW_OK)
        status = 1;
    if (status == 0) {
        ret->values = cw_arena_alloc(&one.arena, g->n_outputs * sizeof(*ret->values), err);
        if (ret->values) {
            for (unsigned k = 0; k < g->n_outputs; k++)
                ret->values[k] = cw_block_row(&one.b, g->outputs[k].value, 0);
            cw_row_id(r, &one, 0, &ret->id);
            ret->id.flags |= CW_RECORD_REPLACEMENT;
            if (r->compiled->batcher == CW_BATCHER_BUCKET)
                memcpy(&ret->bucket, cw_block_row(&one.b, g->bucket_value, 0).data, sizeof(ret->bucket));
        } else {
            status = err->status;
        }
    }
    b->arena = one.arena;
    b->b.arena = &b->arena;
    return status;
}

/* Another record for row `row` of c, which is row `own` of b. 0: replaced; 1: no good one found. */
static int replace_row(struct cw_runner *r, struct thread *t, struct block *b, struct cw_block *c, size_t row, size_t own, struct cw_error *err)
{
    if (!b->replaced) {
        b->replaced = cw_arena_alloc(&b->arena, b->b.n * sizeof(*b->replaced), err);
        if (!b->replaced)
            return err->status;
        memset(b->replaced, 0, b->b.n * sizeof(*b->replaced));
    }
    for (uint32_t k = 0; k < REPLACE_ATTEMPTS; k++) {
        uint32_t words[4];
        cw_block_draw(c, r->compiled->n_keys - 1, row, k, words);
        struct cw_arena_mark mark = cw_arena_mark(&b->arena);
        int status = run_single(r, t, b, cw_integer(words[0], b->piece->n), &b->replaced[own], err);
        if (status <= 0)
            return status;
        cw_arena_release(&b->arena, mark);
    }
    return 1;
}

/* ---- into batches ---- */

/* Rows of a column by index, as a column of its own. */
static int gather(struct cw_arena *arena, const struct cw_column *from, const uint32_t *idx, size_t n, struct cw_column *to, struct cw_error *err)
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
static int segment_block(struct cw_runner *r, struct block *b, const struct segment *s, struct cw_block *ret, struct cw_error *err)
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
    return set_slots(r, b, ret, s, err);
}

/* Whether rows of a segment failed or were replaced. */
static bool idx_needs_care(const struct cw_block *c, const struct segment *s, const uint32_t *idx, bool gathered)
{
    uint8_t all = 0;
    for (size_t i = 0; i < s->n; i++)
        all |= c->status[idx && !gathered ? idx[i] : i];
    return all != CW_ROW_OK;
}

/* Record ids of a segment's rows, into the batch. */
static int put_ids(struct cw_runner *r, struct block *b, const struct segment *s, const uint32_t *idx, struct cw_error *err)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    const struct cw_ref *refs = b->piece->refs + b->at;
    struct cw_record_id *ids = s->assembly->ids + s->slot0;
    struct cw_arena_mark mark = cw_arena_mark(&b->arena);
    uint64_t *rows = cw_arena_alloc(&b->arena, s->n * sizeof(*rows), err);
    if (!rows)
        return err->status;
    for (size_t i = 0; i < s->n; i++)
        rows[i] = refs[idx ? idx[i] : i].row;
    source->ops->ids(source, rows, s->n, ids);
    for (size_t i = 0; i < s->n; i++) {
        ids[i].pass = refs[idx ? idx[i] : i].pass;
        ids[i].leaf = (uint16_t)b->program->leaf;
        ids[i].flags = 0;
    }
    cw_arena_release(&b->arena, mark);
    return 0;
}

/* Writes the rows of a segment into their slots. Row i of the segment is row idx[i] of the block (idx NULL: i), and that of c too unless c was
 * gathered for the segment: then it is row i of c. */
static int put_rows(struct cw_runner *r, struct block *b, const struct cw_block *c, const struct segment *s, const uint32_t *idx, bool gathered,
                    struct cw_error *err)
{
    const struct cw_layout *l = &r->layout;
    const struct cw_program *g = b->program;
    struct cw_assembly *a = s->assembly;
    uint8_t *at = NULL;
    bool plain_rows = c->all_ok || !idx_needs_care(c, s, idx, gathered);
    int status = put_ids(r, b, s, idx, err);
    if (status < 0)
        return status;
    memset(a->present + s->slot0, 1, s->n);
    for (size_t i = 0; i < s->n && !plain_rows; i++) {
        size_t row = idx ? idx[i] : i, own = gathered ? i : row;
        a->present[s->slot0 + i] = c->status[own] == CW_ROW_OK || c->status[own] == CW_ROW_REPLACED;
        if (c->status[own] == CW_ROW_REPLACED)
            a->ids[s->slot0 + i] = b->replaced[row].id;
    }
    if (l->n_staged) {
        size_t bytes = 0;
        for (unsigned k = 0; k < l->n; k++)
            for (size_t i = 0; i < s->n && l->offset[k] == SIZE_MAX; i++) {
                size_t row = idx ? idx[i] : i, own = gathered ? i : row;
                if (!a->present[s->slot0 + i])
                    continue;
                struct cw_tensor value = c->status[own] == CW_ROW_REPLACED ? b->replaced[row].values[k] : cw_block_row(c, g->outputs[k].value, own);
                bytes += cw_staged_bytes(&value);
            }
        struct cw_staged_chunk *chunk;
        status = cw_staged_chunk_new(&r->budget, bytes, &chunk, &at, err);
        if (status < 0)
            return status;
        pthread_mutex_lock(&r->mutex);
        chunk->next = a->chunks;
        a->chunks = chunk;
        pthread_mutex_unlock(&r->mutex);
    }
    for (unsigned k = 0; k < l->n; k++) {
        const struct cw_column *column = &c->columns[g->outputs[k].value];
        if (l->offset[k] != SIZE_MAX && column->dense && plain_rows) {
            uint8_t *to = a->slab->data + l->offset[k] + s->slot0 * l->row_bytes[k];
            size_t bytes = l->row_bytes[k];
            if (column->data == to)
                continue;
            if (gathered || !idx)
                memcpy(to, column->data, s->n * bytes);
            else if (bytes == 8)
                for (size_t i = 0; i < s->n; i++)
                    memcpy(to + 8 * i, column->data + 8 * (size_t)idx[i], 8);
            else
                for (size_t i = 0; i < s->n; i++)
                    memcpy(to + i * bytes, column->data + idx[i] * bytes, bytes);
            continue;
        }
        for (size_t i = 0; i < s->n; i++) {
            size_t row = idx ? idx[i] : i, own = gathered ? i : row;
            if (!a->present[s->slot0 + i])
                continue;
            struct cw_tensor value = c->status[own] == CW_ROW_REPLACED ? b->replaced[row].values[k] : cw_block_row(c, g->outputs[k].value, own);
            cw_assembly_put(a, k, s->slot0 + i, &value, &at);
        }
    }
    return 0;
}

int cw_block_emit(struct cw_runner *r, struct thread *t, struct block *b, struct cw_error *err)
{
    unsigned from, to;
    int status = b->b.status ? 0 : start(r, t, b, err);
    if (status < 0)
        return status;
    stage_range(r, b, r->n_points, &from, &to);
    bool direct = b->n_segments == 1 && b->segments[0].n == b->b.n; /* every row lives and goes to one batch */
    if (direct) {
        if (!b->b.slots)
            status = set_slots(r, b, &b->b, &b->segments[0], err);
        if (status >= 0)
            status = run_ops(r, t, b, &b->b, NULL, from, to, err);
        uint64_t begin = cw_now_ns();
        if (status >= 0)
            status = put_rows(r, b, &b->b, &b->segments[0], NULL, false, err);
        t->emit_ns += cw_now_ns() - begin;
        return status;
    }
    for (unsigned i = 0; i < b->n_segments && status >= 0; i++) {
        const struct segment *s = &b->segments[i];
        uint64_t begin = cw_now_ns();
        if (from == to) {
            status = put_rows(r, b, &b->b, s, b->idx + s->first, false, err);
            t->emit_ns += cw_now_ns() - begin;
            continue;
        }
        struct cw_block c;
        status = segment_block(r, b, s, &c, err);
        t->emit_ns += cw_now_ns() - begin;
        if (status >= 0)
            status = run_ops(r, t, b, &c, b->idx + s->first, from, to, err);
        begin = cw_now_ns();
        if (status >= 0)
            status = put_rows(r, b, &c, s, b->idx + s->first, true, err);
        t->emit_ns += cw_now_ns() - begin;
    }
    return status;
}

void cw_fault_error(const struct cw_runner *r, const struct block *b, const struct fault *f, struct cw_error *ret)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    struct cw_record_id record;
    char id[128];
    *ret = (struct cw_error){0};
    cw_row_id(r, b, f->row, &record);
    cw_record_print(b->program, &record, id);
    if (source->ops->path)
        cw_error_file(ret, source->ops->path(source, b->piece->refs[b->at + f->row].row));
    cw_error_op(ret, f->op);
    cw_error_record(ret, id);
    cw_error_set(ret, CW_E_RECORD, "%s: %s", f->op, f->message);
}
