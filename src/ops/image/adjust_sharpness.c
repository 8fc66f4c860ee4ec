/* adjust_sharpness: images sharpened, or smoothed. */
#include <stdlib.h>

#include "ops/image/image_color.h"

static int adjust_sharpness_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_color_step step = {.kind = CW_COLOR_SHARPNESS, .value = cw_attr_float(op, "sharpness_factor")};
    return cw_color_bind(b, op, &step, cw_attr_float(op, "p"), true, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    {.name = "sharpness_factor",
     .kind = CW_ATTR_FLOAT,
     .min = 0,
     .max = 1e6,
     .doc = "0: smoothed; 1: unchanged; 2: twice as sharp"},
    CW_COLOR_ATTR_P,
    {0},
};

const struct cw_op_desc cw_op_adjust_sharpness = {
    .name = "adjust_sharpness",
    .summary = "sharpens or smooths images",
    .doc = "Blends the image with a smoothed copy (3 x 3 pixels). Pixels at the border are not changed.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_NEIGHBOURHOOD, .random = true},
    .attrs = attrs,
    .draws = cw_color_draws,
    .bind = adjust_sharpness_bind,
    .run = cw_color_run,
    .free_state = free,
};
