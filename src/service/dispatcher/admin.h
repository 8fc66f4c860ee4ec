/* What admin clients send (`cachew jobs | workers | top`): queries, and steering of jobs and workers. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles an admin client's message; a request that can't be met is answered with Failure. */
int cw_dp_admin_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                        struct cw_error *err) _must_check_;
