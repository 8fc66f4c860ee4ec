/* equalize: values spread evenly, by the histogram of each channel. */
#include <stdlib.h>

#include "ops/image/image_color.h"

static int equalize_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_color_step step = {.kind = CW_COLOR_EQUALIZE};
    return cw_color_bind(b, op, &step, cw_attr_float(op, "p"), false, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    CW_COLOR_ATTR_P,
    {0},
};

const struct cw_op_desc cw_op_equalize = {
    .name = "equalize",
    .summary = "equalizes the histogram of each channel of uint8 images",
    .doc = "Each channel is changed by itself, so that its values are spread evenly from 0 to 255.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_COLOUR, .random = true},
    .attrs = attrs,
    .draws = cw_color_draws,
    .bind = equalize_bind,
    .run = cw_color_run,
    .free_state = free,
};
