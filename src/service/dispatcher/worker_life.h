/* The life of workers: they register and get an id, return after a lost connection, drain, and leave. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/workers.h"
#include "service/dispatcher/types.h"

/* Handles Register. Its id is sent when it is durable. */
int cw_dp_worker_register(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Register *r,
                          struct cw_error *err) _must_check_;
/* The id is durable: sends Registered, then Prepare for the streams that it should run. */
void cw_dp_worker_registered(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re);
/* Its connection is lost: its ranges go to other workers. It keeps its id for a while. */
void cw_dp_worker_lost(struct cw_dispatcher *d, struct worker *w);
/* It leaves: gets no more leases. by: WORKER_RELEASED if the dispatcher wants it, and sends Drain. */
void cw_dp_worker_drain(struct cw_dispatcher *d, struct worker *w, enum worker_leaving by);
/* Frees the worker with its assignments. */
void cw_dp_worker_free(struct cw_dispatcher *d, struct worker *w);
/* Forgets workers that are gone, and takes finished ranges from those that drain for long. */
void cw_dp_worker_tick(struct cw_dispatcher *d);
