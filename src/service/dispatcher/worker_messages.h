/* Messages of workers: registration, held ranges, answers, completions and heartbeats. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles a worker's message. 1: a worker does not send such a message. */
int cw_dp_worker_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err) _must_check_;
