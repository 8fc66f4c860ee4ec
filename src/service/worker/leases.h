/* All leases of a stream: adds and frees them on command, serves their requests, and divides the runner's
 * memory among them. The stream's thread only; called by stream.c. */
#pragma once
#include "service/worker/lease.h"

/* Adds the lease of command c. Does nothing if the range is leased already. The stream may fail. */
void cw_leases_add(struct cw_leases *s, const struct cw_command *c);
/* Frees all leases whose ranges lie within positions begin to end - 1 of the epoch. */
void cw_leases_revoke(struct cw_leases *s, uint64_t epoch, uint64_t begin, uint64_t end);
/* Takes ownership of a request: it waits in its lease, or is answered at once with NOT_HERE or an error. */
void cw_leases_request(struct cw_leases *s, struct cw_request *r);
/* Frees the requests of a client whose connection ended. */
void cw_leases_forget_peer(struct cw_leases *s, const struct cw_peer *p);
/* Answers all requests that can be answered now, or frees memory. Returns whether anything was done; if so,
 * call it again. */
bool cw_leases_serve(struct cw_leases *s);
/* Sets how many bytes the stream may use. If the runner uses more than its part of that, all ranges are
 * closed, and computed again from where they are. */
void cw_leases_set_memory(struct cw_leases *s, size_t memory);
/* Returns the bytes that the stream's runner may use, of the stream's `memory` bytes. */
size_t cw_leases_runner_memory(size_t memory);
