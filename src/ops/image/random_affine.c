/* random_affine: images rotated, moved, scaled and sheared, drawn per element. */
#include <math.h>
#include <stdlib.h>

#include "base/philox.h"
#include "ops/image/warp_op.h"

struct random_affine {
    struct cw_warp_op warp;
    double degrees[2], scale[2], shear[2][2]; /* ranges; shear: along x and y */
    double translate[2];                      /* fractions of width and height */
};

static bool random_affine_map(const struct cw_op *op, const struct cw_block *b, size_t row, struct cw_warp *p)
{
    const struct random_affine *s = op->state;
    uint32_t word[8];
    cw_block_draw(b, op->index, row, 0, word);
    cw_block_draw(b, op->index, row, 1, word + 4);
    double move[2], shear[2];
    for (int i = 0; i < 2; i++) {
        double most = s->translate[i] * (double)(i ? p->h : p->w), range[2] = {-most, most};
        move[i] = rint(cw_warp_uniform(range, cw_uniform(word[1 + i])));
        shear[i] = cw_warp_uniform(s->shear[i], cw_uniform(word[4 + i]));
    }
    cw_warp_affine(p, cw_warp_uniform(s->degrees, cw_uniform(word[0])), move,
                   cw_warp_uniform(s->scale, cw_uniform(word[3])), shear, cw_warp_centre(&s->warp));
    return true;
}

static int random_affine_shear(const struct cw_op *op, struct random_affine *s, struct cw_error *err)
{
    size_t n = cw_attr_len(op, "shear");
    if (n < 3)
        return cw_warp_attr_range(op, "shear", s->shear[0], err);
    for (size_t i = 0; i < n; i++)
        s->shear[i / 2][i % 2] = cw_attr_float_at(op, "shear", i);
    if (n == 3 || s->shear[0][0] > s->shear[0][1] || s->shear[1][0] > s->shear[1][1])
        return cw_attr_error(op, "shear", err,
                             "a number, [low, high], or [low_x, high_x, low_y, high_y], each low <= high");
    return 0;
}

static int random_affine_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    int r = cw_warp_bind(b, op, sizeof(struct random_affine), false, random_affine_map, err);
    if (r < 0)
        return r;
    struct random_affine *s = op->state;
    for (size_t i = 0; i < 2; i++) {
        s->translate[i] = cw_attr_float_at(op, "translate", i);
        s->scale[i] = cw_attr_float_at(op, "scale", i);
    }
    if (s->scale[0] > s->scale[1])
        return cw_attr_error(op, "scale", err, "[low, high] with low <= high");
    r = cw_warp_attr_range(op, "degrees", s->degrees, err);
    return r < 0 ? r : random_affine_shear(op, s, err);
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
     .doc = "range [low, high] of the angle of rotation, clockwise; a single number x: [-x, x]; 0: none"},
    {.name = "translate",
     .kind = CW_ATTR_FLOATS,
     .def = "[0, 0]",
     .min = 0,
     .max = 1,
     .len_min = 2,
     .len_max = 2,
     .doc = "[a, b]: moves by up to a times the width to the left or right, and up to b times the height up "
            "or down"},
    {.name = "scale",
     .kind = CW_ATTR_FLOATS,
     .def = "[1, 1]",
     .min = 1e-3,
     .max = 1e3,
     .len_min = 2,
     .len_max = 2,
     .doc = "range [low, high] of the scale"},
    {.name = "shear",
     .kind = CW_ATTR_FLOATS,
     .def = "0",
     .min = -89,
     .max = 89,
     .len_min = 1,
     .len_max = 4,
     .scalar_too = true,
     .doc = "range [low, high] of the angle, in degrees, by which the image is sheared along x; a single "
            "number s: [-s, s]; four numbers: [low_x, high_x, low_y, high_y]"},
    CW_WARP_ATTR_INTERP("\"nearest\""),
    CW_WARP_ATTR_FILL,
    CW_WARP_ATTR_CENTER,
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_random_affine = {
    .name = "random_affine",
    .summary = "rotates, moves, scales and shears images, at random",
    .doc = "The results are those of torchvision's RandomAffine on Pillow images. The result has the size of "
           "the image. Images are uint8 or float32, [height, width, channels] or [height, width].",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_WARP, .random = true},
    .attrs = attrs,
    .bind = random_affine_bind,
    .run = cw_warp_run,
    .free_state = free,
};
