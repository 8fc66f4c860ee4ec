/* zstd, by libzstd. A member is a frame, and each frame is a restart point. */
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "formats/codec.h"

/* A frame's decoder takes its window and at most this: libzstd's state (160 KiB), two blocks (128 KiB each),
 * and the input buffer. */
#define ZSTD_BYTES ((uint64_t)1 << 20)
/* A frame's header up to its content size: magic number, descriptor, window, id of a dictionary, size. */
#define FRAME_HEAD 18

struct zstd_stream {
    struct cw_decompress base;
    ZSTD_DCtx *z;
};

static int zstd_error(const struct zstd_stream *s, size_t code, struct cw_error *err)
{
    return ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation
               ? cw_error_nomem(err, 0, "decompression")
               : cw_codec_damaged(&s->base, ZSTD_getErrorName(code), err);
}

static int zstd_init(struct cw_decompress *z, struct cw_error *err)
{
    struct zstd_stream *s = (struct zstd_stream *)z;
    s->z = ZSTD_createDCtx();
    if (!s->z)
        return cw_error_nomem(err, 0, "decompression");
    /* zstd_begin limits windows; libzstd must not refuse smaller ones */
    size_t code = ZSTD_DCtx_setParameter(s->z, ZSTD_d_windowLogMax,
                                         ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
    return ZSTD_isError(code) ? zstd_error(s, code, err) : 0;
}

static uint64_t zstd_number(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/* Returns the window that a frame asks for, from its header (RFC 8878, section 3.1.1.1); 0: the bytes are no
 * header with a window, which libzstd will report or pass over. */
static uint64_t zstd_window(const uint8_t *head, size_t size)
{
    static const uint8_t id_sizes[] = {0, 1, 2, 4}, content_sizes[] = {0, 2, 4, 8};
    if (size < 6 || zstd_number(head, 4) != ZSTD_MAGICNUMBER)
        return 0;
    unsigned descriptor = head[4];
    if (!(descriptor & 0x20)) {
        uint64_t base = (uint64_t)1 << (10 + (head[5] >> 3));
        return base + base / 8 * (head[5] & 7);
    }
    /* a single segment: the window is the content */
    size_t id_size = id_sizes[descriptor & 3], n = CW_MAX(content_sizes[descriptor >> 6], 1);
    return size < 5 + id_size + n ? 0 : zstd_number(head + 5 + id_size, n) + (n == 2 ? 256 : 0);
}

static int zstd_begin(struct cw_decompress *z, struct cw_error *err)
{
    struct zstd_stream *s = (struct zstd_stream *)z;
    uint8_t head[FRAME_HEAD];
    size_t n;
    int r = cw_codec_peek(z, head, sizeof(head), &n, err);
    if (r == 0)
        r = cw_codec_need(z, zstd_window(head, n) + ZSTD_BYTES, err);
    if (r < 0)
        return r;
    size_t code = ZSTD_DCtx_reset(s->z, ZSTD_reset_session_only);
    return ZSTD_isError(code) ? zstd_error(s, code, err) : 0;
}

static int zstd_step(struct cw_decompress *z, uint8_t *at, size_t size, size_t *ret_n, struct cw_error *err)
{
    struct zstd_stream *s = (struct zstd_stream *)z;
    ZSTD_inBuffer in = {.src = z->in, .size = z->n_in};
    ZSTD_outBuffer out = {.dst = at, .size = size};
    size_t code = ZSTD_decompressStream(s->z, &out, &in);
    cw_codec_used(z, in.pos);
    *ret_n = out.pos;
    return ZSTD_isError(code) ? zstd_error(s, code, err) : code == 0 ? CW_STEP_END : CW_STEP_MORE;
}

static void zstd_deinit(struct cw_decompress *z)
{
    ZSTD_freeDCtx(((struct zstd_stream *)z)->z);
}

const struct cw_codec_ops cw_codec_zstd = {
    .size = sizeof(struct zstd_stream),
    .init = zstd_init,
    .begin = zstd_begin,
    .step = zstd_step,
    .deinit = zstd_deinit,
};
