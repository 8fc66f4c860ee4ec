/* autocache: a cache point. It does nothing itself: the engine writes elements to the cache there, and reads
 * them from it.
 */
#include "ops/element/cache_point.h"

int cw_cache_point_bind(struct cw_bind *b CW_UNUSED, struct cw_op *op, struct cw_error *err)
{
    if (cw_attr_bool(op, "freeze"))
        return 0;
    if (cw_attr_int(op, "reuse") != 0)
        return cw_attr_error(op, "reuse", err,
                             "0, because freeze is false: reuse is the number of epochs for "
                             "which draws are frozen");
    if (cw_attr_int(op, "seed") != -1)
        return cw_attr_error(op, "seed", err,
                             "-1, because freeze is false: seed is the seed of the frozen "
                             "draws");
    return 0;
}

const struct cw_attr_def cw_cache_point_attrs[] = {
    {.name = "freeze",
     .kind = CW_ATTR_BOOL,
     .def = "false",
     .doc = "true: the random operators before this one draw the same numbers in many epochs, so that their "
            "results can be cached; this also holds in runs without a cache"},
    {.name = "reuse",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = 0,
     .max = 0x1p62,
     .doc = "with freeze: number of epochs in which the same numbers are drawn, before new ones are drawn; "
            "0: the same in all epochs"},
    {.name = "seed",
     .kind = CW_ATTR_INT,
     .def = "-1",
     .min = -1,
     .max = 0x1p62,
     .doc = "with freeze: seed of the random operators before this one; -1: the seed of the run"},
    {0},
};

const struct cw_op_desc cw_op_autocache = {
    .name = "autocache",
    .summary = "marks a cache point: a place where elements may be cached, so that they need not be computed "
               "again",
    .doc = "If the run has a cache directory, the elements that reach this operator may be written to the "
           "directory, and read from it in later epochs and by other runs. Caching never changes a result. "
           "The run measures whether caching saves time. If a pipeline has several cache points, the run "
           "uses at most one of them. A cache point after a random operator is used only if `freeze` is set.",
    .kind = CW_OP_MAP,
    .effects.pinned = true,
    .cache_point = CW_CACHE_AUTO,
    .attrs = cw_cache_point_attrs,
    .bind = cw_cache_point_bind,
};
