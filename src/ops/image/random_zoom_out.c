/* random_zoom_out: images in a random place of a larger canvas, drawn per element. */
#include <stdlib.h>

#include "base/philox.h"
#include "ops/image/image_pad.h"

struct random_zoom_out {
    struct cw_image_fill fill;
    double side_range[2], p;
};

static int random_zoom_out_one(const struct cw_op *op, struct cw_block *b, size_t row,
                               const struct cw_image_in *in, struct cw_error *err)
{
    const struct random_zoom_out *s = op->state;
    uint32_t word[4];
    struct cw_image_pad pad = {.mode = CW_IMAGE_PAD_CONSTANT};
    cw_block_draw(b, op->index, row, 0, word);
    if (cw_uniform(word[0]) < s->p) {
        double side = s->side_range[0] + (s->side_range[1] - s->side_range[0]) * cw_uniform(word[1]);
        int64_t h = (int64_t)((double)in->h * side), w = (int64_t)((double)in->w * side);
        pad.left = (int64_t)((double)(w - in->w) * cw_uniform(word[2]));
        pad.top = (int64_t)((double)(h - in->h) * cw_uniform(word[3]));
        pad.right = w - in->w - pad.left;
        pad.bottom = h - in->h - pad.top;
    }
    return cw_image_pad(op, b, row, in, &pad, &s->fill, err);
}

static int random_zoom_out_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, true, &type, err);
    if (r < 0)
        return r;
    struct random_zoom_out *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "random_zoom_out");
    s->p = cw_attr_float(op, "p");
    for (size_t i = 0; i < 2; i++)
        s->side_range[i] = cw_attr_float_at(op, "side_range", i);
    if (s->side_range[0] > s->side_range[1])
        return cw_attr_error(op, "side_range", err, "[low, high] with low <= high");
    r = cw_image_fill_bind(op, "fill", &type, &s->fill, err);
    if (r < 0)
        return r;
    type.dims[0] = type.dims[1] = CW_VARIES;
    return cw_image_bind_write(b, op, &type, err);
}

static int random_zoom_out_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, random_zoom_out_one, err);
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    CW_IMAGE_ATTR_FILL("fill", "value of the canvas around the image"),
    {.name = "side_range",
     .kind = CW_ATTR_FLOATS,
     .def = "[1, 4]",
     .min = 1,
     .max = 100,
     .len_min = 2,
     .len_max = 2,
     .doc = "range [low, high] of the sides of the canvas, as multiples of the sides of the image"},
    CW_IMAGE_ATTR_P("0.5", "probability that an image gets a canvas"),
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_random_zoom_out = {
    .name = "random_zoom_out",
    .summary = "puts images at a random place of a larger canvas",
    .doc = "This is torchvision's RandomZoomOut, for detectors of small objects. The size of the result "
           "varies, so `resize` usually follows. Images are of any dtype, [height, width, channels] or "
           "[height, width].",
    .kind = CW_OP_MAP,
    .effects.random = true,
    .attrs = attrs,
    .bind = random_zoom_out_bind,
    .run = random_zoom_out_run,
    .free_state = free,
};
