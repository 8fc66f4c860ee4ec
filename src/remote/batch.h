/*
 * Batches that arrived: in a slab of this process, or in shared memory of a worker. Fetches own them until an
 * assembly takes them; the user releases them. What is released in shared memory waits for the loop's thread,
 * which returns it to its worker.
 */
#pragma once
#include "data/batch.h"
#include "remote/shm_loan.h"

struct remote;

struct remote_batch {
    struct cw_batch b; /* first */
    struct remote *remote;
    struct shm_loan loan;
};

struct remote_batch *cw_remote_batch_new(struct remote *r); /* NULL: out of memory */
/* Releases a batch. Any thread; mutex not held. */
void cw_remote_batch_release(struct remote_batch *b);
/* The same for a batch that the user never had; mutex held. */
void cw_remote_batch_drop(struct remote_batch *b);
/* Frees batches whose loans are over. Mutex not held. */
void cw_remote_batches_free(struct shm_loan *done);
