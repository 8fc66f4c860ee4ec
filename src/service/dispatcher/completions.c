/* Handles Completed: the report, the rate of the stream, and the lease that ends. */
#include "service/dispatcher/completions.h"

#include <inttypes.h>

#include "service/dispatcher/job_life.h"
#include "service/dispatcher/state.h"

/* If a range takes this many times as long as expected, elements cost more than before, and earlier
 * measurements are dropped. */
#define COSTS_CHANGED 8

/* Fails the jobs of the stream: two runs of range x had different results. */
static void completion_contradicts(struct cw_dispatcher *d, struct stream *s, const struct range *x,
                                   const struct worker *w, const Cachew__Report *r)
{
    struct cw_error why = {0};
    cw_error_set(&why, CW_E_DATA,
                 "positions %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64 " gave %" PRIu64
                 " batches and %" PRIu64 " elements (batch keys: %" PRIu32 ") on worker %" PRIu64
                 ", but %" PRIu64 " batches and %" PRIu64 " elements (batch keys: %zu) on worker %" PRIu64
                 ": the data, or the results of a function in the pipeline, differ between these two runs",
                 r->begin, r->end, r->epoch, x->n_batches, cw_dp_elements_sum(x->elements, x->n_elements),
                 x->n_elements, x->reporter, r->n_batches, cw_dp_elements_sum(r->elements, r->n_elements),
                 r->n_elements, w->id);
    cw_dp_log(d, true, "%s", why.message);
    cw_dp_job_fail_all(d, s, &why);
}

/* Adds a completion of `positions` that took ns, and computes the rate from the last DP_MEASURED completions.
 */
static void speed_measure(struct stream_speed *speed, uint64_t positions, uint64_t ns)
{
    double n = 0, all = 0, seconds = 1e-9;
    if (speed->rate > 0 && (double)ns / 1e9 * speed->rate > COSTS_CHANGED * (double)positions)
        speed->n_measured = 0; /* earlier elements were cheaper */
    speed->last[speed->n_measured++ % DP_MEASURED] = (struct completion){positions, ns};
    for (; n < DP_MEASURED && n < (double)speed->n_measured; n++) {
        all += (double)speed->last[(size_t)n].positions;
        seconds += (double)speed->last[(size_t)n].ns / 1e9;
    }
    speed->rate = all / seconds;
}

/* Notes that the assignment, a holder of the range, has computed all of it. The other holder, if any, loses
 * its lease. */
static void completion_note(struct cw_dispatcher *d, struct assignment *t, struct range *x)
{
    struct stream *s = t->stream;
    if (x->flags & RANGE_COMPLETE)
        return;
    /* a worker computes its ranges one after the other: it began this one at the lease, or when it completed
     * the one before */
    uint64_t took_ns = d->now_ns - CW_MAX(x->leased_ns, t->completed_ns);
    /* after a second lease it is not known when the holder began */
    bool measured = !(x->flags & RANGE_HELD) && (!x->holder[1].assignment || x->holder[1].assignment == t);
    t->completed_ns = d->now_ns;
    if (x->holder[1].assignment == t) { /* the first holder, which was late, finished before the second one */
        const struct holder late = x->holder[1];
        x->holder[1] = x->holder[0];
        x->holder[0] = late;
        cw_dp_stream_announce(d, s, x);
    }
    x->flags |= RANGE_COMPLETE;
    t->n_complete++;
    t->to_compute -= x->end - x->begin;
    cw_dp_assignment_usable(d, t);
    if (x->holder[1].assignment)
        cw_dp_lease_drop(d, x->holder[1].assignment, x, DROP_REVOKED);
    if (measured)
        speed_measure(&s->speed, x->end - x->begin, took_ns);
}

static int completion_first_report(struct cw_dispatcher *d, struct stream *s, struct range *x,
                                   const struct worker *w, const Cachew__Report *r, struct cw_error *err)
{
    if (cw_dp_range_report(x, r->elements, r->n_elements, r->n_batches) < 0)
        return cw_error_nomem(err, r->n_elements * sizeof(uint64_t), "the report of a range");
    x->reporter = w->id;
    int result = cw_dp_journal_range(d, s, x, ACTION_REPORT, err);
    if (result < 0) {
        x->flags &= (uint8_t)~RANGE_REPORTED;
        return result;
    }
    s->n_completed++;
    d->leases.n_completed++;
    return 0;
}

/* The epoch has no elements after range x: its remaining positions become one range without elements. That
 * range is not journalled: after a restart a part of it is leased again, with the same result. */
static void completion_close_epoch(struct cw_dispatcher *d, struct stream *s, const struct range *x)
{
    uint64_t n = cw_dp_stream_epoch(s), end = (x->begin / n + 1) * n;
    struct span rest = {cw_dp_range_at(&s->ranges, cw_dp_range_index(&s->ranges, end) - 1)->end, end};
    struct range *y = rest.begin < end ? cw_dp_range_add(&s->ranges, rest) : NULL;
    if (y)
        y->flags = RANGE_REPORTED | RANGE_DURABLE;
    cw_dp_stream_reports(d, s);
}

/* Returns the index of the holder that has the lease with this number. -1: the lease has ended (another range
 * with the same begin may have been leased to the same worker since). */
static int completion_holder(const struct range *x, const struct worker *w, uint64_t lease)
{
    for (int i = 0; i < 2; i++)
        if (x->holder[i].assignment && x->holder[i].assignment->worker == w && x->holder[i].lease == lease)
            return i;
    return -1;
}

int cw_dp_completed(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Completed *c,
                    struct cw_error *err)
{
    const Cachew__Report *r = c->report;
    if (c->stream.len != 16 || !r || r->n_elements > DP_KEYS)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the worker sent a malformed message (Completed): a stream id of %zu bytes (expected 16), "
            "%s report of %zu keys (expected a report of at most %d)" CW_OTHER_VERSION,
            c->stream.len, r ? "a" : "no", r ? r->n_elements : 0, DP_KEYS);
    struct stream *s = cw_dp_stream_find(d, c->stream.data);
    struct span span;
    if (!s || !s->data) { /* the dispatcher has forgotten the stream */
        cw_dp_peer_done(d, w->peer, re);
        return 0;
    }
    int result = cw_dp_stream_span(s, r->epoch, r->begin, r->end, &span, err);
    if (result < 0)
        return result;
    cw_dp_lease_include(d, s, span.begin);
    struct range *x = cw_dp_range_find(&s->ranges, span.begin);
    int i = x && x->begin == span.begin ? completion_holder(x, w, c->lease) : -1;
    if (i >= 0)
        cw_dp_lease_shorten(d, x, i, span.end);
    if (i >= 0 && x->end > span.end && !s->at_most_once)
        /* a range with a report can't be shortened: all of it is leased again */
        cw_dp_lease_drop(d, x->holder[i].assignment, x, DROP_REVOKED);
    x = span.begin < s->total ? cw_dp_lease_exact(s, span) : NULL;
    bool contradicts = x && (x->flags & RANGE_REPORTED) && !(x->flags & RANGE_LOST) &&
                       !cw_dp_range_same(x, r->elements, r->n_elements, r->n_batches);
    if (contradicts)
        completion_contradicts(d, s, x, w, r);
    /* without a matching range, no job wants it, or its positions were cut differently since */
    if (contradicts || !x || (x->flags & RANGE_LOST)) {
        cw_dp_peer_done(d, w->peer, re);
        return 0;
    }
    if (!(x->flags & RANGE_REPORTED)) {
        result = completion_first_report(d, s, x, w, r, err);
        if (result < 0)
            return result;
    }
    if (c->last)
        x->flags |= RANGE_HELD; /* the rest of the epoch is empty: not a measurement of the rate */
    if ((i = completion_holder(x, w, c->lease)) >= 0)
        completion_note(d, x->holder[i].assignment, x);
    bool durable = x->flags & RANGE_DURABLE;
    if (c->last && cw_dp_stream_placed(s))
        completion_close_epoch(d, s, x);
    if (durable) {
        cw_dp_peer_done(d, w->peer, re);
        return 0;
    }
    return cw_dp_journal_then(d, &(struct action){.kind = ACTION_DONE, .peer = w->peer, .re = re}, err);
}
