/* gzip and zlib, by zlib. A restart point is a place between two deflate blocks. */
#include <string.h>
#include <zlib.h>

#include "formats/codec.h"
#include "storage/file.h"

/* zlib's state and its window, and the input buffer: at most 40 KiB and 64 KiB */
#define DEFLATE_BYTES ((size_t)128 << 10)

struct deflate {
    struct cw_decompress base;
    z_stream z;
    /* entered at a restart point, and still in its member: zlib sees no header, and does not read the trailer
     */
    bool raw;
    unsigned trailer; /* bytes left of the trailer that zlib does not read */
};

static int deflate_error(const struct deflate *d, int code, struct cw_error *err)
{
    if (code == Z_MEM_ERROR)
        return cw_error_nomem(err, DEFLATE_BYTES, "decompression");
    return cw_codec_damaged(&d->base,
                            code == Z_NEED_DICT ? "the data need a preset dictionary, which is not supported"
                            : d->z.msg          ? d->z.msg
                                                : "no valid deflate data",
                            err);
}

static int deflate_window_bits(const struct cw_decompress *z)
{
    return z->codec == CW_CODEC_GZIP ? 15 + 16 : 15;
}

static int deflate_init(struct cw_decompress *z, struct cw_error *err)
{
    struct deflate *d = (struct deflate *)z;
    int code = inflateInit2(&d->z, deflate_window_bits(z));
    return code == Z_OK ? cw_codec_need(z, DEFLATE_BYTES, err) : deflate_error(d, code, err);
}

static int deflate_begin(struct cw_decompress *z, struct cw_error *err)
{
    struct deflate *d = (struct deflate *)z;
    d->raw = false;
    int code = inflateReset2(&d->z, deflate_window_bits(z));
    return code == Z_OK ? 0 : deflate_error(d, code, err);
}

static int deflate_enter(struct cw_decompress *z, const struct cw_restart *from, const uint8_t *window,
                         struct cw_error *err)
{
    struct deflate *d = (struct deflate *)z;
    uint8_t byte = 0;
    int r = from->bits ? cw_ahead_read(&z->ahead, from->in - 1, &byte, 1, err) : 0;
    if (r < 0)
        return r;
    d->raw = true;
    int code = inflateReset2(&d->z, -15);
    if (code == Z_OK && from->bits)
        code = inflatePrime(&d->z, (int)from->bits, byte >> (8 - from->bits));
    if (code == Z_OK && from->window_size)
        code = inflateSetDictionary(&d->z, window, from->window_size);
    return code == Z_OK ? 0 : deflate_error(d, code, err);
}

static int deflate_trailer(struct deflate *d)
{
    size_t n = CW_MIN((size_t)d->trailer, d->base.n_in);
    cw_codec_used(&d->base, n);
    d->trailer -= (unsigned)n;
    return d->trailer ? CW_STEP_MORE : CW_STEP_END;
}

static int deflate_step(struct cw_decompress *z, uint8_t *at, size_t size, size_t *ret_n,
                        struct cw_error *err)
{
    struct deflate *d = (struct deflate *)z;
    if (d->trailer)
        return deflate_trailer(d);
    uInt room = (uInt)CW_MIN(size, (size_t)1 << 30);
    d->z.next_in = (Bytef *)z->in;
    d->z.avail_in = (uInt)z->n_in;
    d->z.next_out = at;
    d->z.avail_out = room;
    int code = inflate(&d->z, Z_BLOCK);
    *ret_n = room - d->z.avail_out;
    cw_codec_used(z, z->n_in - d->z.avail_in);
    if (code == Z_STREAM_END) {
        d->trailer = !d->raw ? 0 : z->codec == CW_CODEC_GZIP ? 8 : 4;
        return d->trailer ? CW_STEP_MORE : CW_STEP_END;
    }
    if (code != Z_OK && code != Z_BUF_ERROR)
        return deflate_error(d, code, err);
    return code == Z_OK && (d->z.data_type & 128) ? CW_STEP_PLACE : CW_STEP_MORE;
}

static bool deflate_restart(struct cw_decompress *z, struct cw_restart *ret, uint8_t *window)
{
    struct deflate *d = (struct deflate *)z;
    uInt n = CW_RESTART_WINDOW;
    if (z->between || d->trailer || (d->z.data_type & (128 | 64)) != 128 ||
        inflateGetDictionary(&d->z, window, &n) != Z_OK)
        return false;
    ret->bits = (uint32_t)d->z.data_type & 7;
    ret->window_size = n;
    return true;
}

static void deflate_deinit(struct cw_decompress *z)
{
    inflateEnd(&((struct deflate *)z)->z);
}

const struct cw_codec_ops cw_codec_deflate = {
    .size = sizeof(struct deflate),
    .init = deflate_init,
    .begin = deflate_begin,
    .enter = deflate_enter,
    .step = deflate_step,
    .restart = deflate_restart,
    .deinit = deflate_deinit,
};
