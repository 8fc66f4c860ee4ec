/*
 * A peer: a client that is connected to this worker, as streams see it. It counts the bytes that are on their
 * way to the client. The client (client.h), requests and answers hold references. Any thread.
 *
 * The worker's budget `handed_out` is charged with the memory of a batch from its answer until the batch is
 * sent or, in shared memory, until the client returns it. A client may always have one batch on its way. It
 * may have more only while fewer bytes are on their way to it than are free in the budget, so that a client
 * that does not read leaves room for other clients.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "data/budget.h"

/* If this many bytes are on their way to a client, no more batches are taken for it. 10 MB keep a link of 10
 * GB/s and 1 ms busy. */
#define CW_PEER_WINDOW ((size_t)32 << 20)
/* Most unanswered requests of a client. */
#define CW_PEER_REQUESTS 4096u

struct cw_peer {
    atomic_uint refs;
    struct cw_budget *handed_out; /* the worker's, immutable */
    atomic_size_t out; /* bytes of answers that are not sent yet; batches in shared memory do not count */
    atomic_uint n_requests; /* not yet answered */
    atomic_bool blocked;    /* a stream waits until there is room */
    atomic_bool shared;     /* batches are sent in shared memory; once false it stays false */
};

/* Returns whether more answers may be sent to the client. If not, streams are woken once there is room. */
bool cw_peer_room(struct cw_peer *p);
/* Adds the bytes of an answer to those on their way. */
void cw_peer_take(struct cw_peer *p, size_t bytes);
/* Subtracts bytes that cw_peer_take added. Returns whether a stream waits for room and may go on now. */
bool cw_peer_give(struct cw_peer *p, size_t bytes);
struct cw_peer *cw_peer_ref(struct cw_peer *p);
/* Drops a reference. The last one frees the peer with free(), so it must be the first member of the allocated
 * struct. */
void cw_peer_unref(struct cw_peer *p);
