/* Recognises an image format by its first bytes, and calls its codec. */
#include "formats/image.h"

#include <string.h>

#include "formats/image_codec.h"

static const struct cw_image_codec *const codecs[] = {&cw_image_jpeg, &cw_image_png, &cw_image_webp};

int cw_image_check_size(const struct cw_image *im, struct cw_error *err)
{
    if (im->file_height < 1 || im->file_width < 1)
        return cw_error_set(err, CW_E_RECORD, "%s image of %lld x %lld pixels", im->format,
                            (long long)im->file_width, (long long)im->file_height);
    /* Both are below 2^31 in every format, so the product can't overflow. */
    if ((uint64_t)im->file_height * (uint64_t)im->file_width > im->options.max_pixels)
        return cw_error_set(err, CW_E_RECORD, "%s image of %lld x %lld pixels: max_pixels is %llu",
                            im->format, (long long)im->file_width, (long long)im->file_height,
                            (unsigned long long)im->options.max_pixels);
    return 0;
}

int cw_image_open(struct cw_image *im, const void *data, size_t size, const struct cw_image_options *options,
                  struct cw_error *err)
{
    memset(im, 0, offsetof(struct cw_image, state));
    im->data = data;
    im->size = size;
    im->options = *options;
    im->orientation = 1;
    for (size_t i = 0; i < CW_COUNT_OF(codecs); i++) {
        if (!codecs[i]->matches(data, size))
            continue;
        im->format = codecs[i]->name;
        int r = codecs[i]->open(im, err);
        if (r < 0)
            return r;
        im->codec = codecs[i];
        bool turned = im->orientation >= 5;
        im->height = turned ? im->file_width : im->file_height;
        im->width = turned ? im->file_height : im->file_width;
        im->channels = options->channels ? options->channels : im->file_channels;
        return 0;
    }
    if (!size)
        return cw_error_set(err, CW_E_RECORD, "no data where an image is expected");
    const uint8_t *b = data;
    return cw_error_set(err, CW_E_RECORD,
                        "%zu bytes that are no JPEG, PNG or WebP image (they begin %02x %02x %02x %02x)",
                        size, b[0], size > 1 ? b[1] : 0, size > 2 ? b[2] : 0, size > 3 ? b[3] : 0);
}

void cw_image_close(struct cw_image *im)
{
    if (im->codec)
        im->codec->close(im);
    im->codec = NULL;
}

struct cw_rect cw_orient_rect(int orientation, int64_t file_height, int64_t file_width,
                              const struct cw_rect *r)
{
    struct cw_rect f = *r;
    if (orientation >= 5) /* the delivered rows are the file's columns */
        f = (struct cw_rect){.y = r->x, .x = r->y, .h = r->w, .w = r->h};
    if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
        f.y = file_height - f.y - f.h;
    if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
        f.x = file_width - f.x - f.w;
    return f;
}

void cw_orient_copy(int orientation, void *dst, size_t dst_stride, int64_t h, int64_t w, const void *src,
                    size_t src_stride, size_t pixel_bytes)
{
    bool turned = orientation >= 5;
    int64_t fh = turned ? w : h, fw = turned ? h : w;
    bool up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    bool left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    ptrdiff_t row = (ptrdiff_t)src_stride, px = (ptrdiff_t)pixel_bytes;
    const uint8_t *first = (const uint8_t *)src + (up ? (fh - 1) * row : 0) + (left ? (fw - 1) * px : 0);
    if (up)
        row = -row;
    if (left)
        px = -px;
    if (turned) {
        ptrdiff_t t = row;
        row = px;
        px = t;
    }
    for (int64_t y = 0; y < h; y++) {
        uint8_t *d = (uint8_t *)dst + (size_t)y * dst_stride;
        const uint8_t *s = first + y * row;
        if (pixel_bytes == 3) {
            for (int64_t x = 0; x < w; x++, d += 3, s += px) {
                d[0] = s[0];
                d[1] = s[1];
                d[2] = s[2];
            }
        } else {
            for (int64_t x = 0; x < w; x++, d += pixel_bytes, s += px)
                memcpy(d, s, pixel_bytes);
        }
    }
}

int cw_image_decode(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed, void *dst,
                    size_t stride, struct cw_arena *arena, struct cw_error *err)
{
    struct cw_rect all = {.h = im->height, .w = im->width};
    struct cw_rect file_want = cw_orient_rect(im->orientation, im->file_height, im->file_width,
                                              want ? want : &all);
    struct cw_rect file_needed = cw_orient_rect(im->orientation, im->file_height, im->file_width,
                                                needed ? needed : &all);
    if (im->orientation == 1)
        return im->codec->decode(im, &file_want, &file_needed, dst, stride, arena, err);

    size_t px = (size_t)im->channels * (im->options.wide ? 2 : 1), row = (size_t)file_want.w * px;
    struct cw_arena_mark mark = cw_arena_mark(arena);
    uint8_t *upright = cw_arena_alloc(arena, row * (size_t)file_want.h, err);
    if (!upright)
        return err ? err->status : CW_E_MEMORY;
    int r = im->codec->decode(im, &file_want, &file_needed, upright, row, arena, err);
    if (r >= 0)
        cw_orient_copy(im->orientation, dst, stride, want ? want->h : all.h, want ? want->w : all.w, upright,
                       row, px);
    cw_arena_release(arena, mark);
    return r;
}

int cw_image_decode_rows(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed,
                         const struct cw_image_rows *rows, struct cw_arena *arena, struct cw_error *err)
{
    if (im->orientation == 1 && im->codec->decode_rows)
        return im->codec->decode_rows(im, want, needed, rows, arena, err);

    size_t stride = (size_t)want->w * (size_t)im->channels * (im->options.wide ? 2 : 1);
    struct cw_arena_mark mark = cw_arena_mark(arena);
    uint8_t *pixels = cw_arena_alloc(arena, stride * (size_t)want->h + rows->slack, err);
    if (!pixels)
        return err ? err->status : CW_E_MEMORY;
    int r = cw_image_decode(im, want, needed, pixels, stride, arena, err);
    for (int64_t y = 0; y < want->h && r >= 0; y++)
        rows->put(rows->arg, y, pixels + (size_t)y * stride);
    cw_arena_release(arena, mark);
    return r;
}
