/*
 * Requests: plans the batches that the window allows, and sends each fetch to the worker that has its range.
 * The loop's thread, with the mutex held.
 */
#pragma once
#include <stdint.h>

struct link;
struct remote;

/* Plans ahead as far as the window goes, and sends requests for all that is wanted and can be sent. */
void cw_requests_send(struct remote *r);
/* A worker did not have the range that begins there, or had another one, when a request came: what that
 * request was for is requested again after a while. */
void cw_requests_not_here(struct remote *r, const struct link *l, uint64_t request, uint64_t epoch,
                          uint64_t begin);
