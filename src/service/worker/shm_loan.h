/*
 * Shared memory of batches that clients on this host have: a shm_loan is the client's until it returns it or
 * its process ends. A connection may end before: its shm_loans stay, and the client sends over its next
 * connection which of them it still has. The loop's thread only; called by clients.c and answers.c.
 *
 * All shm_loans count in the worker's budget `handed_out`. A client may have as many bytes of them as it
 * leaves free there: one client a half, a second one a quarter, and so on. What goes beyond is sent as a
 * copy, into memory of the client.
 */
#pragma once
#include "service/worker/client.h"

/* A client connected: notes whether it may get batches as shm_loans, and which process it is. */
void cw_shm_loans_init(struct cw_client *c, const Cachew__Hello *hello);
/* Returns whether a->batch may become a shm_loan of the client; otherwise it is copied. */
bool cw_shm_loan_room(const struct cw_client *c, const struct cw_answer *a);
/* Names the slabs of a->batch to the client, with the regions that they lie in. Returns how many slabs.
 * CW_E_IO: they can't be given to another process. */
int cw_shm_loan_name(struct cw_client *c, struct cw_answer *a, Cachew__Slab slabs[2],
                     struct cw_error *err) _must_check_;
/* a is sent as a shm_loan: it is the client's. */
void cw_shm_loan_add(struct cw_client *c, struct cw_answer *a);
/* The client returns a slab. CW_E_SERVICE: it is in no shm_loan of this client. */
int cw_shm_loan_return(struct cw_client *c, uint64_t slab, struct cw_error *err) _must_check_;
/* Over an earlier connection the client got these regions, and has these slabs still: they are of this
 * connection now, all others of that one are free. Without regions: of this connection, which ends. */
int cw_shm_loans_keep(struct cw_client *c, const Cachew__Keep *m, struct cw_error *err) _must_check_;
/* The client's connection ended. Takes c over, with all its shm_loans. */
void cw_shm_loans_close(struct cw_client *c);
/* This process ends: what clients still have must stay as it is, and nothing waits for it. */
void cw_shm_loans_stop(struct cw_clients *all);
