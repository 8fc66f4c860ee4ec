/* random_resized_crop: a rectangle of random area and aspect ratio, resized; docs/randomness.md has the
 * draws. */
#include <math.h>
#include <stdlib.h>

#include "base/math.h"
#include "base/philox.h"
#include "ops/image/image_annotations.h"

struct random_resized_crop {
    struct cw_image_geometry resize; /* the size and the interpolation; the rectangle is drawn */
    double scale[2], ratio[2], log_ratio[2];
};

/* The rectangle if none of ten draws fits the image: as much of its middle as the bounds of the ratio allow.
 */
static struct cw_rect random_resized_crop_middle(const struct random_resized_crop *c, int64_t h, int64_t w)
{
    double in_ratio = (double)w / (double)h, ch = (double)h, cw = (double)w;
    if (in_ratio < c->ratio[0])
        ch = floor(cw / c->ratio[0] + 0.5);
    else if (in_ratio > c->ratio[1])
        cw = floor(ch * c->ratio[1] + 0.5);
    int64_t rh = ch >= (double)h ? h
                 : ch < 1        ? 1
                                 : (int64_t)ch,
            rw = cw >= (double)w ? w
                 : cw < 1        ? 1
                                 : (int64_t)cw;
    return (struct cw_rect){.y = (h - rh) / 2, .x = (w - rw) / 2, .h = rh, .w = rw};
}

static int random_resized_crop_geometry(const struct cw_op *op, const struct cw_block *b, size_t row,
                                        int64_t h, int64_t w, struct cw_image_geometry *ret,
                                        struct cw_error *err)
{
    const struct random_resized_crop *c = op->state;
    if (h < 1 || w < 1)
        return cw_error_set(err, CW_E_RECORD, "an image of %lld x %lld pixels is empty and can't be cropped",
                            (long long)h, (long long)w);
    *ret = c->resize;
    double pixels = (double)(h * w);
    for (uint32_t attempt = 0; attempt < 10; attempt++) {
        uint32_t word[4];
        cw_block_draw(b, op->index, row, attempt, word);
        double area = (c->scale[0] + (c->scale[1] - c->scale[0]) * cw_uniform(word[0])) * pixels;
        double ratio = cw_exp(c->log_ratio[0] + (c->log_ratio[1] - c->log_ratio[0]) * cw_uniform(word[1]));
        double rw = floor(sqrt(area * ratio) + 0.5), rh = floor(sqrt(area / ratio) + 0.5);
        if (!(rw > 0 && rw <= (double)w && rh > 0 && rh <= (double)h))
            continue;
        ret->rect = (struct cw_rect){.y = cw_integer(word[2], (uint64_t)(h - (int64_t)rh + 1)),
                                     .x = cw_integer(word[3], (uint64_t)(w - (int64_t)rw + 1)),
                                     .h = (int64_t)rh,
                                     .w = (int64_t)rw};
        return 0;
    }
    ret->rect = random_resized_crop_middle(c, h, w);
    return 0;
}

static int random_resized_crop_prepare(struct cw_op *op, struct cw_error *err)
{
    struct random_resized_crop *c = op->state = calloc(1, sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "random_resized_crop");
    c->resize = cw_image_attr_resize(op);
    for (size_t i = 0; i < 2; i++) {
        c->scale[i] = cw_attr_float_at(op, "scale", i);
        c->ratio[i] = cw_attr_float_at(op, "ratio", i);
    }
    if (c->scale[0] > c->scale[1])
        return cw_attr_error(op, "scale", err, "[smallest, largest] share of the image's area");
    if (c->ratio[0] > c->ratio[1])
        return cw_attr_error(op, "ratio", err, "[smallest, largest] width / height");
    for (size_t i = 0; i < 2; i++)
        c->log_ratio[i] = cw_log(c->ratio[i]);
    return 0;
}

static const struct cw_image_role role = {.step = CW_IMAGE_REGION,
                                          .crops = true,
                                          .resizes = true,
                                          .prepare = random_resized_crop_prepare,
                                          .geometry = random_resized_crop_geometry};

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    CW_IMAGE_ATTR_SIZE,
    {.name = "scale",
     .kind = CW_ATTR_FLOATS,
     .def = "[0.08, 1]",
     .min = 1e-9,
     .max = 1,
     .len_min = 2,
     .len_max = 2,
     .doc = "smallest and largest area of the rectangle, as a share of the image's area"},
    {.name = "ratio",
     .kind = CW_ATTR_FLOATS,
     .def = "[0.75, 1.3333]",
     .min = 1e-6,
     .max = 1e6,
     .len_min = 2,
     .len_max = 2,
     .doc = "smallest and largest width / height of the rectangle; the logarithm of the ratio is drawn "
            "uniformly"},
    CW_IMAGE_ATTR_INTERP,
    CW_IMAGE_ATTR_ANTIALIAS,
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_random_resized_crop = {
    .name = "random_resized_crop",
    .summary = "cuts a rectangle of random area and aspect ratio, and resizes it",
    .doc = "This is the usual augmentation for image classifiers (Inception's crop). The operator draws up "
           "to ten rectangles and takes the first that fits the image. If no rectangle fits, it takes as "
           "much of the middle of the image as `ratio` allows. Pixels outside the crop do not affect the "
           "resized result.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_NEIGHBOURHOOD, .random = true},
    .attrs = attrs,
    .bind = cw_image_bind_region,
    .run = cw_image_run,
    .free_state = free,
    .image = &role,
};
