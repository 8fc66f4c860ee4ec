/* Adds pixels at the edges of images and masks. */
#include "ops/image/image_pad.h"

#include <string.h>

/* The place in 0 .. n-1 that place i, inside or outside, is a copy of. Mirrored as often as needed. */
static int64_t pad_source(int64_t i, int64_t n, enum cw_image_pad_mode mode)
{
    if (mode == CW_IMAGE_PAD_EDGE || n == 1)
        return i < 0 ? 0 : i < n ? i : n - 1;
    int64_t period = mode == CW_IMAGE_PAD_REFLECT ? 2 * (n - 1) : 2 * n, at = i % period;
    if (at < 0)
        at += period;
    return at < n ? at : period - at - (mode == CW_IMAGE_PAD_REFLECT ? 0 : 1);
}

/* Columns x up to `end` of a row of the result, from a row of the image, NULL: only fill. */
static void pad_columns(const struct cw_image_pad *s, uint8_t *dst, int64_t x, int64_t end,
                        const uint8_t *row, const struct cw_image_in *in, const uint8_t *fill)
{
    for (; x < end; x++) {
        size_t from = s->mode == CW_IMAGE_PAD_CONSTANT ? 0 : (size_t)pad_source(x - s->left, in->w, s->mode);
        memcpy(dst + (size_t)x * in->pixel, s->mode == CW_IMAGE_PAD_CONSTANT ? fill : row + from * in->pixel,
               in->pixel);
    }
}

static void pad_row(const struct cw_image_pad *s, uint8_t *dst, const uint8_t *row,
                    const struct cw_image_in *in, const uint8_t *fill)
{
    int64_t end = s->left + in->w;
    pad_columns(s, dst, 0, row ? s->left : end, row, in, fill);
    if (row)
        memcpy(dst + (size_t)s->left * in->pixel, row, (size_t)in->w * in->pixel);
    pad_columns(s, dst, end, end + s->right, row, in, fill);
}

static void pad_pixels(const struct cw_image_pad *s, uint8_t *dst, const struct cw_image_in *in,
                       const uint8_t *fill)
{
    int64_t h = s->top + in->h + s->bottom, w = s->left + in->w + s->right;
    size_t stride = (size_t)in->w * in->pixel;
    for (int64_t y = 0; y < h; y++) {
        bool inside = y >= s->top && y < s->top + in->h;
        const uint8_t *from = s->mode != CW_IMAGE_PAD_CONSTANT || inside
                                  ? in->pixels + (size_t)pad_source(y - s->top, in->h, s->mode) * stride
                                  : NULL;
        pad_row(s, dst + (size_t)(y * w) * in->pixel, from, in, fill);
    }
}

static int pad_mask(const struct cw_image_move *move, uint8_t *dst, const uint8_t *src,
                    struct cw_arena *arena, struct cw_error *err)
{
    (void)arena;
    (void)err;
    struct cw_image_in in = {.pixels = src, .h = move->h, .w = move->w, .channels = 1, .ndim = 2, .pixel = 1};
    pad_pixels(move->how, dst, &in, &(uint8_t){0});
    return 0;
}

int cw_image_pad(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                 const struct cw_image_pad *pad, const struct cw_image_fill *fill, struct cw_error *err)
{
    struct cw_image_move move = {.h = in->h,
                                 .w = in->w,
                                 .out_h = pad->top + in->h + pad->bottom,
                                 .out_w = pad->left + in->w + pad->right,
                                 .m = {1, 0, (double)pad->left, 0, 1, (double)pad->top, 0, 0, 1},
                                 .mask = pad_mask,
                                 .how = pad};
    int r = cw_annotations_move(op, b, row, &move, err);
    if (r < 0 || !op->out[0].live)
        return r;
    const uint8_t *pixel = cw_image_fill_pixel(fill, op, b, in, err);
    uint8_t *dst = pixel ? cw_image_each_out(op, b, row, in, move.out_h, move.out_w, err) : NULL;
    if (!dst)
        return err->status;
    pad_pixels(pad, dst, in, pixel);
    return 0;
}
