/* Messages of clients: a rank attaches, reports its cursor, leaves, or reports a worker that it can't reach.
 */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles a client's message. 1: a client does not send such a message. */
int cw_dp_client_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err) _must_check_;
/* Call when the connection of the rank's client is lost, or the client detached. Frees the job if it was not
 * written to the journal yet and no client waits for it. */
void cw_dp_client_lost(struct cw_dispatcher *d, struct rank *r);
/* Tries Attach requests again that wait until a job's ranks are gone. */
void cw_dp_client_tick(struct cw_dispatcher *d);
/* Frees the peer's waiting Attach request, if it has one. */
void cw_dp_client_forget_waiting(struct cw_dispatcher *d, struct cw_peer *p);
