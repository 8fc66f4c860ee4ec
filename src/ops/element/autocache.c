/* autocache: a place where elements may be kept. It does nothing itself: the engine reads and writes there.
 */
#include "ops/element/cache_point.h"

int cw_cache_point_bind(struct cw_bind *b CW_UNUSED, struct cw_op *op, struct cw_error *err)
{
    if (cw_attr_bool(op, "freeze"))
        return 0;
    if (cw_attr_int(op, "reuse") != 0)
        return cw_attr_error(op, "reuse", err, "0 without freeze: it says how long frozen draws stay");
    if (cw_attr_int(op, "seed") != -1)
        return cw_attr_error(op, "seed", err, "-1 without freeze: it is the seed of frozen draws");
    return 0;
}

const struct cw_attr_def cw_cache_point_attrs[] = {
    {.name = "freeze",
     .kind = CW_ATTR_BOOL,
     .def = "false",
     .doc = "draws before it are the same in many epochs, so that what is random can be kept too; whether or "
            "not it is"},
    {.name = "reuse",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = 0,
     .max = 0x1p62,
     .doc = "with freeze: epochs that have the same draws, before there are new ones; 0: all have"},
    {.name = "seed",
     .kind = CW_ATTR_INT,
     .def = "-1",
     .min = -1,
     .max = 0x1p62,
     .doc = "with freeze: seed of the draws before it; -1: that of the run"},
    {0},
};

const struct cw_op_desc cw_op_autocache = {
    .name = "autocache",
    .summary = "a place where elements may be kept and need not be computed again",
    .doc = "Where a cache directory is given, what passes here may be written there, and read in later "
           "epochs and by other runs. It never changes a result. Whether that pays is measured; of several "
           "at most one is used. Behind an operator that draws it is not used, unless `freeze` is set.",
    .kind = CW_OP_MAP,
    .effects.pinned = true,
    .cache_point = CW_CACHE_AUTO,
    .attrs = cw_cache_point_attrs,
    .bind = cw_cache_point_bind,
};
