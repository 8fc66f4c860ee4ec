/* Points that blocks pass in order: limits count elements, slots are given out. And what becomes of rows that failed. Mutex held throughout. */
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

/* Errors are raised where the failed element stood. */
static bool raises(const struct cw_runner *r, uint8_t status) { return status == CW_ROW_FAILED && r->compiled->pipeline->on_error != CW_ON_ERROR_SKIP; }

static int pass_limit(struct cw_runner *r, struct block *b, unsigned k, struct cw_error *err)
{
    const struct cw_limit *limit = &r->compiled->limits[k];
    struct cw_split *s = b->split;
    struct limit_state *state = &s->limits[k];
    if (!b->program->has_limit[k])
        return 0;
    uint64_t divisor = b->program->limit_passes[k], pass = divisor ? b->piece->refs[b->at].pass / divisor : 0;
    if (!state->started || state->pass != pass)
        *state = (struct limit_state){.started = true, .pass = pass};
    if (!b->dropped && !(b->dropped = calloc(r->compiled->n_limits, sizeof(*b->dropped))))
        return cw_error_nomem(err, 0, "a limit");
    if (!(b->dropped[k] = calloc(b->b.n, 1)))
        return cw_error_nomem(err, b->b.n, "a limit");
    for (size_t i = 0; i < b->b.n; i++) {
        if (b->b.status[i] == CW_ROW_DROPPED)
            continue;
        bool within = state->count < limit->count;
        if (raises(r, b->b.status[i]) && !(limit->take && !within))
            continue; /* ends the run where it stands, skipped or not; behind a full `take` nobody gets to it */
        if (within)
            state->count++;
        if (within == limit->take)
            continue;
        b->dropped[k][i] = 1;
        b->b.status[i] = CW_ROW_DROPPED;
        b->b.all_ok = false;
    }
    if (limit->ends_epoch && state->count >= limit->count) {
        s->over = true; /* nothing after this can live */
        free(CW_STEAL(s->failed)); /* a stream that was read ahead: nobody gets to where it failed */
    }
    return 0;
}

static int32_t bucket_of(const struct cw_runner *r, const struct block *b, size_t row)
{
    int32_t bucket = 0;
    if (r->compiled->batcher != CW_BATCHER_BUCKET)
        return 0;
    if (b->b.status[row] == CW_ROW_REPLACED)
        return b->replaced[row].bucket;
    memcpy(&bucket, cw_block_row(&b->b, b->program->bucket_value, row).data, sizeof(bucket));
    return bucket;
}

/* The error of a row takes the place of the batch that it would have been in; nothing comes after. */
static int poison(struct cw_runner *r, struct block *b, size_t row, struct cw_error *err)
{
    struct cw_split *s = b->split;
    struct cw_error error = {0};
    for (const struct fault *f = b->faults; f; f = f->next)
        if (f->row == row && !f->note)
            cw_fault_error(r, b, f, &error);
    struct cw_assembly *a = r->compiled->batcher == CW_BATCHER_BUCKET ? NULL : s->open[0];
    if (!a) {
        a = calloc(1, sizeof(*a));
        if (!a)
            return cw_error_nomem(err, sizeof(*a), "an error");
        r->n_assemblies++;
        cw_split_append(s, a);
    } else {
        s->open[0] = NULL;
    }
    a->closed = true;
    cw_assembly_poison(a, &error, b->seq << 32 | row);
    s->over = s->poisoned = true;
    return 0;
}

/* The batch that the next element of a bucket goes to. 1: none to be had now. */
static int filling(struct cw_runner *r, struct cw_split *s, unsigned bucket, struct cw_assembly **ret, struct cw_error *err)
{
    struct cw_assembly *a = s->open[bucket];
    if (!a) {
        int status = cw_assembly_take(r, s, bucket, &a, err);
        if (status != 0)
            return status;
        s->open[bucket] = a;
        if (r->compiled->batcher != CW_BATCHER_BUCKET)
            cw_split_append(s, a);
    }
    *ret = a;
    return 0;
}

/* Gives n rows from idx[given] on slots in a. */
static int add_segment(struct cw_runner *r, struct block *b, struct cw_assembly *a, size_t given, size_t n, struct cw_error *err)
{
    struct segment *last = b->n_segments ? &b->segments[b->n_segments - 1] : NULL;
    if (last && last->assembly == a) {
        last->n += n;
    } else {
        if (b->n_segments == b->segment_capacity) {
            unsigned capacity = b->segment_capacity ? b->segment_capacity * 2 : 8;
            struct segment *grown = realloc(b->segments, capacity * sizeof(*grown));
            if (!grown)
                return cw_error_nomem(err, capacity * sizeof(*grown), "slots");
            b->segments = grown;
            b->segment_capacity = capacity;
        }
        b->segments[b->n_segments++] = (struct segment){.assembly = a, .slot0 = a->n_assigned, .first = given, .n = n};
    }
    a->n_assigned += n;
    if (a->n_assigned == a->capacity) {
        a->closed = true;
        b->split->open[a->bucket] = NULL;
        if (r->compiled->batcher == CW_BATCHER_BUCKET)
            cw_split_append(b->split, a);
    }
    return 0;
}

/* Gives the rows that live (b->idx) their slots. Goes on where it stopped when a batch was not to be had. */
static int pass_slots(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    struct cw_split *s = b->split;
    bool one_by_one = r->compiled->batcher == CW_BATCHER_BUCKET || (b->has_failed && r->compiled->pipeline->on_error != CW_ON_ERROR_SKIP);
    size_t given = 0;
    for (unsigned i = 0; i < b->n_segments; i++)
        given += b->segments[i].n;
    while (given < b->n_live && !s->poisoned) {
        size_t row = b->idx[given];
        struct cw_assembly *a;
        if (raises(r, b->b.status[row]))
            return poison(r, b, row, err);
        int status = filling(r, s, (unsigned)bucket_of(r, b, row), &a, err);
        if (status != 0)
            return status;
        size_t n = one_by_one ? 1 : CW_MIN(b->n_live - given, a->capacity - a->n_assigned);
        status = add_segment(r, b, a, given, n, err);
        if (status < 0)
            return status;
        given += n;
    }
    return 0;
}

int cw_block_pass(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    if (b->n_passed > b->point) { /* a second attempt: what was decided stays */
        for (size_t i = 0; b->point < r->compiled->n_limits && b->dropped && b->dropped[b->point] && i < b->b.n; i++)
            if (b->dropped[b->point][i]) {
                b->b.status[i] = CW_ROW_DROPPED;
                b->b.all_ok = false;
            }
        return 0;
    }
    int status = b->point < r->compiled->n_limits ? pass_limit(r, b, b->point, err) : pass_slots(r, b, err);
    if (status == 0)
        b->n_passed = b->point + 1;
    return status;
}

static struct segment *segment_of(const struct block *b, size_t row)
{
    if (!b->idx)
        return &b->segments[0]; /* counted: all rows are in one batch */
    size_t at = 0, end = b->n_live; /* idx ascends */
    while (at < end) {
        size_t middle = at + (end - at) / 2;
        if (b->idx[middle] < row)
            at = middle + 1;
        else
            end = middle;
    }
    if (at == b->n_live || b->idx[at] != row)
        return NULL;
    unsigned low = 0, high = b->n_segments; /* the first one that ends behind it */
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (b->segments[middle].first + b->segments[middle].n <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->n_segments ? &b->segments[low] : NULL;
}

static void quarantine(struct cw_runner *r, const struct block *b, const struct fault *f, struct cw_quarantined **list)
{
    const struct cw_source *source = r->sequence->sources[b->program->leaf];
    const char *path = source->ops->path ? source->ops->path(source, cw_block_ref(b, f->row)->row) : NULL;
    struct cw_quarantined *q = calloc(1, sizeof(*q));
    if (!q)
        return; /* the count is short by one; there is no memory to say so */
    *q = (struct cw_quarantined){.next = *list, .op = f->op, .file = path ? strdup(path) : NULL, .note = f->note, .replaced = f->replaced};
    cw_row_id(r, b, f->row, &q->id);
    if (f->replaced)
        q->by = b->replaced[f->row].id;
    memcpy(q->message, f->message, sizeof(q->message));
    *list = q;
}

void cw_block_settle(struct cw_runner *r, struct block *b)
{
    struct cw_split *s = b->split;
    for (const struct fault *f = b->faults; f; f = f->next) {
        struct segment *g = segment_of(b, f->row);
        bool raised = r->compiled->pipeline->on_error != CW_ON_ERROR_SKIP && !f->replaced && !f->note;
        if (raised && g) {
            struct cw_error error;
            cw_fault_error(r, b, f, &error);
            cw_assembly_poison(g->assembly, &error, b->seq << 32 | f->row);
        } else if (!raised) {
            quarantine(r, b, f, g ? &g->assembly->quarantined : s->tail ? &s->tail->quarantined : &s->quarantined);
        }
    }
    for (unsigned i = 0; i < b->n_segments; i++)
        b->segments[i].assembly->n_done += b->segments[i].n;
}
