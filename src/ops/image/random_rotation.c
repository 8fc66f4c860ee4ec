/* random_rotation: images rotated by an angle that is drawn per element. */
#include <stdlib.h>

#include "base/philox.h"
#include "ops/image/warp_op.h"

struct random_rotation {
    struct cw_warp_op warp;
    double degrees[2];
    bool expand;
};

static bool random_rotation_map(const struct cw_op *op, const struct cw_block *b, size_t row,
                                struct cw_warp *p)
{
    const struct random_rotation *s = op->state;
    uint32_t word[4];
    cw_block_draw(b, op->index, row, 0, word);
    cw_warp_rotate(p, cw_warp_uniform(s->degrees, cw_uniform(word[0])), cw_warp_centre(&s->warp), s->expand);
    return true;
}

static int random_rotation_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    bool expand = cw_attr_bool(op, "expand");
    int r = cw_warp_bind(b, op, sizeof(struct random_rotation), expand, random_rotation_map, err);
    if (r < 0)
        return r;
    struct random_rotation *s = op->state;
    s->expand = expand;
    return cw_warp_attr_range(op, "degrees", s->degrees, err);
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "degrees",
     .kind = CW_ATTR_FLOATS,
     .min = -CW_WARP_DEGREES,
     .max = CW_WARP_DEGREES,
     .len_min = 1,
     .len_max = 2,
     .scalar_too = true,
     .doc = "range [low, high] of the angle, counter-clockwise; a single number x: [-x, x]"},
    CW_WARP_ATTR_INTERP("\"nearest\""),
    {.name = "expand",
     .kind = CW_ATTR_BOOL,
     .def = "false",
     .doc = "true: the result is as large as the whole rotated image, so its size varies; false: the size of "
            "the image"},
    CW_WARP_ATTR_CENTER,
    CW_WARP_ATTR_FILL,
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_random_rotation = {
    .name = "random_rotation",
    .summary = "rotates images by a random angle",
    .doc = "The results are those of torchvision's RandomRotation on Pillow images. Images are uint8 or "
           "float32, [height, width, channels] or [height, width].",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_WARP, .random = true},
    .attrs = attrs,
    .bind = random_rotation_bind,
    .run = cw_warp_run,
    .free_state = free,
};
