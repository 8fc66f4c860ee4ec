/* Messages of admin clients (`cachew jobs | workers | top`): queries, and commands for jobs and workers. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles an admin client's message. A request that is refused is answered with Failure. 1: an admin client
 * does not send such a message. */
int cw_dp_admin_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                        struct cw_error *err) _must_check_;
