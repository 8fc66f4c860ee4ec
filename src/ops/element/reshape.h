/* Shared by reshape and flatten. */
#pragma once
#include "pipeline/op.h"

/* Reads the attribute `component`, and writes it with the shape dims, in which one may be -1. Sets op->state,
 * which free() frees. attribute: the attribute that an error names. */
int cw_reshape_bind(struct cw_bind *b, struct cw_op *op, const char *attribute, const int64_t *dims, int ndim,
                    struct cw_error *err) _must_check_;
/* cw_op_desc.run */
int cw_reshape_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err) _must_check_;
