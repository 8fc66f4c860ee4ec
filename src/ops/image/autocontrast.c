/* autocontrast: values stretched to the whole range, channel by channel. */
#include <stdlib.h>

#include "ops/image/image_color.h"

static int autocontrast_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_color_step step = {.kind = CW_COLOR_AUTOCONTRAST};
    return cw_color_bind(b, op, &step, cw_attr_float(op, "p"), true, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    CW_COLOR_ATTR_P,
    {0},
};

const struct cw_op_desc cw_op_autocontrast = {
    .name = "autocontrast",
    .summary = "stretches the contrast of images to the whole range of values",
    .doc = "In each channel, the least value becomes 0 and the greatest becomes 255 (float32: 1). A channel "
           "of one single value is not changed.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_COLOUR, .random = true},
    .attrs = attrs,
    .draws = cw_color_draws,
    .bind = autocontrast_bind,
    .run = cw_color_run,
    .free_state = free,
};
