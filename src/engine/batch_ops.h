/* Operators on whole batches (map_batches): run when a batch is complete. */
#pragma once
#include "engine/assembly.h"

/* Memory for what an operator gives. CW_E_BUDGET: to be tried again. */
typedef int (*cw_slab_getter)(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err);
/* Applies the operators that were not yet applied to a->batch; stopped(stop_arg) is asked now and then, and ends it with CW_E_INTERRUPTED when it says
 * so. CW_E_BUDGET, from `get`: to be tried again. Other errors are the batch's. */
int cw_batch_apply(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch, int (*stopped)(void *arg), void *stop_arg,
                   cw_slab_getter get, void *get_arg, struct cw_error *err) _must_check_;
