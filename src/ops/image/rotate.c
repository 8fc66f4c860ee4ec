/* rotate: images rotated by an angle. */
#include <stdlib.h>

#include "ops/image/warp_op.h"

struct rotate {
    struct cw_warp_op warp;
    double angle;
    bool expand;
};

static bool rotate_map(const struct cw_op *op, const struct cw_block *b, size_t row, struct cw_warp *p)
{
    const struct rotate *s = op->state;
    (void)b;
    (void)row;
    cw_warp_rotate(p, s->angle, cw_warp_centre(&s->warp), s->expand);
    return true;
}

static int rotate_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    bool expand = cw_attr_bool(op, "expand");
    int r = cw_warp_bind(b, op, sizeof(struct rotate), expand, rotate_map, err);
    if (r < 0)
        return r;
    struct rotate *s = op->state;
    s->expand = expand;
    s->angle = cw_attr_float(op, "angle");
    return 0;
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "angle",
     .kind = CW_ATTR_FLOAT,
     .min = -CW_WARP_DEGREES,
     .max = CW_WARP_DEGREES,
     .doc = "in degrees, counter-clockwise"},
    CW_WARP_ATTR_INTERP("\"nearest\""),
    {.name = "expand",
     .kind = CW_ATTR_BOOL,
     .def = "false",
     .doc = "true: the result is as large as the whole rotated image; false: the size of the image"},
    CW_WARP_ATTR_CENTER,
    CW_WARP_ATTR_FILL,
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_rotate = {
    .name = "rotate",
    .summary = "rotates images by an angle",
    .doc = "The results are those of torchvision's `rotate` on Pillow images. Images are uint8 or float32, "
           "[height, width, channels] or [height, width].",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_WARP,
    .attrs = attrs,
    .bind = rotate_bind,
    .run = cw_warp_run,
    .free_state = free,
};
