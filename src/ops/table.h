/* All operators there are. */
#pragma once
#include "pipeline/pipeline.h"

/* Those that are built in, and those of plug-ins that are loaded now. From any thread, without a lock. What
 * is returned stays as it is, and stays: who looks an operator up, or keeps its descriptor, need not know
 * that others are added meanwhile. */
const struct cw_op_table *cw_ops(void);
/* Adds operators, which must live as long as the process; the list itself is copied. All or none: CW_E_OPTION
 * where a name is there already, the error naming whose it is. From any thread. */
int cw_ops_add(const struct cw_op_desc *const *ops, size_t n, struct cw_error *err) _must_check_;
