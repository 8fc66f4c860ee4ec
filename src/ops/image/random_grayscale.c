/* random_grayscale: images made grey, drawn per element. */
#include <stdlib.h>

#include "ops/image/image_color.h"

static int random_grayscale_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_color_step step = {.kind = CW_COLOR_SATURATION, .value = 0}; /* the channels become equal */
    return cw_color_bind(b, op, &step, cw_attr_float(op, "p"), true, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    CW_IMAGE_ATTR_P("0.1", "probability that an element becomes grey"),
    {0},
};

const struct cw_op_desc cw_op_random_grayscale = {
    .name = "random_grayscale",
    .summary = "makes images grey, at random",
    .doc = "The number of channels stays: the three channels of a grey image are equal.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_PIXEL, .random = true},
    .attrs = attrs,
    .draws = cw_color_draws,
    .bind = random_grayscale_bind,
    .run = cw_color_run,
    .free_state = free,
};
