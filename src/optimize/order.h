/*
 * The order in which a pipeline's operators run. Within a segment, which ends at operators that must stay
 * where they are (batchers, shuffles and other operators that count elements, pinned operators), the laws
 * (laws.h) say which orders give the same results; of these, the cheapest one is taken. Costs are predicted
 * from the types of components. The result is a pure function of the pipeline.
 */
#pragma once
#include "pipeline/program.h"

/* Compiles a pipeline in the order in which it runs: as its `order` says; optimize false: without moves that
 * do not change results. Changes the order of p's chain (cw_pipeline_permute), so p must have no other user.
 * Errors are those of cw_compile for the order as written. */
int cw_order_compile(struct cw_pipeline *p, bool optimize, struct cw_compiled **ret,
                     struct cw_error *err) _must_check_;
