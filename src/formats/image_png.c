/*
 * PNG through libspng, row by row: every row is decompressed (its checksum counts), only the requested ones
 * are unpacked. Interlaced images need all of the raw image. Owns the libspng context between open and close.
 */
#include <errno.h>
#include <string.h>

#include <spng.h>

#include "formats/image_codec.h"

/* What ancillary chunks (profiles, texts) may take: far more than any camera writes, far less than a bomb. */
#define CHUNK_BYTES ((size_t)8 << 20)
#define CACHE_BYTES ((size_t)16 << 20)
#define FIXED_BYTES ((size_t)96 << 10) /* context, zlib's window and tables */

struct png_reader {
    spng_ctx *ctx;
    struct spng_ihdr ihdr;
    uint8_t palette[256][4]; /* RGBA */
    bool has_key;            /* tRNS of a grey or RGB image */
    uint16_t key[3];         /* at the file's depth */
};

_Static_assert(sizeof(struct png_reader) <= sizeof(((struct cw_image *)0)->state),
               "struct cw_image.state is too small");

static struct png_reader *png_reader_of(struct cw_image *im)
{
    return (struct png_reader *)(void *)im->state;
}

static bool png_matches(const uint8_t *data, size_t size)
{
    return size >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

/* libspng does not distinguish a damaged stream from zlib running out of memory, but a failing malloc leaves
 * ENOMEM: errno is 0 when a call begins. */
static int png_error(int e, struct cw_error *err)
{
    if (e == SPNG_EMEM || e == SPNG_EZLIB_INIT || errno == ENOMEM)
        return cw_error_set(err, CW_E_MEMORY, "libspng: out of memory");
    return cw_error_set(err, CW_E_RECORD, "damaged PNG: %s", spng_strerror(e));
}

static void png_close(struct cw_image *im)
{
    spng_ctx_free(png_reader_of(im)->ctx);
}

/* Palette and transparency; says how many channels the file has. */
static int png_colours(struct cw_image *im, struct png_reader *p, struct cw_error *err)
{
    struct spng_trns trns;
    int e = spng_get_trns(p->ctx, &trns);
    bool has_trns = e == 0;
    if (e && e != SPNG_ECHUNKAVAIL)
        return png_error(e, err);
    switch (p->ihdr.color_type) {
    case SPNG_COLOR_TYPE_GRAYSCALE:
        p->has_key = has_trns;
        p->key[0] = trns.gray;
        im->file_channels = 1;
        break;
    case SPNG_COLOR_TYPE_TRUECOLOR:
        p->has_key = has_trns;
        memcpy(p->key, (uint16_t[]){trns.red, trns.green, trns.blue}, sizeof(p->key));
        im->file_channels = 3;
        break;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
        im->file_channels = 2;
        break;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
        im->file_channels = 4;
        break;
    default: {
        struct spng_plte plte;
        e = spng_get_plte(p->ctx, &plte);
        if (e)
            return png_error(e, err);
        for (uint32_t i = 0; i < 256; i++) {
            const struct spng_plte_entry *c = &plte.entries[i];
            bool there = i < plte.n_entries;
            p->palette[i][0] = there ? c->red : 0;
            p->palette[i][1] = there ? c->green : 0;
            p->palette[i][2] = there ? c->blue : 0;
            p->palette[i][3] = has_trns && i < trns.n_type3_entries ? trns.type3_alpha[i] : 255;
        }
        im->file_channels = has_trns ? 4 : 3;
    }
    }
    if (im->options.channels != 4)
        p->has_key = false;
    return 0;
}

static int png_headers(struct cw_image *im, struct png_reader *p, struct cw_error *err)
{
    int e = spng_set_chunk_limits(p->ctx, CHUNK_BYTES, CACHE_BYTES);
    if (!e)
        e = spng_set_crc_action(p->ctx, SPNG_CRC_ERROR, SPNG_CRC_DISCARD);
    if (!e)
        e = spng_set_png_buffer(p->ctx, im->data, im->size);
    if (!e)
        e = spng_get_ihdr(p->ctx, &p->ihdr);
    if (e)
        return png_error(e, err);
    im->file_height = p->ihdr.height;
    im->file_width = p->ihdr.width;
    im->file_wide = p->ihdr.bit_depth == 16;
    int r = cw_image_check_size(im, err);
    return r < 0 ? r : png_colours(im, p, err);
}

static int png_open(struct cw_image *im, struct cw_error *err)
{
    struct png_reader *p = png_reader_of(im);
    memset(p, 0, sizeof(*p));
    errno = 0;
    p->ctx = spng_ctx_new(0);
    if (!p->ctx)
        return cw_error_nomem(err, 0, "a PNG decoder");
    int r = png_headers(im, p, err);
    if (r < 0)
        spng_ctx_free(p->ctx);
    return r;
}

/* Values per pixel as they lie in the file. */
static unsigned png_samples(const struct spng_ihdr *h)
{
    switch (h->color_type) {
    case SPNG_COLOR_TYPE_TRUECOLOR:
        return 3;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
        return 2;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
        return 4;
    default:
        return 1;
    }
}

static inline unsigned png_packed_value(const uint8_t *raw, size_t i, unsigned bits)
{
    size_t at = i * bits;
    return (unsigned)raw[at >> 3] >> (8 - bits - (at & 7)) & ((1u << bits) - 1);
}

/* n pixels from column x on of a row as in the file, to as many of `channels` whole bytes (or uint16). With a
 * transparent colour the result is RGBA. */
static void png_unpack(const struct png_reader *p, const uint8_t *raw, size_t x, size_t n, void *out,
                       int channels)
{
    unsigned bits = p->ihdr.bit_depth, samples = png_samples(&p->ihdr);
    uint8_t *o8 = out;
    uint16_t *o16 = out;
    if (p->ihdr.color_type == SPNG_COLOR_TYPE_INDEXED) {
        for (size_t i = 0; i < n; i++, o8 += channels)
            memcpy(o8, p->palette[png_packed_value(raw, x + i, bits)], (size_t)channels);
        return;
    }
    if (!p->has_key && bits >= 8) {
        memcpy(out, raw + x * samples * (bits / 8), n * samples * (bits / 8));
        return;
    }
    unsigned scale = bits >= 8 ? 1 : 255 / ((1u << bits) - 1);
    for (size_t i = 0; i < n; i++) {
        unsigned v[3] = {0}, opaque = bits == 16 ? 65535 : 255;
        for (unsigned k = 0; k < samples; k++) {
            size_t at = (x + i) * samples + k;
            uint16_t wide = 0;
            if (bits == 16)
                memcpy(&wide, raw + at * 2, 2);
            v[k] = bits == 16 ? wide : png_packed_value(raw, at, bits);
        }
        if (!p->has_key) {
            o8[i] = (uint8_t)(v[0] * scale);
            continue;
        }
        bool clear = v[0] == p->key[0] && (samples == 1 || (v[1] == p->key[1] && v[2] == p->key[2]));
        unsigned rgba[4] = {v[0] * scale, v[samples == 3] * scale, v[samples == 3 ? 2 : 0] * scale,
                            clear ? 0 : opaque};
        for (int k = 0; k < 4; k++) {
            if (bits == 16)
                o16[4 * i + (size_t)k] = (uint16_t)rgba[k];
            else
                o8[4 * i + (size_t)k] = (uint8_t)rgba[k];
        }
    }
}

struct png_job {
    const struct cw_rect *want;
    struct cw_convert convert;
    uint8_t *dst, *raw, *unpacked;
    size_t stride, raw_stride;
};

static void png_deliver(const struct png_job *job, const struct png_reader *p, int64_t y, const uint8_t *raw)
{
    if (y < job->want->y || y >= job->want->y + job->want->h)
        return;
    size_t n = (size_t)job->want->w;
    uint8_t *to = job->dst + (size_t)(y - job->want->y) * job->stride;
    bool copy = cw_convert_is_copy(&job->convert);
    png_unpack(p, raw, (size_t)job->want->x, n, copy ? to : job->unpacked, job->convert.from);
    if (!copy)
        cw_convert_row(&job->convert, to, job->unpacked, n);
}

static int png_rows(const struct png_job *job, struct png_reader *p, struct cw_error *err)
{
    bool interlaced = p->ihdr.interlace_method != 0;
    errno = 0;
    int e = spng_decode_image(p->ctx, NULL, 0, SPNG_FMT_PNG, SPNG_DECODE_PROGRESSIVE);
    while (!e) {
        struct spng_row_info info;
        e = spng_get_row_info(p->ctx, &info);
        if (e)
            break;
        uint8_t *raw = job->raw + (interlaced ? info.row_num * job->raw_stride : 0);
        e = spng_decode_row(p->ctx, raw, job->raw_stride);
        if ((!e || e == SPNG_EOI) && !interlaced)
            png_deliver(job, p, info.row_num, raw);
    }
    if (e == SPNG_EOI)
        e = spng_decode_chunks(p->ctx); /* the checksum of the last IDAT, and what follows up to IEND */
    if (e)
        return png_error(e, err);
    if (interlaced)
        for (int64_t y = job->want->y; y < job->want->y + job->want->h; y++)
            png_deliver(job, p, y, job->raw + (size_t)y * job->raw_stride);
    return 0;
}

static int png_decode(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed CW_UNUSED,
                      uint8_t *dst, size_t stride, struct cw_arena *arena, struct cw_error *err)
{
    struct png_reader *p = png_reader_of(im);
    struct png_job job = {.want = want, .dst = dst, .stride = stride};
    job.convert = (struct cw_convert){.from = p->has_key ? 4 : im->file_channels,
                                      .to = im->channels,
                                      .from_wide = im->file_wide,
                                      .to_wide = im->options.wide};
    job.raw_stride = ((size_t)im->file_width * png_samples(&p->ihdr) * p->ihdr.bit_depth + 7) / 8;
    size_t raw_bytes = job.raw_stride * (p->ihdr.interlace_method ? (size_t)im->file_height : 1);
    size_t charged = FIXED_BYTES + 4 * job.raw_stride;
    int r = cw_arena_reserve(arena, charged, "decoding a PNG image", err);
    if (r < 0)
        return r;
    struct cw_arena_mark mark = cw_arena_mark(arena);
    job.raw = cw_arena_alloc(arena, raw_bytes, err);
    job.unpacked = job.raw ? cw_arena_alloc(arena, (size_t)want->w * 8, err) : NULL;
    if (!job.unpacked) {
        r = err ? err->status : CW_E_MEMORY;
    } else {
        if (p->ihdr.interlace_method)
            memset(job.raw, 0, raw_bytes); /* libspng ors packed pixels in */
        r = png_rows(&job, p, err);
    }
    cw_arena_release(arena, mark);
    cw_arena_unreserve(arena, charged);
    return r;
}

const struct cw_image_codec cw_image_png = {
    .name = "PNG", .matches = png_matches, .open = png_open, .decode = png_decode, .close = png_close};
