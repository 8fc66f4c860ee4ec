/* cache: a cache point as autocache, but chosen before any autocache. */
#include "ops/element/cache_point.h"

const struct cw_op_desc cw_op_cache = {
    .name = "cache",
    .summary = "marks a cache point that is used whenever the run has a cache directory",
    .doc = "`cache` works like `autocache`, with two differences. If the pipeline has both, the run uses the "
           "`cache`. The run uses it without measuring whether caching saves time.",
    .kind = CW_OP_MAP,
    .effects.pinned = true,
    .cache_point = CW_CACHE_FORCED,
    .attrs = cw_cache_point_attrs,
    .bind = cw_cache_point_bind,
};
