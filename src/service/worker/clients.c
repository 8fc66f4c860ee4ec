/* Connections of clients: listens, and passes the clients' requests to streams. The loop's thread only; owned
 * by worker.c. */
#include "service/worker/clients.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "net/conn.h"
#include "net/limits.h"
#include "service/worker/answers.h"
#include "service/worker/origin.h"
#include "service/worker/shm_loan.h"
#include "service/worker/socket_dir.h"

/* ---- requests ---- */

static int client_on_get(struct cw_client *c, uint64_t id, const Cachew__Get *m, struct cw_error *err)
{
    struct cw_worker_stream *s = cw_streams_find(c->clients->streams, m->stream);
    if (atomic_load(&c->peer.n_requests) >= CW_PEER_REQUESTS)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the client made more than %u requests before the first one was answered" CW_OTHER_VERSION,
            CW_PEER_REQUESTS);
    if (!id || (!m->count && m->what != CACHEW__WHAT__WHAT_KEYS) || m->count > UINT64_MAX - m->first)
        return cw_error_set(err, CW_E_SERVICE,
                            "the client sent a malformed request (Get): no id, or %llu batches or elements "
                            "from number %llu on, which is no valid range" CW_OTHER_VERSION,
                            (unsigned long long)m->count, (unsigned long long)m->first);
    if (!s)
        return cw_answers_send_not_here(c, id, m->epoch, m->begin, err);
    struct cw_request *r = malloc(sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "a request");
    atomic_fetch_add(&c->peer.n_requests, 1);
    *r = (struct cw_request){.peer = cw_peer_ref(&c->peer),
                             .id = id,
                             .epoch = m->epoch,
                             .begin = m->begin,
                             .what = m->what,
                             .key = m->key,
                             .at = m->first,
                             .end = m->first + m->count,
                             .requested_ns = c->clients->common->options.trace ? cw_now_ns() : 0};
    if (cw_stream_command(s->stream, &(struct cw_command){.kind = CW_COMMAND_GET, .request = r}))
        return 0;
    cw_request_free(r);
    return cw_error_nomem(err, sizeof(*r), "a request");
}

static int client_on_pull(struct cw_client *c, uint64_t id, const Cachew__Pull *m, struct cw_error *err)
{
    struct cw_worker_stream *s = cw_streams_find(c->clients->streams, m->stream);
    if (!s || s->state != STREAM_READY)
        return cw_answers_send_not_here(c, id, m->epoch, m->from, err);
    if (!s->stream->origin)
        return cw_error_set(err, CW_E_SERVICE,
                            "another worker requested elements of a source (Pull), but each worker can read "
                            "this source from any position itself" CW_OTHER_VERSION);
    if (cw_conn_queued(c->conn) > CW_BESIDE_BATCHES_BYTES)
        return cw_error_set(err, CW_E_SERVICE,
                            "the client does not read its messages: %zu bytes wait to be sent",
                            cw_conn_queued(c->conn));
    return cw_origin_serve(s->stream->origin, &c->peer, id, m, err);
}

static int client_on_message(void *user, struct cw_conn *conn CW_UNUSED, const Cachew__Envelope *m,
                             void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                             size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct cw_client *c = user;
    int r = 0;
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_GET:
        return client_on_get(c, m->id, m->get, err);
    case CACHEW__ENVELOPE__OF_PULL:
        return client_on_pull(c, m->id, m->pull, err);
    case CACHEW__ENVELOPE__OF_RETURN_SLABS:
        for (size_t i = 0; i < m->return_slabs->n_slabs && r >= 0; i++)
            r = cw_shm_loan_return(c, m->return_slabs->slabs[i], err);
        return r;
    case CACHEW__ENVELOPE__OF_KEEP:
        return cw_shm_loans_keep(c, m->keep, err);
    case CACHEW__ENVELOPE__OF_FAILURE:
        return 0;
    default:
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker received a message of kind %d, which a client does not send to a "
                            "worker" CW_OTHER_VERSION,
                            (int)m->of_case);
    }
}

/* ---- connections ---- */

static void client_on_closed(void *user, struct cw_conn *conn, const struct cw_error *why)
{
    struct cw_client *c = user;
    struct cw_clients *all = c->clients;
    struct cw_conn_traffic traffic;
    cw_conn_traffic(conn, &traffic);
    all->stats.wire_bytes += traffic.out_wire;
    c->conn = NULL;
    if (why->status && !all->common->stopping)
        cw_common_log(all->common, "a client's connection ended: %s", why->message);
    CW_UNLINK(all->list, c);
    cw_streams_forget_peer(all->streams, &c->peer);
    cw_shm_loans_close(c);
    cw_common_changed(all->common);
}

static const struct cw_conn_ops client_ops = {.message = client_on_message, .closed = client_on_closed};

static int clients_on_open(void *user, struct cw_conn *conn, const Cachew__Envelope *peer,
                           struct cw_error *err)
{
    struct cw_clients *all = user;
    const Cachew__Hello *hello = peer->hello;
    if (!hello || hello->role != CACHEW__ROLE__ROLE_CLIENT)
        return cw_error_set(err, CW_E_SERVICE,
                            "this is the address of a worker, which accepts connections of clients only; "
                            "others need the dispatcher's address");
    struct cw_client *c = calloc(1, sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a client");
    c->next = all->list;
    c->clients = all;
    c->conn = conn;
    c->peer.handed_out = &all->handed_out;
    atomic_init(&c->peer.refs, 1);
    cw_shm_loans_init(c, hello);
    all->list = c;
    cw_conn_set_user(conn, &client_ops, c);
    cw_common_changed(all->common);
    return 0;
}

static void clients_on_refused(void *user, const char *peer, const struct cw_error *why)
{
    struct cw_clients *all = user;
    unsigned unsaid;
    if (!why->status || !cw_refusal_said(&all->refusals, cw_now_ns(), &unsaid))
        return;
    if (unsaid)
        cw_common_log(all->common, "%u other connections were refused since the last such message", unsaid);
    cw_common_log(all->common, "a connection from %s was refused: %s", peer, why->message);
}

/* for connections until they are accepted; then client_ops */
static const struct cw_conn_ops listen_ops = {.open = clients_on_open, .refused = clients_on_refused};

static int clients_listen(struct cw_clients *all, struct cw_error *err)
{
    const struct cw_worker_options *own = &all->common->options;
    struct cw_loop *loop = all->common->loop;
    char address[320], shm[] = "shm", *capabilities[] = {shm};
    Cachew__Hello hello;
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_WORKER, own->name, all->common->incarnation, all->common->host);
    hello.capabilities = capabilities;
    hello.n_capabilities = 1;
    struct cw_conn_options o = {.hello = &hello,
                                .limits = CW_LIMITS_WORKER,
                                .timeout_ns = own->timeout_ns,
                                .token = own->token,
                                .pack = true,
                                .tls = own->tls};
    int r = own->listen ? cw_listener_new(loop, own->listen, &o, &listen_ops, all, &all->tcp, err) : 0;
    if (r < 0)
        return r;
    snprintf(address, sizeof(address), "unix:%s", all->unix_path);
    o.timeout_ns = CW_CONN_LOCAL_TIMEOUT_NS;
    o.tls = NULL;
    return cw_listener_new(loop, address, &o, &listen_ops, all, &all->local, err);
}

int cw_clients_init(struct cw_clients *all, struct cw_worker_common *common, struct cw_streams *streams,
                    struct cw_error *err)
{
    const struct cw_worker_options *o = &common->options;
    all->common = common;
    all->streams = streams;
    cw_budget_init(&all->handed_out, o->memory / CW_HANDED_OUT_PART);
    int r = o->unix_path ? 0 : cw_socket_dir_new(&all->unix_dir, &all->unix_dir_lock, err);
    if (r < 0)
        return r;
    const char *dir = all->unix_dir;
    if (asprintf(&all->unix_path, "%s%s", dir ? dir : o->unix_path, dir ? "/socket" : "") < 0) {
        all->unix_path = NULL;
        return cw_error_nomem(err, 0, "a path");
    }
    return clients_listen(all, err);
}

void cw_clients_deinit(struct cw_clients *all)
{
    if (all->unix_dir)
        all->unix_dir = cw_socket_dir_free(all->unix_dir, all->unix_dir_lock);
    free(all->unix_path);
}

void cw_clients_close(struct cw_clients *all)
{
    cw_shm_loans_stop(all);
    all->tcp = cw_listener_free(all->tcp);
    all->local = cw_listener_free(all->local);
    for (struct cw_client *c = all->list; c; c = c->next)
        if (!c->closing)
            cw_client_close(c, NULL);
}

uint64_t cw_clients_wire_bytes(const struct cw_clients *all)
{
    uint64_t sum = all->stats.wire_bytes;
    for (const struct cw_client *c = all->list; c; c = c->next) {
        struct cw_conn_traffic traffic;
        cw_conn_traffic(c->conn, &traffic);
        sum += traffic.out_wire;
    }
    return sum;
}

void cw_clients_cut(struct cw_clients *all)
{
    for (struct cw_client *c = all->list; c; c = c->next)
        cw_conn_abort(c->conn);
}
