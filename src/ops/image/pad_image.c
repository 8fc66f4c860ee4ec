/* pad_image: pixels added at the edges of images. */
#include <stdlib.h>
#include <string.h>

#include "ops/image/image_pad.h"

/* in the order of enum cw_image_pad_mode */
static const char *const pad_modes[] = {"constant", "edge", "reflect", "symmetric", NULL};

struct pad_image {
    struct cw_image_pad pad;
    struct cw_image_fill fill;
};

static int pad_image_one(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                         struct cw_error *err)
{
    const struct pad_image *s = op->state;
    return cw_image_pad(op, b, row, in, &s->pad, &s->fill, err);
}

static int pad_image_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, true, &type, err);
    if (r < 0)
        return r;
    struct pad_image *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "pad_image");
    size_t n = cw_attr_len(op, "padding");
    if (n == 3)
        return cw_attr_error(op, "padding", err, "a number, [x, y], or [left, top, right, bottom]");
    s->pad.left = cw_attr_int_at(op, "padding", 0);
    s->pad.top = cw_attr_int_at(op, "padding", n == 1 ? 0 : 1);
    s->pad.right = cw_attr_int_at(op, "padding", n == 4 ? 2 : 0);
    s->pad.bottom = cw_attr_int_at(op, "padding", n == 4 ? 3 : n == 2 ? 1 : 0);
    while (strcmp(cw_attr_string(op, "padding_mode"), pad_modes[s->pad.mode]) != 0)
        s->pad.mode++;
    r = cw_image_fill_bind(op, "fill", &type, &s->fill, err);
    if (r < 0)
        return r;
    if (type.dims[0] != CW_VARIES)
        type.dims[0] += s->pad.top + s->pad.bottom;
    if (type.dims[1] != CW_VARIES)
        type.dims[1] += s->pad.left + s->pad.right;
    return cw_image_bind_write(b, op, &type, err);
}

static int pad_image_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, pad_image_one, err);
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "padding",
     .kind = CW_ATTR_INTS,
     .min = 0,
     .max = 65535,
     .len_min = 1,
     .len_max = 4,
     .scalar_too = true,
     .doc = "pixels to add: [left, top, right, bottom], or [left and right, top and bottom]; a single "
            "number: on "
            "all sides"},
    CW_IMAGE_ATTR_FILL("fill", "value of the new pixels with padding_mode \"constant\""),
    {.name = "padding_mode",
     .kind = CW_ATTR_STRING,
     .def = "\"constant\"",
     .choices = pad_modes,
     .doc = "\"constant\": the new pixels are `fill`; \"edge\": the nearest pixel of the image; \"reflect\": "
            "the "
            "image mirrored at its outermost pixels, which are not repeated; \"symmetric\": mirrored at its "
            "edges"},
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_pad_image = {
    .name = "pad_image",
    .summary = "adds pixels at the edges of images",
    .doc =
        "The results are those of torchvision's `pad` on Pillow images. `pad_image` before `random_crop` is "
        "the usual augmentation of small images. Images are of any dtype, [height, width, channels] or "
        "[height, width].",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = pad_image_bind,
    .run = pad_image_run,
    .free_state = free,
};
