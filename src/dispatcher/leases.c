/* Who gets which split, who loses it, and what comes of finished ones. */
#include <inttypes.h>
#include <string.h>

#include "dispatcher/internal.h"

/* Of the first wanted split it is where the ranks that are in it stand. */
uint64_t cw_dp_lease_batch(const struct stream *s, uint64_t pos)
{
    uint64_t least = UINT64_MAX;
    if (pos != s->base)
        return 0;
    CW_LIST_EACH(at, &s->jobs) {
        const struct job *j = CW_CONTAINER(at, struct job, by_stream);
        if (j->n_ranks < j->world_size)
            return 0;
        for (size_t i = 0; i < j->n_ranks; i++)
            if (!j->ranks[i]->finished && j->ranks[i]->pos == pos)
                least = CW_MIN(least, j->ranks[i]->from.batch);
    }
    return least == UINT64_MAX ? 0 : least;
}

static void lease_send(struct cw_dispatcher *d, struct seat *t, uint64_t pos)
{
    t->out[t->n_out++] = pos;
    cw_dp_seat_dirty(d, t);
}

/* x becomes t's, beside whoever has it. */
static int lease_give(struct cw_dispatcher *d, struct seat *t, uint64_t pos, struct split *x)
{
    struct stream *s = t->stream;
    bool second = x->holder[0] != NULL;
    x->holder[1] = x->holder[0];
    x->holder[0] = t;
    if (s->at_most_once) { /* its place is told when it may be computed */
        struct action then = {.kind = ACTION_LEASE, .stream = s, .pos = pos};
        x->flags |= SPLIT_UNSENT;
        if (cw_dp_journal_split(d, s, pos, &then, NULL) < 0) { /* no memory: another time */
            x->flags &= (uint8_t)~SPLIT_UNSENT;
            x->holder[0] = NULL;
            return -1;
        }
    } else {
        lease_send(d, t, pos);
        cw_dp_split_announce(d, s, pos, x);
    }
    t->n_held++;
    t->worker->n_held++;
    d->n_leased++;
    if (!second)
        x->leased_ns = d->now_ns;
    cw_dp_seat_usable(d, t);
    if (!t->announced)
        cw_dp_tell_seat(d, t);
    return 0;
}

void cw_dp_lease_written(struct cw_dispatcher *d, struct stream *s, uint64_t pos)
{
    struct split *x = cw_dp_split(s, pos);
    if (!x || !(x->flags & SPLIT_UNSENT))
        return;
    x->flags &= (uint8_t)~SPLIT_UNSENT;
    if (x->holder[0])
        lease_send(d, x->holder[0], pos);
    cw_dp_split_announce(d, s, pos, x); /* also that it is lost, if its holder went meanwhile */
}

void cw_dp_lease_drop(struct cw_dispatcher *d, struct seat *t, uint64_t pos, enum drop how)
{
    struct stream *s = t->stream;
    struct split *x = cw_dp_split(s, pos);
    if (!x || (x->holder[0] != t && x->holder[1] != t))
        return;
    if (x->holder[0] == t) {
        if (x->flags & SPLIT_COMPLETE)
            t->n_complete--;
        x->flags &= (uint8_t)~SPLIT_COMPLETE;
        x->holder[0] = x->holder[1];
        cw_dp_split_announce(d, s, pos, x);
    }
    x->holder[1] = NULL;
    t->n_held--;
    t->worker->n_held--;
    if (!x->holder[0]) {
        d->n_moved++;
        if (s->at_most_once)
            cw_dp_split_lose(d, s, x);
        else
            s->free_from = CW_MIN(s->free_from, pos);
    }
    if (how == DROP_REVOKED)
        cw_dp_seat_revoke(d, t, pos, 1);
    else
        cw_dp_seat_unsend(t, pos, 1);
    cw_dp_seat_usable(d, t);
}

void cw_dp_lease_drop_from(struct cw_dispatcher *d, struct seat *t, uint64_t from, enum drop how)
{
    struct stream *s = t->stream;
    for (uint64_t pos = CW_MAX(from, s->base); t->n_held > 0 && pos < s->end; pos++)
        cw_dp_lease_drop(d, t, pos, how);
    cw_dp_split_trim(s);
}

static bool unfinished(const struct split *x, const struct seat *t) { return x->holder[0] == t && !(x->flags & SPLIT_COMPLETE); }

void cw_dp_lease_drop_unbegun(struct cw_dispatcher *d, struct seat *t)
{
    struct stream *s = t->stream;
    unsigned begun = 0;
    for (uint64_t pos = s->base; t->n_held > 0 && pos < s->end; pos++) {
        const struct split *x = cw_dp_split(s, pos);
        if (begun < DP_DEPTH)
            begun += unfinished(x, t);
        else if (unfinished(x, t) || x->holder[1] == t)
            cw_dp_lease_drop(d, t, pos, DROP_REVOKED);
    }
    cw_dp_split_trim(s);
}

int cw_dp_lease_hold(struct cw_dispatcher *d, struct seat *t, uint64_t pos, struct cw_error *err)
{
    struct stream *s = t->stream;
    if (s->marked ? pos < s->base : (!s->based || pos < s->base) && cw_dp_split_rebase(d, s, pos) < 0) {
        cw_dp_seat_revoke(d, t, pos, 1);
        return 0;
    }
    struct split *x = cw_dp_split_make(s, pos);
    if (!x)
        return cw_error_set(err, CW_E_SERVICE, "held split %" PRIu64 " is more than %" PRIu64 " behind the first wanted one", pos, DP_WINDOW);
    if (x->holder[0] == t || x->holder[1] == t)
        return 0;
    if (x->holder[0] || (x->flags & SPLIT_LOST) || t->n_held >= t->capacity + 1) {
        cw_dp_seat_revoke(d, t, pos, 1);
        return 0;
    }
    x->holder[0] = t;
    x->leased_ns = d->now_ns;
    t->n_held++;
    t->worker->n_held++;
    if (x->flags & SPLIT_REPORTED) {
        x->flags |= SPLIT_COMPLETE;
        t->n_complete++;
    }
    cw_dp_seat_usable(d, t);
    cw_dp_split_announce(d, s, pos, x);
    if (!t->announced)
        cw_dp_tell_seat(d, t);
    return 0;
}

/* ---- giving ---- */

/* The first wanted split that nobody has; UINT64_MAX: none. */
static uint64_t first_free(struct stream *s)
{
    uint64_t limit = CW_MIN(s->total, s->base + DP_WINDOW);
    for (s->free_from = CW_MAX(s->free_from, s->base); s->free_from < s->end; s->free_from++) {
        struct split *x = cw_dp_split(s, s->free_from);
        if (!x->holder[0] && !(x->flags & SPLIT_LOST))
            break;
    }
    return s->free_from < limit ? s->free_from : UINT64_MAX;
}

/* Everybody is full, while a split that is wanted has nobody: the last of those behind it makes room. Earlier ones are always worth more, so this ends. */
static struct seat *make_room(struct cw_dispatcher *d, struct stream *s, uint64_t pos)
{
    if (s->at_most_once)
        return NULL;
    for (uint64_t at = s->end; at-- > pos + 1;) {
        struct split *x = cw_dp_split(s, at);
        for (int i = 0; i < 2 && x->holder[i]; i++) {
            struct seat *t = x->holder[i];
            if (t->heap_at == 0 || (t->n_held < t->capacity && i == 0 && (x->flags & SPLIT_COMPLETE)))
                continue; /* what is complete takes no room but that of a worker that has all it may have */
            cw_dp_lease_drop(d, t, at, DROP_REVOKED);
            return t;
        }
    }
    return NULL;
}

static bool wants_leases(const struct cw_dispatcher *d, const struct stream *s)
{
    if (!s->data || !s->based || !s->marked || s->dead || cw_dp_grace(d, s))
        return false;
    CW_LIST_EACH(at, &s->jobs)
        if (!CW_CONTAINER(at, struct job, by_stream)->paused)
            return true;
    return false;
}

void cw_dp_lease_fill(struct cw_dispatcher *d, struct stream *s)
{
    if (!wants_leases(d, s))
        return;
    uint64_t pos;
    while ((pos = first_free(s)) != UINT64_MAX) {
        if (s->n_heap == 0 && s->n_shunned > 0 && !cw_dp_crew_comes(d, s))
            cw_dp_seat_unshun(d, s, true); /* better than nobody */
        if (s->n_heap == 0)
            return;
        struct seat *t = s->heap[0];
        /* What is complete costs nothing but the worker's memory, which it watches itself: several ranks may have to have their batches before the first split ends. */
        if ((t->n_held >= t->capacity || t->n_held - t->n_complete >= s->depth) && !(t = make_room(d, s, pos)))
            return;
        struct split *x = cw_dp_split_make(s, pos);
        if (!x || lease_give(d, t, pos, x) < 0)
            return;
    }
}

/* ---- late ---- */

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t late_after(const struct stream *s)
{
    uint64_t times[DP_TIMES];
    size_t n = (size_t)CW_MIN(s->n_times, (uint64_t)DP_TIMES);
    if (n == 0)
        return DP_LATE;
    memcpy(times, s->times_ns, n * sizeof(*times));
    qsort(times, n, sizeof(*times), compare_times);
    return CW_MAX(DP_LATE, DP_LATE_TIMES * times[n / 2]);
}

/* With room, or, everything it has being finished, with nothing to do: for the split that all wait for it may have one more. */
static struct seat *idle_seat(const struct stream *s, const struct seat *but)
{
    for (size_t i = 0; i < s->n_heap; i++)
        if (s->heap[i] != but && (s->heap[i]->n_held < s->heap[i]->capacity || s->heap[i]->n_held == s->heap[i]->n_complete))
            if (s->heap[i]->n_held <= s->heap[i]->capacity)
                return s->heap[i];
    return NULL;
}

void cw_dp_lease_late(struct cw_dispatcher *d, struct stream *s)
{
    if (!wants_leases(d, s) || s->at_most_once)
        return;
    uint64_t pos = s->base;
    struct split *x = cw_dp_split(s, pos);
    while (x && (x->flags & SPLIT_COMPLETE))
        x = cw_dp_split(s, ++pos);
    if (!x || !x->holder[0] || x->holder[1] || d->now_ns - x->leased_ns < late_after(s))
        return;
    struct seat *t = idle_seat(s, x->holder[0]);
    if (!t)
        return;
    uint64_t epoch, split;
    cw_dp_stream_place(s, pos, &epoch, &split);
    cw_dp_log(d, false, "split %" PRIu64 " of epoch %" PRIu64 " is late at worker %" PRIu64 " (%" PRIu64 " ms): worker %" PRIu64 " runs it too", split, epoch,
              x->holder[0]->worker->id, (d->now_ns - x->leased_ns) / 1000000, t->worker->id);
    d->n_late++;
    (void)lease_give(d, t, pos, x);
}

/* ---- done ---- */

/* Two runs of one split gave different things: nothing that the stream delivers can be trusted. */
static void contradiction(struct cw_dispatcher *d, struct stream *s, uint64_t pos, const struct split *x, const struct worker *w, const Cachew__Report *r)
{
    struct cw_error err = {0};
    uint64_t epoch, split;
    cw_dp_stream_place(s, pos, &epoch, &split);
    cw_error_set(&err, CW_E_DATA,
                 "split %" PRIu64 " of epoch %" PRIu64 " gave %" PRIu64 " batches and remnants of %" PRIu32 " keys on worker %" PRIu64 ", but %" PRIu64
                 " batches and remnants of %zu keys on worker %" PRIu64 ": a function in the pipeline, or the data, is not the same every time",
                 split, epoch, x->n_batches, x->n_remnants, x->reporter, r->n_batches, r->n_remnants, w->id);
    cw_dp_log(d, true, "%s", err.message);
    CW_LIST_EACH(at, &s->jobs)
        cw_dp_job_over(d, CW_CONTAINER(at, struct job, by_stream), JOB_FAILED, &err);
}

/* Short splits are leased several at a time, long ones hardly ahead, so that all workers have the same to do. */
static void adapt_depth(struct stream *s, uint64_t took_ns)
{
    s->ns_at_depth += took_ns;
    if (++s->n_at_depth < 2 * s->depth)
        return;
    uint64_t mean_ns = s->ns_at_depth / s->n_at_depth;
    if (mean_ns < DP_DEPTH_NS)
        s->depth = CW_MIN(2 * s->depth, (uint32_t)DP_CAPACITY);
    else if (mean_ns > 8 * DP_DEPTH_NS)
        s->depth = CW_MAX(s->depth / 2, DP_DEPTH);
    s->n_at_depth = 0;
    s->ns_at_depth = 0;
}

/* The worker has all of it now. */
static void holder_complete(struct cw_dispatcher *d, struct seat *t, uint64_t pos, struct split *x)
{
    struct stream *s = t->stream;
    if (x->flags & SPLIT_COMPLETE)
        return;
    if (x->holder[1] == t) { /* the late one was faster after all */
        x->holder[1] = x->holder[0];
        x->holder[0] = t;
        cw_dp_split_announce(d, s, pos, x);
    }
    x->flags |= SPLIT_COMPLETE;
    t->n_complete++;
    cw_dp_seat_usable(d, t);
    s->times_ns[s->n_times++ % DP_TIMES] = d->now_ns - x->leased_ns;
    adapt_depth(s, d->now_ns - x->leased_ns);
    if (x->holder[1])
        cw_dp_lease_drop(d, x->holder[1], pos, DROP_REVOKED);
    cw_dp_stream_dirty(d, s);
}

static int first_report(struct cw_dispatcher *d, struct stream *s, uint64_t pos, struct split *x, const struct worker *w, const Cachew__Report *r,
                        struct cw_error *err)
{
    if (cw_dp_split_report(x, r->remnants, r->n_remnants, r->n_batches) < 0)
        return cw_error_nomem(err, r->n_remnants * sizeof(uint64_t), "a report");
    x->reporter = w->id;
    struct action then = {.kind = ACTION_REPORT, .stream = s, .pos = pos};
    int result = cw_dp_journal_split(d, s, pos, &then, err);
    if (result < 0) {
        x->flags &= (uint8_t)~SPLIT_REPORTED;
        return result;
    }
    s->n_completed++;
    s->n_batches += r->n_batches;
    d->n_completed++;
    return 0;
}

int cw_dp_lease_completed(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Completed *c, struct cw_error *err)
{
    struct action done = {.kind = ACTION_DONE, .peer = w->peer, .re = re};
    const Cachew__Report *r = c->report;
    if (c->stream.len != 16 || !r || r->n_remnants > DP_REMNANTS)
        return cw_error_set(err, CW_E_SERVICE, "Completed without a stream of 16 bytes, or without a report of at most %d keys", DP_REMNANTS);
    struct stream *s = cw_dp_stream_find(d, c->stream.data);
    uint64_t pos;
    if (!s || !s->data) { /* over and forgotten */
        cw_dp_done(d, w->peer, re);
        return 0;
    }
    int result = cw_dp_stream_split(s, r->epoch, r->split, &pos, err);
    if (result < 0)
        return result;
    if (!s->marked && (!s->based || pos < s->base) && cw_dp_split_rebase(d, s, pos) < 0)
        return cw_error_nomem(err, 0, "a table of splits");
    struct split *x = pos < s->total ? cw_dp_split_make(s, pos) : NULL;
    if (!x || (x->flags & SPLIT_LOST)) { /* nobody wants it any more, or yet */
        cw_dp_done(d, w->peer, re);
        return 0;
    }
    if (x->flags & SPLIT_REPORTED) {
        if (!cw_dp_split_same(x, r->remnants, r->n_remnants, r->n_batches)) {
            contradiction(d, s, pos, x, w, r);
            cw_dp_done(d, w->peer, re);
            return 0;
        }
    } else {
        result = first_report(d, s, pos, x, w, r, err);
        if (result < 0)
            return result;
    }
    for (int i = 0; i < 2; i++)
        if (x->holder[i] && x->holder[i]->worker == w) {
            holder_complete(d, x->holder[i], pos, x);
            break;
        }
    if (x->flags & SPLIT_DURABLE) {
        cw_dp_done(d, w->peer, re);
        return 0;
    }
    return cw_dp_journal_then(d, &done, err);
}
