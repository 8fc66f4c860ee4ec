/* The dispatcher as a whole: passes inputs to the modules, and runs turns, which send the consequences.
 * Implements core.h. */
#include "service/dispatcher/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/dispatcher/admin.h"
#include "service/dispatcher/client_messages.h"
#include "service/dispatcher/commit.h"
#include "service/dispatcher/job_life.h"
#include "service/dispatcher/lease_fill.h"
#include "service/dispatcher/lease_outbox.h"
#include "service/dispatcher/notify.h"
#include "service/dispatcher/policy_step.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/provisioners.h"
#include "service/dispatcher/recovery.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/stream_life.h"
#include "service/dispatcher/worker_life.h"
#include "service/dispatcher/worker_messages.h"
#include "service/dispatcher/worker_sets.h"

/* ---- peers ---- */

/* The roles of peers. message: handles a peer's message; 1: a peer of this role does not send such a message.
 */
static const struct role {
    Cachew__Role role;
    const char *name;
    int (*message)(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                   struct cw_error *err);
} roles[] = {
    {CACHEW__ROLE__ROLE_CLIENT, "a client", cw_dp_client_message},
    {CACHEW__ROLE__ROLE_WORKER, "a worker", cw_dp_worker_message},
    {CACHEW__ROLE__ROLE_ADMIN_CLIENT, "an admin client", cw_dp_admin_message},
    {CACHEW__ROLE__ROLE_PROVISIONER, "a provisioner", cw_dp_provisioner_message},
};

/* Returns the entry of a role. NULL: peers of this role do not connect to a dispatcher. */
static const struct role *role_find(Cachew__Role role)
{
    for (size_t i = 0; i < CW_COUNT_OF(roles); i++)
        if (roles[i].role == role)
            return &roles[i];
    return NULL;
}

int cw_dispatcher_connected(struct cw_dispatcher *d, void *user, const Cachew__Hello *hello,
                            struct cw_peer **ret, struct cw_error *err)
{
    if (!role_find(hello->role))
        return cw_error_set(err, CW_E_SERVICE,
                            "a process of role %d can't connect to a dispatcher" CW_OTHER_VERSION,
                            (int)hello->role);
    if (d->peers.n >= DP_PEERS)
        return cw_error_set(err, CW_E_SERVICE,
                            "the dispatcher has %d connections already, the most that it accepts", DP_PEERS);
    *ret = cw_dp_peer_new(d, user, hello);
    return *ret ? 0 : cw_error_nomem(err, sizeof(**ret), "a connection");
}

void cw_dispatcher_lost(struct cw_dispatcher *d, struct cw_peer *p, uint64_t now_ns)
{
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    p->state = PEER_GONE;
    if (p->worker)
        cw_dp_worker_lost(d, p->worker);
    if (p->rank && !p->rank->leaves)
        cw_dp_history_rank_gone(d, p->rank);
    if (p->rank)
        cw_dp_client_lost(d, p->rank);
    if (p->pool) {
        cw_dp_log(d, false,
                  "the provisioner of pool \"%s\" lost its connection: the dispatcher starts and stops none "
                  "of its %u workers until it reconnects",
                  p->pool->info->name, p->pool->info->units);
        cw_dp_provisioner_lost(d, p->pool);
    }
    cw_dp_client_forget_waiting(d, p);
    cw_link_out(&p->link);
    d->peers.n--;
    cw_dp_peer_unref(p);
}

int cw_dispatcher_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                          uint64_t now_ns, struct cw_error *err)
{
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    if (p->state == PEER_CLOSING)
        return 0;
    const struct role *role = role_find(p->role);
    int r = role->message(d, p, m, err);
    if (r > 0)
        r = cw_error_set(err, CW_E_SERVICE,
                         "the dispatcher received a message of kind %d, which %s does not send to a "
                         "dispatcher" CW_OTHER_VERSION,
                         (int)m->of_case, role->name);
    if (r < 0)
        p->state = PEER_CLOSING; /* the caller closes the connection; nothing more is sent over it */
    return r;
}

/* ---- turns ---- */

uint64_t cw_dispatcher_turn(struct cw_dispatcher *d, uint64_t now_ns)
{
    uint64_t again_ns = 0;
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    if (d->scaler.worker_sets_due)
        cw_dp_worker_sets_update(d);
    cw_dp_prepare_waiting(d);
    CW_LIST_EACH_OF (s, struct stream, dirty, &d->streams.dirty) {
        cw_dp_stream_mark(d, s);
        cw_dp_lease_fill(d, s);
    }
    cw_dp_outbox_flush(d);
    CW_LIST_EACH_OF (s, struct stream, dirty, &d->streams.dirty) {
        uint64_t wait_ns = cw_dp_notify_stream(d, s);
        if (wait_ns == 0)
            cw_link_out(&s->dirty);
        else
            again_ns = again_ns == 0 ? wait_ns : CW_MIN(again_ns, wait_ns);
    }
    cw_dp_commit(d);
    return again_ns;
}

/* ---- ticks ---- */

#define TICK_BUSY (DP_S / 10) /* ns between ticks while a job runs: a range can be late after 0.3 s */
#define TICK_IDLE DP_S
#define NAMED_GONE 8 /* most workers that one log line names */

/* Logs which workers did not reconnect after a restart. Only their ids are known. */
static void grace_log_gone(struct cw_dispatcher *d)
{
    char ids[NAMED_GONE * 22 + 8] = "";
    size_t n = 0, size = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list)
        if (w->awaited && !w->peer && n++ < NAMED_GONE)
            size += (size_t)snprintf(ids + size, sizeof(ids) - size, "%s%" PRIu64, n > 1 ? ", " : "", w->id);
    if (n > 0)
        cw_dp_log(d, true,
                  "%zu workers that were connected before the restart did not reconnect within %d s (ids: "
                  "%s%s): other workers get their ranges of the data",
                  n, (int)(DP_GRACE / DP_S), ids, n > NAMED_GONE ? " ..." : "");
}

/* Ends the grace period after a restart: ranges that no worker named in its Holdings are leased again, or
 * with at-most-once are lost. */
static void grace_over(struct cw_dispatcher *d)
{
    d->grace_until_ns = 0;
    grace_log_gone(d);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list) {
        DP_RANGES_EACH (x, &s->ranges, 0)
            if (s->restored && s->at_most_once && (x->flags & RANGE_GIVEN) && !x->holder[0].assignment) {
                cw_dp_stream_lose(d, s, x);
                cw_dp_stream_announce(d, s, x);
            }
        s->restored = false;
        cw_dp_stream_dirty(d, s);
    }
}

uint64_t cw_dispatcher_tick(struct cw_dispatcher *d, uint64_t now_ns)
{
    bool busy = d->grace_until_ns != 0 || d->journal.retry_ns != 0;
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    if (d->grace_until_ns != 0 && (d->now_ns >= d->grace_until_ns || d->workers.n_awaited == 0))
        grace_over(d);
    if (d->now_ns - d->slow_tick_ns >=
        TICK_IDLE) { /* once a second only: there may be ten thousand workers and jobs */
        d->slow_tick_ns = d->now_ns;
        cw_dp_worker_tick(d);
        cw_dp_job_tick(d);
        cw_dp_scaling_due(d); /* an update may have failed for lack of memory, or a time limit has passed */
    }
    cw_dp_client_tick(d);
    cw_dp_stream_tick(d);
    cw_dp_policy_tick(d);
    cw_dp_history_tick(d);
    CW_LIST_EACH_OF (s, const struct stream, link, &d->streams.list)
        busy |= s->state != STREAM_PARKED && !cw_list_empty(&s->jobs);
    return busy ? TICK_BUSY : TICK_IDLE;
}

int cw_dispatcher_ready(const struct cw_dispatcher *d, struct cw_error *err)
{
    return d->journal.retry_ns == 0
               ? 0
               : cw_error_set(err, CW_E_IO, "the journal can't be written: %.500s", d->journal.error.message);
}

/* ---- life ---- */

int cw_dispatcher_new(const struct cw_dispatcher_options *o, const struct cw_dispatcher_io *io,
                      struct cw_dispatcher **ret, struct cw_error *err)
{
    struct cw_dispatcher *d = calloc(1, sizeof(*d));
    if (!d)
        return cw_error_nomem(err, sizeof(*d), "the dispatcher");
    *d = (struct cw_dispatcher){.io = *io,
                                .pid = o->pid,
                                .share_streams = o->share_streams,
                                .depth = o->depth ? o->depth : DP_DEPTH,
                                .scaler.enabled = o->policy != NULL,
                                .scaler.objective = o->objective,
                                .scaler.client_price_per_h = o->client_price_per_h,
                                .scaler.worker_price_per_h = o->worker_price_per_h};
    if (d->scaler.enabled)
        d->scaler.policy = *o->policy;
    struct cw_link *lists[] = {&d->peers.list,    &d->workers.list,      &d->streams.list, &d->jobs.list,
                               &d->streams.dirty, &d->assignments.dirty, &d->scaler.pools};
    for (size_t i = 0; i < CW_COUNT_OF(lists); i++)
        cw_list_init(lists[i]);
    d->name = strdup(o->name ? o->name : "dispatcher");
    d->scaler.currency = o->currency ? strdup(o->currency) : NULL;
    if (!d->name || (o->currency && !d->scaler.currency)) {
        cw_dispatcher_free(d);
        return cw_error_nomem(err, 64, "the dispatcher");
    }
    *ret = d;
    return 0;
}

void cw_dispatcher_start(struct cw_dispatcher *d, uint64_t now_ns)
{
    d->now_ns = d->start_ns = d->history.last_point_ns = now_ns;
    d->leases.last_number = now_ns;
    d->started = true;
    cw_dp_recovery_end(d);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list)
        s->idle_ns = now_ns;
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs.list)
        j->since_ns = j->resumed_ns = now_ns;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list)
        w->since_ns = now_ns;
    d->grace_until_ns = cw_list_empty(&d->streams.list) ? 0 : now_ns + DP_GRACE;
}

struct cw_dispatcher *cw_dispatcher_free(struct cw_dispatcher *d)
{
    if (!d)
        return NULL;
    d->io.log = NULL;
    d->scaler.enabled = false; /* so that nothing below updates worker sets */
    CW_LIST_EACH_OF (p, struct pool, link, &d->scaler.pools)
        cw_dp_provisioner_lost(d, p);
    CW_LIST_EACH_OF (p, struct cw_peer, link, &d->peers.list) {
        p->state = PEER_GONE;
        if (p->worker)
            p->worker->peer = NULL;
        if (p->rank)
            p->rank->client = NULL;
        cw_dp_client_forget_waiting(d, p);
        cw_dp_peer_unref(p);
    }
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs.list)
        cw_dp_job_free(d, j);
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list)
        cw_dp_worker_free(d, w);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list)
        cw_dp_stream_free(d, s);
    if (!d->started)
        cw_dp_pipelines_loaded(d);
    cw_dp_commit_deinit(d);
    cw_map_deinit(&d->workers.by_id);
    cw_map_deinit(&d->workers.by_incarnation);
    cw_map_deinit(&d->streams.by_id);
    cw_map_deinit(&d->jobs.by_name);
    cw_map_deinit(&d->pipelines.by_fingerprint);
    free(d->name);
    free(d->scaler.currency);
    free(d);
    return NULL;
}
