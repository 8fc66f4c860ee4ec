/* The dispatcher as a whole: its peers, where messages go, what a turn and a tick do. */
#include "service/dispatcher/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "service/dispatcher/internal.h"
#include "net/conn.h"

#define TICK_BUSY (DP_S / 10) /* late ranges are looked after so often: none is late before 0.3 s */
#define TICK_IDLE DP_S

/* ---- saying ---- */

void cw_dp_send_all(struct cw_dispatcher *d, struct cw_peer *const *peers, size_t n,
                    const Cachew__Envelope *m)
{
    void *users[CW_DISPATCHER_SENDS];
    size_t n_users = 0;
    for (size_t i = 0; i < n; i++) {
        if (!peers[i]->gone && !peers[i]->closing)
            users[n_users++] = peers[i]->user;
        if (n_users > 0 && (n_users == CW_DISPATCHER_SENDS || i + 1 == n)) {
            d->io.send(d->io.user, users, n_users, m);
            n_users = 0;
        }
    }
}

void cw_dp_send(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m)
{
    cw_dp_send_all(d, &p, 1, m);
}

void cw_dp_done(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re)
{
    if (re == 0)
        return;
    Cachew__Done done = {CW_MESSAGE(done)};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = re, .of_case = CACHEW__ENVELOPE__OF_DONE,
                          .done = &done};
    cw_dp_send(d, p, &m);
}

void cw_dp_fail(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re, const struct cw_error *why)
{
    Cachew__Failure failure;
    Cachew__Envelope m;
    cw_failure_envelope(&m, &failure, re, why);
    cw_dp_send(d, p, &m);
}

void cw_dp_close(struct cw_dispatcher *d, struct cw_peer *p, const struct cw_error *why)
{
    if (p->gone || p->closing)
        return;
    p->closing = true;
    d->io.close(d->io.user, p->user, why);
}

void cw_dp_log(struct cw_dispatcher *d, bool warning, const char *fmt, ...)
{
    char text[1500];
    if (!d->io.log)
        return;
    CW_FORMAT(text, fmt);
    d->io.log(d->io.user, warning, cw_text_clean(text, sizeof(text)));
}

char *cw_dp_hex(const uint8_t id[16], char ret[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(ret + 2 * i, 3, "%02x", id[i]);
    return ret;
}

bool cw_dp_grace(const struct cw_dispatcher *d, const struct stream *s)
{
    return s->restored && d->grace_until_ns != 0;
}

/* ---- peers ---- */

struct cw_peer *cw_dp_peer_unref(struct cw_peer *p)
{
    if (!p || --p->refs > 0)
        return NULL;
    free(p->name);
    free(p->host);
    free(p);
    return NULL;
}

int cw_dispatcher_connected(struct cw_dispatcher *d, void *user, const Cachew__Hello *hello,
                            struct cw_peer **ret, struct cw_error *err)
{
    if (hello->role != CACHEW__ROLE__ROLE_CLIENT && hello->role != CACHEW__ROLE__ROLE_WORKER &&
        hello->role != CACHEW__ROLE__ROLE_ADMIN_CLIENT && hello->role != CACHEW__ROLE__ROLE_PROVISIONER)
        return cw_error_set(err, CW_E_SERVICE, "role %d does not connect to a dispatcher", (int)hello->role);
    if (d->n_peers >= DP_PEERS)
        return cw_error_set(err, CW_E_SERVICE, "there are %d connections already", DP_PEERS);
    struct cw_peer *p = malloc(sizeof(*p));
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "a connection");
    *p = (struct cw_peer){.user = user,
                          .role = hello->role,
                          .refs = 1,
                          .name = cw_text_dup(hello->name, DP_NAME),
                          .host = cw_text_dup(hello->host, DP_ADDRESS)};
    if (!p->name || !p->host) {
        cw_dp_peer_unref(p);
        return cw_error_nomem(err, sizeof(*p), "a connection");
    }
    if (hello->incarnation.len == 16)
        memcpy(p->incarnation, hello->incarnation.data, 16);
    cw_list_add(&d->peers, &p->link);
    d->n_peers++;
    *ret = p;
    return 0;
}

void cw_dispatcher_lost(struct cw_dispatcher *d, struct cw_peer *p, uint64_t now_ns)
{
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    p->gone = true;
    if (p->worker)
        cw_dp_worker_lost(d, p->worker);
    if (p->rank && !p->rank->leaves)
        cw_dp_history_rank_gone(d, p->rank);
    if (p->rank)
        cw_dp_client_lost(d, p->rank);
    if (p->pool) {
        cw_dp_log(d, false,
                  "pool \"%s\" is away, with %u workers: nobody of it is started or ended until its "
                  "provisioner is back",
                  p->pool->name, p->pool->units);
        cw_dp_pool_lost(d, p->pool);
    }
    cw_dp_client_forget_waiting(d, p);
    cw_link_out(&p->link);
    d->n_peers--;
    cw_dp_peer_unref(p);
}

int cw_dispatcher_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                          uint64_t now_ns, struct cw_error *err)
{
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    if (p->closing)
        return 0;
    switch (p->role) {
    case CACHEW__ROLE__ROLE_CLIENT:
        return cw_dp_client_message(d, p, m, err);
    case CACHEW__ROLE__ROLE_WORKER:
        return cw_dp_worker_message(d, p, m, err);
    case CACHEW__ROLE__ROLE_PROVISIONER:
        return cw_dp_pool_message(d, p, m, err);
    default:
        return cw_dp_admin_message(d, p, m, err);
    }
}

/* ---- turns ---- */

uint64_t cw_dispatcher_turn(struct cw_dispatcher *d, uint64_t now_ns)
{
    uint64_t again_ns = 0;
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    if (d->worker_sets_due)
        cw_dp_worker_sets(d);
    cw_dp_assignment_room(d);
    CW_LIST_EACH_OF (s, struct stream, dirty, &d->dirty_streams) {
        cw_dp_stream_mark(d, s);
        cw_dp_lease_fill(d, s);
    }
    cw_dp_assignment_flush(d);
    CW_LIST_EACH_OF (s, struct stream, dirty, &d->dirty_streams) {
        uint64_t wait_ns = cw_dp_tell_stream(d, s);
        if (wait_ns == 0)
            cw_link_out(&s->dirty);
        else
            again_ns = again_ns == 0 ? wait_ns : CW_MIN(again_ns, wait_ns);
    }
    cw_dp_journal_commit(d);
    return again_ns;
}

#define NAMED_GONE 8 /* of those that did not come back: there may be thousands */

/* Nobody knows more of them than their numbers: the rest they would have said. */
static void say_gone(struct cw_dispatcher *d)
{
    char ids[NAMED_GONE * 22 + 8] = "";
    size_t n = 0, size = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers)
        if (w->awaited && !w->peer && n++ < NAMED_GONE)
            size += (size_t)snprintf(ids + size, sizeof(ids) - size, "%s%" PRIu64, n > 1 ? ", " : "", w->id);
    if (n > 0)
        cw_dp_log(d, true,
                  "of the workers that were there before the restart, %zu did not come back within %d s "
                  "(%s%s): what they had goes to others",
                  n, (int)(DP_GRACE / DP_S), ids, n > NAMED_GONE ? " ..." : "");
}

static void grace_over(struct cw_dispatcher *d)
{
    d->grace_until_ns = 0;
    say_gone(d);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams) {
        struct range *x;
        for (size_t i = 0; s->restored && s->at_most_once && (x = cw_dp_range_at(s, i)); i++)
            if ((x->flags & RANGE_GIVEN) && !x->holder[0].assignment) {
                cw_dp_range_lose(d, s, x);
                cw_dp_range_announce(d, s, x);
            }
        s->restored = false;
        cw_dp_stream_dirty(d, s);
    }
}

uint64_t cw_dispatcher_tick(struct cw_dispatcher *d, uint64_t now_ns)
{
    bool busy = d->grace_until_ns != 0 || d->retry_ns != 0;
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    if (d->grace_until_ns != 0 && (d->now_ns >= d->grace_until_ns || d->n_awaited == 0))
        grace_over(d);
    if (d->now_ns - d->slow_tick_ns >= TICK_IDLE) { /* there may be ten thousand of them */
        d->slow_tick_ns = d->now_ns;
        cw_dp_worker_tick(d);
        cw_dp_job_tick(d);
        cw_dp_worker_sets_later(d); /* whatever there was no memory for, or time has brought */
    }
    cw_dp_client_tick(d);
    cw_dp_stream_tick(d);
    cw_dp_scale_tick(d);
    cw_dp_history_tick(d);
    CW_LIST_EACH_OF (s, const struct stream, link, &d->streams)
        busy |= !s->parked && !cw_list_empty(&s->jobs);
    return busy ? TICK_BUSY : TICK_IDLE;
}

int cw_dispatcher_ready(const struct cw_dispatcher *d, struct cw_error *err)
{
    return d->retry_ns == 0
               ? 0
               : cw_error_set(err, CW_E_IO, "the journal can't be written: %.500s", d->journal_error.message);
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
                                .scales = o->policy != NULL,
                                .objective = o->objective,
                                .client_price_per_h = o->client_price_per_h,
                                .worker_price_per_h = o->worker_price_per_h};
    if (d->scales)
        d->policy = *o->policy;
    struct cw_link *lists[] = {&d->peers,         &d->workers,           &d->streams, &d->jobs,
                               &d->dirty_streams, &d->dirty_assignments, &d->pools};
    for (size_t i = 0; i < CW_COUNT_OF(lists); i++)
        cw_list_init(lists[i]);
    d->name = strdup(o->name ? o->name : "dispatcher");
    d->software = strdup(o->software ? o->software : "cachew " CACHEW_VERSION);
    if (!d->name || !d->software) {
        cw_dispatcher_free(d);
        return cw_error_nomem(err, 64, "the dispatcher");
    }
    *ret = d;
    return 0;
}

void cw_dispatcher_start(struct cw_dispatcher *d, uint64_t now_ns)
{
    d->now_ns = d->start_ns = d->looked_ns = now_ns;
    d->last_lease = now_ns;
    d->started = true;
    cw_dp_pipelines_loaded(d);
    cw_dp_journal_loaded(d);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams)
        s->idle_ns = now_ns;
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs)
        j->since_ns = j->resumed_ns = now_ns;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers)
        w->since_ns = now_ns;
    d->grace_until_ns = cw_list_empty(&d->streams) ? 0 : now_ns + DP_GRACE;
}

struct cw_dispatcher *cw_dispatcher_free(struct cw_dispatcher *d)
{
    if (!d)
        return NULL;
    cw_dp_journal_deinit(d);
    d->io.log = NULL;
    d->scales = false; /* nothing is given anew */
    CW_LIST_EACH_OF (p, struct pool, link, &d->pools)
        cw_dp_pool_lost(d, p);
    CW_LIST_EACH_OF (p, struct cw_peer, link, &d->peers) {
        p->gone = true;
        if (p->worker)
            p->worker->peer = NULL;
        if (p->rank)
            p->rank->client = NULL;
        cw_dp_client_forget_waiting(d, p);
        cw_dp_peer_unref(p);
    }
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs)
        cw_dp_job_free(d, j);
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers)
        cw_dp_worker_free(d, w);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams)
        cw_dp_stream_free(d, s);
    if (!d->started)
        cw_dp_pipelines_loaded(d);
    cw_dp_journal_deinit(d);
    cw_map_deinit(&d->workers_by_id);
    cw_map_deinit(&d->workers_by_incarnation);
    cw_map_deinit(&d->streams_by_id);
    cw_map_deinit(&d->jobs_by_name);
    cw_map_deinit(&d->pipelines);
    free(d->name);
    free(d->software);
    free(d);
    return NULL;
}
