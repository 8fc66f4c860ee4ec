/*
 * Batches that arrived: in a slab of this process, or in shared memory of a worker, when their `memory` is a
 * struct shm_loan. Fetches own them until an assembly takes them; the user releases them. What is released in
 * shared memory waits for the loop's thread, which returns it to its worker.
 */
#pragma once
#include "data/batch.h"
#include "remote/shm_loan.h"

struct remote;

/* Releases a batch. Any thread; mutex not held. */
void cw_remote_batch_release(struct remote *r, struct cw_batch *b);
/* The same for a batch that the user never had; mutex held. */
void cw_remote_batch_drop(struct remote *r, struct cw_batch *b);
/* Frees batches whose loans are over. Mutex not held. */
void cw_remote_batches_free(struct shm_loan *done);
