/* The points: limits count elements, elements get slots in batches, and entries are computed. */
#include "engine/slots.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "engine/internal.h"

/* Returns whether a row with this status raises an error, in the place of the failed element. */
static bool slots_raise(const struct cw_runner *r, uint8_t status)
{
    return status == CW_ROW_FAILED && r->compiled->pipeline->on_error != CW_ON_ERROR_SKIP;
}

/* Allocates the counts that limit k has before each position of a block. */
static int limit_passage_new(struct cw_runner *r, struct block *b, unsigned k,
                             const struct cw_limit_count *now, struct cw_error *err)
{
    unsigned n = r->compiled->n_limits;
    if (!b->limit_passages && !(b->limit_passages = calloc(n, sizeof(*b->limit_passages))))
        return cw_error_nomem(err, 0, "a limit");
    b->limit_passages[k].before = *now;
    if (!b->exec.program->has_limit[k])
        return 0;
    if (!b->dropped && !(b->dropped = calloc(n, sizeof(*b->dropped))))
        return cw_error_nomem(err, 0, "a limit");
    b->dropped[k] = calloc(b->exec.block.n + 1, 1);
    b->limit_passages[k].counts = malloc((b->exec.n_refs + 1) * sizeof(uint64_t));
    return b->dropped[k] && b->limit_passages[k].counts ? 0 : cw_error_nomem(err, b->exec.block.n, "a limit");
}

/* Returns the operator of limit k of the block's program, if it runs: the last one before the point. */
static const struct cw_op *limit_op(const struct block *b, unsigned k)
{
    const struct cw_program *g = b->exec.program;
    return g->ops[g->stage[k + 1] - 1];
}

/* Writes the numbers of the rows that pass an enumerate, limit k; `count` rows came before the block. Does
 * nothing if the numbers are not needed. */
static void limit_enumerate(const struct cw_runner *r, const struct block *b, unsigned k, uint64_t count)
{
    const struct cw_op *op = limit_op(b, k);
    const struct cw_block *c = &b->exec.block;
    uint8_t *to = c->columns[op->out[0].value].data;
    int64_t number = cw_attr_int(op, "start") + (int64_t)count;
    for (size_t i = 0; i < c->n && to; i++) {
        memcpy(to + i * sizeof(number), &number, sizeof(number));
        number += c->status[i] != CW_ROW_DROPPED && !slots_raise(r, c->status[i]);
    }
}

/* Returns whether a row with this status passes a limit, and counts it. holds: the condition of a take_while,
 * which counts the row that ends it. */
static bool limit_count(const struct cw_runner *r, const struct cw_limit *limit, uint8_t status, bool holds,
                        uint64_t *count)
{
    bool within = *count < limit->count, take_while = limit->kind == CW_LIMIT_TAKE_WHILE;
    if (slots_raise(r, status) && (within || (limit->kind != CW_LIMIT_TAKE && !take_while)))
        /* the failed row ends the run in its place, whether a `skip` leaves it out or not; after a full
         * `take` it is not reached */
        return true;
    if (take_while) {
        *count += within && !holds;
        return within && holds;
    }
    *count += within;
    return limit->kind == CW_LIMIT_ENUMERATE || within == (limit->kind == CW_LIMIT_TAKE);
}

static int slots_pass_limit(struct cw_runner *r, struct block *b, unsigned k, struct cw_error *err)
{
    const struct cw_limit *limit = &r->compiled->limits[k];
    struct cw_range *s = b->range;
    struct cw_limit_count *state = &s->counts.limits[k];
    uint64_t divisor = b->exec.program->limit_passes[k],
             pass = divisor ? b->piece->plan.refs[b->exec.at].pass / divisor : 0;
    size_t noted = 0;
    if (b->exec.program->has_limit[k] && (!state->started || state->pass != pass))
        *state = (struct cw_limit_count){.started = true, .pass = pass};
    int status = limit_passage_new(r, b, k, state, err);
    if (status < 0 || !b->exec.program->has_limit[k])
        return status;
    uint64_t *counts = b->limit_passages[k].counts;
    const uint8_t *holds = NULL;
    if (limit->kind == CW_LIMIT_ENUMERATE)
        limit_enumerate(r, b, k, state->count);
    else if (limit->kind == CW_LIMIT_TAKE_WHILE)
        holds = b->exec.block.columns[limit_op(b, k)->out[0].value].data;
    for (size_t i = 0; i < b->exec.block.n; i++) {
        for (size_t position = b->exec.block.origin ? b->exec.block.origin[i] : i; noted <= position; noted++)
            counts[noted] = state->count;
        if (b->exec.block.status[i] == CW_ROW_DROPPED)
            continue;
        if (limit_count(r, limit, b->exec.block.status[i], holds && holds[i], &state->count))
            continue;
        b->dropped[k][i] = 1;
        b->exec.block.status[i] = CW_ROW_DROPPED;
        b->exec.block.all_ok = false;
    }
    for (; noted <= b->exec.n_refs; noted++)
        counts[noted] = state->count;
    if (limit->ends_epoch && state->count >= limit->count) {
        cw_range_end(s, RANGE_OVER); /* every later row would be dropped */
        free(CW_STEAL(s->failed));   /* a failure of the stream after this element is never reached */
    }
    return 0;
}

/* Returns the key of a row. */
static int32_t slots_key(const struct cw_runner *r, const struct block *b, size_t row)
{
    int32_t bucket = 0;
    if (!r->compiled->keyed)
        return 0;
    if (b->exec.block.status[row] == CW_ROW_REPLACED)
        return b->exec.replaced[row].bucket;
    memcpy(&bucket, cw_block_row(&b->exec.block, b->exec.program->bucket_value, row).data, sizeof(bucket));
    return bucket;
}

/* ---- entries ---- */

static size_t slots_position(const struct block *b, size_t at)
{
    return b->exec.block.origin ? b->exec.block.origin[b->idx[at]] : b->idx[at];
}

/* Sets counts to the elements by key that arrived before the record of row idx[at]. Rows of the same record
 * before idx[at] do not count. */
static void entry_count_before(const struct cw_runner *r, const struct block *b, size_t at, uint64_t *counts)
{
    memcpy(counts, b->range->counts.arrived, cw_n_keys(r->compiled) * sizeof(*counts));
    for (size_t i = at; b->exec.block.origin && i-- > 0 && slots_position(b, i) == slots_position(b, at);)
        counts[slots_key(r, b, b->idx[i])]--;
}

/* Sets the limits' counts to those before a position of a block; position n_refs: after the block. */
static void entry_set_limits(const struct cw_runner *r, const struct block *b, size_t position,
                             struct cw_entry *e)
{
    for (unsigned k = 0; k < r->compiled->n_limits; k++) {
        const struct limit_passage *p = &b->limit_passages[k];
        e->limits[k] = p->before;
        if (p->counts)
            e->limits[k].count = p->counts[position];
    }
}

/* Returns the entry before the record of row idx[at], where a batch begins; the block's rows before it have
 * passed the point. e->skip has the number of elements that arrived, from which the caller makes the skip by
 * entry_set_skip. NULL: out of memory. */
static struct cw_entry *slots_entry_before(const struct cw_runner *r, const struct block *b, size_t at)
{
    struct cw_entry *e = cw_entry_new(r->compiled);
    if (!e)
        return NULL;
    size_t position = slots_position(b, at);
    e->position = b->piece->plan.begin + b->exec.at + position;
    /* the number that arrived before; entry_set_skip makes the skip of it */
    entry_count_before(r, b, at, e->skip);
    entry_set_limits(r, b, position, e);
    return e;
}

/* Returns the entry of the waiting batch with the earliest element; NULL: no batch waits. A batch waits if it
 * is not full, or its group is not complete. */
static const struct cw_entry *entry_earliest_open(const struct cw_runner *r, const struct cw_range *s)
{
    const struct cw_entry *first = NULL;
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++) {
        const struct cw_assembly *a = s->groups[k].head ? s->groups[k].head : s->open[k];
        if (a && a->from && (!first || a->from->position < first->position))
            first = a->from;
    }
    return first;
}

/* Sets the skips of an entry from the elements that had arrived there: the elements in batches, less those
 * that had arrived. Sets the group to that of the last batch in the list. */
static void entry_set_skip(const struct cw_runner *r, const struct cw_range *s, struct cw_entry *e)
{
    for (unsigned k = 0; k < cw_n_keys(r->compiled); k++)
        e->skip[k] = s->counts.batched[k] - e->skip[k];
    e->group_given = s->counts.group_given;
    e->group_key = s->counts.group_key;
}

/* Returns the entry after a batch that row idx[at] completed. NULL: out of memory. */
static struct cw_entry *slots_entry_after(const struct cw_runner *r, const struct block *b, size_t at)
{
    const struct cw_range *s = b->range;
    const struct cw_entry *waits = entry_earliest_open(r, s);
    size_t position = slots_position(b, at), group = CW_MAX(r->compiled->group, (uint64_t)1),
           behind = CW_MIN((position / group + 1) * group, b->exec.n_refs);
    bool more = !waits && b->exec.block.origin && at + 1 < b->n_live && slots_position(b, at + 1) == position;
    struct cw_entry *e = more ? slots_entry_before(r, b, at + 1) : cw_entry_new(r->compiled);
    if (!e)
        return NULL;
    if (waits) {
        cw_entry_set(r->compiled, e, waits);
    } else if (!more) { /* otherwise the record of idx[at] has more elements */
        e->position = b->piece->plan.begin + b->exec.at + behind;
        memcpy(e->skip, s->counts.arrived, cw_n_keys(r->compiled) * sizeof(*e->skip));
        entry_set_limits(r, b, behind, e);
    }
    entry_set_skip(r, s, e);
    return e;
}

struct cw_entry *cw_slots_entry_at_end(const struct cw_runner *r, const struct cw_range *s)
{
    const struct cw_entry *waits = entry_earliest_open(r, s);
    struct cw_entry *e = cw_entry_new(r->compiled);
    if (!e)
        return NULL;
    if (waits) {
        cw_entry_set(r->compiled, e, waits);
    } else {
        e->position = s->counts.slots_at;
        memcpy(e->skip, s->counts.arrived, cw_n_keys(r->compiled) * sizeof(*e->skip));
        for (unsigned k = 0; k < r->compiled->n_limits; k++)
            e->limits[k] = s->counts.limits[k];
    }
    entry_set_skip(r, s, e);
    return e;
}

/* Makes the error of a row end the range: it takes the place of the row's batch, or, with `rows`, comes after
 * all rows. */
static int slots_poison(struct cw_runner *r, struct block *b, size_t row, struct cw_error *err)
{
    struct cw_range *s = b->range;
    struct cw_error error = {0};
    for (const struct cw_exec_fault *f = b->exec.faults; f; f = f->next)
        if (f->row == row && !f->note)
            cw_exec_fault_error(&b->exec, f, &error);
    cw_range_end(s, RANGE_POISONED);
    if (s->rows) {
        if (!s->failed && !(s->failed = malloc(sizeof(*s->failed))))
            return cw_error_nomem(err, sizeof(*s->failed), "an error");
        *s->failed = error;
        return 0;
    }
    struct cw_assembly *a = r->compiled->keyed ? NULL : s->open[0];
    if (!a) {
        a = calloc(1, sizeof(*a));
        if (!a)
            return cw_error_nomem(err, sizeof(*a), "an error");
        r->memory.n_assemblies++;
        cw_range_append(s, a);
    } else {
        s->open[0] = NULL;
    }
    a->closed = true;
    cw_assembly_poison(a, &error, b->seq << 32 | row);
    return 0;
}

/* Gets the batch for row idx[b->n_given], a new one if none is open. 1: none can be had now. */
static int slots_open_batch(struct cw_runner *r, struct block *b, unsigned key, struct cw_assembly **ret,
                            struct cw_error *err)
{
    struct cw_range *s = b->range;
    struct cw_assembly *a = s->open[key];
    if (!a) {
        int status = cw_memory_take_assembly(r, s, key, &a, err);
        if (status != 0)
            return status;
        if (!s->rows && (a->capacity > 1 || r->compiled->grouping.size > 1) &&
            !(a->from = slots_entry_before(r, b, b->n_given)))
            status = cw_error_nomem(err, 0, "a position");
        if (status == 0 && s->rows)
            status = cw_range_append_rows(s, a, err);
        if (status < 0) {
            cw_memory_drop_assembly(r, a);
            return status;
        }
        s->open[key] = a;
        if (!s->rows && !r->compiled->keyed)
            cw_range_append(s, a);
    }
    *ret = a;
    return 0;
}

/* Delivers the batches of a group if it is complete; row idx[at] was the last one. */
static int slots_close_group(struct cw_runner *r, struct block *b, unsigned key, size_t at,
                             struct cw_error *err)
{
    struct cw_range *s = b->range;
    struct range_group *g = &s->groups[key];
    unsigned given = key == s->counts.group_key ? s->counts.group_given : 0;
    if (g->n < r->compiled->grouping.size - given)
        return 0;
    while (g->n > 0) {
        struct cw_assembly *a = cw_range_pop_group(s, key);
        s->counts.batched[key] += a->n_assigned;
        cw_range_deliver_group(r, s, a);
        if (!(a->after = slots_entry_after(r, b, at)))
            return cw_error_nomem(err, 0, "a position");
    }
    cw_sched_notify(r); /* the first of them may have all rows already */
    return 0;
}

/* Closes a batch that is full; row idx[at] was the last one. A batch that waits for its group stays without
 * `closed`, so that it is not finished before: at the epoch's end, its rows may go to other batches. */
static int slots_close_batch(struct cw_runner *r, struct block *b, struct cw_assembly *a, size_t at,
                             struct cw_error *err)
{
    struct cw_range *s = b->range;
    s->open[a->bucket] = NULL;
    if (!s->rows && r->compiled->keyed) {
        cw_range_append_group(s, a);
        return slots_close_group(r, b, a->bucket, at, err);
    }
    a->closed = true;
    if (s->rows)
        return 0;
    s->counts.batched[a->bucket] += a->n_assigned;
    a->after = slots_entry_after(r, b, at);
    return a->after ? 0 : cw_error_nomem(err, 0, "a position");
}

static int slots_note_keys(struct cw_range *s, unsigned key, size_t n, struct cw_error *err)
{
    if (CW_ARRAY_ROOM(s->keyed.keys, s->keyed.keys_room, s->keyed.n_keys + n, "keys", err) < 0)
        return CW_E_MEMORY;
    for (size_t i = 0; i < n; i++)
        s->keyed.keys[s->keyed.n_keys++] = (uint16_t)key;
    return 0;
}

/* Gives the next n rows of b->idx slots in a. */
static int slots_add_segment(struct cw_runner *r, struct block *b, struct cw_assembly *a, size_t n,
                             struct cw_error *err)
{
    struct segment *last = b->n_segments ? &b->segments[b->n_segments - 1] : NULL;
    struct cw_range *s = b->range;
    if (s->rows && r->compiled->n_buckets > 1 && slots_note_keys(s, a->bucket, n, err) < 0)
        return err->status;
    if (last && last->assembly == a && last->first + last->n == b->n_given) {
        last->n += n;
    } else {
        if (CW_ARRAY_ROOM(b->segments, b->segment_capacity, b->n_segments + (size_t)1, "slots", err) < 0)
            return CW_E_MEMORY;
        b->segments[b->n_segments++] = (struct segment){
            .assembly = a, .slot0 = a->n_assigned, .first = b->n_given, .n = n};
    }
    a->n_assigned += n;
    s->counts.arrived[a->bucket] += n;
    b->n_given += n;
    return a->n_assigned == a->capacity ? slots_close_batch(r, b, a, b->n_given - 1, err) : 0;
}

/* Gives the rows of b->idx their slots. Continues where it stopped when no batch could be had. */
static int slots_give(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    struct cw_range *s = b->range;
    bool one_by_one = r->compiled->keyed ||
                      (b->has_failed && r->compiled->pipeline->on_error != CW_ON_ERROR_SKIP);
    while (b->n_given < b->n_live && s->state != RANGE_POISONED) {
        size_t row = b->idx[b->n_given], rest = one_by_one ? 1 : b->n_live - b->n_given;
        struct cw_assembly *a;
        if (slots_raise(r, b->exec.block.status[row]))
            return slots_poison(r, b, row, err);
        unsigned key = (unsigned)slots_key(r, b, row);
        uint64_t skip = s->entry.skip ? s->entry.skip[key] : 0;
        if (s->counts.arrived[key] < skip) { /* these elements are in an earlier batch */
            size_t n = CW_MIN(rest, skip - s->counts.arrived[key]);
            s->counts.arrived[key] += n;
            b->n_given += n;
            continue;
        }
        int status = slots_open_batch(r, b, key, &a, err);
        if (status != 0)
            return status;
        status = slots_add_segment(r, b, a, CW_MIN(rest, a->capacity - a->n_assigned), err);
        if (status < 0)
            return status;
    }
    s->counts.slots_at = b->piece->plan.begin + b->exec.at + b->exec.n_refs;
    return 0;
}

int cw_slots_pass(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    bool limit = b->point < r->compiled->n_limits;
    if (b->n_passed > b->point) { /* in a second attempt, what was decided in the first stays */
        const uint8_t *dropped = limit && b->dropped ? b->dropped[b->point] : NULL;
        for (size_t i = 0; dropped && i < b->exec.block.n; i++)
            if (dropped[i]) {
                b->exec.block.status[i] = CW_ROW_DROPPED;
                b->exec.block.all_ok = false;
            }
        if (limit && b->exec.program->has_limit[b->point] &&
            r->compiled->limits[b->point].kind == CW_LIMIT_ENUMERATE)
            limit_enumerate(r, b, b->point, b->limit_passages[b->point].before.count);
        return 0;
    }
    int status = limit ? slots_pass_limit(r, b, b->point, err) : slots_give(r, b, err);
    if (status == 0)
        b->n_passed = b->point + 1;
    return status;
}

/* Returns the segment of a row; NULL: the row has no slot. *ret_settled: the row has none because it is in an
 * earlier batch, or comes after an error that ends the range. */
static struct segment *slots_segment_of(const struct block *b, size_t row, bool *ret_settled)
{
    *ret_settled = false;
    if (!b->idx)
        return &b->segments[0];                              /* counted: all rows are in one batch */
    size_t at = CW_FIRST(i, 0, b->n_live, b->idx[i] >= row); /* idx ascends */
    if (at == b->n_live || b->idx[at] != row)
        return NULL;
    size_t k = CW_FIRST(i, 0, b->n_segments, b->segments[i].first + b->segments[i].n > at);
    *ret_settled = k == b->n_segments || b->segments[k].first > at;
    return *ret_settled ? NULL : &b->segments[k];
}

static void slots_quarantine(struct cw_runner *r, const struct block *b, const struct cw_exec_fault *f,
                             struct cw_quarantined **list)
{
    const struct cw_source *source = cw_exec_source(&b->exec, f->row);
    const char *path = source->ops->path ? source->ops->path(source, cw_exec_ref(&b->exec, f->row)->row)
                                         : NULL;
    struct cw_quarantined *q = calloc(1, sizeof(*q));
    if (!q)
        return; /* the record is missing in the list and the count, since there is no memory to report it */
    *q = (struct cw_quarantined){.next = *list,
                                 .op = f->op,
                                 .file = path ? strdup(path) : NULL,
                                 .note = f->note,
                                 .replaced = f->replaced};
    cw_exec_record_id(&b->exec, f->row, &q->id);
    if (f->replaced)
        q->by = b->exec.replaced[f->row].id;
    memcpy(q->message, f->message, sizeof(q->message));
    *list = q;
}

void cw_slots_settle(struct cw_runner *r, struct block *b)
{
    struct cw_range *s = b->range;
    for (const struct cw_exec_fault *f = b->exec.faults; f; f = f->next) {
        bool settled;
        struct segment *g = slots_segment_of(b, f->row, &settled);
        bool raised = r->compiled->pipeline->on_error != CW_ON_ERROR_SKIP && !f->replaced && !f->note;
        if (raised && g) {
            struct cw_error error;
            cw_exec_fault_error(&b->exec, f, &error);
            cw_assembly_poison(g->assembly, &error, b->seq << 32 | f->row);
        } else if (!raised && !settled) {
            slots_quarantine(r, b, f,
                             g                                ? &g->assembly->quarantined
                             : s->tail && !s->tail->finishing ? &s->tail->quarantined
                                                              : &s->quarantined);
        }
    }
    for (unsigned i = 0; i < b->n_segments; i++)
        b->segments[i].assembly->n_done += b->segments[i].n;
}
