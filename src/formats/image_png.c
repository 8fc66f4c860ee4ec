/*
 * PNG through libpng, row by row: every row is decompressed, because the checksum covers all of them; only
 * the requested rows are converted. An interlaced image needs memory for the whole raw image. Owns libpng's
 * structs between open and close. Of the ancillary chunks only tRNS is read.
 *
 * libpng reports errors by longjmp: functions named *_guarded call setjmp; nothing with a cleanup attribute
 * lives in their frames, and what they change lies in struct png_reader.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "formats/image_codec.h"

/* Limit of the bytes of an ancillary chunk (a profile, a text): far more than any camera writes, and far less
 * than a decompression bomb needs. */
#define CHUNK_BYTES ((size_t)8 << 20)
#define FIXED_BYTES ((size_t)96 << 10) /* libpng's structs, zlib's window and tables */

struct png_reader {
    png_structp png;
    png_infop info;
    jmp_buf jump;
    const uint8_t *at; /* the unread rest of the file */
    size_t left;
    bool has_key;         /* tRNS of a grey or RGB image, and the caller wants alpha */
    size_t pixel, stride; /* bytes of a pixel and of a row that libpng gives */
    char text[128];       /* message of the failure */
};

_Static_assert(sizeof(struct png_reader) <= sizeof(((struct cw_image *)0)->state),
               "struct cw_image.state is too small");

static struct png_reader *libpng_reader_of(struct cw_image *im)
{
    return (struct png_reader *)(void *)im->state;
}

static bool libpng_matches(const uint8_t *data, size_t size)
{
    return size >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

static _Noreturn void libpng_fail(png_structp png, png_const_charp text)
{
    struct png_reader *p = png_get_error_ptr(png);
    snprintf(p->text, sizeof(p->text), "%s", text);
    longjmp(p->jump, 1);
}

static void libpng_warn(png_structp png CW_UNUSED, png_const_charp text CW_UNUSED)
{
}

static void libpng_read(png_structp png, png_bytep to, size_t size)
{
    struct png_reader *p = png_get_io_ptr(png);
    if (size > p->left)
        png_error(png, "end of file");
    memcpy(to, p->at, size);
    p->at += size;
    p->left -= size;
}

/* Returns CW_E_MEMORY or CW_E_RECORD. libpng's messages do not distinguish a damaged stream from a failed
 * malloc, but malloc sets errno to ENOMEM; errno is 0 when a guarded call begins. */
static int libpng_error(const struct png_reader *p, struct cw_error *err)
{
    if (errno == ENOMEM)
        return cw_error_set(err, CW_E_MEMORY, "libpng: out of memory");
    return cw_error_set(err, CW_E_RECORD, "damaged PNG: %s", p->text);
}

static void libpng_close(struct cw_image *im)
{
    struct png_reader *p = libpng_reader_of(im);
    png_destroy_read_struct(&p->png, &p->info, NULL);
}

/* Reads everything before the pixels. False: it failed. */
static bool libpng_headers_guarded(struct png_reader *p)
{
    if (setjmp(p->jump))
        return false;
    p->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, p, libpng_fail, libpng_warn);
    p->info = p->png ? png_create_info_struct(p->png) : NULL;
    if (!p->info)
        return false;
    png_set_read_fn(p->png, p, libpng_read);
    png_set_user_limits(p->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* max_pixels is the limit */
    png_set_chunk_malloc_max(p->png, CHUNK_BYTES);
    png_set_keep_unknown_chunks(p->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* ignore all ancillary chunks */
    png_read_info(p->png, p->info);
    return true;
}

static int libpng_open(struct cw_image *im, struct cw_error *err)
{
    struct png_reader *p = libpng_reader_of(im);
    memset(p, 0, sizeof(*p));
    p->at = im->data;
    p->left = im->size;
    errno = 0;
    int r = libpng_headers_guarded(p) ? 0 : libpng_error(p, err);
    if (r >= 0) {
        bool palette = png_get_color_type(p->png, p->info) == PNG_COLOR_TYPE_PALETTE;
        int channels = png_get_channels(p->png, p->info);
        bool transparent = png_get_valid(p->png, p->info, PNG_INFO_tRNS);
        im->file_height = png_get_image_height(p->png, p->info);
        im->file_width = png_get_image_width(p->png, p->info);
        im->file_wide = png_get_bit_depth(p->png, p->info) == 16;
        im->file_channels = palette ? 3 + transparent : channels;
        p->has_key = transparent && !palette && im->options.channels == 4;
        r = cw_image_check_size(im, err);
    }
    if (r < 0)
        libpng_close(im);
    return r;
}

/* Decodes the rows. Raw rows consist of whole bytes or uint16 values; palettes become RGB, or RGBA if there
 * is tRNS. */
static bool libpng_decode_guarded(const struct cw_image *im, struct png_reader *p,
                                  const struct cw_image_job *job)
{
    if (setjmp(p->jump))
        return false;
    if (p->has_key || png_get_color_type(p->png, p->info) == PNG_COLOR_TYPE_PALETTE)
        png_set_expand(p->png);
    else
        png_set_expand_gray_1_2_4_to_8(p->png);
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        png_set_swap(p->png);
    int passes = png_set_interlace_handling(p->png);
    png_set_benign_errors(p->png, 0); /* a compressed stream that does not end properly is damage */
    png_read_update_info(p->png, p->info);
    for (int pass = 1; pass <= passes; pass++)
        for (int64_t y = 0; y < im->file_height; y++) {
            uint8_t *row = job->scratch + (passes > 1 ? (size_t)y * p->stride : 0);
            png_read_row(p->png, row, NULL);
            if (pass == passes && y >= job->want.y && y < job->want.y + job->want.h)
                cw_image_put(job, y, row + (size_t)job->want.x * p->pixel);
        }
    png_set_benign_errors(p->png, 1);
    png_read_end(p->png, NULL); /* checks the last IDAT's checksum, and reads the chunks up to IEND */
    return true;
}

static void libpng_plan(struct cw_image *im, struct cw_image_job *job)
{
    struct png_reader *p = libpng_reader_of(im);
    bool interlaced = png_get_interlace_type(p->png, p->info) != PNG_INTERLACE_NONE;
    job->convert.from = im->file_channels + p->has_key;
    job->convert.from_wide = im->file_wide;
    p->pixel = (size_t)job->convert.from * (im->file_wide ? 2 : 1);
    p->stride = (size_t)im->file_width * p->pixel;
    job->library_bytes = FIXED_BYTES + 4 * p->stride;
    job->scratch_bytes = p->stride * (interlaced ? (size_t)im->file_height : 1) + job->rows->slack;
}

static int libpng_decode(struct cw_image *im, const struct cw_image_job *job, struct cw_error *err)
{
    struct png_reader *p = libpng_reader_of(im);
    errno = 0;
    return libpng_decode_guarded(im, p, job) ? 0 : libpng_error(p, err);
}

const struct cw_image_codec cw_image_png = {.name = "PNG",
                                            .matches = libpng_matches,
                                            .open = libpng_open,
                                            .plan = libpng_plan,
                                            .decode = libpng_decode,
                                            .close = libpng_close};
