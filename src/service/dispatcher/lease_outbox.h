/* The outboxes: leases and revocations that are to be sent to workers. Changes gather in the outbox of each
 * assignment; the next turn sends them, revocations first. */
#pragma once
#include <stdint.h>

#include "service/dispatcher/types.h"

/* Marks the assignment's outbox, so that the next turn sends it. */
void cw_dp_outbox_dirty(struct cw_dispatcher *d, struct assignment *t);
/* Adds a revocation of all ranges within positions begin to end - 1, and removes leases of these ranges that
 * were not sent yet. */
void cw_dp_outbox_revoke(struct cw_dispatcher *d, struct assignment *t, uint64_t begin, uint64_t end);
/* Removes leases of ranges that begin within these positions from the outbox. */
void cw_dp_outbox_unsend(struct assignment *t, uint64_t begin, uint64_t end);
/* Sends all outboxes. */
void cw_dp_outbox_flush(struct cw_dispatcher *d);
