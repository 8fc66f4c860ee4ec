/*
 * Fuzzes image decoding. If the whole image decodes, then a part of it, at once or row by row, must decode to
 * the same pixels: a part can't be damaged if the whole is not. The first 8 bytes choose the options and the
 * part; the rest is the image file.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/image.h"

static struct cw_budget budget;
static struct cw_arena arena;

struct rows {
    uint8_t *out;
    size_t row;
};

static void take_row(void *arg, int64_t y, const uint8_t *pixels)
{
    const struct rows *r = arg;
    memcpy(r->out + (size_t)y * r->row, pixels, r->row);
}

static int decode(const struct cw_image_options *o, const uint8_t *data, size_t size,
                  const struct cw_rect *part, bool by_rows, uint8_t **ret)
{
    struct cw_image im;
    struct cw_error err;
    *ret = NULL;
    int r = cw_image_open(&im, data, size, o, &err);
    if (r < 0)
        return r;
    size_t px = (size_t)im.channels * (o->wide ? 2 : 1);
    int64_t h = part ? part->h : im.height, w = part ? part->w : im.width;
    uint8_t *out = malloc((size_t)(h * w) * px);
    struct rows rows = {out, (size_t)w * px};
    struct cw_image_rows to = {.put = take_row, .arg = &rows};
    if (!out)
        r = CW_E_MEMORY;
    else if (by_rows)
        r = cw_image_decode_rows(&im, part, part, &to, &arena, &err);
    else
        r = cw_image_decode(&im, part, part, out, (size_t)w * px, &arena, &err);
    cw_image_close(&im);
    cw_arena_reset(&arena, 1 << 22);
    if (r < 0) {
        free(out);
        return r;
    }
    *ret = out;
    return 0;
}

static int size_of(const struct cw_image_options *o, const uint8_t *data, size_t size, int64_t *h, int64_t *w,
                   size_t *px)
{
    struct cw_image im;
    int r = cw_image_open(&im, data, size, o, NULL);
    if (r < 0)
        return r;
    *h = im.height;
    *w = im.width;
    *px = (size_t)im.channels * (o->wide ? 2 : 1);
    cw_image_close(&im);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 8)
        return 0;
    if (!budget.limit) {
        cw_budget_init(&budget, (size_t)1 << 30);
        cw_arena_init(&arena, &budget);
    }
    static const int channels[] = {0, 1, 3, 4};
    const uint8_t *b = data;
    struct cw_image_options o = {.channels = channels[b[0] & 3],
                                 .wide = b[0] >> 2 & 1,
                                 .orientation = b[0] >> 3 & 1,
                                 .max_pixels = 1 << 14};
    int64_t h, w;
    size_t px;
    data += 8;
    size -= 8;
    if (size_of(&o, data, size, &h, &w, &px) < 0)
        return 0;
    struct cw_rect part = {.y = b[1] * h / 256, .x = b[2] * w / 256};
    part.h = 1 + b[3] * (h - part.y - 1) / 255;
    part.w = 1 + b[4] * (w - part.x - 1) / 255;
    uint8_t *whole, *cut;
    int r = decode(&o, data, size, NULL, false, &whole),
        p = decode(&o, data, size, &part, b[0] >> 4 & 1, &cut);
    if (r >= 0 && p < 0)
        abort();
    for (int64_t y = 0; r >= 0 && y < part.h; y++)
        if (memcmp(cut + (size_t)(y * part.w) * px, whole + (size_t)((part.y + y) * w + part.x) * px,
                   (size_t)part.w * px) != 0)
            abort();
    free(whole);
    free(cut);
    return 0;
}
