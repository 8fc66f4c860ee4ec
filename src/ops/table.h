/* The table of all operators: those built in, and those of loaded plug-ins. */
#pragma once
#include "pipeline/pipeline.h"

/* Returns the table of built-in operators and those of the plug-ins loaded so far. From any thread, without a
 * lock. The table and its descriptors never change and live as long as the process; a later call may return
 * a longer table. */
const struct cw_op_table *cw_ops(void);
/* Adds operators to the table. They must live as long as the process; the list itself is copied. Adds all of
 * them or none: CW_E_OPTION if an operator of that name exists already (the error says whether it is built in
 * or names its plug-in). From any thread. */
int cw_ops_add(const struct cw_op_desc *const *ops, size_t n, struct cw_error *err) _must_check_;
