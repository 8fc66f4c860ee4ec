/*
 * Reads records of an indexed file. A compressed file is decompressed from the last restart point before a
 * record on; several records in ascending order share one pass. The caller owns the stream between calls; any
 * thread.
 */
#include <inttypes.h>

#include "dataset/segment.h"
#include "storage/ahead.h"

#define SKIP_BYTES ((size_t)32 << 10) /* output before the position is discarded in pieces of this size */

static int segment_changed(const struct cw_file *file, struct cw_error *err)
{
    cw_error_file(err, cw_file_path(file));
    return cw_error_set(err, CW_E_DATA,
                        "%s: changed since it was indexed: its data end earlier than the index says",
                        cw_file_path(file));
}

static const struct cw_restart *segment_restart_before(const struct cw_segment *s, uint64_t target)
{
    uint64_t behind = CW_FIRST(i, 0, s->n_restarts, s->restarts[i].out > target);
    return behind ? &s->restarts[behind - 1] : NULL;
}

uint64_t cw_segment_discarded(const struct cw_segment *s)
{
    uint64_t most = 0;
    for (uint64_t k = 1; s->codec != CW_CODEC_PLAIN && k < s->n_chunks; k++) {
        uint64_t begin = s->offsets[s->chunk_ends[k - 1]];
        const struct cw_restart *from = segment_restart_before(s, begin);
        most = CW_MAX(most, begin - (from ? from->out : 0));
    }
    return most;
}

/* Moves the stream *z to position `target`: from its current position, or from a restart point if that is
 * nearer. */
static int segment_seek(const struct cw_segment *s, struct cw_file *file, uint64_t target,
                        struct cw_decompress **z, uint8_t *skip, struct cw_error *err)
{
    const struct cw_restart *from = segment_restart_before(s, target);
    uint64_t at = *z ? cw_decompress_position(*z) : 0;
    if (!*z || at > target || (from && from->out > at)) {
        *z = cw_decompress_free(*z);
        int r = cw_decompress_open(file, s->codec, s->memory, from, from ? s->base + from->window : NULL, z,
                                   err);
        if (r < 0)
            return r;
    }
    while ((at = cw_decompress_position(*z)) < target) {
        size_t n;
        int r = cw_decompress_read(*z, skip, (size_t)CW_MIN(target - at, (uint64_t)SKIP_BYTES), false, &n,
                                   err);
        if (r == 0 && n == 0)
            r = segment_changed(file, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_plain(struct cw_file *file, struct cw_span span, uint8_t *into, struct cw_error *err)
{
    return cw_file_read(file, span.offset, into, span.size, false, err);
}

size_t cw_segment_read_bytes(const struct cw_segment *s)
{
    return s->codec == CW_CODEC_PLAIN ? 0 : s->memory + SKIP_BYTES + (s->remote ? CW_AHEAD_BYTES : 0);
}

int cw_segment_read(const struct cw_segment *s, struct cw_file *file, const uint64_t *records, size_t n,
                    uint8_t *const *into, struct cw_decompress **z, struct cw_error *err)
{
    int r = 0;
    if (s->codec == CW_CODEC_PLAIN) {
        for (size_t i = 0; r == 0 && i < n; i++)
            r = read_plain(file, cw_segment_span(s, records[i]), into[i], err);
        return cw_file_verdict(file, r, err);
    }
    uint8_t *skip = malloc(SKIP_BYTES);
    if (!skip)
        r = cw_error_nomem(err, SKIP_BYTES, "decompression");
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct cw_span span = cw_segment_span(s, records[i]);
        size_t got = 0;
        r = segment_seek(s, file, span.offset, z, skip, err);
        if (r == 0 && span.size > 0)
            r = cw_decompress_read(*z, into[i], span.size, false, &got, err);
        if (r == 0 && got < span.size)
            r = segment_changed(file, err);
    }
    free(skip);
    if (r == CW_E_BUDGET) /* the data take more memory than the index says */
        r = segment_changed(file, err);
    r = skip ? cw_file_verdict(file, r, err) : r;
    if (r < 0)
        *z = cw_decompress_free(*z);
    return r;
}
