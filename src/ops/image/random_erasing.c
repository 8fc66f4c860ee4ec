/* random_erasing: a rectangle of an image, drawn per element, gets one value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/philox.h"
#include "ops/image/image_each.h"

struct random_erasing {
    double p, scale[2], log_ratio[2];
    struct cw_image_fill value;
};

/* Draws the rectangle; false: none of ten attempts fits. */
static bool random_erasing_rect(const struct cw_op *op, const struct cw_block *b, size_t row, int64_t h,
                                int64_t w, struct cw_rect *ret)
{
    const struct random_erasing *s = op->state;
    for (uint32_t attempt = 1; attempt <= 10; attempt++) {
        uint32_t word[4];
        cw_block_draw(b, op->index, row, attempt, word);
        double area = (double)(h * w) * (s->scale[0] + (s->scale[1] - s->scale[0]) * cw_uniform(word[0]));
        double aspect = cw_exp(s->log_ratio[0] + (s->log_ratio[1] - s->log_ratio[0]) * cw_uniform(word[1]));
        double rh = rint(sqrt(area * aspect)), rw = rint(sqrt(area / aspect));
        if (!(rh < (double)h && rw < (double)w))
            continue;
        *ret = (struct cw_rect){.y = cw_integer(word[2], (uint64_t)(h - (int64_t)rh + 1)),
                                .x = cw_integer(word[3], (uint64_t)(w - (int64_t)rw + 1)),
                                .h = (int64_t)rh,
                                .w = (int64_t)rw};
        return true;
    }
    return false;
}

static int random_erasing_one(const struct cw_op *op, struct cw_block *b, size_t row,
                              const struct cw_image_in *in, struct cw_error *err)
{
    const struct random_erasing *s = op->state;
    const uint8_t *value = cw_image_fill_pixel(&s->value, op, b, in, err);
    if (!value)
        return err->status;
    uint8_t *dst = cw_image_each_out(op, b, row, in, in->h, in->w, err);
    if (!dst)
        return err->status;
    memcpy(dst, in->pixels, (size_t)in->h * (size_t)in->w * in->pixel);
    uint32_t word[4];
    struct cw_rect rect;
    cw_block_draw(b, op->index, row, 0, word);
    if (!(cw_uniform(word[0]) < s->p) || !random_erasing_rect(op, b, row, in->h, in->w, &rect))
        return 0;
    for (int64_t y = rect.y; y < rect.y + rect.h; y++)
        for (int64_t x = rect.x; x < rect.x + rect.w; x++)
            memcpy(dst + (size_t)(y * in->w + x) * in->pixel, value, in->pixel);
    return 0;
}

static int random_erasing_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, true, &type, err);
    if (r < 0)
        return r;
    struct random_erasing *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "random_erasing");
    s->p = cw_attr_float(op, "p");
    for (size_t i = 0; i < 2; i++) {
        s->scale[i] = cw_attr_float_at(op, "scale", i);
        s->log_ratio[i] = cw_log(cw_attr_float_at(op, "ratio", i));
    }
    if (s->scale[0] > s->scale[1])
        return cw_attr_error(op, "scale", err, "[low, high] with low <= high");
    if (s->log_ratio[0] > s->log_ratio[1])
        return cw_attr_error(op, "ratio", err, "[low, high] with low <= high");
    r = cw_image_fill_bind(op, "value", &type, &s->value, err);
    return r < 0 ? r : cw_image_bind_write(b, op, &type, err);
}

static int random_erasing_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, random_erasing_one, err);
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    CW_IMAGE_ATTR_P("0.5", "probability that a rectangle of the image is erased"),
    {.name = "scale",
     .kind = CW_ATTR_FLOATS,
     .def = "[0.02, 0.33]",
     .min = 0,
     .max = 1,
     .len_min = 2,
     .len_max = 2,
     .doc = "range [low, high] of the area of the rectangle, as a fraction of that of the image"},
    {.name = "ratio",
     .kind = CW_ATTR_FLOATS,
     .def = "[0.3, 3.3]",
     .min = 1e-3,
     .max = 1e3,
     .len_min = 2,
     .len_max = 2,
     .doc = "range [low, high] of height / width of the rectangle"},
    CW_IMAGE_ATTR_FILL("value", "value of the pixels that are erased"),
    {0},
};

const struct cw_op_desc cw_op_random_erasing = {
    .name = "random_erasing",
    .summary = "erases a random rectangle of images",
    .doc =
        "The rectangle is drawn as by torchvision's RandomErasing. Images are of any dtype, [height, width, "
        "channels] or [height, width].",
    .kind = CW_OP_MAP,
    .effects.random = true,
    .attrs = attrs,
    .bind = random_erasing_bind,
    .run = random_erasing_run,
    .free_state = free,
};
