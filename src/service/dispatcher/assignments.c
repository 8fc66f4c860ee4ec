/*
 * What a worker has to do with a stream: asked to prepare it, ready or unfit, among those that get leases,
 * with messages to be sent. A assignment that may get leases is in its stream's heap, whose root has the
 * fewest ranges to compute, and room for one more if any assignment has.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"
#include "service/dispatcher/internal.h"
#include "net/conn.h"

/* ---- the heap ---- */

static bool assignment_before(const struct assignment *a, const struct assignment *b)
{
    bool a_full = a->n_held >= a->capacity, b_full = b->n_held >= b->capacity;
    if (a_full != b_full)
        return b_full;
    uint32_t depth = a->stream->depth;
    uint32_t x = CW_MIN(a->n_held - a->n_complete, depth), y = CW_MIN(b->n_held - b->n_complete, depth);
    if (x != y)
        return x < y;
    return x == depth && a->to_compute != b->to_compute ? a->to_compute < b->to_compute : a->order < b->order;
}

static void heap_put(struct stream *s, size_t i, struct assignment *t)
{
    s->heap[i] = t;
    t->heap_at = i + 1;
}

static void heap_fix(struct stream *s, struct assignment *t)
{
    size_t i = t->heap_at - 1;
    while (i > 0 && assignment_before(t, s->heap[(i - 1) / 2])) {
        heap_put(s, i, s->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
        if (child + 1 < s->n_heap && assignment_before(s->heap[child + 1], s->heap[child]))
            child++;
        if (!assignment_before(s->heap[child], t))
            break;
        heap_put(s, i, s->heap[child]);
    }
    heap_put(s, i, t);
}

static void heap_remove(struct stream *s, struct assignment *t)
{
    size_t i = t->heap_at - 1;
    struct assignment *last = s->heap[--s->n_heap];
    t->heap_at = 0;
    if (last != t) {
        heap_put(s, i, last);
        heap_fix(s, last);
    }
}

void cw_dp_assignment_usable(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    bool usable = t->state == ASSIGNMENT_READY && t->granted && t->worker->ready && !t->worker->draining &&
                  t->shunned_until == 0 &&
                  /* what it holds is not known before, and would be leased again */
                  (!t->worker->kept || t->named);
    if (!usable) {
        if (t->heap_at > 0)
            heap_remove(s, t);
        return;
    }
    if (t->heap_at == 0)
        heap_put(s, s->n_heap++, t); /* there is room for all assignments */
    heap_fix(s, t);
    cw_dp_stream_dirty(d, s);
}

/* ---- assignments ---- */

struct assignment *cw_dp_assignment_find(struct worker *w, const struct stream *s)
{
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments)
        if (t->stream == s)
            return t;
    return NULL;
}

struct assignment *cw_dp_assignment_new(struct cw_dispatcher *d, struct worker *w, struct stream *s)
{
    if (d->n_assignments >= DP_ASSIGNMENTS ||
        CW_ARRAY_ROOM(s->heap, s->heap_capacity, s->n_assignments + 1, "assignments", NULL) < 0)
        return NULL;
    struct assignment *t = malloc(sizeof(*t));
    if (!t)
        return NULL;
    struct cw_key key = {0};
    cw_key_u64(&key, w->id);
    cw_key_u64(&key, s->number);
    *t = (struct assignment){.worker = w, .stream = s, .order = cw_key_hash(&key), .granted = !d->scales};
    cw_list_add(&w->assignments, &t->by_worker);
    cw_list_add(&s->assignments, &t->by_stream);
    s->n_assignments++;
    d->n_assignments++;
    return t;
}

/* Whether the worker has threads and memory for it. */
static bool is_taken(enum assignment_state state)
{
    return state == ASSIGNMENT_ASKED || state == ASSIGNMENT_READY;
}

static bool is_full(const struct worker *w)
{
    return w->short_of_memory || (w->max_streams > 0 && w->n_streams >= w->max_streams);
}

/* Large ones one after the other: what is on its way to a worker is bounded. */
static bool is_much(const struct worker *w, const struct stream *s)
{
    return w->asked_bytes > 0 && w->asked_bytes + s->pipeline->size > CW_PIPELINE_BYTES;
}

static void assignment_state(struct cw_dispatcher *d, struct assignment *t, enum assignment_state state)
{
    struct worker *w = t->worker;
    bool was_full = is_full(w);
    t->stream->n_ready += (state == ASSIGNMENT_READY) - (t->state == ASSIGNMENT_READY);
    t->stream->most_positions = 0; /* to be found again */
    w->n_streams += (uint32_t)is_taken(state) - (uint32_t)is_taken(t->state);
    w->asked_bytes += (state == ASSIGNMENT_ASKED) * t->stream->pipeline->size -
                      (t->state == ASSIGNMENT_ASKED) * t->stream->pipeline->size;
    enum assignment_state was = t->state;
    if (t->stream->origin == t && state != ASSIGNMENT_READY)
        t->stream->origin = NULL;
    bool answered = w->turned_away && was == ASSIGNMENT_ASKED && state != ASSIGNMENT_ASKED;
    t->state = state;
    w->turned_away &= !answered;
    w->short_of_memory &= w->n_streams > 0 && (was != ASSIGNMENT_READY || is_taken(state));
    d->room |= (was_full && !is_full(w)) || answered;
}

/* The worker is to have nothing of the stream any more. */
static void say_forget(struct cw_dispatcher *d, struct assignment *t)
{
    Cachew__Forget f = {CW_MESSAGE(forget), .stream = {16, t->stream->id}};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_FORGET, .forget = &f};
    cw_dp_send(d, t->worker->peer, &m);
}

struct assignment *cw_dp_assignment_forget(struct cw_dispatcher *d, struct assignment *t)
{
    if (t->worker->peer && t->state != ASSIGNMENT_IDLE)
        say_forget(d, t);
    return cw_dp_assignment_free(d, t);
}

struct assignment *cw_dp_assignment_free(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    if (t->n_held > 0)
        cw_dp_lease_drop_from(d, t, 0, DROP_SILENTLY);
    if (t->heap_at > 0)
        heap_remove(s, t);
    if (d->scales && t->granted) {
        t->worker->n_worker_sets--;
        cw_dp_worker_sets_later(d);
    }
    assignment_state(d, t, ASSIGNMENT_IDLE);
    s->n_shunned -= t->shunned_until != 0;
    s->n_assignments--;
    d->n_assignments--;
    cw_link_out(&t->by_worker);
    cw_link_out(&t->by_stream);
    cw_link_out(&t->dirty);
    free(t->out);
    free(t->why);
    free(t->computed);
    free(t->caching);
    free(t);
    return NULL;
}

/* ---- preparing ---- */

static void assignment_prepare(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    Cachew__Prepare p = {
        CW_MESSAGE(prepare),           .stream = {16, s->id},   .fingerprint = {16, s->pipeline->fingerprint},
        .pipeline = s->pipeline->json, .base_dir = s->base_dir, .seed = s->seed,
        .cache_point = s->cache_point};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_PREPARE, .prepare = &p};
    m.id = t->request = ++t->worker->last_request;
    assignment_state(d, t, ASSIGNMENT_ASKED);
    t->beside = t->worker->n_streams > 1;
    cw_dp_send(d, t->worker->peer, &m);
}

/* Until the data is known, one worker is asked at a time; then all are: those of the worker set, if there is
 * a policy. */
void cw_dp_assignment_ask(struct cw_dispatcher *d, struct stream *s)
{
    bool waiting = false;
    struct assignment *first = NULL;
    s->wants = false;
    if (s->dead || s->parked || cw_list_empty(&s->jobs))
        return;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        t->worker->here = t;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
        struct assignment *t = w->here;
        w->here = NULL;
        if (!w->ready || w->draining || (d->scales && !(t && t->granted)))
            continue;
        if (!t && !(t = cw_dp_assignment_new(d, w, s))) {
            cw_dp_log(d, true, "no memory, or no room, for worker %" PRIu64 " in another stream", w->id);
            continue;
        }
        waiting |= t->state == ASSIGNMENT_ASKED;
        if (t->state != ASSIGNMENT_IDLE)
            continue;
        w->turned_away |= is_much(w, s);
        if (is_full(w) || is_much(w, s))
            s->wants = true;
        else if (s->data)
            assignment_prepare(d, t);
        else if (!first || t->order < first->order)
            first = t;
    }
    if (s->data || !first || (waiting && d->now_ns - s->asked_ns < DP_ASK_MORE))
        return;
    s->asked_ns = d->now_ns;
    assignment_prepare(d, first);
}

void cw_dp_assignment_ask_all(struct cw_dispatcher *d, bool waiting)
{
    for (int others = 0; others < 2; others++)
        CW_LIST_EACH_OF (s, struct stream, link, &d->streams)
            if ((s->wants || !waiting) && (s->n_ready > 0) == others)
                cw_dp_assignment_ask(d, s);
}

void cw_dp_assignment_room(struct cw_dispatcher *d)
{
    if (d->room) {
        d->room = false;
        cw_dp_assignment_ask_all(d, true);
    }
}

void cw_dp_assignment_reasons(const struct cw_dispatcher *d, const struct stream *s,
                              const Cachew__Failure *why, struct cw_error *ret)
{
    size_t n = 0, n_left_out = 0, size = 0, room = sizeof(ret->message) - sizeof("; and 1000000 more");
    cw_failure_error(why, ret);
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        n += t->state == ASSIGNMENT_UNFIT;
    size_t longest = CW_MAX(480 / CW_MAX(n, (size_t)1), (size_t)100); /* bytes of a reason */
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
        const struct assignment *t = cw_dp_assignment_find(w, s);
        char text[640], shown[CW_TEXT_SHOWN];
        if (!t || t->state != ASSIGNMENT_UNFIT)
            continue;
        const char *reason = t->why ? t->why : "no reason was given";
        snprintf(text, sizeof(text), "%s worker %" PRIu64 " (%.*s): %.*s",
                 size ? ";" : "no worker can run it:", w->id, (int)cw_text_whole(w->name, 60), w->name,
                 (int)cw_text_whole(reason, longest), reason);
        cw_text_show(shown, size ? sizeof(shown) : room, text); /* the first one is cut to fit */
        size_t k = strlen(shown);
        if (size + k >= room) {
            n_left_out++;
            continue;
        }
        memcpy(ret->message + size, shown, k + 1);
        size += k;
    }
    if (n_left_out > 0)
        snprintf(ret->message + size, sizeof(ret->message) - size, "; and %zu more", n_left_out);
}

/*
 * Ends the jobs of a stream, with the reason of each worker, once all workers have failed at it or can't
 * serve it. A worker that drains counts while it holds ranges of the stream. The stream may be gone after
 * that.
 */
static void stream_give_up(struct cw_dispatcher *d, struct stream *s, const Cachew__Failure *why)
{
    struct cw_error err = {0};
    bool failed = false;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
        const struct assignment *t = cw_dp_assignment_find(w, s);
        if (w->ready && (w->draining ? t && t->n_held > 0 : !t || t->state != ASSIGNMENT_UNFIT))
            return;
        failed |= t && t->failed;
    }
    if (!failed)
        return;
    cw_dp_assignment_reasons(d, s, why, &err);
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        cw_dp_job_over(d, j, JOB_FAILED, &err);
}

static void assignment_unfit(struct cw_dispatcher *d, struct assignment *t, const char *why)
{
    char hex[33];
    assignment_state(d, t, ASSIGNMENT_UNFIT);
    cw_dp_assignment_usable(d, t);
    cw_dp_worker_sets_later(d); /* somebody else takes its place */
    free(t->why);
    t->why = cw_text_dup(why, 1000);
    cw_dp_log(d, true, "worker %" PRIu64 " (%s) can't serve stream %s: %s", t->worker->id, t->worker->name,
              cw_dp_hex(t->stream->id, hex), why);
}

static void unfit_difference(const Cachew__Prepared *a, const Cachew__Prepared *b, char *ret, size_t size)
{
    for (size_t i = 0; a->n_files > 0 && b->n_files > 0 && i < CW_MAX(a->n_files, b->n_files); i++) {
        if (i >= b->n_files || (i < a->n_files && strcmp(a->files[i]->path, b->files[i]->path) < 0))
            snprintf(ret, size, "it sees other data: file \"%s\" is not there", a->files[i]->path);
        else if (i >= a->n_files || strcmp(a->files[i]->path, b->files[i]->path) > 0)
            snprintf(ret, size, "it sees other data: file \"%s\" is there in addition", b->files[i]->path);
        else if (a->files[i]->key != b->files[i]->key)
            snprintf(ret, size, "it sees other data: file \"%s\" has other content", a->files[i]->path);
        else
            continue;
        return;
    }
    if (a->plan->snapshot == b->plan->snapshot && a->plan->n_positions == b->plan->n_positions) {
        snprintf(ret, size,
                 "it compiles the pipeline otherwise: align %" PRIu64 ", %" PRIu32
                 " keys, sequential %d; expected %" PRIu64 ", %" PRIu32 ", %d",
                 b->plan->align, b->plan->n_keys, b->plan->sequential, a->plan->align, a->plan->n_keys,
                 a->plan->sequential);
        return;
    }
    snprintf(ret, size,
             "it sees other data: the snapshot is %016" PRIx64 " with %" PRIu64
             " positions, expected %016" PRIx64 " with %" PRIu64,
             b->plan->snapshot, b->plan->n_positions, a->plan->snapshot, a->plan->n_positions);
}

int cw_dp_assignment_prepared(struct cw_dispatcher *d, struct assignment *t, const Cachew__Prepared *p,
                              struct cw_error *err)
{
    struct stream *s = t->stream;
    if (!p->plan || p->n_files > DP_FILES || p->capacity == 0)
        return cw_error_set(err, CW_E_SERVICE,
                            "Prepared without a plan or a capacity, or with more than %d files", DP_FILES);
    if (p->plan->n_positions > DP_ENDLESS || p->plan->align == 0)
        return cw_error_set(err, CW_E_SERVICE,
                            "Prepared with a plan of %" PRIu64
                            " positions (expected at most 2^62), align %" PRIu64 " (expected at least 1)",
                            p->plan->n_positions, p->plan->align);
    if (p->most_positions != 0 && p->most_positions < p->plan->align)
        return cw_error_set(err, CW_E_SERVICE,
                            "Prepared with ranges of at most %" PRIu64
                            " positions, but their bounds are multiples of %" PRIu64,
                            p->most_positions, p->plan->align);
    if (!s->data) {
        int r = cw_dp_stream_ready(d, s, p, err);
        if (r < 0)
            return r;
    }
    const Cachew__Plan *a = s->data->plan, *b = p->plan;
    if (a->snapshot != b->snapshot || a->n_positions != b->n_positions || a->align != b->align ||
        a->n_keys != b->n_keys || a->sequential != b->sequential) {
        char why[1000];
        unfit_difference(s->data, p, why, sizeof(why));
        if (t->n_held > 0)
            cw_dp_lease_drop_from(d, t, 0, DROP_SILENTLY);
        say_forget(d, t);
        assignment_unfit(d, t, why);
        cw_dp_assignment_shun(d, t); /* a file may have been away for a moment: then it is to look again */
        return 0;
    }
    uint32_t capacity = CW_MIN(p->capacity, (uint32_t)DP_CAPACITY);
    /* what it was given when it could have more may still be on its way through the journal */
    uint32_t room = CW_MAX(capacity, t->most);
    uint64_t *out = realloc(t->out, (room + 2) * sizeof(*out));
    if (!out)
        return cw_error_nomem(err, (room + 2) * sizeof(*out), "leases of a worker");
    t->out = out;
    t->most = room;
    t->capacity = capacity;
    t->most_positions = p->most_positions > 0 ? p->most_positions : UINT64_MAX;
    assignment_state(d, t, ASSIGNMENT_READY);
    t->failed = false;
    cw_dp_assignment_usable(d, t);
    cw_dp_stream_dirty(d, s);
    t->new_origin = s->origin; /* it may have gone while the worker was away */
    if (t->new_origin)
        cw_dp_assignment_dirty(d, t);
    return 0;
}

/* Whether a share of the worker's memory did not suffice for the stream: it may fit when others end, or
 * alone. */
static bool is_crowded(const struct assignment *t, const Cachew__Failure *why)
{
    return (t->beside || t->worker->n_streams > 1) && strcmp(why->kind, cw_status_name(CW_E_BUDGET)) == 0;
}

static void assignment_crowded(struct cw_dispatcher *d, struct assignment *t)
{
    assignment_state(d, t, ASSIGNMENT_IDLE);
    t->worker->short_of_memory = t->worker->n_streams > 0;
    d->room |= t->worker->n_streams == 0;
    t->stream->wants = true;
}

int cw_dp_assignment_answer(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Envelope *m,
                            struct cw_error *err)
{
    struct assignment *t = NULL;
    CW_LIST_EACH_OF (x, struct assignment, by_worker, &w->assignments)
        if (x->state == ASSIGNMENT_ASKED && x->request == re)
            t = x;
    if (!t || t->stream->dead) /* of a stream that is forgotten */
        return 0;
    if (m->of_case == CACHEW__ENVELOPE__OF_PREPARED)
        return cw_dp_assignment_prepared(d, t, m->prepared, err);
    if (is_crowded(t, m->failure)) {
        assignment_crowded(d, t);
        return 0;
    }
    assignment_unfit(d, t, m->failure->message);
    if (!t->stream->data) {
        cw_dp_stream_unfit(d, t->stream, m->failure);
        return 0;
    }
    cw_dp_assignment_shun(d, t); /* others can, so it may be able to later: a file was away, or memory */
    stream_give_up(d, t->stream, m->failure);
    return 0;
}

int cw_dp_assignment_failed(struct cw_dispatcher *d, struct worker *w, const Cachew__StreamFailed *m,
                            struct cw_error *err)
{
    char hex[33];
    if (m->stream.len != 16 || !m->why)
        return cw_error_set(err, CW_E_SERVICE,
                            "StreamFailed without a stream of 16 bytes, or without a reason");
    struct stream *s = cw_dp_stream_find(d, m->stream.data);
    struct assignment *t = s ? cw_dp_assignment_find(w, s) : NULL;
    if (!t || s->dead || t->state != ASSIGNMENT_READY) /* forgotten, or asked for anew */
        return 0;
    cw_dp_log(d, true, "worker %" PRIu64 " (%s) can't go on with stream %s: its %zu ranges go to others: %s",
              w->id, w->name, cw_dp_hex(s->id, hex), (size_t)t->n_held, m->why->message);
    cw_dp_lease_drop_from(d, t, 0, DROP_SILENTLY);
    cw_dp_stream_dirty(d, s);
    /* A worker that does not have the stream has not failed: it is prepared anew. It gets leases if no other
     * can. */
    if (strcmp(m->why->kind, cw_status_name(CW_E_SERVICE)) == 0) {
        assignment_state(d, t, ASSIGNMENT_IDLE);
        cw_dp_assignment_shun(d, t);
        cw_dp_assignment_ask(d, s);
        return 0;
    }
    say_forget(d, t); /* what it has of the stream is of no use, and takes memory */
    if (is_crowded(t, m->why)) {
        assignment_crowded(d, t);
        cw_dp_assignment_usable(d, t);
        return 0;
    }
    assignment_unfit(d, t, m->why->message);
    t->failed = true;
    cw_dp_assignment_shun(d, t); /* then it is tried again */
    stream_give_up(d, s, m->why);
    return 0;
}

/* ---- shunned ---- */

void cw_dp_assignment_shun(struct cw_dispatcher *d, struct assignment *t)
{
    t->stream->n_shunned += t->shunned_until == 0;
    t->shunned_until = d->now_ns + DP_SHUN;
    cw_dp_assignment_usable(d, t);
    cw_dp_worker_sets_later(d);
}

void cw_dp_assignment_unshun(struct cw_dispatcher *d, struct stream *s, bool all)
{
    bool ask = false;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments) {
        if (t->shunned_until == 0 || (t->shunned_until > d->now_ns && (!all || t->state == ASSIGNMENT_UNFIT)))
            continue;
        t->shunned_until = 0;
        s->n_shunned--;
        if (t->state == ASSIGNMENT_UNFIT) {
            assignment_state(d, t, ASSIGNMENT_IDLE);
            ask = true;
        }
        cw_dp_assignment_usable(d, t);
        cw_dp_worker_sets_later(d);
    }
    if (ask)
        cw_dp_assignment_ask(d, s);
}

/* ---- what is to be sent ---- */

void cw_dp_assignment_dirty(struct cw_dispatcher *d, struct assignment *t)
{
    if (!cw_link_in(&t->dirty))
        cw_list_add(&d->dirty_assignments, &t->dirty);
}

/* Positions of one epoch. Returns where they end, through the epochs. */
static uint64_t range_message(const struct stream *s, struct span span, Cachew__Range *ret)
{
    cachew__range__init(ret);
    cw_dp_stream_place(s, span.begin, &ret->epoch, &ret->begin);
    ret->end = ret->begin + CW_MIN(span.end - span.begin, cw_dp_stream_epoch(s) - ret->begin);
    return span.begin + (ret->end - ret->begin);
}

static void revoke_send(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    Cachew__Range ranges[2 * ASSIGNMENT_SPANS], *pointers[2 * ASSIGNMENT_SPANS];
    Cachew__Revoke r = {CW_MESSAGE(revoke), .stream = {16, s->id}, .positions = pointers};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_REVOKE, .revoke = &r};
    for (size_t i = 0; i < t->n_revoke; i++)
        for (struct span left = t->revoke[i]; left.begin < left.end;) { /* one for each epoch */
            pointers[r.n_positions] = &ranges[r.n_positions];
            left.begin = range_message(s, left, pointers[r.n_positions++]);
            if (r.n_positions == CW_COUNT_OF(ranges)) {
                cw_dp_send(d, t->worker->peer, &m);
                r.n_positions = 0;
            }
        }
    if (r.n_positions > 0)
        cw_dp_send(d, t->worker->peer, &m);
}

static void leases_send(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    Cachew__Range ranges[DP_CAPACITY + 2], *pointers[DP_CAPACITY + 2];
    uint64_t from[DP_CAPACITY + 2], align = s->data->plan->align;
    protobuf_c_boolean whole[DP_CAPACITY + 2];
    bool counted = cw_dp_stream_counted(s);
    Cachew__Leases l = {CW_MESSAGE(leases), .stream = {16, s->id}, .ranges = pointers, .from = from,
                        .whole = whole};
    l.n_ranges = l.n_from = l.n_whole = t->n_out;
    for (size_t i = 0; i < t->n_out; i++) {
        const struct range *x = cw_dp_range(s, t->out[i]); /* what is dropped is taken out of them */
        pointers[i] = &ranges[i];
        whole[i] = (x->flags & RANGE_REPORTED) != 0;
        range_message(s, (struct span){x->begin, x->end}, pointers[i]);
        ranges[i].lease = x->holder[x->holder[0].assignment != t].lease;
        /* the earliest batch begins before, or there */
        uint64_t base = ranges[i].begin + (s->base > x->begin ? s->base - x->begin : 0);
        from[i] = counted ? CW_MAX(ranges[i].begin, base - base % align) : ranges[i].begin;
    }
    Cachew__WorkerAddress origin;
    Cachew__Place passed = {CW_MESSAGE(place)};
    if (s->origin) {
        origin = cw_dp_worker_address(s->origin->worker);
        cw_dp_stream_place(s, s->base, &passed.epoch, &passed.position);
        l.origin = &origin;
        l.passed = &passed;
    }
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_LEASES, .leases = &l};
    cw_dp_send(d, t->worker->peer, &m);
}

static void assignment_flush(struct cw_dispatcher *d, struct assignment *t)
{
    if (t->n_revoke > 0 && t->worker->ready)
        revoke_send(d, t);
    t->n_revoke = 0;
    if ((t->n_out > 0 || t->new_origin) && t->worker->ready)
        leases_send(d, t);
    t->n_out = 0;
    t->new_origin = false;
}

void cw_dp_assignment_flush(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (t, struct assignment, dirty, &d->dirty_assignments) {
        cw_link_out(&t->dirty);
        assignment_flush(d, t);
    }
}

void cw_dp_assignment_unsend(struct assignment *t, uint64_t begin, uint64_t end)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_out; i++)
        if (t->out[i] < begin || t->out[i] >= end)
            t->out[n++] = t->out[i];
    t->n_out = n;
}

void cw_dp_assignment_revoke(struct cw_dispatcher *d, struct assignment *t, uint64_t begin, uint64_t end)
{
    struct span *last = t->n_revoke > 0 ? &t->revoke[t->n_revoke - 1] : NULL;
    cw_dp_assignment_unsend(t, begin, end);
    if (last && begin >= last->begin && begin <= last->end) { /* inside, or right behind */
        last->end = CW_MAX(last->end, end);
        return;
    }
    if (t->n_revoke == ASSIGNMENT_SPANS) {
        if (t->worker->ready)
            revoke_send(d, t);
        t->n_revoke = 0;
    }
    t->revoke[t->n_revoke++] = (struct span){begin, end};
    cw_dp_assignment_dirty(d, t);
}
