/* A client that is connected to this worker, and the answers on their way to it. The loop's thread only.
 * clients.c owns clients, shm_loan.c their shm_loans (batches in shared memory that the client uses);
 * answers.c sends the answers of streams. */
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
                   struct cw_answer *a, const int *fds, size_t n_fds, struct cw_error *err)
{
    if (cw_conn_queued(c->conn) > atomic_load(&c->peer.out) + CW_BESIDE_BATCHES_BYTES) {
        if (a)
            cw_delivery_free(a);
        return cw_error_set(err, CW_E_SERVICE,
                            "the client does not read its messages: %zu bytes wait to be sent",
                            cw_conn_queued(c->conn));
    }
    return cw_conn_send(c->conn, m, pieces, n, a ? cw_delivery_free : NULL, a, fds, n_fds, err);
}

struct cw_client *cw_delivery_client(const struct cw_answer *a)
{
    return CW_CONTAINER(a->peer, struct cw_client, peer);
}

void cw_delivery_free(void *answer)
{
    struct cw_answer *a = answer;
    struct cw_client *c = cw_delivery_client(a);
    struct cw_clients *all = c->clients;
    if (a->batch)
        cw_stream_release(a->delivery.stream->stream, CW_STEAL(a->batch));
    if (a->handed_out)
        cw_budget_give(&all->handed_out, a->bytes);
    if (!a->delivery.loan)
        cw_client_give_room(c, a->bytes);
    all->n_out -= cw_answer_has_rows(a);
    cw_answer_free(a); /* this may free the client */
    cw_common_changed(all->common);
}
