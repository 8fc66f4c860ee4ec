/* affine: images rotated, moved, scaled and sheared. */
#include <stdlib.h>

#include "ops/image/warp_op.h"

struct affine {
    struct cw_warp_op warp;
    double angle, scale, translate[2], shear[2];
};

static bool affine_map(const struct cw_op *op, const struct cw_block *b, size_t row, struct cw_warp *p)
{
    const struct affine *s = op->state;
    (void)b;
    (void)row;
    cw_warp_affine(p, s->angle, s->translate, s->scale, s->shear, cw_warp_centre(&s->warp));
    return true;
}

static int affine_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    int r = cw_warp_bind(b, op, sizeof(struct affine), false, affine_map, err);
    if (r < 0)
        return r;
    struct affine *s = op->state;
    s->angle = cw_attr_float(op, "angle");
    s->scale = cw_attr_float(op, "scale");
    for (size_t i = 0; i < 2; i++)
        s->translate[i] = cw_attr_float_at(op, "translate", i);
    for (size_t i = 0; i < cw_attr_len(op, "shear"); i++)
        s->shear[i] = cw_attr_float_at(op, "shear", i);
    return 0;
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "angle",
     .kind = CW_ATTR_FLOAT,
     .def = "0",
     .min = -CW_WARP_DEGREES,
     .max = CW_WARP_DEGREES,
     .doc = "in degrees, clockwise"},
    {.name = "translate",
     .kind = CW_ATTR_FLOATS,
     .def = "[0, 0]",
     .min = -1e6,
     .max = 1e6,
     .len_min = 2,
     .len_max = 2,
     .doc = "[x, y] in pixels: moves to the right and down"},
    {.name = "scale",
     .kind = CW_ATTR_FLOAT,
     .def = "1",
     .min = 1e-3,
     .max = 1e3,
     .doc = "more than 1: enlarges the image"},
    {.name = "shear",
     .kind = CW_ATTR_FLOATS,
     .def = "0",
     .min = -89,
     .max = 89,
     .len_min = 1,
     .len_max = 2,
     .scalar_too = true,
     .doc = "[x, y]: angles in degrees by which the image is sheared; a single number: along x"},
    CW_WARP_ATTR_INTERP("\"nearest\""),
    CW_WARP_ATTR_FILL,
    CW_WARP_ATTR_CENTER,
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_affine = {
    .name = "affine",
    .summary = "rotates, moves, scales and shears images",
    .doc = "The results are those of torchvision's `affine` on Pillow images. The result has the size of the "
           "image. Images are uint8 or float32, [height, width, channels] or [height, width].",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_WARP,
    .attrs = attrs,
    .bind = affine_bind,
    .run = cw_warp_run,
    .free_state = free,
};
