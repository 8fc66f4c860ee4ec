/*
 * Fuzzes index files. The first byte chooses the kind of the index, and whether it gets a correct checksum;
 * the rest follows the header. An accepted index must lie within its bytes and be consistent.
 */
#include <stdlib.h>
#include <string.h>

#include "dataset/file_index.h"
#include "dataset/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the compiler from removing the reads */

static void use_segment(const struct cw_segment *s)
{
    bool other = s->format >= CW_FORMAT_TAR; /* bytes may lie before, between and after records */
    uint64_t end = 0, sum = strlen(s->relative_path);
    for (uint64_t i = 0; i < s->n_records; i++) {
        struct cw_span span = cw_segment_span(s, i);
        if (span.offset < end || span.size < s->lengths[i] || span.size > s->stream_size ||
            span.offset > s->stream_size - span.size)
            abort();
        if (!other && span.offset != end) /* records must follow one another without gaps */
            abort();
        end = span.offset + span.size;
        sum += s->crcs ? s->crcs[i] : s->content;
    }
    if ((!other && end != s->stream_size) ||
        (s->n_chunks ? s->chunk_ends[s->n_chunks - 1] : 0) != s->n_records)
        abort();
    for (uint64_t i = 0; i < s->n_restarts; i++)
        for (uint32_t k = 0; k < s->restarts[i].window_size; k++)
            sum += s->base[s->restarts[i].window + k];
    sink = sum;
}

static void use_files(const struct cw_file_index *x)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < x->n; i++)
        sum += strlen(cw_file_index_path(x, i)) + strlen(cw_file_index_relative(x, i)) + x->keys[i] +
               x->sizes[i] + (uint64_t)x->mtimes_ns[i];
    sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;

    static const enum cw_index_kind kinds[] = {CW_INDEX_TFRECORD, CW_INDEX_FILES, CW_INDEX_LINES,
                                               CW_INDEX_TAR, CW_INDEX_CSV};
    enum cw_index_kind kind = kinds[(data[0] & 3) + ((data[0] & 8) ? (data[0] & 3) == 3 : 0)];
    size_t total = sizeof(struct cw_index_header) + size - 1;
    uint8_t *base = malloc(total); /* a heap block, so that ASan finds reads past its end */
    memset(base, 0, sizeof(struct cw_index_header));
    memcpy(base + sizeof(struct cw_index_header), data + 1, size - 1);
    cw_index_seal(base, total, kind);
    if (data[0] & 4)
        base[(data[0] >> 3) % total] ^= 1;
    struct cw_segment s;
    struct cw_file_index x;
    bool segment = cw_segment_attach(base, total, &s) == 0,
         files = cw_file_index_attach(base, total, &x) == 0;
    if (segment)
        use_segment(&s);
    if (files)
        use_files(&x);
    if ((segment || files) && (data[0] & 4))
        abort(); /* accepted although the checksum is wrong */
    free(base);
    return 0;
}
