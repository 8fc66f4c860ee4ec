/* invert: images as negatives. */
#include <stdlib.h>

#include "ops/image/image_color.h"

static int invert_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_color_step step = {.kind = CW_COLOR_INVERT};
    return cw_color_bind(b, op, &step, cw_attr_float(op, "p"), true, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    CW_COLOR_ATTR_P,
    {0},
};

const struct cw_op_desc cw_op_invert = {
    .name = "invert",
    .summary = "inverts the colours of images",
    .doc = "A value x becomes 255 - x in a uint8 image, and 1 - x in a float32 image.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_PIXELWISE, .random = true},
    .attrs = attrs,
    .draws = cw_color_draws,
    .bind = invert_bind,
    .run = cw_color_run,
    .free_state = free,
};
