/* gaussian_blur: images blurred by a Gaussian kernel, whose width may be drawn per element. */
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/philox.h"
#include "data/convert.h"
#include "ops/image/image_each.h"
#include "ops/kernels/blur.h"

#define BLUR_TAPS 255 /* the largest kernel: wider ones are better computed on smaller images */

struct gaussian_blur {
    int taps[2];     /* along x and y, odd */
    double sigma[2]; /* range */
};

static void blur_weights(float *w, int taps, double sigma)
{
    double v[BLUR_TAPS], sum = 0;
    for (int k = 0; k < taps; k++) {
        double x = (k - taps / 2) / sigma;
        v[k] = cw_exp(-0.5 * (x * x));
        sum += v[k];
    }
    for (int k = 0; k < taps; k++)
        w[k] = (float)(v[k] / sum);
}

/* The place in 0 .. n-1 of a place up to n-1 outside of it, mirrored at the first and last one. */
static int64_t blur_mirrored(int64_t i, int64_t n)
{
    i = i < 0 ? -i : i;
    return i < n ? i : 2 * (n - 1) - i;
}

/* The horizontal pass: rows of floats. */
static void blur_across(const struct cw_op *op, const struct cw_image_in *in, int taps, const float *w,
                        float *padded, float *ret)
{
    size_t c = (size_t)in->channels, row = (size_t)in->w * c;
    int half = taps / 2;
    const float *at[BLUR_TAPS];
    for (int k = 0; k < taps; k++)
        at[k] = padded + (size_t)k * c;
    for (int64_t y = 0; y < in->h; y++) {
        float *middle = padded + (size_t)half * c;
        cw_convert(op->in[0].type.dtype, CW_FLOAT32, middle,
                   in->pixels + (size_t)y * (size_t)in->w * in->pixel, row);
        for (int64_t x = 1; x <= half; x++) {
            memcpy(middle - (size_t)x * c, middle + (size_t)x * c, c * sizeof(float));
            memcpy(middle + (size_t)(in->w - 1 + x) * c, middle + (size_t)(in->w - 1 - x) * c,
                   c * sizeof(float));
        }
        cw_blur_sum(ret + (size_t)y * row, at, w, taps, row);
    }
}

static int gaussian_blur_one(const struct cw_op *op, struct cw_block *b, size_t row,
                             const struct cw_image_in *in, struct cw_error *err)
{
    const struct gaussian_blur *s = op->state;
    const int *taps = s->taps;
    uint32_t word[4];
    if (taps[0] / 2 >= in->w || taps[1] / 2 >= in->h)
        return cw_error_set(
            err, CW_E_RECORD,
            "an image of %lld x %lld (height x width) is too small for a kernel of %d x %d: at "
            "least %d x %d are needed",
            (long long)in->h, (long long)in->w, taps[1], taps[0], taps[1] / 2 + 1, taps[0] / 2 + 1);
    cw_block_draw(b, op->index, row, 0, word);
    double sigma = s->sigma[0] + (s->sigma[1] - s->sigma[0]) * cw_uniform(word[0]);
    float w[2][BLUR_TAPS];
    for (int i = 0; i < 2; i++)
        blur_weights(w[i], taps[i], sigma);

    uint8_t *dst = cw_image_each_out(op, b, row, in, in->h, in->w, err);
    struct cw_arena_mark mark = cw_arena_mark(b->arena);
    size_t c = (size_t)in->channels, n = (size_t)in->w * c;
    float *padded = dst ? cw_block_alloc(b, (n + (size_t)(taps[0] - 1) * c) * sizeof(float), err) : NULL;
    float *rows = padded ? cw_block_alloc(b, (size_t)(in->h + 1) * n * sizeof(float), err) : NULL;
    if (!rows)
        return err->status;
    blur_across(op, in, taps[0], w[0], padded, rows);
    float *sum = rows + (size_t)in->h * n;
    for (int64_t y = 0; y < in->h; y++) {
        const float *at[BLUR_TAPS];
        for (int k = 0; k < taps[1]; k++)
            at[k] = rows + (size_t)blur_mirrored(y + k - taps[1] / 2, in->h) * n;
        cw_blur_sum(sum, at, w[1], taps[1], n);
        cw_convert(CW_FLOAT32, op->out[0].type.dtype, dst + (size_t)y * (size_t)in->w * in->pixel, sum, n);
    }
    cw_arena_release(b->arena, mark);
    return 0;
}

static int gaussian_blur_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, true, &type, err);
    if (r >= 0)
        r = cw_image_bind_uint8_float32(op, &type, err);
    if (r < 0)
        return r;
    struct gaussian_blur *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "gaussian_blur");
    for (size_t i = 0; i < 2; i++) {
        s->taps[i] = (int)cw_attr_int_at(op, "kernel_size", cw_attr_len(op, "kernel_size") == 2 ? i : 0);
        s->sigma[i] = cw_attr_float_at(op, "sigma", cw_attr_len(op, "sigma") == 2 ? i : 0);
        if (s->taps[i] % 2 == 0)
            return cw_attr_error(op, "kernel_size", err, "odd numbers");
    }
    if (s->sigma[0] > s->sigma[1])
        return cw_attr_error(op, "sigma", err, "[low, high] with low <= high");
    return cw_image_bind_write(b, op, &type, err);
}

static int gaussian_blur_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, gaussian_blur_one, err);
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "kernel_size",
     .kind = CW_ATTR_INTS,
     .min = 1,
     .max = BLUR_TAPS,
     .len_min = 1,
     .len_max = 2,
     .scalar_too = true,
     .doc =
         "[along x, along y]: width and height of the kernel in pixels, odd numbers; a single number: both"},
    {.name = "sigma",
     .kind = CW_ATTR_FLOATS,
     .def = "[0.1, 2.0]",
     .min = 0.01,
     .max = 1000,
     .len_min = 1,
     .len_max = 2,
     .scalar_too = true,
     .doc =
         "range [low, high] of the standard deviation in pixels, drawn per element; a single number: always "
         "that one"},
    {0},
};

const struct cw_op_desc cw_op_gaussian_blur = {
    .name = "gaussian_blur",
    .summary = "blurs images by a Gaussian kernel of random or fixed width",
    .doc =
        "The results are those of torchvision's GaussianBlur, to 1 for uint8 images. Pixels outside of the "
        "image are mirrored. Images are uint8 or float32, [height, width, channels] or [height, width].",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_NEIGHBOURHOOD, .random = true},
    .attrs = attrs,
    .bind = gaussian_blur_bind,
    .run = gaussian_blur_run,
    .free_state = free,
};
