/* Batches that arrived. Their data are in a slab of this process, or in shared memory of a worker; then their
 * `memory` is a struct shm_loan. A fetch owns the batch until an assembly takes it; later the user releases
 * it. Released batches in shared memory wait for the loop's thread, which returns them to their worker. */
#pragma once
#include "data/batch.h"
#include "remote/shm_loan.h"

struct remote;

/* Releases a batch that the user had. Any thread; the mutex must not be held. */
void cw_remote_batch_release(struct remote *r, struct cw_batch *b);
/* Releases a batch that the user never had. The mutex must be held. */
void cw_remote_batch_drop(struct remote *r, struct cw_batch *b);
/* Frees batches whose loans were returned. The mutex must not be held. */
void cw_remote_batches_free(struct shm_loan *done);
