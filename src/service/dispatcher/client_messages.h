/* What clients send: a rank attaches, moves its cursor, leaves, or reports a worker that it can't reach. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles a client's message. 1: this role does not send it. */
int cw_dp_client_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err) _must_check_;
/* Its connection is lost, or it detached. Frees a job that no client waits for any more. */
void cw_dp_client_lost(struct cw_dispatcher *d, struct rank *r);
/* Tries attachments again that wait for a job's ranks to be gone. */
void cw_dp_client_tick(struct cw_dispatcher *d);
/* Frees the peer's waiting attachment, if it has one. */
void cw_dp_client_forget_waiting(struct cw_dispatcher *d, struct cw_peer *p);
