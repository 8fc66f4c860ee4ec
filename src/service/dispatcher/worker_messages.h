/* What workers send: registration, what they hold, answers, completions and heartbeats. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles a worker's message. 1: this role does not send it. */
int cw_dp_worker_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err) _must_check_;
