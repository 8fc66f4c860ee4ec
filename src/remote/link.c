/* Links: one for each worker that the dispatcher named. Only the loop's thread uses connections, with the
 * mutex held. */
#include "remote/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "net/limits.h"
#include "remote/internal.h"

/* Time until a connection is tried again: RETRY_FIRST_NS, doubled with each attempt up to RETRY_MAX_NS. */
#define RETRY_FIRST_NS UINT64_C(20000000)
#define RETRY_MAX_NS UINT64_C(1000000000)
#define RETRY_DOUBLINGS 6u
/* A worker that can't be reached for REPORT_AFTER_NS is reported to the dispatcher, and again every
 * REPORT_AGAIN_NS: a restarted dispatcher does not know of earlier reports. */
#define REPORT_AFTER_NS UINT64_C(500000000)
#define REPORT_AGAIN_NS UINT64_C(2000000000)

static const char *const transports[] = {[CW_TRANSPORT_AUTO] = "auto",
                                         [CW_TRANSPORT_SHM] = "shm",
                                         [CW_TRANSPORT_UNIX] = "unix",
                                         [CW_TRANSPORT_TCP] = "tcp"};

const char *cw_transport_name(enum cw_transport t)
{
    return transports[t];
}

struct link *cw_link_find(const struct remote *r, uint64_t worker)
{
    CW_LIST_EACH_OF (l, struct link, in_list, &r->links)
        if (l->worker == worker)
            return l;
    return NULL;
}

/* ---- up and down ---- */

/* Continues to use the shared memory of an earlier connection if the worker is still the same process.
 * Otherwise starts with an empty map. */
static int link_resume_shm(struct link *l, struct cw_conn *c, const Cachew__Welcome *peer,
                           struct cw_error *err)
{
    uint8_t worker[16] = {0};
    if (peer->incarnation.len == sizeof(worker))
        memcpy(worker, peer->incarnation.data, sizeof(worker));
    if (l->map && memcmp(l->map->worker, worker, sizeof(worker)) != 0)
        cw_shm_map_unref(CW_STEAL(l->map));
    if (!l->map && !(l->map = cw_shm_map_new(worker)))
        return cw_error_nomem(err, sizeof(*l->map), "a worker");
    return cw_shm_map_resume(l->map, c, err);
}

int cw_link_opened(struct link *l, struct cw_conn *c, const Cachew__Welcome *peer, struct cw_error *err)
{
    int status = link_resume_shm(l, c, peer, err);
    if (status < 0)
        return status;
    l->conn = c;
    l->open = true;
    l->retry.down_since_ns = 0;
    l->retry.reported_ns = 0;
    l->why = (struct cw_error){0};
    return 0;
}

static void link_report_unreachable(struct link *l, uint64_t now)
{
    struct link_retry *t = &l->retry;
    if (l->gone || now - t->reported_ns < REPORT_AGAIN_NS || now - t->down_since_ns < REPORT_AFTER_NS)
        return;
    Cachew__Unreachable m = {CW_MESSAGE(unreachable), .worker = l->worker, .reason = l->why.message};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_UNREACHABLE,
                          .unreachable = &m};
    if (cw_dispatcher_send(&l->remote->dispatcher, &e))
        t->reported_ns = now;
}

void cw_link_down(struct link *l, const struct cw_error *why)
{
    struct link_retry *t = &l->retry;
    uint64_t now = cw_now_ns(), wait = RETRY_FIRST_NS << CW_MIN(t->attempt, RETRY_DOUBLINGS);
    if (l->map)
        l->map->conn = NULL;
    if (!l->open) /* the connection could not be made again: only batches still need the shared memory */
        cw_shm_map_unref(CW_STEAL(l->map));
    l->conn = NULL;
    l->open = false;
    l->stats.counted = (struct cw_conn_traffic){0};
    t->attempt += !t->same_address;
    t->same_address = false;
    if (why->status)
        l->why = *why;
    if (!t->down_since_ns)
        t->down_since_ns = now;
    cw_fetches_unrequest(l->remote, l);
    t->next_ns = now + CW_MIN(wait, RETRY_MAX_NS);
    cw_remote_wake_at(l->remote, t->next_ns);
    link_report_unreachable(l, now);
}

void cw_link_count_batch(struct link *l, size_t loan_bytes)
{
    struct cw_conn_traffic now;
    struct link_stats *s = &l->stats;
    bool local = cw_conn_is_local(l->conn);
    cw_conn_traffic(l->conn, &now);
    s->bytes += now.in - s->counted.in + loan_bytes;
    s->wire_bytes += now.in_wire - s->counted.in_wire;
    s->counted = now;
    /* A worker that shares memory also sends some copies, when its budget for shared batches is used up. Over
     * TCP nothing is shared. */
    if (loan_bytes || s->transport != CW_TRANSPORT_SHM || l->no_shm.status || !local)
        s->transport = loan_bytes ? CW_TRANSPORT_SHM : local ? CW_TRANSPORT_UNIX : CW_TRANSPORT_TCP;
    s->n_batches++;
}

/* ---- connecting ---- */

static void link_connect(struct link *l)
{
    struct remote *r = l->remote;
    if (l->retry.next_ns > cw_now_ns()) {
        cw_remote_wake_at(r, l->retry.next_ns);
        return;
    }
    struct cw_error err = {0};
    Cachew__Hello hello = r->job.hello;
    const char *address = cw_addresses_try(&l->addresses, l->retry.attempt);
    if (l->no_shm.status)
        hello.n_capabilities = 0;
    struct cw_conn_options o = {.hello = &hello,
                                .limits = CW_LIMITS_CLIENT,
                                .timeout_ns = cw_address_is_local(address) ? CW_CONN_LOCAL_TIMEOUT_NS : 0,
                                .token = r->job.options.token,
                                .pack = true,
                                .tls = r->job.options.tls};
    int status = address ? cw_conn_connect(r->loop.loop, address, &o, r->loop.link_ops, l, &l->conn, &err)
                         : cw_error_set(&err, CW_E_SERVICE,
                                        "the worker has no address that transport %s can use from this host",
                                        cw_transport_name(r->job.options.transport));
    if (status < 0)
        cw_link_down(l, &err);
    else
        r->loop.n_conns++;
}

struct link *cw_link_usable(struct remote *r, uint64_t worker)
{
    struct link *l = worker ? cw_link_find(r, worker) : NULL;
    if (!l || l->gone)
        return NULL;
    if (!l->conn)
        link_connect(l);
    return l->conn && l->open ? l : NULL;
}

void cw_link_close(struct link *l)
{
    if (!l->conn)
        return;
    if (l->open && l->map && cw_list_empty(&l->map->loans))
        cw_shm_map_leave(l->map);
    l->open = false;
    cw_fetches_unrequest(l->remote, l);
    cw_conn_close(l->conn, NULL);
}

/* ---- the dispatcher's list ---- */

void cw_link_free(struct link *l)
{
    cw_link_out(&l->in_list);
    cw_shm_map_unref(l->map);
    cw_addresses_deinit(&l->addresses);
    free(l);
}

/* Whether a retired link may be closed: no batch uses the worker's shared memory any more. After closing, the
 * worker may use this memory for other batches. */
static bool link_may_close(const struct link *l)
{
    return l->conn && (!l->map || l->map->refs <= 1);
}

/* Retires the link to a worker that is gone: nothing more is requested from it. It may still answer earlier
 * requests, until all shared memory is returned. Its fetches are requested from other workers once the
 * dispatcher places their ranges. */
static void link_retire(struct link *l)
{
    l->gone = true;
    if (!l->conn)
        cw_link_free(l);
    else if (link_may_close(l))
        cw_link_close(l);
}

void cw_links_close_retired(struct remote *r)
{
    CW_LIST_EACH_OF (l, struct link, in_list, &r->links)
        if (l->gone && link_may_close(l))
            cw_link_close(l);
}

/* Lists the addresses of a worker that the transport option allows. With auto: its Unix socket if the worker
 * is on this host, and its TCP addresses. */
static int link_list_addresses(const struct remote_job *job, const Cachew__WorkerAddress *m,
                               struct cw_addresses *ret, struct cw_error *err)
{
    enum cw_transport t = job->options.transport;
    bool any = t == CW_TRANSPORT_AUTO, tcp = t == CW_TRANSPORT_TCP,
         local = *m->unix_path && !tcp && (!any || strcmp(m->host, job->host) == 0);
    return cw_addresses_init(ret, m, local, any || tcp, err);
}

int cw_link_set(struct remote *r, const Cachew__WorkerAddress *m, struct cw_error *err)
{
    struct link *l = cw_link_find(r, m->worker);
    struct cw_addresses addresses;
    if (m->gone) {
        if (l)
            link_retire(l);
        return 0;
    }
    int status = link_list_addresses(&r->job, m, &addresses, err);
    if (status < 0)
        return status;
    if (l && cw_addresses_same(&l->addresses, &addresses)) {
        cw_addresses_deinit(&addresses);
        l->gone = false;
        l->retry.next_ns = 0;
        return 0;
    }
    if (l) { /* other addresses: a dispatcher that lost its state gave the number to another worker */
        l->worker = 0;
        link_retire(l);
    }
    if (!(l = malloc(sizeof(*l)))) {
        cw_addresses_deinit(&addresses);
        return cw_error_nomem(err, sizeof(*l), "a worker");
    }
    *l = (struct link){.remote = r, .worker = m->worker, .addresses = addresses};
    cw_list_add(&r->links, &l->in_list);
    return 0;
}

json_t *cw_remote_links(const struct cw_producer *p)
{
    struct remote *r = ((const struct view *)p)->remote;
    json_t *list = json_array();
    CW_GUARD(&r->mutex);
    CW_LIST_EACH_OF (l, struct link, in_list, &r->links) {
        const struct link_stats *s = &l->stats;
        if (!s->n_batches)
            continue;
        json_t *o = json_pack("{s:I, s:s, s:I, s:I, s:I}", "worker", (json_int_t)l->worker, "transport",
                              cw_transport_name(s->transport), "batches", (json_int_t)s->n_batches, "bytes",
                              (json_int_t)s->bytes, "wire_bytes", (json_int_t)s->wire_bytes);
        if (o && l->no_shm.status)
            json_object_set_new(o, "note", json_string(l->no_shm.message));
        json_array_append_new(list, o);
    }
    return list;
}
