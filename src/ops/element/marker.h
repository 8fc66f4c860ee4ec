/* What autocache and cache share. */
#pragma once
#include "pipeline/op.h"

extern const struct cw_attr_def cw_marker_attrs[];
int cw_marker_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
