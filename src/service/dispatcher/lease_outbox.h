/* What is to be sent to workers of their leases. Changes gather in each assignment's outbox; the end of the
 * turn sends them, revocations first. */
#pragma once
#include <stdint.h>

#include "service/dispatcher/types.h"

/* Has the end of the turn send the outbox. */
void cw_dp_outbox_dirty(struct cw_dispatcher *d, struct assignment *t);
/* Revokes all ranges within these positions; leases of them that are not sent yet are not sent. */
void cw_dp_outbox_revoke(struct cw_dispatcher *d, struct assignment *t, uint64_t begin, uint64_t end);
/* Takes leases that begin within these positions out of the outbox. */
void cw_dp_outbox_unsend(struct assignment *t, uint64_t begin, uint64_t end);
/* Sends all outboxes. */
void cw_dp_outbox_flush(struct cw_dispatcher *d);
