#include "service/worker/client.h"

#include "net/limits.h"

void cw_client_give_room(struct cw_client *c, size_t bytes)
{
    if (cw_peer_give(&c->peer, bytes))
        cw_streams_wake(c->clients->streams);
}

void cw_client_close(struct cw_client *c, const struct cw_error *why)
{
    c->closing = true;
    cw_conn_close(c->conn, why);
}

int cw_client_send(struct cw_client *c, const Cachew__Envelope *m, const struct iovec *pieces, size_t n,
                   struct cw_delivery *d, const int *fds, size_t n_fds, struct cw_error *err)
{
    if (cw_conn_queued(c->conn) > atomic_load(&c->peer.out) + CW_BESIDE_BATCHES_BYTES) {
        if (d)
            cw_delivery_free(d);
        return cw_error_set(err, CW_E_SERVICE, "it does not read what it is sent: %zu bytes are queued",
                            cw_conn_queued(c->conn));
    }
    return cw_conn_send(c->conn, m, pieces, n, d ? cw_delivery_free : NULL, d, fds, n_fds, err);
}

struct cw_delivery *cw_delivery_new(struct cw_client *c, struct cw_worker_stream *s, struct cw_answer *a)
{
    struct cw_delivery *d = malloc(sizeof(*d));
    if (!d)
        return NULL;
    *d = (struct cw_delivery){.client = c,
                              .stream = s,
                              .batch = CW_STEAL(a->batch),
                              .rows = CW_STEAL(a->rows),
                              .bytes = a->bytes,
                              .handed_out = a->handed_out};
    cw_peer_ref(&c->peer);
    c->clients->n_out++;
    return d;
}

void cw_delivery_free(void *arg)
{
    struct cw_delivery *d = arg;
    struct cw_client *c = d->client;
    struct cw_clients *all = c->clients;
    if (d->batch)
        cw_stream_release(d->stream->stream, d->batch);
    if (d->rows)
        cw_part_deinit(d->rows);
    free(d->rows);
    all->n_out--;
    if (d->handed_out)
        cw_budget_give(&all->handed_out, d->bytes);
    if (!d->loan)
        cw_client_give_room(c, d->bytes);
    cw_peer_unref(&c->peer);
    free(d);
    cw_common_changed(all->common);
}
