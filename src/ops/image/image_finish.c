/* The last step of an image chain: converts rows of pixels to their final dtype and values, and writes them
 * in the final order of rows (flipped or not) and layout (HWC or CHW). image_chain.c calls it. */
#include "ops/image/image_finish.h"

#include <string.h>

#include "data/convert.h"
#include "ops/kernels/isa.h"

static int finish_cast_pixels(const struct cw_op *op, void *dst, const void *src, size_t n, int channels,
                              struct cw_error *err CW_UNUSED)
{
    cw_convert(op->in[0].type.dtype, op->out[0].type.dtype, dst, src, n * (size_t)channels);
    return 0;
}

const struct cw_image_role cw_image_role_cast = {.step = CW_IMAGE_PIXELWISE, .pixels = finish_cast_pixels};

static uint8_t *finish_place(const struct cw_image_finish *f, int64_t y, size_t row_bytes)
{
    return f->dst + (size_t)(f->flip_y ? f->h - 1 - y : y) * row_bytes;
}

static void finish_fail(struct cw_image_finish *f, const struct cw_op *op, int status)
{
    if (f->status < 0)
        return;
    f->status = status;
    f->failed = op;
}

/* Writes a row of pixels to the planes of a CHW image. */
static void finish_scatter(const struct cw_image_finish *f, int64_t y, const uint8_t *row)
{
    size_t value = cw_dtype_size(f->to), w = (size_t)f->w, channels = (size_t)f->channels;
    size_t plane = (size_t)f->h * w * value;
    uint8_t *dst = finish_place(f, y, w * value);
    if (value == 1 && channels == 3) {
        cw_pixel_isa()->planar3((uint8_t *[]){dst, dst + plane, dst + 2 * plane}, row, w);
        return;
    }
    for (size_t c = 0; c < channels; c++, dst += plane) {
        const uint8_t *s = row + c * value;
        for (size_t x = 0; x < w;
             /* the sizes are constants, so that the compiler inlines memcpy and makes a loop for each size */
             x++)
            memcpy(dst + value * x, s + value * x * channels,
                   value == 1   ? 1
                   : value == 2 ? 2
                   : value == 4 ? 4
                                : 8);
    }
}

static void finish_put_row(void *arg, int64_t y, const void *row)
{
    struct cw_image_finish *f = arg;
    size_t row_bytes = (size_t)f->w * (size_t)f->channels * cw_dtype_size(f->to);
    const uint8_t *at = row;
    for (unsigned i = 0; i < f->n_pixel; i++) {
        bool last = i + 1 == f->n_pixel && !f->planar;
        uint8_t *to = last ? finish_place(f, y, row_bytes) : f->tmp[i & 1];
        int r = f->pixel[i]->desc->image->pixels(f->pixel[i], to, at, (size_t)f->w, f->channels, f->err);
        if (r < 0) {
            finish_fail(f, f->pixel[i], r);
            return;
        }
        at = to;
    }
    if (f->planar)
        finish_scatter(f, y, at);
    else if (!f->n_pixel)
        memcpy(finish_place(f, y, row_bytes), at, row_bytes);
}

/* The most frequent case in one pass: uint8 RGB to normalised float32 planes. */
static void finish_put_normalized_planes(void *arg, int64_t y, const void *row)
{
    struct cw_image_finish *f = arg;
    const struct cw_normalize *s = f->pixel[0]->state;
    float *dst = (float *)(void *)finish_place(f, y, (size_t)f->w * sizeof(float));
    size_t plane = (size_t)f->h * (size_t)f->w;
    cw_pixel_isa()->normalize_planar3((float *[]){dst, dst + plane, dst + 2 * plane}, row, (size_t)f->w,
                                      s->mean, s->std);
}

bool cw_image_finish_is_copy(const struct cw_image_finish *f)
{
    return !f->n_pixel && (!f->planar || f->channels == 1);
}

int cw_image_finish_init(struct cw_image_finish *f, struct cw_row_sink *ret_sink, struct cw_arena *arena,
                         struct cw_error *err)
{
    size_t values = (size_t)f->w * (size_t)f->channels;
    *ret_sink = (struct cw_row_sink){.put = finish_put_row, .arg = f};
    if (cw_image_finish_is_copy(f)) {
        ptrdiff_t stride = (ptrdiff_t)(values * cw_dtype_size(f->to));
        ret_sink->direct = finish_place(f, 0, (size_t)stride);
        ret_sink->stride = f->flip_y ? -stride : stride;
        return 0;
    }
    if (f->planar && f->n_pixel == 1 && f->channels == 3 && f->from == CW_UINT8 && f->to == CW_FLOAT32 &&
        f->pixel[0]->desc->image == &cw_image_role_normalize &&
        ((const struct cw_normalize *)f->pixel[0]->state)->channels == 3) {
        ret_sink->put = finish_put_normalized_planes;
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        f->tmp[i] = cw_arena_alloc(arena, values * 8, err); /* 8 bytes: the widest dtype */
        if (!f->tmp[i])
            return err ? err->status : CW_E_MEMORY;
    }
    return 0;
}
