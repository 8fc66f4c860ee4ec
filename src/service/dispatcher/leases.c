/* Who gets which range, who loses it, and what comes of finished ones. */
#include <inttypes.h>
#include <string.h>

#include "base/crash.h"
#include "base/hash.h"
#include "service/dispatcher/cut.h"
#include "service/dispatcher/internal.h"

/* Positions of a range in a placed plan while no rate is known: few, since elements may take 0.1 s each;
 * after five completions ranges can have a thousand times as many. */
#define FIRST_POSITIONS 64
/* The same in a counted plan, where a batch has more. */
#define FIRST_OF_BATCH 16
/* A range took so many times as long as expected: elements cost more than before. */
#define COSTS_CHANGED 8

static void lease_send(struct cw_dispatcher *d, struct assignment *t, const struct range *x)
{
    t->out[t->n_out++] = x->begin;
    cw_dp_assignment_dirty(d, t);
}

/* The assignment holds the range from now on: its counts, its place in the heap, and what clients are told.
 */
static void lease_count(struct cw_dispatcher *d, struct assignment *t, struct range *x)
{
    t->n_held++;
    t->worker->n_held++;
    if (x->flags & RANGE_COMPLETE)
        t->n_complete++;
    else
        t->to_compute += x->end - x->begin;
    cw_dp_assignment_usable(d, t);
    if (!(x->flags & RANGE_UNSENT))
        cw_dp_range_announce(d, t->stream, x);
    if (!t->announced)
        cw_dp_tell_assignment(d, t);
}

/* Leases a range to a assignment, beside its holder, if it has one. -1: no memory. */
static int lease_give(struct cw_dispatcher *d, struct assignment *t, struct range *x)
{
    struct stream *s = t->stream;
    bool second = x->holder[0].assignment != NULL;
    x->holder[1] = x->holder[0];
    x->holder[0] = (struct holder){t, ++d->last_lease};
    if (s->at_most_once) {
        /* clients are told its place, and the worker gets it, when the lease is written down */
        x->flags |= RANGE_UNSENT;
        if (cw_dp_journal_range(d, s, x, ACTION_LEASE, NULL) < 0) {
            x->flags &= (uint8_t)~RANGE_UNSENT;
            x->holder[0].assignment = NULL;
            return -1;
        }
    } else {
        lease_send(d, t, x);
    }
    if (!second) {
        x->flags &= (uint8_t)~RANGE_HELD;
        x->leased_ns = d->now_ns;
        x->before = t->to_compute;
    }
    d->n_leased++;
    lease_count(d, t, x);
    return 0;
}

void cw_dp_lease_written(struct cw_dispatcher *d, struct stream *s, struct range *x)
{
    if (!(x->flags & RANGE_UNSENT))
        return;
    x->flags &= (uint8_t)~RANGE_UNSENT;
    if (x->holder[0].assignment)
        lease_send(d, x->holder[0].assignment, x);
    cw_dp_range_announce(d, s, x); /* also that it is lost, if its holder went meanwhile */
}

void cw_dp_lease_drop(struct cw_dispatcher *d, struct assignment *t, struct range *x, enum drop how)
{
    struct stream *s = t->stream;
    if (x->holder[0].assignment != t && x->holder[1].assignment != t)
        return;
    if (x->holder[0].assignment == t && (x->flags & RANGE_COMPLETE))
        t->n_complete--;
    else
        t->to_compute -= x->end - x->begin;
    if (x->holder[0].assignment == t) {
        x->flags &= (uint8_t)~RANGE_COMPLETE;
        x->holder[0] = x->holder[1];
        cw_dp_range_announce(d, s, x);
    }
    x->holder[1].assignment = NULL;
    t->n_held--;
    t->worker->n_held--;
    if (!x->holder[0].assignment) {
        d->n_moved++;
        if (s->at_most_once)
            cw_dp_range_lose(d, s, x);
        else
            s->free_from = CW_MIN(s->free_from, x->begin);
    }
    if (how == DROP_REVOKED)
        cw_dp_assignment_revoke(d, t, x->begin, x->end);
    else
        cw_dp_assignment_unsend(t, x->begin, x->end);
    cw_dp_assignment_usable(d, t);
}

void cw_dp_lease_drop_from(struct cw_dispatcher *d, struct assignment *t, uint64_t from, enum drop how)
{
    struct range *x;
    size_t i = cw_dp_range_index(t->stream, from);
    for (; t->n_held > 0 && (x = cw_dp_range_at(t->stream, i)); i++)
        cw_dp_lease_drop(d, t, x, how);
}

static bool unfinished(const struct range *x, const struct assignment *t)
{
    return x->holder[0].assignment == t && !(x->flags & RANGE_COMPLETE);
}

void cw_dp_lease_drop_unbegun(struct cw_dispatcher *d, struct assignment *t)
{
    unsigned begun = 0;
    struct range *x;
    for (size_t i = 0; t->n_held > 0 && (x = cw_dp_range_at(t->stream, i)); i++) {
        if (begun < DP_DEPTH)
            begun += unfinished(x, t);
        else if (unfinished(x, t) || x->holder[1].assignment == t)
            cw_dp_lease_drop(d, t, x, DROP_REVOKED);
    }
}

/* ---- cutting ---- */

/* Returns where a range must end that begins at span.begin: at span.end, or at the position of a rank that
 * has just begun, which needs a range that begins there. */
static uint64_t range_bound(const struct stream *s, struct span span)
{
    if (s->begun_to <= span.begin || !cw_dp_stream_placed(s))
        return span.end;
    CW_LIST_EACH_OF (j, const struct job, by_stream, &s->jobs) {
        for (size_t i = 0; i < j->n_ranks; i++) {
            const struct rank *r = j->ranks[i];
            if (r->client && r->began && r->pos == r->began_at && r->pos > span.begin && r->pos < span.end)
                span.end = r->pos;
        }
    }
    return span.end;
}

/* Returns the range of exactly these positions, added if they are free. NULL: another range has some of them,
 * a rank begins inside, or there is no memory. */
static struct range *range_exact(struct stream *s, struct span span)
{
    struct range *x = cw_dp_range(s, span.begin);
    if (!x && span.end > s->base && range_bound(s, span) == span.end)
        x = cw_dp_range_add(s, span);
    return x && x->begin == span.begin && x->end == span.end ? x : NULL;
}

/* The range ends before its end so far; the rest is free. */
static void range_shorten(struct cw_dispatcher *d, struct stream *s, struct range *x, uint64_t end)
{
    x->end = end;
    s->free_from = CW_MIN(s->free_from, end);
    /* else the rest would be written down as given twice */
    if (s->at_most_once && cw_dp_journal_range(d, s, x, ACTION_LEASE, NULL) < 0)
        cw_dp_log(d, true, "out of memory: the journal does not have that a range ends at position %" PRIu64,
                  end);
    cw_dp_range_announce(d, s, x);
}

void cw_dp_lease_hold(struct cw_dispatcher *d, struct assignment *t, struct span span, uint64_t lease)
{
    struct stream *s = t->stream;
    bool ok = s->marked || (s->based && span.begin >= s->base) || cw_dp_range_rebase(d, s, span.begin) == 0;
    struct range *x = ok ? cw_dp_range(s, span.begin) : NULL;
    if (x && x->begin == span.begin && span.end < x->end && !x->holder[0].assignment &&
        !(x->flags & (RANGE_REPORTED | RANGE_LOST)))
        range_shorten(d, s, x, span.end); /* the worker has ended it early */
    x = ok ? range_exact(s, span) : NULL;
    if (x && (x->holder[0].assignment == t || x->holder[1].assignment == t))
        return;
    if (!x || x->holder[0].assignment || (x->flags & RANGE_LOST) || t->n_held >= t->capacity + 1) {
        cw_dp_assignment_revoke(d, t, span.begin, span.end);
        return;
    }
    x->holder[0] = (struct holder){t, lease};
    x->leased_ns = d->now_ns;
    x->before = t->to_compute;
    x->flags |= x->flags & RANGE_REPORTED ? RANGE_HELD | RANGE_COMPLETE : RANGE_HELD;
    lease_count(d, t, x);
}

/* Positions of a range that fit the memory of each ready worker. */
static uint64_t stream_most_positions(struct stream *s)
{
    if (s->most_positions != 0)
        return s->most_positions;
    s->most_positions = UINT64_MAX;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments)
        if (t->state == ASSIGNMENT_READY)
            s->most_positions = CW_MIN(s->most_positions, t->most_positions);
    return s->most_positions;
}

/* Whether threads are busy with so many positions for more than a second, as far as workers said what they
 * computed. The rate alone may be low because clients take little. */
static bool is_dear(const struct stream *s, uint64_t positions)
{
    const struct computed *c = &s->computed;
    return !(c->positions > 0) || (c->compute_s + c->read_s) / c->positions * (double)positions > 1;
}

/* Cuts a range at the beginning of a gap, and adds it. NULL: no memory. */
static struct range *range_cut(struct stream *s, struct span gap)
{
    uint64_t align = cw_dp_stream_align(s), size = align, epoch, position;
    uint64_t random = cw_hash64(&(uint64_t){gap.begin + s->number}, sizeof(uint64_t));
    bool placed = cw_dp_stream_placed(s);
    cw_dp_stream_place(s, gap.begin, &epoch, &position);
    if (s->data->plan->sequential) {
        gap.begin -= position % align;
        position -= position % align;
    } else if (cw_mutated("cut") && random % 2) {
        uint64_t least = (align + CW_CUT_PARTS - 1) / CW_CUT_PARTS,
                 most = 3 * CW_MAX(align, (uint64_t)FIRST_OF_BATCH);
        size = CW_MIN(CW_MAX(random / 2 % most, least), stream_most_positions(s));
    } else {
        size = cw_cut_size(&(struct cw_cut){
            .positions_per_s = s->rate,
            .n_measured = s->n_measured,
            .n_workers = s->n_heap,
            .position = position,
            .window = s->data->plan->window,
            .align = align,
            .divides = !placed && s->n_assignments > 1 && is_dear(s, align),
            .first = placed ? CW_MAX(align, (uint64_t)FIRST_POSITIONS)
                            : CW_MIN(align, (uint64_t)FIRST_OF_BATCH),
            .most = stream_most_positions(s),
            .left = s->total - gap.begin,
        });
    }
    gap.end = CW_MIN(gap.end, gap.begin + CW_MIN(size, cw_dp_stream_epoch(s) - position));
    gap.end = range_bound(s, gap);
    return cw_dp_range_add(s, gap);
}

/* ---- giving ---- */

/* Whether it is not leased: it was lost, or lies behind the end of its epoch (epoch_close). */
static bool is_over(const struct range *x)
{
    return (x->flags & RANGE_LOST) || ((x->flags & RANGE_DURABLE) && x->reporter == 0);
}

/* Finds the first wanted position that no worker has. *ret: its range; NULL: it is in none, and *gap has the
 * positions up to the next range. False: there is no such position, or no room in the table. */
static bool range_free(struct stream *s, struct range **ret, struct span *gap)
{
    struct range *x;
    s->free_from = CW_MAX(s->free_from, s->base);
    for (size_t i = cw_dp_range_index(s, s->free_from);; i++) {
        x = cw_dp_range_at(s, i);
        if (!x || x->begin > s->free_from || (!x->holder[0].assignment && !is_over(x)))
            break;
        s->free_from = x->end;
    }
    *ret = x && x->begin <= s->free_from ? x : NULL;
    *gap = (struct span){s->free_from, x ? x->begin : UINT64_MAX};
    return s->free_from < s->total && (*ret || s->n_ranges < DP_RANGES);
}

/* Everybody is full, while a range that is wanted has nobody: the last of those behind it makes room. Earlier
 * ones are always worth more, so this ends. */
static struct assignment *make_room(struct cw_dispatcher *d, struct stream *s, uint64_t pos)
{
    struct range *x;
    for (size_t at = s->n_ranges; !s->at_most_once && at-- > 0 && (x = cw_dp_range_at(s, at))->begin > pos;)
        for (int i = 0; i < 2 && x->holder[i].assignment; i++) {
            struct assignment *t = x->holder[i].assignment;
            if (t->heap_at == 0 || (t->n_held < t->capacity && i == 0 && (x->flags & RANGE_COMPLETE)))
                continue; /* what is complete takes no room but that of a worker that has all it may have */
            cw_dp_lease_drop(d, t, x, DROP_REVOKED);
            return t;
        }
    return NULL;
}

/* Everything is leased, and a worker has nothing to compute: takes the last range from a worker that computes
 * another one before it. Returns that range. NULL: there is none. */
static struct range *take_back(struct cw_dispatcher *d, struct stream *s)
{
    const struct assignment *idle = s->n_heap > 0 ? s->heap[0] : NULL;
    if (s->at_most_once || !idle || idle->n_held >= idle->capacity || idle->n_held > idle->n_complete)
        return NULL;
    for (size_t at = s->n_ranges; at-- > 0;) {
        struct range *x = cw_dp_range_at(s, at);
        struct assignment *t = x->holder[0].assignment;
        if (t && !x->holder[1].assignment && unfinished(x, t) && t->n_held - t->n_complete > 1) {
            cw_dp_lease_drop(d, t, x, DROP_REVOKED);
            return x;
        }
    }
    return NULL;
}

static bool wants_leases(const struct cw_dispatcher *d, const struct stream *s)
{
    if (!s->data || !s->based || !s->marked || s->dead || cw_dp_grace(d, s))
        return false;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        if (!j->paused)
            return true;
    return false;
}

/* Chooses the worker that reads the iterable, and tells all. The oldest one: a restarted dispatcher chooses
 * the same, and it is the last to be released. */
static void choose_origin(struct cw_dispatcher *d, struct stream *s)
{
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        if (t->heap_at > 0 && (!s->origin || t->worker->id < s->origin->worker->id))
            s->origin = t;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        if (t->state == ASSIGNMENT_READY) {
            t->new_origin = true;
            cw_dp_assignment_dirty(d, t);
        }
}

/* Returns whether a worker has enough to compute: `depth` ranges, and work for DP_DEPTH_S, as the way of a
 * lease and of its completion takes time. Counted in positions, so that ranges that were cut while elements
 * seemed cheap are not leased by the dozen. */
static bool has_enough(const struct stream *s, const struct assignment *t)
{
    return t->n_held - t->n_complete >= s->depth && (double)t->to_compute >= s->rate * DP_DEPTH_S;
}

void cw_dp_lease_fill(struct cw_dispatcher *d, struct stream *s)
{
    struct range *x;
    struct span gap;
    if (!wants_leases(d, s))
        return;
    if (s->data->plan->origin && !s->origin && s->n_heap > 0)
        choose_origin(d, s);
    while (range_free(s, &x, &gap) || (x = take_back(d, s))) {
        if (s->n_heap == 0 && s->n_shunned > 0 && !cw_dp_worker_set_comes(d, s))
            cw_dp_assignment_unshun(d, s, true); /* better than nobody */
        if (s->n_heap == 0)
            return;
        struct assignment *t = s->heap[0];
        /* What is complete costs nothing but the worker's memory, which it watches itself: several ranks may
         * have to have their batches before the first range ends. */
        if ((t->n_held >= t->capacity || has_enough(s, t)) && !(t = make_room(d, s, gap.begin)))
            return;
        if (!x && !(x = range_cut(s, gap)))
            return;
        if (lease_give(d, t, x) < 0)
            return;
    }
}

/* ---- late ---- */

/* Returns how long after its lease a range is late, by the rate of all workers of the stream. */
static double range_late_after_ns(const struct stream *s, const struct range *x)
{
    if (!(s->rate > 0))
        return DP_LATE;
    double expected_ns = (double)(x->end - x->begin) / s->rate * 1e9;
    return (double)x->before / s->rate * 1e9 +
           CW_MAX(expected_ns + DP_LATE_MORE, DP_LATE_TIMES * expected_ns);
}

/* With room, or, everything it has being finished, with nothing to do: for the range that all wait for it may
 * have one more. */
static struct assignment *idle_assignment(const struct stream *s, const struct assignment *but)
{
    for (size_t i = 0; i < s->n_heap; i++)
        if (s->heap[i] != but &&
            (s->heap[i]->n_held < s->heap[i]->capacity || s->heap[i]->n_held == s->heap[i]->n_complete))
            if (s->heap[i]->n_held <= s->heap[i]->capacity)
                return s->heap[i];
    return NULL;
}

void cw_dp_lease_late(struct cw_dispatcher *d, struct stream *s)
{
    if (!wants_leases(d, s) || s->at_most_once)
        return;
    struct range *x;
    for (size_t i = 0; (x = cw_dp_range_at(s, i)) && ((x->flags & RANGE_COMPLETE) || is_over(x)); i++)
        ;
    if (!x || !x->holder[0].assignment || x->holder[1].assignment)
        return;
    if ((double)(d->now_ns - x->leased_ns) < range_late_after_ns(s, x))
        return;
    struct assignment *slow = x->holder[0].assignment, *t = idle_assignment(s, slow);
    /* while no rate is known, a worker that computes is not known to be faster */
    if (!t || (!(s->rate > 0) && t->n_held > t->n_complete))
        return;
    uint64_t epoch, position;
    cw_dp_stream_place(s, x->begin, &epoch, &position);
    cw_dp_log(d, false,
              "positions %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64 " are late at worker %" PRIu64
              " (%" PRIu64 " ms): worker %" PRIu64 " runs them too, and others what else it has not finished",
              position, position + (x->end - x->begin), epoch, slow->worker->id,
              (d->now_ns - x->leased_ns) / 1000000, t->worker->id);
    for (size_t i = 0; (x = cw_dp_range_at(s, i)) && t; i++) {
        if (x->holder[0].assignment != slow || x->holder[1].assignment || (x->flags & RANGE_COMPLETE))
            continue;
        d->n_late++;
        if (lease_give(d, t, x) < 0)
            return;
        t = idle_assignment(s, slow);
    }
}

/* ---- done ---- */

uint64_t cw_dp_elements_sum(const uint64_t *elements, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += elements[i];
    return sum;
}

/* Two runs of one range gave different things: nothing that the stream delivers can be trusted. */
static void contradiction(struct cw_dispatcher *d, struct stream *s, const struct range *x,
                          const struct worker *w, const Cachew__Report *r)
{
    struct cw_error err = {0};
    cw_error_set(&err, CW_E_DATA,
                 "positions %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64 " gave %" PRIu64
                 " batches and %" PRIu64 " elements of %" PRIu32 " keys on worker %" PRIu64 ", but %" PRIu64
                 " batches and %" PRIu64 " elements of %zu keys on worker %" PRIu64
                 ": a function in the pipeline, or the data, is not the same every time",
                 r->begin, r->end, r->epoch, x->n_batches, cw_dp_elements_sum(x->elements, x->n_elements),
                 x->n_elements, x->reporter, r->n_batches, cw_dp_elements_sum(r->elements, r->n_elements),
                 r->n_elements, w->id);
    cw_dp_log(d, true, "%s", err.message);
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        cw_dp_job_over(d, j, JOB_FAILED, &err);
}

/* Notes that a worker took ns for that many positions, and sets the rate of a worker from the last
 * completions. */
static void stream_measure(struct stream *s, uint64_t positions, uint64_t ns)
{
    double n = 0, all = 0, seconds = 1e-9;
    if (s->rate > 0 && (double)ns / 1e9 * s->rate > COSTS_CHANGED * (double)positions)
        s->n_measured = 0; /* what was measured before is of other elements */
    s->measured[s->n_measured++ % DP_MEASURED] = (struct measured){positions, ns};
    for (; n < DP_MEASURED && n < (double)s->n_measured; n++) {
        all += (double)s->measured[(size_t)n].positions;
        seconds += (double)s->measured[(size_t)n].ns / 1e9;
    }
    s->rate = all / seconds;
}

/* The worker has all of it now. */
static void holder_complete(struct cw_dispatcher *d, struct assignment *t, struct range *x)
{
    struct stream *s = t->stream;
    if (x->flags & RANGE_COMPLETE)
        return;
    /* before that, it computed another one */
    uint64_t took_ns = d->now_ns - CW_MAX(x->leased_ns, t->completed_ns);
    /* when another one got it is not known */
    bool measured = !(x->flags & RANGE_HELD) && (!x->holder[1].assignment || x->holder[1].assignment == t);
    t->completed_ns = d->now_ns;
    if (x->holder[1].assignment == t) { /* the late one was faster after all */
        const struct holder late = x->holder[1];
        x->holder[1] = x->holder[0];
        x->holder[0] = late;
        cw_dp_range_announce(d, s, x);
    }
    x->flags |= RANGE_COMPLETE;
    t->n_complete++;
    t->to_compute -= x->end - x->begin;
    cw_dp_assignment_usable(d, t);
    if (x->holder[1].assignment)
        cw_dp_lease_drop(d, x->holder[1].assignment, x, DROP_REVOKED);
    if (measured)
        stream_measure(s, x->end - x->begin, took_ns);
    cw_dp_stream_dirty(d, s);
}

void cw_dp_lease_shorten(struct cw_dispatcher *d, struct range *x, int i, uint64_t end)
{
    struct assignment *t = x->holder[i].assignment;
    if (end >= x->end || (x->flags & (RANGE_REPORTED | RANGE_LOST)))
        return;
    if (x->holder[!i].assignment) {
        cw_dp_lease_drop(d, x->holder[!i].assignment, x, DROP_REVOKED);
        x->flags |= RANGE_HELD; /* which of them had it how long is not known */
    }
    t->to_compute -= x->end - end;
    cw_dp_assignment_usable(d, t);
    range_shorten(d, t->stream, x, end);
}

static int first_report(struct cw_dispatcher *d, struct stream *s, struct range *x, const struct worker *w,
                        const Cachew__Report *r, struct cw_error *err)
{
    if (cw_dp_range_report(x, r->elements, r->n_elements, r->n_batches) < 0)
        return cw_error_nomem(err, r->n_elements * sizeof(uint64_t), "a report");
    x->reporter = w->id;
    int result = cw_dp_journal_range(d, s, x, ACTION_REPORT, err);
    if (result < 0) {
        x->flags &= (uint8_t)~RANGE_REPORTED;
        return result;
    }
    s->n_completed++;
    d->n_completed++;
    return 0;
}

/* The epoch of x has no elements behind x: what is not cut of it so far becomes a range without elements. It
 * is not written down: another dispatcher leases something of it, and learns the same again. */
static void epoch_close(struct cw_dispatcher *d, struct stream *s, const struct range *x)
{
    uint64_t n = cw_dp_stream_epoch(s), end = (x->begin / n + 1) * n;
    struct span rest = {cw_dp_range_at(s, cw_dp_range_index(s, end) - 1)->end, end};
    struct range *y = rest.begin < end ? cw_dp_range_add(s, rest) : NULL;
    if (y)
        y->flags = RANGE_REPORTED | RANGE_DURABLE;
    cw_dp_stream_reports(d, s);
}

/* Which holder's lease it is. -1: none's, any more; another range with the same begin may have been leased to
 * the same worker since. */
static int holder_of(const struct range *x, const struct worker *w, uint64_t lease)
{
    for (int i = 0; i < 2; i++)
        if (x->holder[i].assignment && x->holder[i].assignment->worker == w && x->holder[i].lease == lease)
            return i;
    return -1;
}

int cw_dp_lease_completed(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Completed *c,
                          struct cw_error *err)
{
    struct action done = {.kind = ACTION_DONE, .peer = w->peer, .re = re};
    const Cachew__Report *r = c->report;
    if (c->stream.len != 16 || !r || r->n_elements > DP_KEYS)
        return cw_error_set(err, CW_E_SERVICE,
                            "Completed of a stream of %zu bytes (expected 16), with %s report of %zu keys "
                            "(expected at most %d)",
                            c->stream.len, r ? "a" : "no", r ? r->n_elements : 0, DP_KEYS);
    struct stream *s = cw_dp_stream_find(d, c->stream.data);
    struct span span;
    if (!s || !s->data) { /* over and forgotten */
        cw_dp_done(d, w->peer, re);
        return 0;
    }
    int result = cw_dp_stream_span(s, r->epoch, r->begin, r->end, &span, err);
    if (result < 0)
        return result;
    if (!s->marked && (!s->based || span.begin < s->base) && cw_dp_range_rebase(d, s, span.begin) < 0)
        return cw_error_nomem(err, 0, "a table of ranges");
    struct range *x = cw_dp_range(s, span.begin);
    int i = x && x->begin == span.begin ? holder_of(x, w, c->lease) : -1;
    if (i >= 0)
        cw_dp_lease_shorten(d, x, i, span.end);
    if (i >= 0 && x->end > span.end && !s->at_most_once) {
        /* its elements were reported before: it can't be shortened any more, and is leased again as a whole
         */
        cw_dp_lease_drop(d, x->holder[i].assignment, x, DROP_REVOKED);
        cw_dp_stream_dirty(d, s);
    }
    x = span.begin < s->total ? range_exact(s, span) : NULL;
    if (!x || (x->flags & RANGE_LOST)) { /* no job wants it, or its positions were cut otherwise since */
        cw_dp_done(d, w->peer, re);
        return 0;
    }
    if (x->flags & RANGE_REPORTED) {
        if (!cw_dp_range_same(x, r->elements, r->n_elements, r->n_batches)) {
            contradiction(d, s, x, w, r);
            cw_dp_done(d, w->peer, re);
            return 0;
        }
    } else {
        result = first_report(d, s, x, w, r, err);
        if (result < 0)
            return result;
    }
    if (c->last)
        x->flags |= RANGE_HELD; /* how long so many positions take can't be told from it */
    if ((i = holder_of(x, w, c->lease)) >= 0)
        holder_complete(d, x->holder[i].assignment, x);
    bool durable = x->flags & RANGE_DURABLE;
    if (c->last && cw_dp_stream_placed(s))
        epoch_close(d, s, x);
    if (durable) {
        cw_dp_done(d, w->peer, re);
        return 0;
    }
    return cw_dp_journal_then(d, &done, err);
}
