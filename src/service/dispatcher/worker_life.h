/* The life of workers: a worker registers and gets an id, reconnects after a lost connection, drains, and
 * leaves. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/workers.h"
#include "service/dispatcher/types.h"

/* Handles Register. The worker's id is sent once it is durable in the journal. */
int cw_dp_worker_register(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Register *r,
                          struct cw_error *err) _must_check_;
/* Call when the worker's id is durable: sends Registered, then Prepare for the streams that it should run. */
void cw_dp_worker_registered(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re);
/* Call when the worker's connection is lost: other workers get its ranges. It keeps its id for DP_GONE. */
void cw_dp_worker_lost(struct cw_dispatcher *d, struct worker *w);
/* Drains the worker: it gets no more leases. by: WORKER_RELEASED: the dispatcher decided that, and sends
 * Drain; WORKER_DRAINS: the worker announced it. */
void cw_dp_worker_drain(struct cw_dispatcher *d, struct worker *w, enum worker_leaving by);
/* Frees the worker with its assignments. */
void cw_dp_worker_free(struct cw_dispatcher *d, struct worker *w);
/* Call on each tick: forgets workers that have been gone for DP_GONE, and drops the finished ranges of
 * workers that have drained for DP_DRAIN. */
void cw_dp_worker_tick(struct cw_dispatcher *d);
