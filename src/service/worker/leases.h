/*
 * What a stream does with its leases: takes them and gives them up on command, serves their requests in turn,
 * and shares the runner's memory among them. The stream's thread only; called by stream.c.
 */
#pragma once
#include "service/worker/lease.h"

/* Takes a range; nothing where it is leased already. The stream may fail. */
void cw_leases_add(struct cw_leases *s, const struct cw_command *c);
/* Frees all leases whose ranges lie within begin .. end. */
void cw_leases_revoke(struct cw_leases *s, uint64_t epoch, uint64_t begin, uint64_t end);
/* Takes a request over: it waits in its lease, or is answered at once. */
void cw_leases_request(struct cw_leases *s, struct cw_request *r);
/* Frees the requests of a client whose connection ended. */
void cw_leases_forget_peer(struct cw_leases *s, const struct cw_peer *p);
/* Answers what can be answered. Returns whether anything was done: then there may be more. */
bool cw_leases_serve(struct cw_leases *s);
/* Changes how many bytes the stream may use. Ranges that have more than that are begun again from where they
 * are. */
void cw_leases_set_memory(struct cw_leases *s, size_t memory);
/* Returns the bytes that the runner of a stream may use. */
size_t cw_leases_runner_memory(size_t memory);
