/* xz, by liblzma. A member is a stream: a header, blocks, an index of the blocks, and a footer. This file
 * reads these parts one by one, so that decompression can begin at each block. */
#include <lzma.h>
#include <string.h>

#include "formats/codec.h"

/* A block's decoder takes its dictionary and at most this: liblzma's state (60 KiB) and the input buffer. */
#define XZ_BYTES ((uint64_t)1 << 20)

enum xz_part { XZ_NEXT, XZ_BLOCK, XZ_INDEX, XZ_FOOTER }; /* XZ_NEXT: a block or the index comes next */

struct xz_stream {
    struct cw_decompress base;
    lzma_stream z;
    enum xz_part part;
    uint8_t header[LZMA_STREAM_HEADER_SIZE]; /* of the stream: the window of restart points in it */
    lzma_stream_flags flags;                 /* what the header says */
    lzma_block block;                        /* being read */
    lzma_index *index;                       /* being read */
    bool whole;                              /* the stream was read from its header on */
    lzma_vli n_blocks, in_bytes, out_bytes;  /* of the blocks that were read */
    lzma_vli index_bytes;
};

static int xz_error(struct xz_stream *x, lzma_ret code, struct cw_error *err)
{
    switch (code) {
    case LZMA_MEM_ERROR:
        return cw_error_nomem(err, 0, "decompression");
    case LZMA_MEMLIMIT_ERROR:
        return cw_codec_need(&x->base, lzma_memusage(&x->z) + XZ_BYTES, err);
    case LZMA_FORMAT_ERROR:
        return cw_codec_damaged(&x->base, "no xz header", err);
    case LZMA_OPTIONS_ERROR:
        return cw_codec_damaged(&x->base, "the installed liblzma does not support their options", err);
    default:
        return cw_codec_damaged(&x->base, "the data or their checksum are wrong", err);
    }
}

static int xz_init(struct cw_decompress *z, struct cw_error *err)
{
    return cw_codec_need(z, XZ_BYTES, err);
}

/* Reads `size` bytes of input, and passes over them. */
static int xz_take(struct xz_stream *x, void *to, size_t size, struct cw_error *err)
{
    size_t n;
    int r = cw_codec_peek(&x->base, to, size, &n, err);
    if (r < 0)
        return r;
    if (n < size)
        return cw_codec_truncated(&x->base, err);
    cw_codec_skip(&x->base, size);
    return 0;
}

static int xz_begin(struct cw_decompress *z, struct cw_error *err)
{
    struct xz_stream *x = (struct xz_stream *)z;
    int r = xz_take(x, x->header, sizeof(x->header), err);
    if (r < 0)
        return r;
    x->part = XZ_NEXT;
    x->whole = true;
    x->n_blocks = x->in_bytes = x->out_bytes = 0;
    lzma_ret code = lzma_stream_header_decode(&x->flags, x->header);
    return code == LZMA_OK ? 0 : xz_error(x, code, err);
}

static int xz_enter(struct cw_decompress *z, const struct cw_restart *from, const uint8_t *window,
                    struct cw_error *err)
{
    struct xz_stream *x = (struct xz_stream *)z;
    z->between = from->window_size == 0;
    if (z->between)
        return 0;
    lzma_ret code = LZMA_FORMAT_ERROR;
    if (from->window_size == sizeof(x->header)) {
        memcpy(x->header, window, sizeof(x->header));
        code = lzma_stream_header_decode(&x->flags, x->header);
    }
    return code == LZMA_OK ? 0 : xz_error(x, code, err);
}

/* Returns the largest dictionary of a block's filters, in bytes. */
static uint64_t xz_dictionary(const lzma_filter *filters)
{
    uint64_t bytes = 0;
    for (const lzma_filter *f = filters; f->id != LZMA_VLI_UNKNOWN; f++)
        if (f->id == LZMA_FILTER_LZMA2)
            bytes = CW_MAX(bytes, (uint64_t)((const lzma_options_lzma *)f->options)->dict_size);
    return bytes;
}

static int xz_begin_block(struct xz_stream *x, struct cw_error *err)
{
    uint8_t header[LZMA_BLOCK_HEADER_SIZE_MAX];
    lzma_filter filters[LZMA_FILTERS_MAX + 1];
    x->block = (lzma_block){.version = 0,
                            .header_size = lzma_block_header_size_decode(*x->base.in),
                            .check = x->flags.check,
                            .filters = filters};
    int r = xz_take(x, header, x->block.header_size, err);
    if (r < 0)
        return r;
    lzma_ret code = lzma_block_header_decode(&x->block, NULL, header);
    if (code != LZMA_OK)
        return xz_error(x, code, err);
    r = cw_codec_need(&x->base, xz_dictionary(filters) + XZ_BYTES, err);
    if (r == 0)
        code = lzma_block_decoder(&x->z, &x->block);
    for (lzma_filter *f = filters; f->id != LZMA_VLI_UNKNOWN; f++)
        free(f->options); /* the decoder has copied them */
    x->block.filters = NULL;
    x->part = XZ_BLOCK;
    return r < 0 ? r : code == LZMA_OK ? CW_STEP_MORE : xz_error(x, code, err);
}

static int xz_begin_index(struct xz_stream *x, struct cw_error *err)
{
    lzma_ret code = lzma_index_decoder(&x->z, &x->index, x->base.most ? x->base.most : UINT64_MAX);
    x->part = XZ_INDEX;
    return code == LZMA_OK ? CW_STEP_MORE : xz_error(x, code, err);
}

static int xz_end_block(struct xz_stream *x)
{
    x->n_blocks++;
    x->in_bytes += lzma_block_total_size(&x->block);
    x->out_bytes += x->block.uncompressed_size;
    x->part = XZ_NEXT;
    return CW_STEP_PLACE;
}

static int xz_end_index(struct xz_stream *x, struct cw_error *err)
{
    bool right = !x->whole || (lzma_index_block_count(x->index) == x->n_blocks &&
                               lzma_index_total_size(x->index) == x->in_bytes &&
                               lzma_index_uncompressed_size(x->index) == x->out_bytes);
    int r = cw_codec_need(&x->base, lzma_index_memused(x->index) + XZ_BYTES, err);
    x->index_bytes = lzma_index_size(x->index);
    lzma_index_end(x->index, NULL);
    x->index = NULL;
    x->part = XZ_FOOTER;
    return r < 0 ? r : right ? CW_STEP_MORE : cw_codec_damaged(&x->base, "the index is of other blocks", err);
}

static int xz_footer(struct xz_stream *x, struct cw_error *err)
{
    uint8_t bytes[LZMA_STREAM_HEADER_SIZE];
    lzma_stream_flags flags;
    int r = xz_take(x, bytes, sizeof(bytes), err);
    if (r < 0)
        return r;
    lzma_ret code = lzma_stream_footer_decode(&flags, bytes);
    if (code != LZMA_OK || flags.backward_size != x->index_bytes ||
        lzma_stream_flags_compare(&flags, &x->flags) != LZMA_OK)
        return cw_codec_damaged(&x->base, "the end of the stream is wrong", err);
    return CW_STEP_END;
}

static int xz_step(struct cw_decompress *z, uint8_t *at, size_t size, size_t *ret_n, struct cw_error *err)
{
    struct xz_stream *x = (struct xz_stream *)z;
    if (x->part == XZ_NEXT || x->part == XZ_FOOTER) {
        if (z->n_in == 0)
            return CW_STEP_MORE; /* the file has ended */
        return x->part == XZ_FOOTER ? xz_footer(x, err)
               : *z->in != 0        ? xz_begin_block(x, err)
                                    : xz_begin_index(x, err);
    }
    x->z.next_in = z->in;
    x->z.avail_in = z->n_in;
    x->z.next_out = at;
    x->z.avail_out = size;
    lzma_ret code = lzma_code(&x->z, LZMA_RUN);
    *ret_n = size - x->z.avail_out;
    cw_codec_used(z, z->n_in - x->z.avail_in);
    if (code == LZMA_STREAM_END)
        return x->part == XZ_BLOCK ? xz_end_block(x) : xz_end_index(x, err);
    return code == LZMA_OK || code == LZMA_BUF_ERROR ? CW_STEP_MORE : xz_error(x, code, err);
}

static bool xz_restart(struct cw_decompress *z, struct cw_restart *ret, uint8_t *window)
{
    const struct xz_stream *x = (const struct xz_stream *)z;
    if (z->between)
        return true;
    if (x->part != XZ_NEXT)
        return false;
    memcpy(window, x->header, sizeof(x->header));
    ret->window_size = sizeof(x->header);
    return true;
}

static void xz_deinit(struct cw_decompress *z)
{
    struct xz_stream *x = (struct xz_stream *)z;
    lzma_end(&x->z); /* frees the index while it is being read */
}

const struct cw_codec_ops cw_codec_xz = {
    .size = sizeof(struct xz_stream),
    .member_may_wait = true,
    .init = xz_init,
    .begin = xz_begin,
    .enter = xz_enter,
    .step = xz_step,
    .restart = xz_restart,
    .deinit = xz_deinit,
};
