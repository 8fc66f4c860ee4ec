/* All operators there are. */
#pragma once
#include "pipeline/pipeline.h"

const struct cw_op_table *cw_ops(void);
