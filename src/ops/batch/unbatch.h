/* The rows of elements as elements of their own: unbatch, and rebatch before it makes batches of them. */
#pragma once
#include "pipeline/op.h"

/* cw_op_desc.bind: reads all components, and writes them without their first dimension. */
int cw_unbatch_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
void cw_unbatch_free(void *state); /* cw_op_desc.free_state */
/* cw_op_desc.run. An element whose components differ in the number of their rows fails. */
int cw_unbatch_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err) _must_check_;
