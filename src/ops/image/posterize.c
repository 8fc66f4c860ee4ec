/* posterize: fewer bits for each value of an image. */
#include <stdlib.h>

#include "ops/image/image_color.h"

static int posterize_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_color_step step = {.kind = CW_COLOR_POSTERIZE, .value = (double)cw_attr_int(op, "bits")};
    return cw_color_bind(b, op, &step, cw_attr_float(op, "p"), false, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    {.name = "bits", .kind = CW_ATTR_INT, .min = 0, .max = 8, .doc = "number of high bits to keep"},
    CW_COLOR_ATTR_P,
    {0},
};

const struct cw_op_desc cw_op_posterize = {
    .name = "posterize",
    .summary = "keeps only the high bits of each value of uint8 images",
    .doc = "The low bits, 8 - `bits` of them, become 0.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_PIXELWISE, .random = true},
    .attrs = attrs,
    .draws = cw_color_draws,
    .bind = posterize_bind,
    .run = cw_color_run,
    .free_state = free,
};
