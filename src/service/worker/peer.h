/*
 * A client that is connected to this worker, as its streams see it: how many bytes are on their way to it.
 * Its client (client.h), its requests and answers count references. Any thread.
 *
 * The worker's budget `handed_out` has the memory of a batch from the answer until the batch was sent or, as
 * a shm_loan, until it comes back. A client may always have one batch on its way, and more only while it has
 * fewer bytes on their way than are free in that budget: a client that stands still leaves room for others.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "data/budget.h"

/* Bytes on their way to a client, above which no more batches are taken for it. 10 MB keep a link of 10 GB/s
 * and 1 ms busy. */
#define CW_PEER_WINDOW ((size_t)32 << 20)
/* Most requests that are not answered yet. A client requests what it has memory for. */
#define CW_PEER_REQUESTS 4096u

struct cw_peer {
    atomic_uint refs;
    struct cw_budget *handed_out; /* the worker's, immutable */
    atomic_size_t out;      /* bytes that were answered with, and are not sent yet; shm_loans do not count */
    atomic_uint n_requests; /* not yet answered */
    atomic_bool blocked;    /* a stream waits until there is room */
    atomic_bool shared;     /* batches go by descriptor; from false it never becomes true */
};

/* Returns whether more may be sent. If not, its streams are woken once there is room. */
bool cw_peer_room(struct cw_peer *p);
/* Charges bytes that were answered with. */
void cw_peer_take(struct cw_peer *p, size_t bytes);
/* Gives back bytes that cw_peer_take charged. Returns whether a stream waits for room. */
bool cw_peer_give(struct cw_peer *p, size_t bytes);
struct cw_peer *cw_peer_ref(struct cw_peer *p);
/* Frees it with free(): it must be the first member of what was allocated. */
void cw_peer_unref(struct cw_peer *p);
