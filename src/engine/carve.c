/* Splits into pieces, pieces into blocks. */
#include <string.h>

#include "engine/internal.h"

#include "base/clock.h"

/* Spare blocks: more than are in flight with the usual number of threads. */
#define IDLE_MAX 64

/* ---- assemblies ---- */

/* How many batches are under way is bounded. Later splits leave room for the first one: it needs one to fill and one to join remnants in. A split may
 * have become the first only now, when later ones have everything: then it gets what it needs all the same, unless the consumer can take a batch of it,
 * which makes room. */
static bool may_take(const struct cw_runner *r, const struct cw_split *s)
{
    bool first = s == r->splits;
    unsigned reserve = first || r->compiled->counted ? 0 : 2;
    if (r->n_assemblies + reserve < r->max_assemblies)
        return true;
    return first && !(s->head && s->head->closed && s->head->n_done == s->head->n_assigned);
}

int cw_assembly_take(struct cw_runner *r, struct cw_split *s, unsigned bucket, struct cw_assembly **ret, struct cw_error *err)
{
    if (!may_take(r, s))
        return 1;
    int status = cw_assembly_new(&r->layout, &r->slabs, r->compiled->n_buckets ? r->compiled->bucket_sizes[bucket] : 1, bucket, ret, err);
    if (status == CW_E_BUDGET) {
        cw_trim(r);
        status = cw_assembly_new(&r->layout, &r->slabs, r->compiled->n_buckets ? r->compiled->bucket_sizes[bucket] : 1, bucket, ret, err);
    }
    if (status >= 0)
        r->n_assemblies++;
    return status;
}

/* Memory that the system does not give ends the run: there is nobody to wait for. */
static void out_of_memory(struct cw_runner *r, const char *what)
{
    if (!r->fatal.status)
        (void)cw_error_nomem(&r->fatal, 0, what);
    cw_done(r);
}

/* ---- pieces ---- */

static struct piece *piece_new(struct cw_runner *r, struct cw_split *s)
{
    struct piece *p = calloc(1, sizeof(*p));
    if (!p) {
        out_of_memory(r, "a split");
        return NULL;
    }
    p->begin = s->position;
    p->n = CW_MIN(r->sequence->split_size, s->end - s->position);
    s->position += p->n;
    if (r->compiled->counted && p->begin == s->begin)
        p->carved = CW_MIN(p->n, s->first_batch * r->compiled->batch_size);
    cw_arena_init(&p->arena, &r->budget);
    p->arena.exact = r->frugal > 0;
    if (s->last)
        s->last->next = p;
    else
        s->first = p;
    s->last = p;
    return p;
}

void cw_piece_unplan(struct piece *p)
{
    if (p->charged)
        cw_budget_give(p->arena.budget, p->charged);
    p->charged = 0;
    cw_arena_deinit(&p->arena);
    free(p->refs);
    free(p->raw);
    free(CW_STEAL(p->kept));
    p->refs = NULL;
    p->raw = NULL;
    p->planned = false;
}

/* The next piece that somebody should plan: the one that blocks are carved from, and one beyond. */
struct piece *cw_piece_to_plan(struct cw_runner *r, struct cw_split **ret_split)
{
    unsigned ahead = 0;
    if (r->planning)
        return NULL;
    for (struct cw_split *s = r->splits; s; s = s->next) {
        if (r->frugal && (s != r->splits || r->n_blocks > 0))
            return NULL;
        if (s->over || s->closed)
            continue;
        for (struct piece *p = s->first; ahead < (r->frugal ? 1 : 2); p = p->next) {
            if (!p && s->position < s->end && !(p = piece_new(r, s)))
                return NULL;
            if (!p)
                break;
            if (p->carved == p->n) /* used up, or nothing of it is wanted */
                continue;
            if (!p->planned) {
                if (r->plan_short && (ahead > 0 || r->n_blocks > 0 || r->n_running > 0 || cw_may_be_released(r)))
                    return NULL;
                *ret_split = s;
                return p;
            }
            ahead++;
        }
        if (ahead >= 2)
            return NULL;
    }
    return NULL;
}

int cw_piece_load(struct cw_runner *r, struct piece *p, struct cw_error *err)
{
    const struct cw_compiled *c = r->compiled;
    p->raw = calloc(p->n, sizeof(*p->raw));
    uint64_t *rows = malloc(p->n * sizeof(*rows)), *at = malloc(p->n * sizeof(*at));
    struct cw_tensor *raw = malloc(p->n * sizeof(*raw));
    int status = p->raw && rows && at && raw ? 0 : cw_error_nomem(err, p->n * sizeof(*p->raw), "records of a split");
    for (unsigned leaf = 0; leaf < c->n_programs && status >= 0; leaf++) {
        const struct cw_source *source = r->sequence->sources[leaf];
        size_t n = 0;
        if (!source->ops->load)
            continue;
        for (uint64_t i = 0; i < p->n; i++)
            if (p->refs[i].leaf == leaf) {
                rows[n] = p->refs[i].row;
                at[n++] = i;
            }
        status = n ? source->ops->load(source, rows, n, &p->arena, raw, err) : 0;
        if (status < 0 && status != CW_E_BUDGET)
            cw_error_op(err, c->programs[leaf].ops[0]->desc->name);
        for (size_t i = 0; i < n && status >= 0; i++)
            p->raw[at[i]] = raw[i];
    }
    free(rows);
    free(at);
    free(raw);
    return status;
}

/* How many elements of a stream are enough for now, if more are slow to come. Not fewer than the piece had, once there are others behind it, nor than are skipped; and
 * a shuffle is one of all. */
static size_t least_of(struct cw_runner *r, const struct piece *p)
{
    pthread_mutex_lock(&r->mutex);
    bool all = r->sequence->stream_salt || p->next;
    size_t least = all ? p->n : CW_MAX(p->carved, 1);
    pthread_mutex_unlock(&r->mutex);
    return least;
}

/* The next elements of a stream, in the order of the piece. */
static int pull_piece(struct cw_runner *r, const struct cw_split *s, struct piece *p, struct cw_error *err)
{
    struct cw_source *source = r->sequence->stream;
    size_t n = p->n;
    p->raw = calloc(n, sizeof(*p->raw));
    struct cw_tensor *raw = malloc(n * sizeof(*raw));
    uint32_t *order = malloc(n * sizeof(*order));
    int status = p->raw && raw && order ? 0 : cw_error_nomem(err, n * sizeof(*raw), "elements of a stream");
    if (status >= 0)
        status = source->ops->pull(source, p->begin, n, least_of(r, p), r->compiled->counted ? r->compiled->batch_size : 1, cw_stopped, r, &p->arena, raw, &n, err);
    if (status >= 0) {
        pthread_mutex_lock(&r->mutex); /* others look how much of it is carved, planned or not */
        p->cut = n < p->n;
        p->n = n;
        pthread_mutex_unlock(&r->mutex);
        cw_epoch_stream_order(&s->epoch->epoch, p->begin / r->sequence->split_size, order, n);
        for (size_t i = 0; i < n; i++) {
            p->refs[i].row = p->begin + order[i];
            p->raw[i] = raw[order[i]];
        }
    }
    free(raw);
    free(order);
    return status;
}

size_t cw_plan_bytes(const struct cw_sequence *s, uint64_t n)
{
    const struct piece *p = NULL;
    return CW_MIN(n, s->n_positions) * (sizeof(*p->refs) + (s->needs_load ? sizeof(*p->raw) : 0));
}

int cw_piece_plan(struct cw_runner *r, struct thread *t, struct cw_split *s, struct piece *p, struct cw_error *err)
{
    uint64_t start = cw_now_ns();
    size_t bytes = cw_plan_bytes(r->sequence, p->n);
    int status = cw_budget_take(&r->budget, bytes, "the plan of a split", err);
    if (status < 0)
        return status;
    p->charged = bytes;
    pthread_mutex_lock(&r->mutex);
    p->refs = CW_STEAL(r->spare_refs); /* all pieces are of one size: saves the kernel from zeroing pages for each */
    pthread_mutex_unlock(&r->mutex);
    if (!p->refs)
        p->refs = malloc(CW_MIN(r->sequence->split_size, r->sequence->n_positions) * sizeof(*p->refs));
    if (!p->refs)
        status = cw_error_nomem(err, bytes, "the plan of a split");
    s->epoch->epoch.stopped = cw_stopped;
    s->epoch->epoch.stop_arg = r;
    if (status >= 0)
        status = cw_epoch_refs(&s->epoch->epoch, p->begin, p->n, p->refs, err);
    if (status >= 0 && r->sequence->needs_load)
        status = r->sequence->stream ? pull_piece(r, s, p, err) : cw_piece_load(r, p, err);
    if (status >= 0)
        cw_piece_look_up(r, s, p);
    t->plan_ns += cw_now_ns() - start;
    return status;
}

/* ---- blocks ---- */

static void free_faults(struct block *b)
{
    while (b->faults) {
        struct fault *f = b->faults;
        b->faults = f->next;
        free(f);
    }
}

void cw_block_reset(struct cw_runner *r, struct block *b)
{
    cw_arena_reset(&b->arena, 0);
    b->b = (struct cw_block){.n = b->n_refs};
    b->origin = b->element = NULL;
    b->spent_ns = b->prefix_ns = b->cold_ns = b->late_ns = 0;
    b->n_looked = b->n_found = b->n_kept = b->content_rows = b->content_bytes = 0;
    b->shape = 0;
    b->point = r->compiled->counted ? r->n_points : 0;
    b->have_raw = b->waited = false;
    cw_block_forget(b);
    b->replaced = NULL;
    free_faults(b);
}

size_t cw_scratch_keep(struct cw_runner *r) { return atomic_load(&r->budget.used) < r->budget.limit / 4 * 3 ? (size_t)16 << 20 : 0; }

/* Frees all that a block has but its arena. */
static void block_clear(const struct cw_runner *r, struct block *b)
{
    for (unsigned k = 0; b->dropped && k < r->compiled->n_limits; k++)
        free(b->dropped[k]);
    free(b->dropped);
    free(b->shapes);
    free(b->idx);
    free(b->segments);
    free_faults(b);
    cw_block_forget(b);
}

void cw_block_free(struct cw_runner *r, struct block *b)
{
    block_clear(r, b);
    cw_arena_deinit(&b->arena);
    free(b);
}

void cw_block_recycle(struct cw_runner *r, struct block *b)
{
    r->n_blocks--;
    r->n_probes -= b->probe;
    if (r->n_idle == IDLE_MAX) {
        cw_block_free(r, b);
        return;
    }
    block_clear(r, b);
    cw_arena_reset(&b->arena, cw_scratch_keep(r));
    struct cw_arena arena = b->arena;
    memset(b, 0, sizeof(*b));
    b->arena = arena;
    b->next = r->idle;
    r->idle = b;
    r->n_idle++;
}

static struct block *block_new(struct cw_runner *r)
{
    struct block *b = r->idle;
    if (b) {
        r->idle = b->next;
        r->n_idle--;
        b->next = NULL;
    } else if ((b = calloc(1, sizeof(*b)))) {
        cw_arena_init(&b->arena, &r->budget);
    } else {
        out_of_memory(r, "a block");
    }
    return b;
}

/* How many rows from position `at` of a piece make block b: of one source, in one pass where limits count passes, quick enough. */
static uint64_t block_rows(const struct cw_runner *r, const struct block *b, const struct piece *p, uint64_t at)
{
    const struct cw_ref *first = &p->refs[at];
    const uint8_t *kept = b->choice == p->choice || b->uncached ? p->kept : NULL;
    bool hit = kept && kept[at] && !b->uncached;
    uint64_t most = CW_MIN(cw_rows_most(r, first->leaf, hit), p->n - at), n = 1;
    while (kept && n < most && kept[at + n] == kept[at])
        n++;
    most = kept ? n : most;
    most = r->frugal ? CW_MIN(most, r->frugal) : most;
    if (r->compiled->n_programs == 1 && !r->compiled->n_limits)
        return most;
    n = 1;
    while (n < most && first[n].leaf == first->leaf && (!r->compiled->n_limits || first[n].pass == first->pass))
        n++;
    return n;
}

/* The next batch of a counted pipeline. 1: none to be had now. Mutex held; the block that is carved is counted in r->n_blocks. */
static int counted_batch(struct cw_runner *r, struct cw_split *s, struct cw_assembly **ret, struct cw_error *err)
{
    int status = cw_assembly_take(r, s, 0, ret, err);
    if (status != CW_E_BUDGET)
        return status;
    if (r->n_blocks > 1 || r->n_running || cw_may_be_released(r)) /* then s may be another than the first split */
        return 1;
    cw_evict(r); /* nobody else gives anything back */
    while ((status = cw_assembly_take(r, s, 0, ret, err)) == CW_E_BUDGET && cw_reclaim(r, s))
        ;
    if (status != CW_E_BUDGET || (!r->frugal && cw_frugal_begin(r)))
        return status == CW_E_BUDGET ? 1 : status;
    const struct cw_place at = cw_place_of(s, s->begin);
    return cw_lack_of_memory(r, &at, "a batch does not fit beside the plan of its split", err);
}

/* Slots of a block in a counted pipeline follow from its position. 1: no batch to be had now. */
static int counted_slots(struct cw_runner *r, struct cw_split *s, struct piece *p, uint64_t *n, struct block *b)
{
    uint64_t size = r->compiled->batch_size, batch_from = p->carved / size * size;
    uint64_t length = CW_MIN(size, p->n - batch_from), slot = p->carved - batch_from;
    b->segments = calloc(1, sizeof(*b->segments));
    if (!b->segments) {
        out_of_memory(r, "slots");
        return 1;
    }
    if (slot == 0) {
        struct cw_assembly *a;
        struct cw_error err = {0};
        int status = counted_batch(r, s, &a, &err);
        if (status < 0 && !r->fatal.status) {
            r->fatal = err;
            cw_done(r);
        }
        if (status != 0)
            return 1;
        cw_split_append(s, a);
    }
    *n = CW_MIN(*n, length - slot);
    s->tail->n_assigned += *n;
    s->tail->closed = s->tail->n_assigned == length;
    b->segments[0] = (struct segment){.assembly = s->tail, .slot0 = slot, .n = *n};
    b->n_segments = 1;
    return 0;
}

struct block *cw_carve(struct cw_runner *r)
{
    /* Those of later splits may all wait for batches that only the first one's progress sets free; then it gets one beyond the limit. */
    bool full = r->n_blocks >= cw_blocks_most(r), first_has_none = r->splits && r->splits->n_blocks == 0;
    if ((full && !first_has_none) || r->starved || r->consumer_short || r->fatal.status || (r->frugal && cw_frugal_waits(r)))
        return NULL;
    for (struct cw_split *s = r->splits; s; s = s->next) {
        struct piece *p = s->first;
        if (s->over || s->closed)
            continue;
        while (p && p->carved == p->n)
            p = p->next;
        if (!p && s->position == s->end) {
            s->over = true;
            cw_done(r);
            continue;
        }
        if (!p || !p->planned || ((full || r->frugal) && s != r->splits))
            return NULL; /* in order: nothing is taken from later splits before */
        struct block *b = block_new(r);
        if (!b)
            return NULL;
        r->n_blocks++;
        b->split = s;
        b->arena.exact = r->frugal > 0;
        cw_block_choose(r, b, p);
        uint64_t n = block_rows(r, b, p, p->carved);
        if (r->compiled->counted && counted_slots(r, s, p, &n, b) != 0) {
            cw_block_recycle(r, b);
            return NULL;
        }
        b->piece = p;
        b->program = &r->compiled->programs[p->refs[p->carved].leaf];
        b->seq = s->next_seq++;
        b->at = p->carved;
        b->b.n = b->n_refs = n;
        b->point = r->compiled->counted ? r->n_points : 0;
        b->n_passed = b->point;
        p->carved += n;
        p->users++;
        s->n_blocks++;
        if (p->carved == p->n && !p->next && s->position == s->end)
            s->over = true;
        return b;
    }
    return NULL;
}

/* ---- splits ---- */

void cw_split_collect(struct cw_runner *r, struct cw_split *s)
{
    struct piece **at = &s->first, *before = NULL;
    while (*at) {
        struct piece *p = *at;
        if (p->users == 0 && p->carved == p->n) {
            *at = p->next;
            if (s->last == p)
                s->last = before;
            if (!r->spare_refs)
                r->spare_refs = CW_STEAL(p->refs);
            cw_piece_unplan(p);
            free(p);
        } else {
            before = p;
            at = &p->next;
        }
    }
}

void cw_split_append(struct cw_split *s, struct cw_assembly *a)
{
    if (s->tail)
        s->tail->next = a;
    else
        s->head = a;
    s->tail = a;
}

void cw_epoch_unref(struct epoch_ref *e)
{
    if (e && --e->refs == 0) {
        cw_epoch_deinit(&e->epoch);
        free(e);
    }
}

/* Gives back all that a split holds. */
static void split_drop(struct cw_runner *r, struct cw_split *s)
{
    while (s->first) {
        struct piece *p = s->first;
        s->first = p->next;
        cw_piece_unplan(p);
        free(p);
    }
    s->last = NULL;
    while (s->head) {
        struct cw_assembly *a = s->head;
        s->head = a->next;
        for (unsigned k = 0; s->open && k < CW_MAX(r->compiled->n_buckets, 1); k++)
            if (s->open[k] == a)
                s->open[k] = NULL;
        cw_assembly_free(a);
        r->n_assemblies--;
    }
    s->tail = NULL;
    for (unsigned k = 0; s->open && k < CW_MAX(r->compiled->n_buckets, 1); k++)
        if (s->open[k]) {
            s->open[k] = cw_assembly_free(s->open[k]);
            r->n_assemblies--;
        }
    s->quarantined = cw_quarantined_free(s->quarantined);
}

void cw_split_restart(struct cw_runner *r, struct cw_split *s)
{
    split_drop(r, s);
    free(CW_STEAL(s->failed));
    s->position = s->begin;
    s->end = cw_split_end(r, s->index); /* a stream may have ended before, or failed: that is found again */
    s->next_seq = 0;
    memset(s->passed, 0, r->n_points * sizeof(*s->passed));
    memset(s->limits, 0, r->compiled->n_limits * sizeof(*s->limits));
    s->over = s->poisoned = s->ended = false;
    if (r->compiled->counted)
        s->first_batch = s->n_taken;
    else
        s->discard = s->n_taken;
}

void cw_split_free(struct cw_runner *r, struct cw_split *s)
{
    split_drop(r, s);
    cw_epoch_unref(s->epoch);
    free(s->failed);
    free(s->passed);
    free(s->limits);
    free(s->open);
    free(s);
}
