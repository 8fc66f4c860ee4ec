/* Batches as the iterator gets them: assemblies (struct cw_assembly). A batch that arrived whole, and that no
 * operator is applied to, is in an assembly without a layout. A batch that arrived in parts from several
 * ranges is joined here. Operators that run in this process are applied to it: those after the cut, and
 * operators on batches (map_batches), which workers apply only to whole batches. The consumer's thread. */
#pragma once
#include "order/producer.h"

struct remote;
struct slot;

/* Whether slot->joined is to be made before the batch is taken. All of the slot must have arrived. */
bool cw_slot_must_join(const struct remote *r, const struct slot *s);
/* Makes slot->joined from its parts, or its whole batch, which must have arrived. The mutex must be held; it
 * is released in between, so other slots and the plan may have changed. */
int cw_slot_join(struct remote *r, struct slot *s, struct cw_error *err) _must_check_;
/* Joins batches that have arrived, and starts operators on them, before it is their turn. Call
 * whenever something may have arrived, or a call of an operator ended. The mutex must be held; it is released
 * in between. */
void cw_remote_join_early(struct remote *r);
/* Frees a joined batch (may be NULL), after waiting for a call on it. The mutex must not be held. */
void cw_remote_joined_free(struct remote *r, struct cw_assembly *joined);
/* Whether all operators were applied to a joined batch. */
bool cw_remote_joined_ready(const struct remote *r, const struct cw_assembly *joined);

/* Implement finish, take and drop of cw_producer_ops (order/producer.h). The mutex must not be held. */
int cw_remote_assembly_finish(struct cw_producer *base, struct cw_assembly *a, bool wanted, uint64_t epoch,
                              uint64_t deadline_ns, struct cw_error *err) _must_check_;
struct cw_batch *cw_remote_assembly_take(struct cw_producer *base, struct cw_assembly *a);
void cw_remote_assembly_drop(struct cw_producer *base, struct cw_assembly *a);
