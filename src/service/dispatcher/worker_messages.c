/* Handles messages of workers. */
#include "service/dispatcher/worker_messages.h"

#include <math.h>
#include <stdlib.h>

#include "service/dispatcher/caching.h"
#include "service/dispatcher/completions.h"
#include "service/dispatcher/lease_outbox.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/prepare_answers.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/worker_life.h"

/* ---- holdings ---- */

/* Returns the range in a Holding that begins where range x begins; NULL: there is none. */
static const Cachew__Range *holding_find(const struct stream *s, const Cachew__Holding *h,
                                         const struct range *x)
{
    Cachew__Place at = cw_dp_stream_place(s, x->begin);
    for (size_t i = 0; i < h->n_ranges; i++)
        if (h->ranges[i]->epoch == at.epoch && h->ranges[i]->begin == at.position &&
            h->ranges[i]->end > at.position)
            return h->ranges[i];
    return NULL;
}

/* Drops leases of an earlier connection that the Holding does not name: the worker lost them, or never got
 * them. */
static void holding_drop_unnamed(struct cw_dispatcher *d, struct assignment *t, const Cachew__Holding *h)
{
    DP_RANGES_EACH (x, &t->stream->ranges, 0) {
        int held = x->holder[0].assignment == t ? 0 : 1;
        if (x->holder[held].assignment != t)
            continue;
        const Cachew__Range *m = holding_find(t->stream, h, x);
        uint64_t end = m ? x->begin + (m->end - m->begin) : 0;
        if (m) {
            x->holder[held].lease =
                m->lease; /* the number of an earlier lease, if Revoke and Leases did not arrive */
            cw_dp_lease_shorten(d, x, held, end);
        }
        if (end != x->end)
            cw_dp_lease_drop(d, t, x, DROP_REVOKED);
    }
}

/* Handles one Holding: the ranges of one stream that the worker has. */
static int worker_holding(struct cw_dispatcher *d, struct worker *w, const Cachew__Holding *h,
                          struct cw_error *err)
{
    const Cachew__Prepared *p = h->prepared;
    if (!p || p->stream.len != 16 || h->n_ranges > DP_HELD)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the worker sent a malformed message (Holdings): a stream id of %zu bytes (expected 16), "
            "%zu ranges (expected at most %d)" CW_OTHER_VERSION,
            p ? p->stream.len : 0, h->n_ranges, DP_HELD);
    struct stream *s = cw_dp_stream_find(d, p->stream.data);
    if (!s || s->state == STREAM_PARKED) {
        cw_dp_prepare_forget(d, w, p->stream);
        return 0;
    }
    struct assignment *t = cw_dp_assignment_find(w, s);
    if (!t && !(t = cw_dp_assignment_new(d, w, s)))
        return cw_error_nomem(err, sizeof(*t), "the assignment of a worker to a stream");
    t->named = true;
    int r = cw_dp_prepare_ready(d, t, p, err);
    if (w->kept)
        holding_drop_unnamed(d, t, h);
    for (size_t i = 0; r == 0 && t->state == ASSIGNMENT_READY && i < h->n_ranges; i++) {
        struct span span;
        r = cw_dp_stream_span(s, h->ranges[i]->epoch, h->ranges[i]->begin, h->ranges[i]->end, &span, err);
        if (r < 0)
            break;
        if (!cw_list_empty(&s->jobs))
            cw_dp_lease_hold(d, t, span, h->ranges[i]->lease);
        else
            cw_dp_outbox_revoke(d, t, span.begin, span.end);
    }
    return r;
}

/* The worker sent a message other than Holdings, so all of its Holdings have arrived. */
static void worker_holdings_over(struct cw_dispatcher *d, struct worker *w)
{
    if (!w->ready || (!w->awaited && !w->kept))
        return;
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments) {
        struct stream *s = t->stream;
        if (w->kept && t->state == ASSIGNMENT_READY && !t->named) { /* the worker lost the stream */
            cw_dp_lease_discard(d, t);
            cw_dp_prepare_stream(d, s);
        }
    }
    d->workers.n_awaited -= w->awaited;
    w->awaited = w->kept = false;
}

/* ---- heartbeats ---- */

#define MOST_BATCHES 1e18 /* largest accepted number of batches; products of such numbers are finite */
/* least number of seconds over which rates are measured; heartbeats come once a second */
#define RATED_S 0.5

static double rate_per_second(uint64_t now, uint64_t before, double seconds)
{
    return now > before ? (double)(now - before) / seconds : 0;
}

/* Computes rates since the last heartbeat. Heartbeats that were delayed and arrive close together are
 * skipped. */
static void worker_note_rates(const struct cw_dispatcher *d, struct worker *w, const Cachew__Heartbeat *m)
{
    struct worker_rates *x = &w->rates;
    double seconds = (double)(d->now_ns - x->from_ns) / 1e9;
    if (x->from_ns != 0 && seconds < RATED_S)
        return;
    if (x->from_ns != 0) {
        double misses_per_s = rate_per_second(m->cache_misses, x->from.cache_misses, seconds);
        x->cpus = rate_per_second(m->cpu_ns, x->from.cpu_ns, 1e9 * seconds);
        x->batches_per_s = rate_per_second(m->n_batches, x->from.n_batches, seconds);
        x->bytes_per_s = rate_per_second(m->n_bytes, x->from.n_bytes, seconds);
        x->cache_hits_per_s = rate_per_second(m->cache_hits, x->from.cache_hits, seconds);
        double lookups_per_s = x->cache_hits_per_s + misses_per_s;
        x->cache_part = lookups_per_s > 0 ? x->cache_hits_per_s / lookups_per_s : NAN;
    }
    x->from_ns = d->now_ns;
    x->from = w->usage;
}

/* Stores the worker's sums for a stream. The first sums after Holdings are not added to the stream's sums,
 * because they were counted over an earlier connection or by an earlier process of the dispatcher. */
static void worker_note_work(struct cw_dispatcher *d, struct assignment *t, const Cachew__StreamWork *m)
{
    bool counts = t->computed || !t->named;
    /* a peer may send any number */
    double batches = m->batches > 0 && m->batches < MOST_BATCHES ? m->batches : 0;
    t->work = (struct work){.compute_s = (double)m->compute_ns / 1e9,
                            .positions = (double)m->positions,
                            .batches = batches,
                            .read_bytes = (double)m->read_bytes,
                            .at_ns = d->now_ns};
    if (!t->computed && !(t->computed = calloc(1, sizeof(*t->computed))))
        return;
    double elements = cw_compute_stats_add(&t->stream->computed, t->computed, m, counts);
    t->worker->history.n_elements += elements;
}

static int worker_heartbeat(struct cw_dispatcher *d, struct worker *w, const Cachew__Heartbeat *m,
                            struct cw_error *err)
{
    w->usage = (struct worker_usage){.cpu_ns = m->cpu_ns,
                                     .memory_bytes = m->memory_bytes,
                                     .n_batches = m->n_batches,
                                     .n_bytes = m->n_bytes,
                                     .cache_hits = m->cache_hits,
                                     .cache_misses = m->cache_misses};
    worker_note_rates(d, w, m);
    cw_dp_caching_store(w, m);
    cw_dp_worker_history_log(d, w, m->log, m->n_log);
    for (size_t i = 0; i < m->n_streams; i++) {
        const Cachew__StreamWork *x = m->streams[i];
        if (x->stream.len != 16)
            return cw_error_set(err, CW_E_SERVICE,
                                "the worker sent a malformed message (Heartbeat): a stream id of %zu bytes, "
                                "expected 16" CW_OTHER_VERSION,
                                x->stream.len);
        struct stream *s = cw_dp_stream_find(d, x->stream.data);
        struct assignment *t = s ? cw_dp_assignment_find(w, s) : NULL;
        if (!t)
            continue;
        worker_note_work(d, t, x);
        cw_dp_caching_heard(d, t, x);
    }
    return 0;
}

/* ---- messages ---- */

int cw_dp_worker_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err)
{
    struct worker *w = p->worker;
    int r = 0;
    if (m->of_case == CACHEW__ENVELOPE__OF_REGISTER)
        return cw_dp_worker_register(d, p, m->id, m->register_, err);
    if (!w)
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker's first message was not Register" CW_OTHER_VERSION);
    if (m->of_case != CACHEW__ENVELOPE__OF_HOLDINGS)
        worker_holdings_over(d, w);
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_PREPARED:
    case CACHEW__ENVELOPE__OF_FAILURE:
        return cw_dp_prepare_answer(d, w, m->re, m, err);
    case CACHEW__ENVELOPE__OF_HOLDINGS:
        for (size_t i = 0; i < m->holdings->n_holdings && r == 0; i++)
            r = worker_holding(d, w, m->holdings->holdings[i], err);
        return r;
    case CACHEW__ENVELOPE__OF_COMPLETED:
        return cw_dp_completed(d, w, m->id, m->completed, err);
    case CACHEW__ENVELOPE__OF_HEARTBEAT:
        return worker_heartbeat(d, w, m->heartbeat, err);
    case CACHEW__ENVELOPE__OF_STREAM_FAILED:
        return cw_dp_prepare_failed(d, w, m->stream_failed, err);
    case CACHEW__ENVELOPE__OF_DRAINING:
        cw_dp_worker_drain(d, w, WORKER_DRAINS);
        return 0;
    default:
        return 1;
    }
}
