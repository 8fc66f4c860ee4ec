/* Rewrites of a program that never change a result: what runs instead of the operators as written. */
#pragma once
#include "pipeline/program.h"

/* Immutable. */
struct cw_optimized {
    struct cw_op **ops; /* as the program's, with runs of operators replaced by fused ones */
    unsigned n_ops;
    unsigned *stage;      /* as the program's */
    unsigned *fused_into; /* by operator position: the position under which its time is counted */
    struct cw_op **owned; /* the fused ones */
    unsigned n_owned;
};

/* enable false: everything as written. n_positions: operators of the pipeline. cache point: the one in use
 * (NULL: none), where fused runs end; others are left out. */
int cw_optimize(const struct cw_program *g, unsigned n_limits, unsigned n_positions, bool enable,
                const struct cw_op *cache_point, struct cw_optimized **ret,
                struct cw_error *err) _must_check_;
struct cw_optimized *cw_optimized_free(struct cw_optimized *o);
