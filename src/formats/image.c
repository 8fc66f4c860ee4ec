/* Recognises an image format by its first bytes, and calls its codec. */
#include "formats/image.h"

#include <stdio.h>
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
        return cw_error_set(err, CW_E_RECORD,
                            "%s image of %lld x %lld pixels: expected at most max_pixels, %llu pixels",
                            im->format, (long long)im->file_width, (long long)im->file_height,
                            (unsigned long long)im->options.max_pixels);
    return 0;
}

/* Sets the size as delivered from that of the file. */
static void image_set_size(struct cw_image *im)
{
    bool turned = im->orientation >= 5;
    im->height = turned ? im->file_width : im->file_height;
    im->width = turned ? im->file_height : im->file_width;
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
        im->reduced_by = 1;
        image_set_size(im);
        im->channels = options->channels ? options->channels : im->file_channels;
        return 0;
    }
    if (!size)
        return cw_error_set(err, CW_E_RECORD, "no data where an image is expected");
    const uint8_t *b = data;
    return cw_error_set(
        err, CW_E_RECORD,
        "the %zu bytes are not a JPEG, PNG or WebP image (the first bytes are %02x %02x %02x %02x)", size,
        b[0], size > 1 ? b[1] : 0, size > 2 ? b[2] : 0, size > 3 ? b[3] : 0);
}

void cw_image_reduce(struct cw_image *im, int by)
{
    if (!im->codec->reduce)
        return;
    im->codec->reduce(im, by);
    im->reduced_by = by;
    im->file_height = (im->file_height + by - 1) / by;
    im->file_width = (im->file_width + by - 1) / by;
    image_set_size(im);
}

void cw_image_close(struct cw_image *im)
{
    if (im->codec)
        im->codec->close(im);
    im->codec = NULL;
}

void cw_image_put(const struct cw_image_job *job, int64_t y, uint8_t *pixels)
{
    bool copy = cw_convert_is_copy(&job->convert);
    if (!copy)
        cw_convert_row(&job->convert, job->converted, pixels, (size_t)job->want.w);
    job->rows->put(job->rows->arg, y - job->want.y, copy ? pixels : job->converted);
}

static size_t image_pixel_bytes(const struct cw_image *im)
{
    return (size_t)im->channels * (im->options.wide ? 2 : 1);
}

/* Decodes with the codec. want and needed are in the file's coordinates. */
static int image_run(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed,
                     const struct cw_image_rows *rows, struct cw_arena *arena, struct cw_error *err)
{
    struct cw_image_job job = {.want = *want,
                               .needed = *needed,
                               .rows = rows,
                               .convert = {.to = im->channels, .to_wide = im->options.wide}};
    char what[40];
    snprintf(what, sizeof(what), "decoding a %s image", im->format);
    im->codec->plan(im, &job);
    int r = cw_arena_reserve(arena, job.library_bytes, what, err);
    if (r < 0)
        return r;
    struct cw_arena_mark mark = cw_arena_mark(arena);
    size_t scratch = CW_ALIGN_UP(job.scratch_bytes, 64);
    job.scratch = cw_arena_alloc(arena, scratch + (size_t)want->w * image_pixel_bytes(im) + rows->slack, err);
    job.converted = job.scratch ? job.scratch + scratch : NULL;
    r = job.scratch ? im->codec->decode(im, &job, err) : err ? err->status : CW_E_MEMORY;
    cw_arena_release(arena, mark);
    cw_arena_unreserve(arena, job.library_bytes);
    return r;
}

/* ---- orientation ---- */

/* By EXIF orientation: whether the delivered rows are the file's columns; whether rows are delivered from the
 * bottom up; whether columns are delivered from right to left. */
static const struct {
    bool turned, up, left;
} orientations[9] = {
    [2] = {false, false, true}, [3] = {false, true, true}, [4] = {false, true, false},
    [5] = {true, false, false}, [6] = {true, true, false}, [7] = {true, true, true},
    [8] = {true, false, true},
};

/* Returns the rectangle of the file that corresponds to a rectangle r of the image as delivered; r NULL: all
 * of the file.
 */
static struct cw_rect image_rect_in_file(const struct cw_image *im, const struct cw_rect *r)
{
    struct cw_rect f = r ? *r : (struct cw_rect){.h = im->height, .w = im->width};
    if (orientations[im->orientation].turned)
        f = (struct cw_rect){.y = f.x, .x = f.y, .h = f.w, .w = f.h};
    if (orientations[im->orientation].up)
        f.y = im->file_height - f.y - f.h;
    if (orientations[im->orientation].left)
        f.x = im->file_width - f.x - f.w;
    return f;
}

/* Rotates and mirrors src, the file's pixels of a rectangle, into dst, the pixels as delivered. */
static void image_turn(const struct cw_image *im, uint8_t *dst, size_t dst_stride, const struct cw_rect *r,
                       const uint8_t *src)
{
    bool turned = orientations[im->orientation].turned;
    size_t px = image_pixel_bytes(im), h = (size_t)(turned ? r->w : r->h), w = (size_t)(turned ? r->h : r->w);
    ptrdiff_t column = (ptrdiff_t)px, row = (ptrdiff_t)px * r->w;
    if (orientations[im->orientation].up) {
        src += (r->h - 1) * row;
        row = -row;
    }
    if (orientations[im->orientation].left) {
        src += (r->w - 1) * column;
        column = -column;
    }
    for (size_t y = 0; y < h; y++, src += turned ? column : row, dst += dst_stride) {
        const uint8_t *from = src;
        for (size_t x = 0; x < w; x++, from += turned ? row : column)
            if (px == 3) /* a copy of constant size takes half the time */
                memcpy(dst + x * 3, from, 3);
            else
                memcpy(dst + x * px, from, px);
    }
}

struct placing {
    uint8_t *dst;
    size_t stride, bytes; /* of a row */
};

static void image_place_row(void *arg, int64_t y, const uint8_t *pixels)
{
    const struct placing *p = arg;
    memcpy(p->dst + (size_t)y * p->stride, pixels, p->bytes);
}

int cw_image_decode(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed, void *dst,
                    size_t stride, struct cw_arena *arena, struct cw_error *err)
{
    struct cw_rect rect = image_rect_in_file(im, want), file_needed = image_rect_in_file(im, needed);
    struct placing p = {.dst = dst, .stride = stride, .bytes = (size_t)rect.w * image_pixel_bytes(im)};
    const struct cw_image_rows rows = {.put = image_place_row, .arg = &p};
    if (im->orientation == 1)
        return image_run(im, &rect, &file_needed, &rows, arena, err);

    struct cw_arena_mark mark = cw_arena_mark(arena);
    p.stride = p.bytes;
    p.dst = cw_arena_alloc(arena, p.stride * (size_t)rect.h, err);
    int r = p.dst ? image_run(im, &rect, &file_needed, &rows, arena, err) : err ? err->status : CW_E_MEMORY;
    if (r == 0)
        image_turn(im, dst, stride, &rect, p.dst);
    cw_arena_release(arena, mark);
    return r;
}

int cw_image_decode_rows(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed,
                         const struct cw_image_rows *rows, struct cw_arena *arena, struct cw_error *err)
{
    if (im->orientation == 1)
        return image_run(im, want, needed, rows, arena, err);

    size_t stride = (size_t)want->w * image_pixel_bytes(im);
    struct cw_arena_mark mark = cw_arena_mark(arena);
    uint8_t *pixels = cw_arena_alloc(arena, stride * (size_t)want->h + rows->slack, err);
    if (!pixels)
        return err ? err->status : CW_E_MEMORY;
    int r = cw_image_decode(im, want, needed, pixels, stride, arena, err);
    for (int64_t y = 0; y < want->h && r == 0; y++)
        rows->put(rows->arg, y, pixels + (size_t)y * stride);
    cw_arena_release(arena, mark);
    return r;
}
