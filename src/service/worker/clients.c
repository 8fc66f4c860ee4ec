/*
 * Clients: what they ask for goes to streams, and what streams answer goes to them, by descriptor on one host
 * and gathered over TCP. The loop's thread only.
 */
#include <stdio.h>
#include <string.h>

#include "net/conn.h"
#include "net/limits.h"
#include "remote/wire.h"
#include "service/worker/origin.h"
#include "service/worker/lent.h"

#include "base/crash.h"

/* ---- what is on its way ---- */

/* A batch or rows were sent, or the batch came back. */
void cw_sent_free(void *arg)
{
    struct sent *x = arg;
    struct client *c = x->client;
    struct cw_worker *w = c->w;
    if (x->batch)
        cw_stream_release(x->stream->stream, x->batch);
    if (x->rows)
        cw_part_deinit(x->rows);
    free(x->rows);
    w->n_out--;
    if (x->handed_out)
        cw_budget_give(&w->handed_out, x->bytes);
    if (!x->loan && cw_peer_give(&c->peer, x->bytes))
        cw_streams_wake(w);
    cw_peer_unref(&c->peer);
    free(x);
    cw_worker_changed(w);
}

static struct sent *sent_new(struct client *c, struct worker_stream *s, struct cw_answer *a)
{
    struct sent *x = malloc(sizeof(*x));
    if (!x)
        return NULL;
    *x = (struct sent){.client = c,
                       .stream = s,
                       .batch = CW_STEAL(a->batch),
                       .rows = CW_STEAL(a->rows),
                       .bytes = a->bytes,
                       .handed_out = a->handed_out};
    cw_peer_ref(&c->peer);
    c->w->n_out++;
    return x;
}

/* What was answered with, and won't be sent. */
static void drop_answer(struct worker_stream *s, struct cw_answer *a)
{
    if (a->batch)
        cw_stream_release(s->stream, CW_STEAL(a->batch));
    if (a->handed_out)
        cw_budget_give(&s->w->handed_out, a->bytes);
    if ((a->kind == CW_SAY_BATCH || a->kind == CW_SAY_PART || a->kind == CW_SAY_KEYS) &&
        cw_peer_give(a->peer, a->bytes))
        cw_streams_wake(s->w);
}

/* `closed` follows, and cleans up. */
static void client_close(struct client *c, const struct cw_error *why)
{
    c->closing = true;
    cw_conn_close(c->conn, why);
}

static void give_up(struct client *c, const struct cw_error *why)
{
    cw_worker_log(c->w, "client %s: %s", cw_conn_peer(c->conn), why->message);
    client_close(c, why);
}

/* Sends a message. */
int cw_client_send(struct client *c, const Cachew__Envelope *m, const struct iovec *pieces, size_t n,
                   struct sent *x, const int *fds, size_t n_fds, struct cw_error *err)
{
    if (cw_conn_queued(c->conn) > atomic_load(&c->peer.out) + CW_BESIDE_BATCHES_BYTES) {
        if (x)
            cw_sent_free(x);
        return cw_error_set(err, CW_E_SERVICE, "it does not read what it is sent: %zu bytes are queued",
                            cw_conn_queued(c->conn));
    }
    return cw_conn_send(c->conn, m, pieces, n, x ? cw_sent_free : NULL, x, fds, n_fds, err);
}

/* ---- answers ---- */

static int batch_write(const struct cw_batch *b, const struct cw_answer *a, bool in_slabs,
                       struct cw_wire_batch *wire, struct cw_error *err)
{
    int r = cw_wire_batch_write(b, a->quarantined, in_slabs, wire, err);
    if (r < 0)
        return r;
    wire->message.begin = a->begin;
    wire->message.key = a->key;
    return 0;
}

/* By descriptor: it comes back by its slabs. 1: it can't be lent, and x is still the caller's. */
static int send_lent(struct client *c, struct worker_stream *s, struct sent *x, const struct cw_answer *a,
                     Cachew__Envelope *m, struct cw_error *err)
{
    Cachew__Slab slabs[2], *list[2] = {&slabs[0], &slabs[1]};
    struct cw_wire_batch wire;
    int n = cw_lend(c, s, x, slabs, err);
    if (n == CW_E_IO) {
        if (!c->w->said_copies)
            cw_worker_log(c->w,
                          "batches can't be lent to clients of this machine, they are sent as copies: %s",
                          err->message);
        c->w->said_copies = true;
        atomic_store(&c->peer.shared, false);
        return 1;
    }
    int r = n < 0 ? n : batch_write(x->batch, a, true, &wire, err);
    if (r < 0) {
        cw_sent_free(x);
        return r;
    }
    wire.message.n_slabs = (size_t)n;
    wire.message.slabs = list;
    m->of_case = CACHEW__ENVELOPE__OF_BATCH;
    m->batch = &wire.message;
    cw_lent_add(c, x);
    r = cw_client_send(c, m, NULL, 0, NULL, NULL, 0, err);
    cw_wire_batch_deinit(&wire);
    free(CW_STEAL(x->batch->ids)); /* it may be out for long, and only its slabs are needed */
    free(CW_STEAL(x->batch->components));
    return r;
}

static void count_quarantined(struct cw_worker *w, const struct cw_quarantined *list)
{
    for (; list; list = list->next) {
        w->n_skipped += !list->note && !list->replaced;
        w->n_replaced += !list->note && list->replaced;
    }
}

static int send_batch(struct client *c, struct worker_stream *s, struct cw_answer *a, Cachew__Envelope *m,
                      struct cw_error *err)
{
    struct cw_wire_batch wire;
    struct sent *x = sent_new(c, s, a);
    int r = 1;
    if (!x) {
        drop_answer(s, a);
        return cw_error_nomem(err, sizeof(*x), "a batch's message");
    }
    c->w->n_batches++;
    c->w->n_bytes += x->bytes;
    count_quarantined(c->w, a->quarantined);
    if (cw_lent_room(c, x) && (r = send_lent(c, s, x, a, m, err)) <= 0)
        return r;
    if ((r = batch_write(x->batch, a, false, &wire, err)) < 0) {
        cw_sent_free(x);
        return r;
    }
    m->of_case = CACHEW__ENVELOPE__OF_BATCH;
    m->batch = &wire.message;
    r = cw_client_send(c, m, wire.pieces, wire.n_pieces, x, NULL, 0, err);
    cw_wire_batch_deinit(&wire);
    return r;
}

/* Sends a message whose bytes count as on their way to the client until it is sent. */
static int send_counted(struct client *c, struct worker_stream *s, struct cw_answer *a,
                        const Cachew__Envelope *m, const struct iovec *pieces, size_t n, struct cw_error *err)
{
    struct sent *x = sent_new(c, s, a);
    if (!x) {
        drop_answer(s, a);
        return cw_error_nomem(err, sizeof(*x), "a message");
    }
    return cw_client_send(c, m, pieces, n, x, NULL, 0, err);
}

/* Rows that the client joins. */
static int send_rows(struct client *c, struct worker_stream *s, struct cw_answer *a, Cachew__Envelope *m,
                     struct cw_error *err)
{
    struct iovec piece = {.iov_base = a->rows->data, .iov_len = a->rows->size};
    struct cw_wire_part wire;
    c->w->n_batches++;
    c->w->n_bytes += a->rows->size;
    int r = cw_wire_part_write(a->rows, &wire, err);
    if (r < 0) {
        drop_answer(s, a);
        return r;
    }
    count_quarantined(c->w, a->rows->quarantined);
    wire.message.epoch = a->epoch;
    wire.message.begin = a->begin;
    wire.message.key = a->key;
    wire.message.first = a->at;
    m->of_case = CACHEW__ENVELOPE__OF_PART;
    m->part = &wire.message;
    r = send_counted(c, s, a, m, &piece, 1, err);
    cw_wire_part_deinit(&wire);
    return r;
}

static int send_keys(struct client *c, struct worker_stream *s, struct cw_answer *a, Cachew__Envelope *m,
                     struct cw_error *err)
{
    Cachew__Failure why;
    Cachew__Keys keys = {CW_MESSAGE(keys),
                         .epoch = a->epoch,
                         .begin = a->begin,
                         .end = a->end,
                         .first = a->at,
                         .over = a->over,
                         .keys = {.data = a->keys, .len = a->bytes}};
    if (a->why) {
        cw_failure_init(&why, a->why);
        keys.why = &why;
    }
    m->of_case = CACHEW__ENVELOPE__OF_KEYS;
    m->keys = &keys;
    return send_counted(c, s, a, m, NULL, 0, err);
}

static int send_pulled(struct client *c, struct cw_answer *a, Cachew__Envelope *m, struct cw_error *err)
{
    Cachew__Failure why;
    Cachew__Pulled pulled = {CW_MESSAGE(pulled)};
    const struct iovec piece = {a->pulled, a->bytes};
    m->of_case = CACHEW__ENVELOPE__OF_PULLED;
    m->pulled = &pulled;
    if (a->pulled)
        return cw_conn_send(c->conn, m, &piece, 1, free, CW_STEAL(a->pulled), NULL, 0, err);
    cw_failure_init(&why,
                    a->why ? a->why : &(struct cw_error){.status = CW_E_MEMORY, .message = "out of memory"});
    pulled.why = &why;
    return cw_conn_send(c->conn, m, NULL, 0, NULL, NULL, NULL, 0, err);
}

static int send_end(struct client *c, const struct cw_answer *a, Cachew__Envelope *m, struct cw_error *err)
{
    Cachew__Report report = {
        CW_MESSAGE(report),        .epoch = a->epoch,       .begin = a->begin,          .end = a->end,
        .n_batches = a->n_batches, .elements = a->elements, .n_elements = a->n_elements};
    Cachew__RangeEnd end = {CW_MESSAGE(range_end), .report = &report};
    m->of_case = CACHEW__ENVELOPE__OF_RANGE_END;
    m->range_end = &end;
    return cw_client_send(c, m, NULL, 0, NULL, NULL, 0, err);
}

static int send_failed(struct client *c, const struct cw_answer *a, Cachew__Envelope *m, struct cw_error *err)
{
    static const struct cw_error unknown = {
        .status = CW_E_MEMORY, .message = "out of memory: the reason why a range failed is not known"};
    Cachew__Failure why;
    cw_failure_init(&why, a->why ? a->why : &unknown);
    Cachew__RangeFailed failed = {CW_MESSAGE(range_failed), .epoch = a->epoch, .begin = a->begin,
                                  .index = a->at,           .what = a->what,   .why = &why};
    m->of_case = CACHEW__ENVELOPE__OF_RANGE_FAILED;
    m->range_failed = &failed;
    return cw_client_send(c, m, NULL, 0, NULL, NULL, 0, err);
}

static int send_not_here(struct client *c, uint64_t re, uint64_t epoch, uint64_t begin, struct cw_error *err)
{
    Cachew__NotHere not_here = {CW_MESSAGE(not_here), .epoch = epoch, .begin = begin};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = re, .of_case = CACHEW__ENVELOPE__OF_NOT_HERE,
                          .not_here = &not_here};
    return cw_client_send(c, &m, NULL, 0, NULL, NULL, 0, err);
}

static void trace_answer(const struct client *c, const struct worker_stream *s, const struct cw_answer *a)
{
    cw_trace_span(c->w->options.trace, "answer",
                  &(struct cw_traced){s->stream->name, a->epoch, a->begin, a->at, a->key}, a->asked_ns,
                  cw_now_ns());
}

void cw_clients_answer(struct worker_stream *s, struct cw_answer *a)
{
    struct client *c = (struct client *)a->peer; /* its first member */
    struct cw_error err = {0};
    int r = 0;
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = a->re};
    if (!c->conn || c->closing) {
        drop_answer(s, a);
        return;
    }
    switch (a->kind) {
    case CW_SAY_BATCH:
        cw_crash_point("worker-batch");
        r = send_batch(c, s, a, &m, &err);
        trace_answer(c, s, a);
        break;
    case CW_SAY_PART:
        cw_crash_point("worker-part");
        r = send_rows(c, s, a, &m, &err);
        trace_answer(c, s, a);
        break;
    case CW_SAY_KEYS:
        r = send_keys(c, s, a, &m, &err);
        break;
    case CW_SAY_PULLED:
        r = send_pulled(c, a, &m, &err);
        break;
    case CW_SAY_END:
        r = send_end(c, a, &m, &err);
        break;
    case CW_SAY_RANGE_FAILED:
        r = send_failed(c, a, &m, &err);
        break;
    default:
        r = send_not_here(c, a->re, a->epoch, a->begin, &err);
    }
    if (r < 0)
        give_up(c, &err);
}

/* ---- requests ---- */

static int on_get(struct client *c, uint64_t id, const Cachew__Get *m, struct cw_error *err)
{
    struct worker_stream *s = cw_streams_find(c->w, m->stream);
    if (atomic_load(&c->peer.n_requests) >= CW_PEER_REQUESTS)
        return cw_error_set(err, CW_E_SERVICE,
                            "more than %u requests were made before the first was answered",
                            CW_PEER_REQUESTS);
    if (!id || (!m->count && m->what != CACHEW__WHAT__WHAT_KEYS) || m->count > UINT64_MAX - m->first)
        return cw_error_set(err, CW_E_SERVICE,
                            "a Get without id, or for %llu batches or elements from %llu on",
                            (unsigned long long)m->count, (unsigned long long)m->first);
    if (!s)
        return send_not_here(c, id, m->epoch, m->begin, err);
    struct cw_command *command = malloc(sizeof(*command));
    struct cw_request *r = malloc(sizeof(*r));
    if (!command || !r) {
        free(command);
        free(r);
        return cw_error_nomem(err, sizeof(*r), "a request");
    }
    atomic_fetch_add(&c->peer.n_requests, 1);
    *r = (struct cw_request){.peer = cw_peer_ref(&c->peer),
                             .id = id,
                             .epoch = m->epoch,
                             .begin = m->begin,
                             .what = m->what,
                             .key = m->key,
                             .at = m->first,
                             .end = m->first + m->count,
                             .asked_ns = c->w->options.trace ? cw_now_ns() : 0};
    *command = (struct cw_command){.kind = CW_DO_GET, .request = r};
    cw_stream_do(s->stream, command);
    return 0;
}

static int on_pull(struct client *c, uint64_t id, const Cachew__Pull *m, struct cw_error *err)
{
    struct worker_stream *s = cw_streams_find(c->w, m->stream);
    if (!s || s->state != STREAM_READY)
        return send_not_here(c, id, m->epoch, m->from, err);
    if (!s->stream->origin)
        return cw_error_set(err, CW_E_SERVICE,
                            "a Pull of a stream whose source every worker enters anywhere");
    if (cw_conn_queued(c->conn) > CW_BESIDE_BATCHES_BYTES)
        return cw_error_set(err, CW_E_SERVICE, "it does not read what it is sent: %zu bytes are queued",
                            cw_conn_queued(c->conn));
    return cw_origin_serve(s->stream->origin, &c->peer, id, m, err);
}

static int client_message(void *user, struct cw_conn *conn CW_UNUSED, const Cachew__Envelope *m,
                          void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                          size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct client *c = user;
    int r = 0;
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_GET:
        return on_get(c, m->id, m->get, err);
    case CACHEW__ENVELOPE__OF_PULL:
        return on_pull(c, m->id, m->pull, err);
    case CACHEW__ENVELOPE__OF_RETURN_SLABS:
        for (size_t i = 0; i < m->return_slabs->n_slabs && r >= 0; i++)
            r = cw_lent_return(c, m->return_slabs->slabs[i], err);
        return r;
    case CACHEW__ENVELOPE__OF_KEEP:
        return cw_lent_keep(c, m->keep, err);
    case CACHEW__ENVELOPE__OF_FAILURE:
        return 0;
    default:
        return cw_error_set(err, CW_E_SERVICE,
                            "a client does not say this (field %d of Envelope) to a worker", (int)m->of_case);
    }
}

/* ---- coming and going ---- */

static void client_closed(void *user, struct cw_conn *conn, const struct cw_error *why)
{
    struct client *c = user;
    struct cw_worker *w = c->w;
    struct cw_conn_traffic traffic;
    cw_conn_traffic(conn, &traffic);
    w->wire_bytes += traffic.out_wire;
    c->conn = NULL;
    if (why->status && !w->stopping)
        cw_worker_log(w, "a client's connection ended: %s", why->message);
    struct client **at = &w->clients;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    for (struct worker_stream *s = w->streams; s; s = s->next) {
        struct cw_command *command = malloc(sizeof(*command));
        if (command)
            *command = (struct cw_command){.kind = CW_DO_FORGET_PEER, .peer = cw_peer_ref(&c->peer)};
        cw_streams_do(s, command);
    }
    cw_lent_closed(c);
    cw_worker_changed(w);
    cw_worker_maybe_over(w);
}

static const struct cw_conn_ops client_ops = {.message = client_message, .closed = client_closed};

static int client_open(void *user, struct cw_conn *conn, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct cw_worker *w = user;
    const Cachew__Hello *hello = peer->hello;
    if (!hello || hello->role != CACHEW__ROLE__ROLE_CLIENT)
        return cw_error_set(err, CW_E_SERVICE, "this is a worker: it talks to clients");
    struct client *c = calloc(1, sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a client");
    *c = (struct client){.next = w->clients, .w = w, .conn = conn, .peer.handed_out = &w->handed_out};
    cw_list_init(&c->lent);
    atomic_init(&c->peer.refs, 1);
    cw_lent_open(c, hello);
    w->clients = c;
    cw_conn_set_user(conn, &client_ops, c);
    cw_worker_changed(w);
    return 0;
}

static void refused(void *user, const char *peer, const struct cw_error *why)
{
    struct cw_worker *w = user;
    unsigned unsaid;
    if (!why->status || !cw_refusal_said(&w->refusals, cw_now_ns(), &unsaid))
        return;
    if (unsaid)
        cw_worker_log(w, "%u more were refused before", unsaid);
    cw_worker_log(w, "%s was refused: %s", peer, why->message);
}

/* what it lets in has client_ops */
static const struct cw_conn_ops listen_ops = {.open = client_open, .refused = refused};

int cw_clients_listen(struct cw_worker *w, struct cw_error *err)
{
    char shm[] = "shm", *capabilities[] = {shm};
    Cachew__Hello hello;
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_WORKER, w->options.name, w->incarnation, w->host);
    hello.capabilities = capabilities;
    hello.n_capabilities = 1;
    struct cw_conn_options o = {.hello = &hello,
                                .limits = CW_LIMITS_WORKER,
                                .timeout_ns = w->options.timeout_ns,
                                .token = w->options.token,
                                .pack = true,
                                .tls = w->options.tls};
    int r = w->options.listen ? cw_listener_new(w->loop, w->options.listen, &o, &listen_ops, w, &w->tcp, err)
                              : 0;
    if (r < 0)
        return r;
    char address[320];
    snprintf(address, sizeof(address), "unix:%s", w->unix_path);
    o.timeout_ns = CW_CONN_LOCAL_TIMEOUT_NS;
    o.tls = NULL;
    return cw_listener_new(w->loop, address, &o, &listen_ops, w, &w->local, err);
}

void cw_clients_close(struct cw_worker *w)
{
    cw_lent_stop(w);
    w->tcp = cw_listener_free(w->tcp);
    w->local = cw_listener_free(w->local);
    for (struct client *c = w->clients; c; c = c->next)
        if (!c->closing)
            client_close(c, NULL);
}

uint64_t cw_clients_wire_bytes(const struct cw_worker *w)
{
    uint64_t sum = w->wire_bytes;
    for (const struct client *c = w->clients; c; c = c->next) {
        struct cw_conn_traffic traffic;
        cw_conn_traffic(c->conn, &traffic);
        sum += traffic.out_wire;
    }
    return sum;
}

void cw_clients_cut(struct cw_worker *w)
{
    for (struct client *c = w->clients; c; c = c->next)
        cw_conn_abort(c->conn);
}
