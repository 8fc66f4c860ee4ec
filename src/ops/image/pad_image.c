/* pad_image: pixels added at the edges of images. */
#include <stdlib.h>
#include <string.h>

#include "ops/image/image_each.h"

/* in the order of pad_modes */
enum pad_mode { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_SYMMETRIC };

static const char *const pad_modes[] = {"constant", "edge", "reflect", "symmetric", NULL};

struct pad_image {
    int64_t left, top, right, bottom;
    enum pad_mode mode;
    struct cw_image_fill fill;
};

/* The place in 0 .. n-1 that place i, inside or outside, is a copy of. Mirrored as often as needed. */
static int64_t pad_source(int64_t i, int64_t n, enum pad_mode mode)
{
    if (mode == PAD_EDGE || n == 1)
        return i < 0 ? 0 : i < n ? i : n - 1;
    int64_t period = mode == PAD_REFLECT ? 2 * (n - 1) : 2 * n, at = i % period;
    if (at < 0)
        at += period;
    return at < n ? at : period - at - (mode == PAD_REFLECT ? 0 : 1);
}

/* Columns x up to `end` of a row of the result, from a row of the image, NULL: only fill. */
static void pad_columns(const struct pad_image *s, uint8_t *dst, int64_t x, int64_t end, const uint8_t *row,
                        const struct cw_image_in *in, const uint8_t *fill)
{
    for (; x < end; x++) {
        size_t from = s->mode == PAD_CONSTANT ? 0 : (size_t)pad_source(x - s->left, in->w, s->mode);
        memcpy(dst + (size_t)x * in->pixel, s->mode == PAD_CONSTANT ? fill : row + from * in->pixel,
               in->pixel);
    }
}

static void pad_row(const struct pad_image *s, uint8_t *dst, const uint8_t *row, const struct cw_image_in *in,
                    const uint8_t *fill)
{
    int64_t end = s->left + in->w;
    pad_columns(s, dst, 0, row ? s->left : end, row, in, fill);
    if (row)
        memcpy(dst + (size_t)s->left * in->pixel, row, (size_t)in->w * in->pixel);
    pad_columns(s, dst, end, end + s->right, row, in, fill);
}

static int pad_image_one(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                         struct cw_error *err)
{
    const struct pad_image *s = op->state;
    const uint8_t *fill = cw_image_fill_pixel(&s->fill, op, b, in, err);
    if (!fill)
        return err->status;
    int64_t h = s->top + in->h + s->bottom, w = s->left + in->w + s->right;
    uint8_t *dst = cw_image_each_out(op, b, row, in, h, w, err);
    if (!dst)
        return err->status;
    size_t stride = (size_t)in->w * in->pixel;
    for (int64_t y = 0; y < h; y++) {
        bool inside = y >= s->top && y < s->top + in->h;
        const uint8_t *from = s->mode != PAD_CONSTANT || inside
                                  ? in->pixels + (size_t)pad_source(y - s->top, in->h, s->mode) * stride
                                  : NULL;
        pad_row(s, dst + (size_t)(y * w) * in->pixel, from, in, fill);
    }
    return 0;
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
    s->left = cw_attr_int_at(op, "padding", 0);
    s->top = cw_attr_int_at(op, "padding", n == 1 ? 0 : 1);
    s->right = cw_attr_int_at(op, "padding", n == 4 ? 2 : 0);
    s->bottom = cw_attr_int_at(op, "padding", n == 4 ? 3 : n == 2 ? 1 : 0);
    while (strcmp(cw_attr_string(op, "padding_mode"), pad_modes[s->mode]) != 0)
        s->mode++;
    r = cw_image_fill_bind(op, "fill", &type, &s->fill, err);
    if (r < 0)
        return r;
    if (type.dims[0] != CW_VARIES)
        type.dims[0] += s->top + s->bottom;
    if (type.dims[1] != CW_VARIES)
        type.dims[1] += s->left + s->right;
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
