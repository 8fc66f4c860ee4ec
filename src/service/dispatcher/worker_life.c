/* Registers, drains and loses workers. */
#include "service/dispatcher/worker_life.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "service/dispatcher/notify.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/state.h"

/* ---- registering ---- */

/* Stores a copy of the worker's Register message, and its connection. */
static int worker_info_set(struct worker *w, struct cw_peer *p, const Cachew__Register *r,
                           struct cw_error *err)
{
    Cachew__Register *info = cw_dp_message_copy(&r->base, DP_REGISTERED);
    if (!info)
        return cw_error_nomem(err, 0, "the addresses of a worker");
    cachew__register__free_unpacked(w->info, NULL);
    cw_dp_peer_unref(w->last_peer);
    w->info = info;
    w->last_peer = p;
    p->refs++;
    return 0;
}

static int worker_register_check(const struct cw_peer *p, const Cachew__Register *r, struct cw_error *err)
{
    bool sound = r->n_addresses <= DP_ADDRESSES && strlen(r->unix_path) <= DP_PATH &&
                 strlen(r->http) <= DP_ADDRESS && strlen(r->pool) <= DP_NAME &&
                 (r->n_addresses > 0 || *r->unix_path);
    for (size_t i = 0; sound && i < r->n_addresses; i++)
        sound = strlen(r->addresses[i]) <= DP_ADDRESS;
    static const uint8_t none[16];
    if (!sound)
        return cw_error_set(err, CW_E_SERVICE,
                            "a worker needs a Unix socket or a TCP address, and may have at most %d TCP "
                            "addresses, of at most %d bytes each",
                            DP_ADDRESSES, DP_ADDRESS);
    if (memcmp(p->incarnation, none, 16) == 0)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the worker's handshake has no process identity (incarnation) of 16 bytes" CW_OTHER_VERSION);
    return 0;
}

/* The worker has a new connection, and messages on the old one may be lost. It keeps its leases until its
 * Holdings say what it has. */
static void worker_keep(struct cw_dispatcher *d, struct worker *w)
{
    w->kept = true;
    w->ready = false;
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments) {
        t->outbox.n_leases = t->outbox.n_revoke = 0;
        t->named = false;
        cw_dp_assignment_usable(d, t);
        if (t->state != ASSIGNMENT_READY)
            cw_dp_lease_discard(d, t);
    }
}

/* Makes room for one more worker: if there are DP_WORKERS, removes the one that has been gone for the longest
 * time. */
static int worker_room(struct cw_dispatcher *d, struct cw_error *err)
{
    struct worker *oldest = NULL;
    if (d->workers.n < DP_WORKERS)
        return 0;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list)
        if (!w->peer && (!oldest || w->since_ns < oldest->since_ns))
            oldest = w;
    if (!oldest)
        return cw_error_set(err, CW_E_SERVICE,
                            "the dispatcher has %d workers already, the most that it accepts", DP_WORKERS);
    int r = cw_dp_journal_gone(d, JOURNAL_WORKER, oldest->incarnation, 16, err);
    if (r == 0)
        cw_dp_worker_free(d, oldest);
    return r;
}

int cw_dp_worker_register(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Register *r,
                          struct cw_error *err)
{
    int result = worker_register_check(p, r, err);
    if (result < 0)
        return result;
    struct worker *w = cw_dp_worker_find_incarnation(d, p->incarnation);
    bool known = w != NULL;
    if (!known) {
        result = worker_room(d, err);
        if (result == 0)
            result = cw_dp_worker_new(d, d->workers.last_id + 1, p->incarnation, &w, err);
        if (result < 0)
            return result;
        d->workers.last_id++;
    }
    result = worker_info_set(w, p, r, err);
    /* the id is sent only when it is durable, so that no other worker can get the same id */
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
    if (w->peer && w->peer != p) { /* its old connection is dead, but was not closed yet */
        w->peer->worker = NULL;
        cw_dp_peer_close(d, w->peer, "the worker has opened another connection, so this one is closed");
        worker_keep(d, w);
    }
    w->leaving = WORKER_STAYS;
    w->peer = p;
    p->worker = w;
    return 0;
}

void cw_dp_worker_registered(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re)
{
    struct worker *w = p->worker;
    if (p->state != PEER_OPEN || !w)
        return;
    Cachew__Registered r = {CW_MESSAGE(registered), .worker = w->id};
    cw_dp_peer_send(d, p,
                    &(Cachew__Envelope){CW_MESSAGE(envelope), .re = re,
                                        .of_case = CACHEW__ENVELOPE__OF_REGISTERED, .registered = &r});
    cw_dp_log(d, false, "worker %" PRIu64 " (%s) registered: process %" PRIu32 " at %s", w->id,
              w->last_peer->name, w->info->pid, cw_dp_worker_place(w));
    w->ready = true;
    cw_dp_pool_started(d, w);
    cw_dp_scaling_due(d);
    CW_LIST_EACH_OF (t, struct assignment, by_worker,
                     &w->assignments) /* assignments from a lost connection */
        cw_dp_assignment_usable(d, t);
    cw_dp_prepare_all(d, false);
}

/* ---- leaving ---- */

void cw_dp_worker_lost(struct cw_dispatcher *d, struct worker *w)
{
    if (w->n_held > 0)
        cw_dp_log(d, true, "worker %" PRIu64 " (%s) is gone: other workers get its %zu ranges", w->id,
                  w->last_peer->name, w->n_held);
    if (w->leaving == WORKER_STAYS) {
        d->workers.n_lost++;
        cw_dp_history_worker_gone(d, w);
    }
    cw_dp_notify_gone(d, w);
    cw_dp_pool_changed(d, w, false);
    w->peer->worker = NULL;
    w->peer = NULL;
    w->ready = false;
    w->rates.from_ns = 0;
    cw_dp_worker_history_pause(w);
    w->rates.cpus = w->rates.batches_per_s = w->rates.bytes_per_s = 0;
    w->since_ns = d->now_ns;
    cw_dp_scaling_due(d);
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments) {
        struct stream *s = t->stream;
        bool requested = t->state == ASSIGNMENT_ASKED;
        cw_dp_lease_discard(d, t);
        if (requested && !s->data)
            cw_dp_prepare_stream(d, s);
    }
}

void cw_dp_worker_drain(struct cw_dispatcher *d, struct worker *w, enum worker_leaving by)
{
    enum worker_leaving was = w->leaving;
    if (by == WORKER_RELEASED && w->peer) {
        Cachew__Drain drain = CACHEW__DRAIN__INIT;
        cw_dp_peer_send(d, w->peer,
                        &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_DRAIN,
                                            .drain = &drain});
    }
    w->leaving = CW_MAX(was, by);
    if (w->leaving != was)
        cw_dp_scaling_due(d);
    if (w->leaving != was && by == WORKER_RELEASED)
        cw_dp_pool_changed(d, w, true);
    if (was != WORKER_STAYS)
        return;
    cw_dp_log(d, false, "worker %" PRIu64 " (%s) is leaving: it gets no more ranges", w->id,
              w->last_peer->name);
    w->since_ns = d->now_ns;
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments) {
        const struct stream *s = t->stream;
        cw_dp_assignment_usable(d, t);
        /* If another worker can have them, ranges that were not begun are moved at once. Clients are waiting
         * for the ranges that were begun. Without a client, all ranges can be dropped. */
        if (!s->at_most_once && !cw_dp_stream_attended(s))
            cw_dp_lease_drop_from(d, t, 0, DROP_REVOKED);
        else if (!s->at_most_once && s->assignments.heap.n + s->assignments.n_shunned > 0)
            cw_dp_lease_drop_unbegun(d, t);
    }
    cw_dp_prepare_all(d, true); /* streams that waited for room on this worker now try other workers */
}

void cw_dp_worker_free(struct cw_dispatcher *d, struct worker *w)
{
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments)
        cw_dp_lease_discard(d, t);
    cw_map_remove(&d->workers.by_id, &w->by_id);
    cw_map_remove(&d->workers.by_incarnation, &w->by_incarnation);
    cw_link_out(&w->link);
    d->workers.n--;
    d->workers.n_awaited -= w->awaited;
    if (w->peer)
        w->peer->worker = NULL;
    cw_dp_worker_history_free(d, w);
    cachew__register__free_unpacked(w->info, NULL);
    cw_dp_peer_unref(w->last_peer);
    free(w);
}

void cw_dp_worker_tick(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        uint64_t age = d->now_ns - w->since_ns;
        if (!w->peer && age >= DP_GONE) {
            if (cw_dp_journal_gone(d, JOURNAL_WORKER, w->incarnation, 16, NULL) == 0)
                cw_dp_worker_free(d, w);
        } else if (w->peer && w->leaving && age >= DP_DRAIN) {
            CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments)
                /* at-most-once: dropping would lose the ranges; the worker closes its connection when it is
                 * done */
                if (t->n_held > 0 && !t->stream->at_most_once)
                    cw_dp_lease_drop_from(d, t, 0, DROP_REVOKED);
        }
    }
}
