/*
 * Operators on whole batches (map_batches): run when a batch is complete. A call of one may take minutes: a
 * thread of a pool makes them one after the other (cw_batch_apply); a consumer, which has a deadline and may
 * be interrupted, has each made by a thread of its own, which belongs to the assembly, and waits for that in
 * its own way (cw_batch_call_*). It may go away meanwhile and find it again.
 */
#pragma once
#include "engine/assembly.h"
#include "engine/profile.h"

/* Memory for what an operator gives. CW_E_BUDGET: to be tried again. */
typedef int (*cw_slab_getter)(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err);
/* Applies the operators that were not yet applied to a->batch; stopped(stop_arg) is asked now and then, and
 * ends it with CW_E_INTERRUPTED when it says so. CW_E_BUDGET, from `get`: to be tried again. Other errors are
 * the batch's. What it took is added to ops, by position in the pipeline. */
int cw_batch_apply(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                   struct cw_op_profile *ops, int (*stopped)(void *arg), void *stop_arg, cw_slab_getter get,
                   void *get_arg, struct cw_error *err) _must_check_;

/* Begins to call the next operator that was not yet applied to a->batch: a->call, until cw_batch_call_end or
 * _drop. Once it is over, its thread says ended(arg), and touches nothing of `a` any more. */
int cw_batch_call_begin(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                        void (*ended)(void *arg), void *arg, struct cw_error *err) _must_check_;
bool cw_batch_call_over(const struct cw_assembly *a);
/* What a call that is over took is added to ops, as in cw_batch_apply but as call_ns; a second time nothing
 * is. */
void cw_batch_call_count(struct cw_assembly *a, struct cw_op_profile *ops);
/* What the call gave, which is over, is applied. An error of `get` leaves all as it is, to be tried again;
 * the operator's is the batch's. Holds nothing that `ended` waits for. */
int cw_batch_call_end(const struct cw_compiled *c, struct cw_assembly *a, cw_slab_getter get, void *get_arg,
                      struct cw_error *err) _must_check_;
/* Cancels a call, if there is one, and waits for its thread. As above. */
void cw_batch_call_drop(struct cw_assembly *a);
