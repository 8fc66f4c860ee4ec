/* cache: as autocache, chosen before any of those. */
#include "ops/element/marker.h"

const struct cw_op_desc cw_op_cache = {
    .name = "cache",
    .summary = "a place where elements are kept, wherever there is a cache",
    .doc = "As `autocache`, but chosen before any of those, and without asking whether it pays.",
    .kind = CW_OP_MAP,
    .marker = true,
    .attrs = cw_marker_attrs,
    .bind = cw_marker_bind,
};
