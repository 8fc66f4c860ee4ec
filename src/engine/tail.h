/*
 * The tail of a pipeline: its operators after a cut point (optimize/cut_point.h), which run in the client of
 * a service, on batches that workers sent. A row of a batch is an element; its record id says what it draws.
 * Any number of threads may run a tail at the same time.
 */
#pragma once
#include "engine/assembly.h"
#include "exec/account.h"
#include "optimize/optimize.h"
#include "optimize/cut_point.h"

struct cw_tail {
    const struct cw_compiled *compiled; /* the pipeline as written. Borrowed, like the next two */
    const struct cw_cut_point *cut;     /* NULL: not initialised */
    struct cw_slab_pool *slabs;         /* memory of the batches that it makes, without a limit */
    struct cw_layout layout;            /* of these batches */
    struct cw_optimized *optimized;
    pthread_mutex_t mutex;
    struct tail_arena *spare; /* arenas that no call uses; the mutex guards the list */
};

/* Initialises the operators on elements after a cut point that has such operators. */
int cw_tail_init(struct cw_tail *t, const struct cw_compiled *c, const struct cw_cut_point *cut,
                 struct cw_slab_pool *slabs, struct cw_budget *budget, struct cw_error *err) _must_check_;
/* Must not be called while a call of cw_tail_run is under way. t may be zeros. */
void cw_tail_deinit(struct cw_tail *t);
/* Runs the operators on the rows of a batch that workers sent. *ret is a finished assembly: its batch, and
 * the records that were skipped. Adds times to the counts of ops, by position. Operators that wait call
 * stopped(arg) now and then, and end with CW_E_INTERRUPTED when it returns non-zero. CW_E_RECORD: a record
 * failed, and is not to be skipped. */
int cw_tail_run(struct cw_tail *t, const struct cw_batch *in, uint64_t seed, uint64_t epoch,
                int (*stopped)(void *arg), void *arg, struct cw_op_profile *ops, struct cw_assembly **ret,
                struct cw_error *err) _must_check_;
