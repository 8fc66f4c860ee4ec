/* All operators there are. */
#pragma once
#include "pipeline/pipeline.h"

/* Returns the table of built-in operators and those of the plug-ins loaded so far. From any thread, without a
 * lock. The table and its descriptors never change and live as long as the process; a later call may return
 * a longer table. */
const struct cw_op_table *cw_ops(void);
/* Adds operators, which must live as long as the process; the list itself is copied. All or none: CW_E_OPTION
 * where a name is there already, the error names the plug-in that has it. From any thread. */
int cw_ops_add(const struct cw_op_desc *const *ops, size_t n, struct cw_error *err) _must_check_;
