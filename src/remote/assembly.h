/*
 * Batches as the iterator has them: one that came whole, in an assembly without a layout, or an assembly that
 * was joined here from parts of several ranges, and which operators on batches are applied to. The consumer's
 * thread.
 */
#pragma once
#include "order/producer.h"

struct remote;
struct slot;

/* Makes slot->joined from parts, all of which are here. Mutex held, but released meanwhile: other slots, and
 * what is planned, may have changed. */
int cw_slot_join(struct remote *r, struct slot *s, struct cw_error *err) _must_check_;
/* Joins batches whose parts are all here, and begins operators on them, before their turn. To be called
 * whenever something may have arrived, or a call ended. Mutex held, but released meanwhile. */
void cw_remote_join_early(struct remote *r);
/* Drops a joined batch (may be NULL), and waits for a call on it. Mutex not held. */
void cw_remote_joined_free(struct cw_assembly *joined);

/* As the functions of cw_producer_ops; mutex not held. */
int cw_remote_assembly_finish(struct cw_producer *base, struct cw_assembly *a, bool wanted, uint64_t epoch,
                              uint64_t deadline_ns, struct cw_error *err) _must_check_;
struct cw_batch *cw_remote_assembly_take(struct cw_producer *base, struct cw_assembly *a);
void cw_remote_assembly_drop(struct cw_producer *base, struct cw_assembly *a);
