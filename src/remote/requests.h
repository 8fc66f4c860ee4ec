/*
 * Requests: plans the batches that the window allows, and sends each fetch to the worker that has its range.
 * The loop's thread, with the mutex held.
 */
#pragma once
#include <stdint.h>

struct link;
struct remote;

/* Plans ahead as far as the window allows, and sends requests for all wanted fetches whose worker is known
 * and can be reached. */
void cw_requests_send(struct remote *r);
/* Call when a worker did not have the range of a request, or has a range with other bounds there: the
 * request's fetches are requested again after a while. request: the request's id. */
void cw_requests_not_here(struct remote *r, const struct link *l, uint64_t request, uint64_t epoch,
                          uint64_t begin);
