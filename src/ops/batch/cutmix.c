/* cutmix: each image of a batch gets a rectangle of the image before it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "ops/batch/mix_batch.h"

static int cutmix_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_bind_read(b, cw_attr_string(op, "component"), &type, err);
    if (r < 0)
        return r;
    if (type.dtype == CW_BYTES || type.ndim != 3) {
        char text[160];
        return cw_attr_error(op, "component", err, "images of three dimensions, but \"%s\" is %s",
                             cw_attr_string(op, "component"), cw_type_print(&type, text));
    }
    r = cw_mix_bind(b, op, &type, err);
    if (r >= 0)
        ((struct cw_mix *)op->state)->chw = strcmp(cw_attr_string(op, "layout"), "chw") == 0;
    return r;
}

struct box { /* of pixels */
    int64_t y0, y1, x0, x1;
};

static struct box cutmix_box(const uint64_t key[2], double share, int64_t h, int64_t w)
{
    uint32_t word[4];
    cw_mix_words(key, word);
    double r = 0.5 * sqrt(1.0 - share);
    int64_t x = cw_integer(word[0], (uint64_t)w), y = cw_integer(word[1], (uint64_t)h);
    int64_t half_w = (int64_t)(r * (double)w), half_h = (int64_t)(r * (double)h);
    return (struct box){.y0 = CW_MAX(y - half_h, 0),
                        .y1 = CW_MIN(y + half_h, h),
                        .x0 = CW_MAX(x - half_w, 0),
                        .x1 = CW_MIN(x + half_w, w)};
}

static int cutmix_batch(const struct cw_op *op, const struct cw_batch *in, const uint64_t key[2],
                        int (*cancelled)(void *), void *cancel_arg, struct cw_batch_result *ret,
                        struct cw_error *err)
{
    const struct cw_mix *s = op->state;
    const int64_t *dims = in->components[op->in[CW_MIX_IMAGE].value].dims + 1;
    int64_t h = dims[s->chw ? 1 : 0], w = dims[s->chw ? 2 : 1], planes = s->chw ? dims[0] : 1;
    size_t pixel = cw_dtype_size(op->in[CW_MIX_IMAGE].type.dtype) * (size_t)(s->chw ? 1 : dims[2]);
    (void)cancelled;
    (void)cancel_arg;
    struct box box = {0};
    double share = 1;
    if (h > 0 && w > 0) {
        box = cutmix_box(key, cw_mix_draw(s, key), h, w);
        share = 1.0 - (double)((box.x1 - box.x0) * (box.y1 - box.y0)) / (double)(h * w);
    }
    int r = cw_mix_results(op, in, share, ret, err);
    if (r < 0)
        return r;
    size_t bytes;
    const uint8_t *images = cw_mix_images(op, in, &bytes);
    uint8_t *to = ret->columns[CW_MIX_IMAGE].data;
    if (in->n)
        memcpy(to, images, in->n * bytes);
    for (uint32_t row = 0; row < in->n; row++)
        for (int64_t p = 0; p < planes; p++)
            for (int64_t y = box.y0; y < box.y1; y++) {
                size_t at = (size_t)((p * h + y) * w + box.x0) * pixel;
                memcpy(to + row * bytes + at, images + (row ? row - 1 : in->n - 1) * bytes + at,
                       (size_t)(box.x1 - box.x0) * pixel);
            }
    return 0;
}

static const char *const layouts[] = {"hwc", "chw", NULL};

static const struct cw_attr_def attrs[] = {
    CW_MIX_ATTRS("1.0"),
    {.name = "layout",
     .kind = CW_ATTR_STRING,
     .def = "\"hwc\"",
     .choices = layouts,
     .doc = "the images are [height, width, channels] (\"hwc\") or [channels, height, width] (\"chw\")"},
    {0},
};

const struct cw_op_desc cw_op_cutmix = {
    .name = "cutmix",
    .summary = "pastes into each image of a batch a rectangle of the image before it, and mixes their labels",
    .doc =
        "The operator comes after `batch`; only operators on batches, `take`, `skip` and `repeat` may "
        "follow. A batch draws one rectangle: its area is 1 - a share from Beta(alpha, alpha), before it is "
        "cut off at the edges of the image. The label becomes share * label + (1 - share) * the label of the "
        "image before it, with the share of the pixels that stay; the first image gets a part of the last "
        "one (Yun et al.: \"CutMix: Regularization Strategy to Train Strong Classifiers with Localizable "
        "Features\", ICCV 2019; torchvision's CutMix). A label that is no class ends the run.",
    .kind = CW_OP_BATCH_MAP,
    .effects = {.count = CW_COUNT_SAME, .random = true},
    .attrs = attrs,
    .bind = cutmix_bind,
    .batch = cutmix_batch,
    .batch_release = cw_mix_release,
    .free_state = free,
};
