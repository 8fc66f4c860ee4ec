/*
 * Batches as the iterator has them. A batch that lies in several ranges is joined here from its parts, and
 * operators on batches are applied to it. The consumer's thread.
 */
#pragma once
#include "order/producer.h"

struct fetch;
struct remote;

/* A batch that the iterator has: a whole one in a.batch, or parts that are to be joined. */
struct remote_assembly {
    struct cw_assembly a; /* first */
    struct fetch *fetches;
    /* these parts joined, until it becomes a.batch: operators on batches are being applied */
    struct cw_assembly *joined;
};

struct remote_assembly *cw_remote_assembly_new(void); /* NULL: out of memory */
/* Joins batches whose parts are all here, and begins operators on them, before their turn. To be called
 * whenever something may have arrived, or a call ended. Mutex held, but released meanwhile. */
void cw_remote_join_early(struct remote *r);
/* Drops a joined batch, and waits for a call on it. May be NULL inside; mutex not held. */
void cw_remote_joined_free(struct cw_assembly **joined);

/* As the functions of cw_producer_ops; mutex not held. */
int cw_remote_assembly_finish(struct cw_producer *base, struct cw_assembly *assembly, bool wanted,
                              uint64_t epoch, uint64_t deadline_ns, struct cw_error *err) _must_check_;
struct cw_batch *cw_remote_assembly_take(struct cw_producer *base, struct cw_assembly *assembly);
void cw_remote_assembly_drop(struct cw_producer *base, struct cw_assembly *assembly);
