/* Workers: who they are, that they come back under the same id, what they bring along, that they leave. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/internal.h"

#define MOST_BATCHES 1e18 /* that a worker computed; with so many, products are numbers still */
#define RATED_S 0.5       /* rates are over at least this: workers say once a second what they did */

struct worker *cw_dp_worker_find(struct cw_dispatcher *d, uint64_t id)
{
    for (struct cw_map_node *at = NULL; (at = cw_map_find(&d->workers_by_id, id, at));)
        if (CW_CONTAINER(at, struct worker, by_id)->id == id)
            return CW_CONTAINER(at, struct worker, by_id);
    return NULL;
}

static struct worker *find_incarnation(struct cw_dispatcher *d, const uint8_t incarnation[16])
{
    for (struct cw_map_node *at = NULL;
         (at = cw_map_find(&d->workers_by_incarnation, cw_hash64(incarnation, 16), at));)
        if (memcmp(CW_CONTAINER(at, struct worker, by_incarnation)->incarnation, incarnation, 16) == 0)
            return CW_CONTAINER(at, struct worker, by_incarnation);
    return NULL;
}

static int worker_new(struct cw_dispatcher *d, uint64_t id, const uint8_t incarnation[16],
                      struct worker **ret, struct cw_error *err)
{
    struct worker *w = malloc(sizeof(*w));
    if (!w)
        return cw_error_nomem(err, sizeof(*w), "a worker");
    *w = (struct worker){.id = id, .cache_part = NAN};
    memcpy(w->incarnation, incarnation, 16);
    cw_list_init(&w->assignments);
    if (cw_map_add(&d->workers_by_id, &w->by_id, id) < 0) {
        free(w);
        return cw_error_nomem(err, sizeof(*w), "a worker");
    }
    if (cw_map_add(&d->workers_by_incarnation, &w->by_incarnation, cw_hash64(incarnation, 16)) < 0) {
        cw_map_remove(&d->workers_by_id, &w->by_id);
        free(w);
        return cw_error_nomem(err, sizeof(*w), "a worker");
    }
    cw_list_add(&d->workers, &w->link);
    d->n_workers++;
    *ret = w;
    return 0;
}

static void address_clear(struct worker *w)
{
    for (size_t i = 0; i < w->n_addresses; i++)
        free(w->addresses[i]);
    free(w->addresses);
    free(w->name);
    free(w->host);
    free(w->unix_path);
    free(w->http);
    free(w->pool);
    w->addresses = NULL;
    w->name = w->host = w->unix_path = w->http = w->pool = NULL;
    w->n_addresses = 0;
}

struct worker *cw_dp_worker_free(struct cw_dispatcher *d, struct worker *w)
{
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments)
        cw_dp_assignment_free(d, t);
    cw_map_remove(&d->workers_by_id, &w->by_id);
    cw_map_remove(&d->workers_by_incarnation, &w->by_incarnation);
    cw_link_out(&w->link);
    d->n_workers--;
    d->n_awaited -= w->awaited;
    if (w->peer)
        w->peer->worker = NULL;
    address_clear(w);
    free(w);
    return NULL;
}

int cw_dp_worker_restore(struct cw_dispatcher *d, const Cachew__Journal__Worker *row, struct cw_error *err)
{
    struct worker *w;
    if (row->incarnation.len != 16 || row->id == 0 || cw_dp_worker_find(d, row->id) ||
        find_incarnation(d, row->incarnation.data))
        return cw_error_set(err, CW_E_STATE,
                            "worker %" PRIu64 " has no identity of 16 bytes, or is there twice", row->id);
    int r = worker_new(d, row->id, row->incarnation.data, &w, err);
    if (r < 0)
        return r;
    d->worker_ids = CW_MAX(d->worker_ids, row->id);
    w->awaited = true;
    d->n_awaited++;
    return 0;
}

/* ---- registering ---- */

static int worker_describe(struct worker *w, const struct cw_peer *p, const Cachew__Register *r,
                           struct cw_error *err)
{
    struct worker x = {.name = strdup(p->name),
                       .host = strdup(p->host),
                       .unix_path = strdup(r->unix_path),
                       .http = strdup(r->http),
                       .pool = strdup(r->pool),
                       .addresses = calloc(r->n_addresses + 1, sizeof(char *))};
    bool ok = x.name && x.host && x.unix_path && x.http && x.pool && x.addresses;
    for (; ok && x.n_addresses < r->n_addresses; x.n_addresses += ok) {
        x.addresses[x.n_addresses] = strdup(r->addresses[x.n_addresses]);
        ok = x.addresses[x.n_addresses] != NULL;
    }
    if (!ok) {
        address_clear(&x);
        return cw_error_nomem(err, 0, "the addresses of a worker");
    }
    address_clear(w);
    w->name = x.name;
    w->host = x.host;
    w->unix_path = x.unix_path;
    w->http = x.http;
    w->pool = x.pool;
    w->addresses = x.addresses;
    w->n_addresses = x.n_addresses;
    w->pid = r->pid;
    w->cpu_budget = r->cpu_budget;
    w->memory = r->memory;
    w->max_streams = r->max_streams;
    return 0;
}

static int register_check(const struct cw_peer *p, const Cachew__Register *r, struct cw_error *err)
{
    bool sound = r->n_addresses <= DP_ADDRESSES && strlen(r->unix_path) <= DP_PATH &&
                 strlen(r->http) <= DP_ADDRESS && strlen(r->pool) <= DP_NAME &&
                 (r->n_addresses > 0 || *r->unix_path);
    for (size_t i = 0; sound && i < r->n_addresses; i++)
        sound = strlen(r->addresses[i]) <= DP_ADDRESS;
    static const uint8_t none[16];
    if (!sound)
        return cw_error_set(err, CW_E_SERVICE,
                            "a worker needs an address, and has at most %d, of at most %d bytes",
                            DP_ADDRESSES, DP_ADDRESS);
    if (memcmp(p->incarnation, none, 16) == 0)
        return cw_error_set(err, CW_E_SERVICE, "a worker's Hello must have an incarnation of 16 bytes");
    return 0;
}

/* It has another connection. Its leases stay its until it says which it has; what was on its way is lost. */
static void worker_keep(struct cw_dispatcher *d, struct worker *w)
{
    w->kept = true;
    w->ready = false;
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments) {
        t->n_out = t->n_revoke = 0;
        t->named = false;
        cw_dp_assignment_usable(d, t);
        if (t->state != ASSIGNMENT_READY)
            cw_dp_assignment_free(d, t);
    }
}

/* Room for one more: the one that is gone longest gives up its id. */
static int worker_room(struct cw_dispatcher *d, struct cw_error *err)
{
    struct worker *oldest = NULL;
    if (d->n_workers < DP_WORKERS)
        return 0;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers)
        if (!w->peer && (!oldest || w->since_ns < oldest->since_ns))
            oldest = w;
    if (!oldest)
        return cw_error_set(err, CW_E_SERVICE, "there are %d workers already", DP_WORKERS);
    int r = cw_dp_journal_worker_gone(d, oldest, err);
    if (r == 0)
        cw_dp_worker_free(d, oldest);
    return r;
}

static int worker_register(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Register *r,
                           struct cw_error *err)
{
    int result = register_check(p, r, err);
    if (result < 0)
        return result;
    struct worker *w = find_incarnation(d, p->incarnation);
    bool known = w != NULL;
    if (!w) {
        result = worker_room(d, err);
        if (result < 0)
            return result;
        result = worker_new(d, d->worker_ids + 1, p->incarnation, &w, err);
        if (result < 0)
            return result;
        d->worker_ids++;
    }
    result = worker_describe(w, p, r, err);
    /* Its id is told when it can't be given to anybody else any more. */
    struct action then = {.kind = ACTION_REGISTERED, .peer = p, .re = id};
    if (result == 0)
        result = known ? cw_dp_journal_then(d, &then, err) : cw_dp_journal_counters(d, err);
    if (result == 0 && !known)
        result = cw_dp_journal_worker(d, w, &then, err);
    if (result < 0) {
        if (!known)
            cw_dp_worker_free(d, w);
        return result;
    }
    if (w->peer && w->peer != p) { /* its old connection is not noticed to be dead yet */
        struct cw_error why = {0};
        cw_error_set(&why, CW_E_SERVICE, "the worker has another connection");
        w->peer->worker = NULL;
        cw_dp_close(d, w->peer, &why);
        worker_keep(d, w);
    }
    w->draining = w->released = false;
    w->peer = p;
    p->worker = w;
    return 0;
}

void cw_dp_worker_registered(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re)
{
    if (p->gone || !p->worker)
        return;
    Cachew__Registered r = {CW_MESSAGE(registered), .worker = p->worker->id};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = re, .of_case = CACHEW__ENVELOPE__OF_REGISTERED,
                          .registered = &r};
    cw_dp_send(d, p, &m);
    cw_dp_log(d, false, "worker %" PRIu64 " (%s) is there: process %" PRIu32 " at %s", p->worker->id,
              p->worker->name, p->worker->pid,
              p->worker->n_addresses > 0 ? p->worker->addresses[0] : p->worker->unix_path);
    p->worker->ready = true;
    cw_dp_pool_started(d, p->worker);
    cw_dp_worker_sets_later(d);
    CW_LIST_EACH_OF (t, struct assignment, by_worker,
                     &p->worker->assignments) /* those that a lost connection left */
        cw_dp_assignment_usable(d, t);
    cw_dp_assignment_ask_all(d, false);
}

/* ---- what it has ---- */

static void forget(struct cw_dispatcher *d, struct worker *w, ProtobufCBinaryData stream)
{
    Cachew__Forget f = {CW_MESSAGE(forget), .stream = stream};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_FORGET, .forget = &f};
    cw_dp_send(d, w->peer, &m);
}

/* The range that a worker says it holds at the begin of x. NULL: it holds none there. */
static const Cachew__Range *named(const struct stream *s, const Cachew__Holding *h, const struct range *x)
{
    uint64_t epoch, begin;
    cw_dp_stream_place(s, x->begin, &epoch, &begin);
    for (size_t i = 0; i < h->n_ranges; i++)
        if (h->ranges[i]->epoch == epoch && h->ranges[i]->begin == begin && h->ranges[i]->end > begin)
            return h->ranges[i];
    return NULL;
}

/* Of what it had on an earlier connection, it does not have these any more, or never heard of them. */
static void drop_unnamed(struct cw_dispatcher *d, struct assignment *t, const Cachew__Holding *h)
{
    struct range *x;
    for (size_t i = 0; t->n_held > 0 && (x = cw_dp_range_at(t->stream, i)); i++) {
        int held = x->holder[0].assignment == t ? 0 : 1;
        if (x->holder[held].assignment != t)
            continue;
        const Cachew__Range *m = named(t->stream, h, x);
        uint64_t end = m ? x->begin + (m->end - m->begin) : 0;
        if (m) {
            x->holder[held].lease = m->lease; /* not the last one, where Revoke and Leases did not reach it */
            cw_dp_lease_shorten(d, x, held, end);
        }
        if (end != x->end)
            cw_dp_lease_drop(d, t, x, DROP_REVOKED);
    }
}

static int worker_holding(struct cw_dispatcher *d, struct worker *w, const Cachew__Holding *h,
                          struct cw_error *err)
{
    const Cachew__Prepared *p = h->prepared;
    if (!p || p->stream.len != 16 || h->n_ranges > DP_HELD)
        return cw_error_set(
            err, CW_E_SERVICE,
            "Holdings of a stream of %zu bytes (expected 16) with %zu ranges (expected at most %d)",
            p ? p->stream.len : 0, h->n_ranges, DP_HELD);
    struct stream *s = cw_dp_stream_find(d, p->stream.data);
    if (!s || s->parked) {
        forget(d, w, p->stream);
        return 0;
    }
    struct assignment *t = cw_dp_assignment_find(w, s);
    if (!t && !(t = cw_dp_assignment_new(d, w, s)))
        return cw_error_nomem(err, sizeof(*t), "a worker's part in a stream");
    t->named = true;
    int r = cw_dp_assignment_prepared(d, t, p, err);
    if (w->kept)
        drop_unnamed(d, t, h);
    for (size_t i = 0; r == 0 && t->state == ASSIGNMENT_READY && i < h->n_ranges; i++) {
        struct span span;
        r = cw_dp_stream_span(s, h->ranges[i]->epoch, h->ranges[i]->begin, h->ranges[i]->end, &span, err);
        if (r < 0)
            break;
        if (!cw_list_empty(&s->jobs))
            cw_dp_lease_hold(d, t, span, h->ranges[i]->lease);
        else
            cw_dp_assignment_revoke(d, t, span.begin, span.end);
    }
    return r;
}

static int worker_holdings(struct cw_dispatcher *d, struct worker *w, const Cachew__Holdings *m,
                           struct cw_error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < m->n_holdings; i++)
        r = worker_holding(d, w, m->holdings[i], err);
    return r;
}

/* It says something else: all of its Holdings are said. */
static void holdings_over(struct cw_dispatcher *d, struct worker *w)
{
    if (!w->ready || (!w->awaited && !w->kept))
        return;
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments) {
        struct stream *s = t->stream;
        if (w->kept && t->state == ASSIGNMENT_READY && !t->named) { /* it does not know the stream any more */
            cw_dp_assignment_free(d, t);
            cw_dp_assignment_ask(d, s);
        }
    }
    d->n_awaited -= w->awaited;
    w->awaited = w->kept = false;
}

/* ---- leaving ---- */

void cw_dp_worker_lost(struct cw_dispatcher *d, struct worker *w)
{
    if (w->n_held > 0)
        cw_dp_log(d, true, "worker %" PRIu64 " (%s) is gone: its %zu ranges go to others", w->id, w->name,
                  w->n_held);
    d->n_workers_lost += !w->draining;
    if (!w->draining)
        cw_dp_history_worker_gone(d, w);
    cw_dp_tell_gone(d, w);
    cw_dp_pool_missed(d, w);
    w->peer->worker = NULL;
    w->peer = NULL;
    w->ready = false;
    w->rated.at_ns = 0;
    w->cpus = w->batches_per_s = w->bytes_per_s = 0;
    w->since_ns = d->now_ns;
    cw_dp_worker_sets_later(d);
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments) {
        struct stream *s = t->stream;
        bool asked = t->state == ASSIGNMENT_ASKED;
        cw_dp_assignment_free(d, t);
        if (asked && !s->data)
            cw_dp_assignment_ask(d, s);
        cw_dp_stream_dirty(d, s);
    }
}

void cw_dp_worker_drain(struct cw_dispatcher *d, struct worker *w, bool tell)
{
    if (tell && w->peer) {
        Cachew__Drain drain = CACHEW__DRAIN__INIT;
        Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_DRAIN, .drain = &drain};
        cw_dp_send(d, w->peer, &m);
    }
    if (tell && !w->released) {
        w->released = true;
        cw_dp_pool_released(d, w);
        cw_dp_worker_sets_later(d);
    }
    if (w->draining)
        return;
    cw_dp_log(d, false, "worker %" PRIu64 " (%s) leaves", w->id, w->name);
    w->draining = true;
    w->since_ns = d->now_ns;
    cw_dp_worker_sets_later(d);
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments) {
        cw_dp_assignment_usable(d, t);
        /* What is not begun is moved at once, if somebody can have it: begun anew elsewhere, a range that is
         * being read would be waited for. Where there is no client, nothing is read. */
        bool fetched = cw_dp_stream_attended(t->stream);
        if (!t->stream->at_most_once && !fetched)
            cw_dp_lease_drop_from(d, t, 0, DROP_REVOKED);
        else if (!t->stream->at_most_once && t->stream->n_heap + t->stream->n_shunned > 0)
            cw_dp_lease_drop_unbegun(d, t);
        cw_dp_stream_dirty(d, t->stream);
    }
    cw_dp_assignment_ask_all(d, true); /* who waited for room with it waits for something else now */
}

void cw_dp_worker_tick(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
        uint64_t age = d->now_ns - w->since_ns;
        if (!w->peer && age >= DP_GONE) {
            if (cw_dp_journal_worker_gone(d, w, NULL) == 0)
                cw_dp_worker_free(d, w);
        } else if (w->peer && w->draining && age >= DP_DRAIN) {
            CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments)
                /* which would be lost: it says itself when it goes */
                if (t->n_held > 0 && !t->stream->at_most_once)
                    cw_dp_lease_drop_from(d, t, 0, DROP_REVOKED);
        }
    }
}

/* ---- messages ---- */

static double per_second(uint64_t now, uint64_t before, double seconds)
{
    return now > before ? (double)(now - before) / seconds : 0;
}

/* Heartbeats that were held up come close together: of two such ones the second is not looked at. */
static void note_rates(const struct cw_dispatcher *d, struct worker *w, const Cachew__Heartbeat *m)
{
    double seconds = (double)(d->now_ns - w->rated.at_ns) / 1e9;
    if (w->rated.at_ns != 0 && seconds < RATED_S)
        return;
    if (w->rated.at_ns != 0) {
        w->cpus = per_second(m->cpu_ns, w->rated.cpu_ns, 1e9 * seconds);
        w->batches_per_s = per_second(m->n_batches, w->rated.n_batches, seconds);
        w->bytes_per_s = per_second(m->n_bytes, w->rated.n_bytes, seconds);
        w->cache_hits_per_s = per_second(m->cache_hits, w->rated.cache_hits, seconds);
        double misses_per_s = per_second(m->cache_misses, w->rated.cache_misses, seconds),
               looked_per_s = w->cache_hits_per_s + misses_per_s;
        w->cache_part = looked_per_s > 0 ? w->cache_hits_per_s / looked_per_s : NAN;
    }
    w->rated = (struct rated){d->now_ns, m->cpu_ns, m->n_batches, m->n_bytes, m->cache_hits, m->cache_misses};
}

/* What it has of a stream that was somebody else's to count, before this dispatcher or this connection was
 * there, is not counted again. */
static void note_work(struct cw_dispatcher *d, struct assignment *t, const Cachew__StreamWork *m)
{
    bool known = t->computed || !t->named;
    /* a peer may say anything */
    double batches = m->batches > 0 && m->batches < MOST_BATCHES ? m->batches : 0;
    t->work = (struct work){.compute_s = (double)m->compute_ns / 1e9,
                            .positions = (double)m->positions,
                            .batches = batches,
                            .read_bytes = (double)m->read_bytes,
                            .at_ns = d->now_ns};
    if (!t->computed && !(t->computed = calloc(1, sizeof(*t->computed))))
        return;
    cw_computed_add(&t->stream->computed, t->computed, m, known);
}

static int worker_heartbeat(struct cw_dispatcher *d, struct worker *w, const Cachew__Heartbeat *m,
                            struct cw_error *err)
{
    note_rates(d, w, m);
    w->cpu_ns = m->cpu_ns;
    w->memory_bytes = m->memory_bytes;
    w->n_batches = m->n_batches;
    w->n_bytes = m->n_bytes;
    cw_dp_caching_store(w, m);
    for (size_t i = 0; i < m->n_streams; i++) {
        const Cachew__StreamWork *x = m->streams[i];
        if (x->stream.len != 16)
            return cw_error_set(err, CW_E_SERVICE, "Heartbeat with a stream of %zu bytes: expected 16",
                                x->stream.len);
        struct stream *s = cw_dp_stream_find(d, x->stream.data);
        struct assignment *t = s ? cw_dp_assignment_find(w, s) : NULL;
        if (!t)
            continue;
        note_work(d, t, x);
        cw_dp_caching_heard(d, t, x);
    }
    return 0;
}

int cw_dp_worker_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err)
{
    struct worker *w = p->worker;
    if (m->of_case == CACHEW__ENVELOPE__OF_REGISTER)
        return worker_register(d, p, m->id, m->register_, err);
    if (!w)
        return cw_error_set(err, CW_E_SERVICE, "a worker's first message must be Register");
    if (m->of_case != CACHEW__ENVELOPE__OF_HOLDINGS)
        holdings_over(d, w);
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_PREPARED:
    case CACHEW__ENVELOPE__OF_FAILURE:
        return cw_dp_assignment_answer(d, w, m->re, m, err);
    case CACHEW__ENVELOPE__OF_HOLDINGS:
        return worker_holdings(d, w, m->holdings, err);
    case CACHEW__ENVELOPE__OF_COMPLETED:
        return cw_dp_lease_completed(d, w, m->id, m->completed, err);
    case CACHEW__ENVELOPE__OF_HEARTBEAT:
        return worker_heartbeat(d, w, m->heartbeat, err);
    case CACHEW__ENVELOPE__OF_STREAM_FAILED:
        return cw_dp_assignment_failed(d, w, m->stream_failed, err);
    case CACHEW__ENVELOPE__OF_DRAINING:
        cw_dp_worker_drain(d, w, false);
        return 0;
    default:
        return cw_error_set(err, CW_E_SERVICE,
                            "a worker does not say this (field %d of Envelope) to a dispatcher",
                            (int)m->of_case);
    }
}
