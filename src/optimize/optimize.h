/* Rewrites a program without changing its results: fuses operators, and leaves out unused cache points. */
#pragma once
#include "pipeline/program.h"

/* The operators that run instead of those of a cw_program, which it refers to and must not outlive.
 * Immutable. */
struct cw_optimized {
    struct cw_op **ops; /* like the program's ops, but each fused run is one operator */
    unsigned n_ops;
    unsigned *stage;      /* like the program's stage, with indices into these ops */
    unsigned *fused_into; /* by operator position: the position under which its time is counted */
    struct cw_op **owned; /* the fused operators */
    unsigned n_owned;
};

/* enable false: nothing is fused. n_positions: number of operators of the pipeline. cache_point: the cache
 * point in use (NULL: none), at which fused runs end; other cache points are left out. *ret: to be freed with
 * cw_optimized_free. */
int cw_optimize(const struct cw_program *g, unsigned n_limits, unsigned n_positions, bool enable,
                const struct cw_op *cache_point, struct cw_optimized **ret,
                struct cw_error *err) _must_check_;
struct cw_optimized *cw_optimized_free(struct cw_optimized *o);
