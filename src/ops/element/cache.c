/* cache: a cache point as autocache, but chosen before any autocache. */
#include "ops/element/cache_point.h"

const struct cw_op_desc cw_op_cache = {
    .name = "cache",
    .summary = "a cache point that is used whenever there is a cache",
    .doc = "As `autocache`, but it is chosen before any `autocache`, and without measuring whether it "
           "pays.",
    .kind = CW_OP_MAP,
    .effects.pinned = true,
    .cache_point = CW_CACHE_FORCED,
    .attrs = cw_cache_point_attrs,
    .bind = cw_cache_point_bind,
};
