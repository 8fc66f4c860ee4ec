/* Runs a block: reads its bytes, runs its operators stage by stage. No lock is held here. */
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/philox.h"
#include "storage/file.h"

#define REPLACE_ATTEMPTS 64

int cw_stopped(void *arg)
{
    struct cw_runner *r = arg;
    return atomic_load_explicit(&r->cancelled, memory_order_relaxed);
}

int cw_range_stopped(void *arg)
{
    struct cw_range *s = arg;
    return atomic_load_explicit(&s->cancelled, memory_order_relaxed) ||
           atomic_load_explicit(&s->runner->cancelled, memory_order_relaxed);
}

/* ---- bytes ---- */

/* Which reads a block needs, neighbouring records in one, and memory for them. */
static int plan_reads(const struct cw_source *source, struct block *b, struct cw_error *err)
{
    size_t n = b->b.n, n_reads = 0;
    struct cw_tensor *raw = cw_arena_alloc(&b->arena, n * sizeof(*raw), err);
    struct block_read *reads = cw_arena_alloc(&b->arena, n * sizeof(*reads), err);
    if (!raw || !reads)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        struct cw_extent e;
        int status = source->ops->locate(source, b->piece->refs[b->at + i].row, &e, err);
        if (status < 0)
            return status;
        struct block_read *last = n_reads ? &reads[n_reads - 1] : NULL;
        if (last && last->extent.file == e.file && last->extent.offset + last->extent.length == e.offset) {
            last->extent.length += e.length;
            last->n++;
        } else {
            reads[n_reads++] = (struct block_read){.extent = e, .first = i, .n = 1};
        }
        raw[i] = (struct cw_tensor){.size = e.length};
    }
    size_t total = 0;
    for (size_t k = 0; k < n_reads; k++) {
        uint8_t *data = reads[k].data = cw_arena_alloc(&b->arena, reads[k].extent.length, err);
        if (!data)
            return err->status;
        for (size_t i = reads[k].first; i < reads[k].first + reads[k].n; i++) {
            raw[i].data = data;
            data += raw[i].size;
        }
        total += reads[k].extent.length;
    }
    b->raw = raw;
    b->reads = reads;
    b->n_reads = n_reads;
    b->read_bytes = total;
    atomic_store(&b->next_read, 0);
    return 0;
}

int cw_block_read_next(struct thread *t, struct block *b, bool nowait, struct cw_error *err)
{
    size_t k = atomic_fetch_add(&b->next_read, 1);
    if (k >= b->n_reads)
        return 2;
    int status = cw_extent_read(&b->reads[k].extent, b->reads[k].data, nowait, err);
    if (status > 0)
        atomic_store(&b->next_read, k);
    if (status == 0) {
        t->n_reads++;
        t->read_bytes += b->reads[k].extent.length;
    }
    return status;
}

static int read_block(struct cw_runner *r, struct thread *t, struct block *b, bool nowait,
                      struct cw_error *err)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    uint64_t start = cw_cost_now_ns();
    int status = 0;
    if (b->have_raw)
        return 0;
    if (source->ops->load || source->ops->pull) {
        b->b.raw = b->piece->raw + b->at;
        b->have_raw = true;
        return 0;
    }
    if (!source->ops->locate) {
        b->have_raw = true;
        return 0;
    }
    if (!b->reads)
        status = plan_reads(source, b, err);
    while (status == 0)
        status = cw_block_read_next(t, b, nowait, err);
    uint64_t read_ns = cw_now_ns();
    for (size_t k = 0; k < b->n_reads && status == 2; k++)
        status = cw_file_check(b->reads[k].extent.file, read_ns, nowait, err) ?: 2;
    if (status < 2)
        return status;
    b->b.raw = b->raw;
    b->have_raw = true;
    t->read_ns += cw_cost_now_ns() - start;
    if (t->ops) /* else it is a read thread's time */
        b->prefix_ns += cw_cost_now_ns() - start;
    return 0;
}

int cw_block_read(struct cw_runner *r, struct thread *t, struct block *b, bool nowait, struct cw_error *err)
{
    if (!b->have_raw && !b->reads && !b->uncached && b->way->cached) {
        uint64_t start = cw_cost_now_ns();
        int fetched = cw_block_fetch(r, b, err);
        t->fetch_ns += cw_cost_now_ns() - start;
        if (fetched != 0)
            return fetched;
        b->have_raw = b->hit;
    }
    int status = read_block(r, t, b, nowait, err);
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, b->program->ops[0]->desc->name);
    return status;
}

/* ---- operators ---- */

void cw_row_id(const struct cw_runner *r, const struct block *b, size_t row, struct cw_record_id *ret)
{
    const struct cw_ref *ref = cw_block_ref(b, row);
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    source->ops->ids(source, &ref->row, 1, ret);
    ret->pass = ref->pass;
    ret->leaf = (uint16_t)b->program->leaf;
    ret->flags = 0;
    ret->element = b->element ? b->element[row] : 0;
}

/* Everything of a block that is the same for all its operators. */
static int block_prepare(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    const struct cw_program *g = b->program;
    struct cw_block *c = &b->b;
    const struct cw_ref *refs = b->piece->refs + b->at;
    size_t n = c->n;

    c->arena = &b->arena;
    c->keys = b->range->epoch->epoch.keys;
    c->cancelled = cw_range_stopped;
    c->cancel_arg = b->range;
    c->all_ok = true;
    c->n_values = g->n_values;
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
int cw_block_set_slots(struct cw_runner *r, struct block *b, struct cw_block *c, const struct segment *s,
                       struct cw_error *err)
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
            slots[g->outputs[k].value] = cw_segment_slots(r, s, k);
    c->slots = slots;
    return 0;
}

static int run_op(struct thread *t, const struct block *b, const struct cw_op *op, struct cw_block *c,
                  struct cw_error *err)
{
    struct turn turn = cw_turn_begin(t, c);
    int status = op->desc->run(op, c, err);
    cw_turn_end(t, b, op, c, &turn);
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, op->desc->name);
    return status;
}

static int replace_row(struct cw_runner *r, struct thread *t, struct block *b, struct cw_block *c, size_t row,
                       size_t own, struct cw_error *err);

/* What a row's failure means is decided where it happens. Row i of c is row map[i] of b (map NULL: i). */
static int settle_faults(struct cw_runner *r, struct thread *t, struct block *b, struct cw_block *c,
                         const uint32_t *map, struct cw_error *err)
{
    enum cw_on_error on_error = r->compiled->pipeline->on_error;
    while (c->faults) {
        struct cw_fault *from = c->faults;
        struct fault *f = calloc(1, sizeof(*f));
        if (!f)
            return cw_error_nomem(err, sizeof(*f), "an error");
        c->faults = from->next;
        *f = (struct fault){
            .next = b->faults, .row = map ? map[from->row] : from->row, .op = from->op, .note = from->note};
        snprintf(f->message, sizeof(f->message), "%s", from->message);
        b->faults = f;
        if (on_error == CW_ON_ERROR_REPLACE && !f->note) {
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
int cw_block_run_ops(struct cw_runner *r, struct thread *t, struct block *b, struct cw_block *c,
                     const uint32_t *map, unsigned from, unsigned to, struct cw_error *err)
{
    struct cw_op *const *ops = b->plain ? b->program->ops : b->way->optimized->ops;
    const struct cw_op *cache_point = cw_cached_cache_point(b->way->cached);
    for (unsigned i = from; i < to; i++) {
        const struct cw_op *op = ops[i];
        uint64_t before = t->ops[op->index].ns;
        int status = 0;
        if (b->hit && op->position <= cache_point->position)
            continue;
        if (op == cache_point)
            cw_block_keep(r, b, c, map);
        if (op->desc->run && op->live)
            status = run_op(t, b, op, c, err);
        if (cache_point && op->position < cache_point->position)
            b->prefix_ns += t->ops[op->index].ns - before;
        if (status >= 0 && c->faults)
            status = settle_faults(r, t, b, c, map, err);
        if (status >= 0 && c->expansion)
            status = cw_block_expand(r, b, err);
        if (status < 0)
            return status;
        /* A filter, or bucket_by_length, can't decide about elements that failed: they are gone. Where errors
         * are raised they stay, to be found. */
        if ((op->desc->kind == CW_OP_FILTER || op->desc->kind == CW_OP_FLAT_MAP ||
             op->desc->kind == CW_OP_BATCHER) &&
            !c->all_ok && r->compiled->pipeline->on_error == CW_ON_ERROR_SKIP)
            for (size_t k = 0; k < c->n; k++)
                if (c->status[k] == CW_ROW_FAILED)
                    c->status[k] = CW_ROW_DROPPED;
    }
    return 0;
}

void cw_block_stage_range(const struct block *b, unsigned stage, unsigned *from, unsigned *to)
{
    const unsigned *at = b->plain ? b->program->stage : b->way->optimized->stage;
    *from = at[stage];
    *to = at[stage + 1];
}

int cw_block_start(struct cw_runner *r, struct thread *t, struct block *b, struct cw_error *err)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    const struct cw_op *op = b->program->ops[0];
    int status = block_prepare(r, b, err);
    if (status >= 0 && r->compiled->counted && b->segments)
        status = cw_block_set_slots(r, b, &b->b, &b->segments[0], err);
    if (status < 0)
        return status;
    if (b->hit) {
        cw_block_put_hits(b);
        return 0;
    }
    struct turn turn = cw_turn_begin(t, &b->b);
    status = source->ops->produce(source, op, &b->b, err);
    cw_turn_end(t, b, op, &b->b, &turn);
    b->prefix_ns += cw_cost_now_ns() - turn.start_ns;
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

/* In a second attempt flat_map must have made the same rows: what was decided about them stays. */
static int check_shape(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    if (!b->shape)
        return 0;
    if (!b->shapes && !(b->shapes = calloc(r->n_points, sizeof(*b->shapes))))
        return cw_error_nomem(err, r->n_points * sizeof(*b->shapes), "a block");
    uint64_t before = b->shapes[b->point];
    b->shapes[b->point] = b->shape;
    if (before && before != b->shape)
        return cw_error_set(
            err, CW_E_DATA,
            "flat_map: a function gave other elements for the same records when memory was short and it was "
            "called again: expected the same ones; make it deterministic, or give more memory");
    return 0;
}

int cw_block_stage(struct cw_runner *r, struct thread *t, struct block *b, struct cw_error *err)
{
    unsigned from, to;
    int status = b->b.status ? 0 : cw_block_start(r, t, b, err);
    if (status < 0)
        return status;
    cw_block_stage_range(b, b->point, &from, &to);
    status = cw_block_run_ops(r, t, b, &b->b, NULL, from, to, err);
    if (status >= 0)
        status = check_shape(r, b, err);
    return status >= 0 && b->point + 1 == r->n_points && !b->idx ? find_live(b, err) : status;
}

/* ---- replacement ---- */

/* The bytes of the record of a block with one row, which need not lie in its piece. */
static int read_single(struct cw_runner *r, struct thread *t, struct block *one, struct cw_error *err)
{
    const struct cw_source *source = r->sequence->sources[one->program->leaf];
    if (!source->ops->load)
        return cw_block_read(r, t, one, false, err);
    struct cw_tensor *raw = cw_arena_alloc(&one->arena, sizeof(*raw), err);
    int status = raw ? source->ops->load(source, &one->piece->refs[one->at].row, 1, &one->arena, raw, err)
                     : err->status;
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, one->program->ops[0]->desc->name);
    one->b.raw = raw;
    one->have_raw = true;
    return status;
}

/* Runs the record of plan[at] through all operators. 0: ret is filled (memory of the block's arena); 1: it
 * failed or was dropped. */
static int run_single(struct cw_runner *r, struct thread *t, struct block *b, uint64_t at,
                      struct replaced *ret, struct cw_error *err)
{
    struct piece plan = {.begin = b->piece->plan_begin, .refs = b->piece->plan};
    const struct cw_program *g = &r->compiled->programs[plan.refs[at].leaf];
    const struct way *way = cw_way(r, 0, g->leaf);
    struct block one = {.range = b->range,
                        .piece = &plan,
                        .program = g,
                        .way = way,
                        .at = at,
                        .b.n = 1,
                        .arena = b->arena,
                        .plain = false,
                        .uncached = true};
    const struct cw_source *source = r->sequence->sources[g->leaf];
    const struct cw_optimized *o = way->optimized;
    int status = read_single(r, t, &one, err);
    if (status >= 0)
        status = block_prepare(r, &one, err);
    if (status >= 0 && (status = source->ops->produce(source, g->ops[0], &one.b, err)) < 0 &&
        status != CW_E_BUDGET)
        cw_error_op(err, g->ops[0]->desc->name);
    for (unsigned i = 1; i < o->n_ops && status >= 0 && one.b.status[0] == CW_ROW_OK; i++)
        if (o->ops[i]->desc->run && o->ops[i]->live)
            status = run_op(t, &one, o->ops[i], &one.b, err);
    if (status >= 0 && one.b.status[0] != CW_ROW_OK)
        status = 1;
    if (status == 0) {
        ret->values = cw_arena_alloc(&one.arena, g->n_outputs * sizeof(*ret->values), err);
        if (ret->values) {
            for (unsigned k = 0; k < g->n_outputs; k++)
                ret->values[k] = cw_block_row(&one.b, g->outputs[k].value, 0);
            cw_row_id(r, &one, 0, &ret->id);
            ret->id.flags |= CW_RECORD_REPLACEMENT;
            if (r->compiled->keyed)
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
static int replace_row(struct cw_runner *r, struct thread *t, struct block *b, struct cw_block *c, size_t row,
                       size_t own, struct cw_error *err)
{
    if (!b->replaced) {
        b->replaced = cw_arena_alloc(&b->arena, b->b.n * sizeof(*b->replaced), err);
        if (!b->replaced)
            return err->status;
        memset(b->replaced, 0, b->b.n * sizeof(*b->replaced));
    }
    const struct piece *p = b->piece;
    uint64_t position = p->begin + b->at + own,
             window = position / CW_REPLACE_POSITIONS * CW_REPLACE_POSITIONS;
    uint64_t n = CW_MIN(CW_REPLACE_POSITIONS, r->sequence->n_positions - window);
    for (uint32_t k = 0; k < REPLACE_ATTEMPTS; k++) {
        uint32_t words[4];
        cw_block_draw(c, r->compiled->n_keys - 1, row, k, words);
        struct cw_arena_mark mark = cw_arena_mark(&b->arena);
        int status = run_single(r, t, b, window - p->plan_begin + cw_integer(words[0], n), &b->replaced[own],
                                err);
        if (status <= 0)
            return status;
        cw_arena_release(&b->arena, mark);
    }
    return 1;
}

void cw_fault_error(const struct cw_runner *r, const struct block *b, const struct fault *f,
                    struct cw_error *ret)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    struct cw_record_id record;
    char id[128];
    *ret = (struct cw_error){0};
    cw_row_id(r, b, f->row, &record);
    cw_record_print(b->program, &record, id);
    if (source->ops->path)
        cw_error_file(ret, source->ops->path(source, cw_block_ref(b, f->row)->row));
    cw_error_op(ret, f->op);
    cw_error_record(ret, id);
    cw_error_set(ret, CW_E_RECORD, "%s: %s", f->op, f->message);
}
