/*
 * Operators on whole batches (map_batches), which run when a batch is complete. A call may take minutes.
 * There are two forms. cw_batch_apply makes the calls one after the other, in the calling thread, for threads
 * of a pool. cw_batch_call_* makes each call on a thread of its own, which belongs to the assembly: for a
 * consumer that has a deadline and may be interrupted. The consumer may stop waiting and find the same call
 * later. A call also runs a->tail, all of its operators on elements, before the operators on batches.
 */
#pragma once
#include "engine/assembly.h"
#include "engine/profile.h"

/* Gets memory for the result of an operator. CW_E_BUDGET: try again later. */
typedef int (*cw_slab_getter)(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err);
/* Frees a batch that another one replaces. */
typedef void (*cw_batch_dropper)(struct cw_batch *b, void *arg);
/* Applies the operators that were not yet applied to a->batch. Operators call stopped(stop_arg) now and then,
 * and end with CW_E_INTERRUPTED when it returns non-zero. CW_E_BUDGET, from `get`: try again later. Any other
 * error becomes the error of the batch. Adds the time to ops, by position in the pipeline. */
int cw_batch_apply(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                   struct cw_op_profile *ops, int (*stopped)(void *arg), void *stop_arg, cw_slab_getter get,
                   void *get_arg, struct cw_error *err) _must_check_;

/* Returns whether operators are to be applied to a->batch: a->tail or operators on batches. */
static inline bool cw_batch_unfinished(const struct cw_compiled *c, const struct cw_assembly *a)
{
    return a->tail || a->n_applied < c->n_batch_ops;
}

/* Begins a call of a->tail, or else of the next operator that was not yet applied to a->batch. a->call is
 * this call until cw_batch_call_end or _drop. When the call is over, its thread calls ended(arg), and does
 * not touch `a` any more. */
int cw_batch_call_begin(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                        void (*ended)(void *arg), void *arg, struct cw_error *err) _must_check_;
bool cw_batch_call_over(const struct cw_assembly *a);
/* Adds the time of a call that is over to ops: as call_ns, or that of the operators of a->tail as ns. A
 * second time it adds nothing. */
void cw_batch_call_count(struct cw_assembly *a, struct cw_op_profile *ops);
/* Applies the result of a call that is over, and frees the batch that it was applied to with drop (NULL:
 * cw_batch_free). An error of `get` changes nothing, and the caller tries again; an error of the operator
 * becomes the error of the batch. The caller must hold no lock that `ended` or `drop` waits for. */
int cw_batch_call_end(const struct cw_compiled *c, struct cw_assembly *a, cw_slab_getter get,
                      cw_batch_dropper drop, void *arg, struct cw_error *err) _must_check_;
/* Cancels the call, if there is one, and waits for its thread. The caller must hold no lock that `ended`
 * waits for. */
void cw_batch_call_drop(struct cw_assembly *a);
