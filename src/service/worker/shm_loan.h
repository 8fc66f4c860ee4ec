/*
 * Batches in shared memory that clients on this host use. A shm_loan is such a batch: it must not change
 * until the client returns it, or the client's process ends. If the connection ends before, its shm_loans
 * stay, and over its next connection the client sends which of them it still uses. The loop's thread only;
 * called by clients.c and answers.c.
 *
 * All shm_loans are charged to the worker's budget `handed_out`. A client may use as many bytes as it leaves
 * free in that budget: one client a half, a second one a quarter, and so on. Further batches are sent as
 * copies, into the client's own memory.
 */
#pragma once
#include "service/worker/client.h"

/* Call when a client connected: stores whether it may get shm_loans, and which process it is. */
void cw_shm_loans_init(struct cw_client *c, const Cachew__Hello *hello);
/* Returns whether a->batch may be sent as a shm_loan; if not, it is sent as a copy. */
bool cw_shm_loan_room(const struct cw_client *c, const struct cw_answer *a);
/* Fills in `slabs`, which name the memory of a->batch in a message. Sends the client regions that it does not
 * have yet. Returns the number of slabs. CW_E_IO: the memory can't be shared with another process. */
int cw_shm_loan_name(struct cw_client *c, struct cw_answer *a, Cachew__Slab slabs[2],
                     struct cw_error *err) _must_check_;
/* Call when a is sent as a shm_loan: adds it to the client's shm_loans. */
void cw_shm_loan_add(struct cw_client *c, struct cw_answer *a);
/* Call when the client returns a slab. CW_E_SERVICE: no shm_loan of this client has the slab. */
int cw_shm_loan_return(struct cw_client *c, uint64_t slab, struct cw_error *err) _must_check_;
/* Handles Keep. With regions: over an earlier connection the client got these regions, and it still uses
 * these slabs; their shm_loans move to this connection, and all other shm_loans of the earlier one end.
 * Without regions: the client is about to close this connection, and uses only these slabs. */
int cw_shm_loans_keep(struct cw_client *c, const Cachew__Keep *m, struct cw_error *err) _must_check_;
/* Call when the client's connection ended. Takes ownership of c, with all its shm_loans. */
void cw_shm_loans_close(struct cw_client *c);
/* Call when this process ends: frees all clients without a connection. Memory that they still use stays as it
 * is. */
void cw_shm_loans_stop(struct cw_clients *all);
