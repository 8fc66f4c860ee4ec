/* bzip2, by libbz2. Each stream is a restart point; blocks are none, because they begin at any bit. */
#include <bzlib.h>
#include <string.h>

#include "formats/codec.h"

/* A decoder takes 4 bytes for each byte of a block (at most 900,000), 64 KiB, and the input buffer. */
#define BZIP2_BYTES ((uint64_t)4 << 20)

struct bzip2_stream {
    struct cw_decompress base;
    bz_stream z;
};

static int bzip2_error(const struct bzip2_stream *b, int code, struct cw_error *err)
{
    if (code == BZ_MEM_ERROR)
        return cw_error_nomem(err, BZIP2_BYTES, "decompression");
    return cw_codec_damaged(
        &b->base, code == BZ_DATA_ERROR_MAGIC ? "no bzip2 header" : "the data or their checksum are wrong",
        err);
}

static int bzip2_init(struct cw_decompress *z, struct cw_error *err)
{
    return cw_codec_need(z, BZIP2_BYTES, err);
}

static int bzip2_begin(struct cw_decompress *z, struct cw_error *err)
{
    struct bzip2_stream *b = (struct bzip2_stream *)z;
    BZ2_bzDecompressEnd(&b->z); /* does nothing if there is none */
    b->z = (bz_stream){0};
    int code = BZ2_bzDecompressInit(&b->z, 0, 0);
    return code == BZ_OK ? 0 : bzip2_error(b, code, err);
}

static int bzip2_step(struct cw_decompress *z, uint8_t *at, size_t size, size_t *ret_n, struct cw_error *err)
{
    struct bzip2_stream *b = (struct bzip2_stream *)z;
    unsigned room = (unsigned)CW_MIN(size, (size_t)1 << 30);
    b->z.next_in = (char *)(uintptr_t)z->in;
    b->z.avail_in = (unsigned)z->n_in;
    b->z.next_out = (char *)at;
    b->z.avail_out = room;
    int code = BZ2_bzDecompress(&b->z);
    *ret_n = room - b->z.avail_out;
    cw_codec_used(z, z->n_in - b->z.avail_in);
    return code == BZ_STREAM_END ? CW_STEP_END : code == BZ_OK ? CW_STEP_MORE : bzip2_error(b, code, err);
}

static void bzip2_deinit(struct cw_decompress *z)
{
    BZ2_bzDecompressEnd(&((struct bzip2_stream *)z)->z);
}

const struct cw_codec_ops cw_codec_bzip2 = {
    .size = sizeof(struct bzip2_stream),
    .init = bzip2_init,
    .begin = bzip2_begin,
    .step = bzip2_step,
    .deinit = bzip2_deinit,
};
