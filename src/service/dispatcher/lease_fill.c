/* Decides which range is cut and leased next, and to which assignment. */
#include "service/dispatcher/lease_fill.h"

#include <inttypes.h>

#include "base/crash.h"
#include "base/hash.h"
#include "service/dispatcher/cut.h"
#include "service/dispatcher/lease_outbox.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/state.h"

/* ---- cutting ---- */

/* Positions of a range in a placed plan (batches follow from the elements of ranges) while no rate is known.
 * Elements may take 0.1 s each. After five completions ranges can be a thousand times as large. */
#define FIRST_POSITIONS 64
/* The same in a counted plan (batches follow from positions), unless a batch has fewer positions. */
#define FIRST_OF_BATCH 16

/* Returns how many positions of a range fit the memory of every ready worker. */
static uint64_t fill_most_positions(struct stream *s)
{
    if (s->assignments.most_positions != 0)
        return s->assignments.most_positions;
    s->assignments.most_positions = UINT64_MAX;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list)
        if (t->state == ASSIGNMENT_READY)
            s->assignments.most_positions = CW_MIN(s->assignments.most_positions, t->most_positions);
    return s->assignments.most_positions;
}

/* Whether this number of positions takes more than one second of thread time, or the time is not known. The
 * stream's rate would not tell: it may be low because clients consume slowly. */
static bool fill_is_expensive(const struct stream *s, uint64_t positions)
{
    const struct compute_stats *c = &s->computed;
    return !(c->positions > 0) || (c->compute_s + c->read_s) / c->positions * (double)positions > 1;
}

/* Cuts a range at the beginning of a gap, and adds it. NULL: no memory. */
static struct range *fill_cut(struct stream *s, struct span gap)
{
    uint64_t align = cw_dp_stream_align(s), size = align,
             position = cw_dp_stream_place(s, gap.begin).position;
    uint64_t random = cw_hash64(&(uint64_t){gap.begin + s->number}, sizeof(uint64_t));
    bool placed = cw_dp_stream_placed(s);
    if (s->data->plan->sequential) {
        gap.begin -= position % align;
        position -= position % align;
    } else if (cw_mutated("cut") && random % 2) {
        uint64_t least = (align + CW_CUT_PARTS - 1) / CW_CUT_PARTS,
                 most = 3 * CW_MAX(align, (uint64_t)FIRST_OF_BATCH);
        size = CW_MIN(CW_MAX(random / 2 % most, least), fill_most_positions(s));
        size = placed ? CW_MAX(size - size % align, align) : size;
    } else {
        size = cw_cut_size(&(struct cw_cut){
            .positions_per_s = s->speed.rate,
            .n_measured = s->speed.n_measured,
            .n_workers = s->assignments.heap.n,
            .position = position,
            .window = s->data->plan->window,
            .align = align,
            .divides = !placed && s->assignments.n > 1 && fill_is_expensive(s, align),
            .first = placed ? CW_MAX(align, (uint64_t)FIRST_POSITIONS)
                            : CW_MIN(align, (uint64_t)FIRST_OF_BATCH),
            .most = fill_most_positions(s),
            .left = s->total - gap.begin,
        });
    }
    gap.end = CW_MIN(gap.end, gap.begin + CW_MIN(size, cw_dp_stream_epoch(s) - position));
    gap.end = cw_dp_lease_bound(s, gap);
    return cw_dp_range_add(&s->ranges, gap);
}

/* ---- granting ---- */

/* Whether the range is never leased again: it was lost, or lies after the last element of its epoch. */
static bool fill_is_over(const struct range *x)
{
    return (x->flags & RANGE_LOST) || ((x->flags & RANGE_DURABLE) && x->reporter == 0);
}

/* Finds the first wanted position that is leased to no worker. *ret: its range; NULL: it is in no range, and
 * *gap is set to the positions up to the next range. False: there is no such position, or the table is full.
 */
static bool fill_next_free(struct stream *s, struct range **ret, struct span *gap)
{
    struct range_table *ranges = &s->ranges;
    ranges->free_from = CW_MAX(ranges->free_from, ranges->base);
    struct range *x = cw_dp_range_at(ranges, cw_dp_range_index(ranges, ranges->free_from));
    for (; x && x->begin <= ranges->free_from && (x->holder[0].assignment || fill_is_over(x));
         x = cw_dp_range_next(ranges, x))
        ranges->free_from = x->end;
    *ret = x && x->begin <= ranges->free_from ? x : NULL;
    *gap = (struct span){ranges->free_from, x ? x->begin : UINT64_MAX};
    return ranges->free_from < s->total && (*ret || ranges->n < DP_RANGES);
}

/* All workers are full: drops the last lease after pos, to make room for the range at pos. Returns the
 * assignment that had the lease. NULL: there is none. Earlier ranges always win, so this can't go on for
 * ever. */
static struct assignment *fill_make_room(struct cw_dispatcher *d, struct stream *s, uint64_t pos)
{
    struct range *x;
    for (size_t at = s->ranges.n;
         !s->at_most_once && at-- > 0 && (x = cw_dp_range_at(&s->ranges, at))->begin > pos;)
        for (int i = 0; i < 2 && x->holder[i].assignment; i++) {
            struct assignment *t = x->holder[i].assignment;
            if (t->heap_at == 0 || (t->n_held < t->capacity && i == 0 && (x->flags & RANGE_COMPLETE)))
                continue; /* a complete range needs room only if the worker is at its capacity */
            cw_dp_lease_drop(d, t, x, DROP_REVOKED);
            return t;
        }
    return NULL;
}

/* If all ranges are leased and a worker has nothing to compute: takes the last range from a worker that is
 * still computing an earlier one. Returns the range. NULL: there is none. */
static struct range *fill_take_back(struct cw_dispatcher *d, struct stream *s)
{
    const struct assignment *idle = s->assignments.heap.n > 0 ? s->assignments.heap.items[0] : NULL;
    if (s->at_most_once || !idle || idle->n_held >= idle->capacity || idle->n_held > idle->n_complete)
        return NULL;
    for (size_t at = s->ranges.n; at-- > 0;) {
        struct range *x = cw_dp_range_at(&s->ranges, at);
        struct assignment *t = x->holder[0].assignment;
        if (t && !x->holder[1].assignment && cw_dp_lease_unfinished(x, t) && t->n_held - t->n_complete > 1) {
            cw_dp_lease_drop(d, t, x, DROP_REVOKED);
            return x;
        }
    }
    return NULL;
}

/* Whether a job wants ranges of the stream, and they can be leased. */
static bool fill_is_wanted(const struct cw_dispatcher *d, const struct stream *s)
{
    if (!s->data || s->ranges.state != RANGES_MARKED || s->state == STREAM_DEAD || cw_dp_stream_grace(d, s))
        return false;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        if (!j->paused)
            return true;
    return false;
}

/* Chooses the origin, the worker that reads the iterable, and sends its address to all workers of the stream.
 * The oldest worker is chosen: a restarted dispatcher chooses the same one, and it is released last. */
static void fill_choose_origin(struct cw_dispatcher *d, struct stream *s)
{
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        if (t->heap_at > 0 && (!s->assignments.origin || t->worker->id < s->assignments.origin->worker->id))
            s->assignments.origin = t;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        if (t->state == ASSIGNMENT_READY) {
            t->outbox.new_origin = true;
            cw_dp_outbox_dirty(d, t);
        }
}

/* Returns whether a worker has enough to compute: `depth` ranges and DP_DEPTH_S of work, because leases and
 * completions take time to arrive. Work is counted in positions: if elements get more expensive, a worker
 * does not get dozens of ranges that were cut before. */
static bool fill_has_enough(const struct stream *s, const struct assignment *t)
{
    return t->n_held - t->n_complete >= s->speed.depth && (double)t->to_compute >= s->speed.rate * DP_DEPTH_S;
}

void cw_dp_lease_fill(struct cw_dispatcher *d, struct stream *s)
{
    struct range *x;
    struct span gap;
    if (!fill_is_wanted(d, s))
        return;
    if (s->data->plan->origin && !s->assignments.origin && s->assignments.heap.n > 0)
        fill_choose_origin(d, s);
    while (fill_next_free(s, &x, &gap) || (x = fill_take_back(d, s))) {
        if (s->assignments.heap.n == 0 && s->assignments.n_shunned > 0 && !cw_dp_worker_set_comes(d, s))
            cw_dp_prepare_unshun(d, s, true); /* a shunned worker is better than no worker */
        if (s->assignments.heap.n == 0)
            return;
        struct assignment *t = s->assignments.heap.items[0];
        /* Complete ranges count only towards the capacity, not as work: several ranks may need their batches
         * at the same time, and the worker limits its memory itself. */
        if ((t->n_held >= t->capacity || fill_has_enough(s, t)) && !(t = fill_make_room(d, s, gap.begin)))
            return;
        if (!x && !(x = fill_cut(s, gap)))
            return;
        if (cw_dp_lease_grant(d, t, x) < 0)
            return;
    }
}

/* ---- late ranges ---- */

/* Returns how many ns after its lease a range counts as late, by the rate of the stream's workers. */
static double late_after_ns(const struct stream *s, const struct range *x)
{
    if (!(s->speed.rate > 0))
        return DP_LATE;
    double expected_ns = (double)(x->end - x->begin) / s->speed.rate * 1e9;
    return (double)x->before / s->speed.rate * 1e9 +
           CW_MAX(expected_ns + DP_LATE_MORE, DP_LATE_TIMES * expected_ns);
}

/* Returns an assignment other than `but` that has room, or has computed everything; the latter may get one
 * range more than its capacity, because clients wait for the range. NULL: there is none. */
static struct assignment *late_find_idle(const struct stream *s, const struct assignment *but)
{
    for (size_t i = 0; i < s->assignments.heap.n; i++) {
        struct assignment *t = s->assignments.heap.items[i];
        if (t != but && (t->n_held < t->capacity || (t->n_held == t->n_complete && t->n_held == t->capacity)))
            return t;
    }
    return NULL;
}

void cw_dp_lease_late(struct cw_dispatcher *d, struct stream *s)
{
    if (!fill_is_wanted(d, s) || s->at_most_once)
        return;
    struct range *x = cw_dp_range_at(&s->ranges, 0);
    while (x && ((x->flags & RANGE_COMPLETE) || fill_is_over(x)))
        x = cw_dp_range_next(&s->ranges, x);
    if (!x || !x->holder[0].assignment || x->holder[1].assignment)
        return;
    if ((double)(d->now_ns - x->leased_ns) < late_after_ns(s, x))
        return;
    struct assignment *slow = x->holder[0].assignment, *t = late_find_idle(s, slow);
    /* while no rate is known, a worker that is computing something may be no faster */
    if (!t || (!(s->speed.rate > 0) && t->n_held > t->n_complete))
        return;
    Cachew__Place at = cw_dp_stream_place(s, x->begin);
    cw_dp_log(
        d, false,
        "positions %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64 " are late at worker %" PRIu64
        " (leased %" PRIu64 " ms ago): worker %" PRIu64
        " computes them as well, and idle workers also compute the late worker's other unfinished ranges",
        at.position, at.position + (x->end - x->begin), at.epoch, slow->worker->id,
        (d->now_ns - x->leased_ns) / 1000000, t->worker->id);
    for (; x && t; x = cw_dp_range_next(&s->ranges, x)) {
        if (!cw_dp_lease_unfinished(x, slow) || x->holder[1].assignment)
            continue;
        d->leases.n_late++;
        if (cw_dp_lease_grant(d, t, x) < 0)
            return;
        t = late_find_idle(s, slow);
    }
}
