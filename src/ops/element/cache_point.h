/* The attributes of cache points, which autocache and cache share, and their check. */
#pragma once
#include "pipeline/op.h"

extern const struct cw_attr_def cw_cache_point_attrs[];
int cw_cache_point_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
