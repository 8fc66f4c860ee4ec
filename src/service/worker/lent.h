/*
 * Memory that clients on this host have: lent with a batch, and theirs until they return it or their process
 * ends. A connection may end before: then what was lent over it stays lent, and the client says over its next
 * one what it still has. The loop's thread only.
 *
 * All shm_loans count in the worker's budget `handed_out`. A client may have as much lent as it leaves free
 * there: one client a half, a second one a quarter, and so on. What goes beyond is sent as a copy, into
 * memory of the client.
 */
#pragma once
#include "service/worker/worker_impl.h"

/* A client that says the same host has connected: whether batches may be lent to it. */
void cw_lent_open(struct client *c, const Cachew__Hello *hello);
/* Returns whether x->batch may be lent to the client; otherwise it is copied. */
bool cw_lent_room(const struct client *c, const struct sent *x);
/* Names the slabs of x->batch to the client, with the memory that they lie in. Returns how many. CW_E_IO:
 * they can't be given to another process. */
int cw_lend(struct client *c, const struct worker_stream *s, struct sent *x, Cachew__Slab slabs[2],
            struct cw_error *err) _must_check_;
/* x was sent: it is the client's. */
void cw_lent_add(struct client *c, struct sent *x);
/* < 0: it is not lent to this client. */
int cw_lent_return(struct client *c, uint64_t slab, struct cw_error *err) _must_check_;
/* Over an earlier connection the client got these regions, and has these slabs still: they are its again, all
 * others of that connection are free. Without regions: of this one, which ends. */
int cw_lent_keep(struct client *c, const Cachew__Keep *m, struct cw_error *err) _must_check_;
/* Its connection is over. Takes c over, with all that it was lent. */
void cw_lent_closed(struct client *c);
/* This process ends: what clients still have must stay as it is, and nobody waits for it. */
void cw_lent_stop(struct cw_worker *w);
