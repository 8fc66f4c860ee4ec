/* random_perspective: images seen from another side, drawn per element. */
#include <stdlib.h>

#include "base/philox.h"
#include "ops/image/warp_op.h"

struct random_perspective {
    struct cw_warp_op warp;
    double distortion, p;
};

static bool random_perspective_map(const struct cw_op *op, const struct cw_block *b, size_t row,
                                   struct cw_warp *p)
{
    const struct random_perspective *s = op->state;
    uint32_t word[12];
    for (uint32_t i = 0; i < 3; i++)
        cw_block_draw(b, op->index, row, i, word + 4 * i);
    if (!(cw_uniform(word[0]) < s->p))
        return false;
    /* the largest distances by which corners move */
    int64_t across = (int64_t)(s->distortion * (double)(p->w / 2)),
            down = (int64_t)(s->distortion * (double)(p->h / 2));
    double corners[4][2];
    for (int k = 0; k < 4; k++) {
        int64_t x = cw_integer(word[1 + 2 * k], (uint64_t)across + 1),
                y = cw_integer(word[2 + 2 * k], (uint64_t)down + 1);
        corners[k][0] = (double)(k == 1 || k == 2 ? p->w - 1 - across + x : x);
        corners[k][1] = (double)(k >= 2 ? p->h - 1 - down + y : y);
    }
    return cw_warp_perspective(p, corners);
}

static int random_perspective_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    int r = cw_warp_bind(b, op, sizeof(struct random_perspective), false, random_perspective_map, err);
    if (r < 0)
        return r;
    struct random_perspective *s = op->state;
    s->distortion = cw_attr_float(op, "distortion_scale");
    s->p = cw_attr_float(op, "p");
    return 0;
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "distortion_scale",
     .kind = CW_ATTR_FLOAT,
     .def = "0.5",
     .min = 0,
     .max = 1,
     .doc = "how far corners move at most, as a fraction of half the width and half the height"},
    CW_IMAGE_ATTR_P("0.5", "probability that an image is changed"),
    CW_WARP_ATTR_INTERP("\"bilinear\""),
    CW_WARP_ATTR_FILL,
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_random_perspective = {
    .name = "random_perspective",
    .summary = "moves the corners of images inwards, at random, as if they were seen from another side",
    .doc = "The results are those of torchvision's RandomPerspective on Pillow images. An image that is too "
           "small for its corners to be four different points stays as it is. Images are uint8 or float32, "
           "[height, width, channels] or [height, width].",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_WARP, .random = true},
    .attrs = attrs,
    .bind = random_perspective_bind,
    .run = cw_warp_run,
    .free_state = free,
};
