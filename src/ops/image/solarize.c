/* solarize: negatives of the bright values of an image. */
#include <stdlib.h>

#include "ops/image/image_color.h"

static int solarize_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    struct cw_color_step step = {.kind = CW_COLOR_SOLARIZE, .value = cw_attr_float(op, "threshold")};
    int r = cw_color_bind_read(b, op, true, &type, err);
    if (r < 0)
        return r;
    if (type.dtype == CW_FLOAT32 && step.value > 1)
        return cw_attr_error(op, "threshold", err, "0 to 1, because \"%s\" is float32",
                             cw_attr_string(op, "component"));
    return cw_color_bind_to(b, op, &step, cw_attr_float(op, "p"), &type, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    {.name = "threshold",
     .kind = CW_ATTR_FLOAT,
     .min = 0,
     .max = 256,
     .doc = "values from this one on are inverted; at most 256 for uint8 images, 1 for float32 images"},
    CW_COLOR_ATTR_P,
    {0},
};

const struct cw_op_desc cw_op_solarize = {
    .name = "solarize",
    .summary = "inverts the bright values of images",
    .doc = "A value x >= `threshold` becomes 255 - x in a uint8 image, and 1 - x in a float32 image.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_PIXELWISE, .random = true},
    .attrs = attrs,
    .draws = cw_color_draws,
    .bind = solarize_bind,
    .run = cw_color_run,
    .free_state = free,
};
