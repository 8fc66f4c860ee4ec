/* The index segment of one file: reading and checking its bytes. Any thread. */
#include "dataset/segment.h"

#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "formats/tfrecord.h"

#define MAGIC 0x317865646e497743u /* "CwIndex1" */
#define VERSION 3

enum cw_index_kind cw_index_kind_of(enum cw_record_format format)
{
    static const enum cw_index_kind kinds[] = {CW_INDEX_TFRECORD, CW_INDEX_LINES,   CW_INDEX_TAR,
                                               CW_INDEX_CSV,      CW_INDEX_CSV_TAB, CW_INDEX_CSV_SEMICOLON,
                                               CW_INDEX_CSV_PIPE};

    _Static_assert(CW_COUNT_OF(kinds) == CW_FORMATS, "a kind for each format");
    return kinds[format];
}

void cw_index_seal(uint8_t *base, size_t size, enum cw_index_kind kind)
{
    struct cw_index_header h = {.magic = MAGIC, .version = VERSION, .kind = kind, .size = size};
    memcpy(base, &h, sizeof(h));
    h.checksum = cw_hash64(base + 16, size - 16);
    memcpy(base, &h, sizeof(h));
}

bool cw_index_sound(const uint8_t *base, size_t size, enum cw_index_kind kind)
{
    struct cw_index_header h;
    if (size < sizeof(h))
        return false;
    memcpy(&h, base, sizeof(h));
    return h.magic == MAGIC && h.version == VERSION && h.kind == (uint32_t)kind && h.size == size &&
           h.checksum == cw_hash64(base + 16, size - 16);
}

void cw_segment_deinit(struct cw_segment *s)
{
    if (s->mapped)
        munmap((void *)s->base, s->size);
    else
        free((void *)s->base);
    *s = (struct cw_segment){0};
}

uint64_t cw_chunk_end(const uint64_t *lengths, uint64_t first, uint64_t n)
{
    uint64_t bytes = 0, i = first;
    while (i < n && i - first < CW_CHUNK_RECORDS) {
        if (i > first && (lengths[i] > CW_CHUNK_BYTES || bytes > CW_CHUNK_BYTES - lengths[i]))
            break;
        bytes += lengths[i++];
    }
    return i;
}

struct cw_span cw_segment_span(const struct cw_segment *s, uint64_t i)
{
    struct cw_span span = {.offset = s->offsets[i], .size = s->lengths[i]};
    if (s->format == CW_FORMAT_TFRECORD)
        span.size += CW_TFRECORD_FRAME;
    else if (s->format == CW_FORMAT_LINES || cw_format_delimiter(s->format))
        /* up to the next line, so that the length of a line's end need not be stored */
        span.size = (i + 1 < s->n_records ? s->offsets[i + 1] : s->stream_size) - span.offset;
    return span;
}

uint64_t cw_segment_file_key(const struct cw_segment *s, const char *relative_path)
{
    XXH3_state_t x;
    XXH3_64bits_reset(&x);
    XXH3_64bits_update(&x, relative_path, strlen(relative_path) + 1);
    struct cw_key k = {0};
    cw_key_u64(&k, s->file.size);
    if (s->format != CW_FORMAT_TFRECORD)
        cw_key_u64(&k, s->content);
    XXH3_64bits_update(&x, k.bytes, k.size);
    for (uint64_t i = 0; s->format == CW_FORMAT_TFRECORD && i < s->n_records; i++) {
        k.size = 0;
        cw_key_u64(&k, s->lengths[i]);
        cw_key_u64(&k, cw_tfrecord_length_crc(s->lengths[i]) | (uint64_t)s->crcs[i] << 32);
        XXH3_64bits_update(&x, k.bytes, k.size);
    }
    return XXH3_64bits_digest(&x);
}

/* ---- reading the bytes of a segment ---- */

/* Returns the column of `count` items at *at, and moves *at behind it; NULL: fewer bytes are left. */
static const uint8_t *segment_take(const uint8_t **at, const uint8_t *end, uint64_t count, size_t item)
{
    const uint8_t *p = *at;
    uint64_t bytes;
    if (__builtin_mul_overflow(count, (uint64_t)item, &bytes) || bytes > UINT64_MAX - 8 ||
        CW_ALIGN_UP(bytes, 8) > (uint64_t)(end - p))
        return NULL;
    *at = p + CW_ALIGN_UP(bytes, 8);
    return p;
}

/* Checks the number of bytes between the end of a record's data and the next record, or the end of the
 * stream. */
static bool segment_gap_fits(enum cw_record_format format, uint64_t gap, bool last)
{
    switch (format) {
    case CW_FORMAT_TFRECORD:
        return gap == CW_TFRECORD_FRAME;
    case CW_FORMAT_LINES:
        return gap == 1 || gap == 2 || (last && gap == 0);
    default:
        return true; /* for example directories, the end of the archive, or empty lines of a CSV file */
    }
}

/* Returns whether other bytes than those of records may come before the first record, and be all that there
 * is.
 */
static bool segment_has_other_bytes(enum cw_record_format format)
{
    return format == CW_FORMAT_TAR || cw_format_delimiter(format);
}

/* Checks that the records follow one another in the stream and, except in a tar or a CSV file, fill it. Sums
 * the lengths. */
static bool segment_records_fit(struct cw_segment *s)
{
    uint64_t at = segment_has_other_bytes(s->format) && s->n_records ? s->offsets[0] : 0;
    s->data_bytes = 0;
    for (uint64_t i = 0; i < s->n_records; i++) {
        bool last = i + 1 == s->n_records;
        uint64_t next = last ? s->stream_size : s->offsets[i + 1];
        if (s->offsets[i] != at || next < at || next > s->stream_size || s->lengths[i] > next - at ||
            !segment_gap_fits(s->format, next - at - s->lengths[i], last))
            return false;
        s->data_bytes += s->lengths[i];
        at = next;
    }
    return s->n_records > 0 || segment_has_other_bytes(s->format) || s->stream_size == 0;
}

static bool segment_chunks_fit(const struct cw_segment *s)
{
    uint64_t first = 0;
    for (uint64_t i = 0; i < s->n_chunks; i++) {
        uint64_t end = cw_chunk_end(s->lengths, first, s->n_records);
        if (first == s->n_records || s->chunk_ends[i] != end)
            return false;
        first = end;
    }
    return first == s->n_records;
}

static bool segment_restarts_fit(const struct cw_segment *s, uint64_t windows, uint64_t windows_size)
{
    for (uint64_t i = 0; i < s->n_restarts; i++) {
        const struct cw_restart *r = &s->restarts[i];
        if (r->out > s->stream_size || r->in > s->file.size || r->bits > 7 || (r->bits && r->in == 0) ||
            (i && r->out <= s->restarts[i - 1].out) || r->window_size > CW_RESTART_WINDOW ||
            r->window < windows || r->window > windows + windows_size ||
            r->window_size > windows + windows_size - r->window)
            return false;
    }
    return true;
}

/* Finds the format of a segment whose header and checksum are right; false: the bytes are not such a segment.
 */
static bool segment_find_format(const uint8_t *base, size_t size, enum cw_record_format *ret)
{
    for (*ret = CW_FORMAT_TFRECORD; *ret < CW_FORMATS; (*ret)++)
        if (cw_index_sound(base, size, cw_index_kind_of(*ret)))
            return true;
    return false;
}

int cw_segment_attach(const uint8_t *base, size_t size, struct cw_segment *ret)
{
    struct cw_segment_body b;
    struct cw_segment s;
    if (size < sizeof(struct cw_index_header) + sizeof(b) || !segment_find_format(base, size, &s.format))
        return -1;
    memcpy(&b, base + sizeof(struct cw_index_header), sizeof(b));
    if (b.codec < CW_CODEC_PLAIN || b.codec >= CW_CODECS || b.path_size == 0 || b.stream_size > INT64_MAX ||
        b.file_size > INT64_MAX || b.memory > SIZE_MAX / 2 ||
        (b.codec == CW_CODEC_PLAIN && (b.stream_size != b.file_size || b.n_restarts != 0 || b.memory != 0)))
        return -1;
    const uint8_t *at = base + sizeof(struct cw_index_header) + sizeof(b), *end = base + size;
    s = (struct cw_segment){
        .format = s.format,
        .file_key = b.file_key,
        .file = {.size = b.file_size, .mtime_ns = b.mtime_ns, .ctime_ns = b.ctime_ns},
        .codec = (enum cw_codec)b.codec,
        .stream_size = b.stream_size,
        .memory = b.memory,
        .n_records = b.n_records,
        .n_chunks = b.n_chunks,
        .n_restarts = b.n_restarts,
        .base = base,
        .size = size,
    };
    bool crcs = s.format == CW_FORMAT_TFRECORD;
    const uint8_t *windows, *path, *sums;
    if (!(s.offsets = (const void *)segment_take(&at, end, b.n_records, 8)) ||
        !(s.lengths = (const void *)segment_take(&at, end, b.n_records, 8)) ||
        !(sums = segment_take(&at, end, crcs ? b.n_records : 1, crcs ? 4 : 8)) ||
        !(s.chunk_ends = (const void *)segment_take(&at, end, b.n_chunks, 8)) ||
        !(s.restarts = (const void *)segment_take(&at, end, b.n_restarts, sizeof(struct cw_restart))) ||
        !(windows = segment_take(&at, end, b.windows_size, 1)) ||
        !(path = segment_take(&at, end, b.path_size, 1)) || at != end)
        return -1;
    s.relative_path = (const char *)path;
    if (crcs)
        s.crcs = (const void *)sums;
    else
        memcpy(&s.content, sums, sizeof(s.content));
    if (memchr(path, 0, b.path_size) != path + b.path_size - 1 || !segment_records_fit(&s) ||
        !segment_chunks_fit(&s) || !segment_restarts_fit(&s, (uint64_t)(windows - base), b.windows_size))
        return -1;
    *ret = s;
    return 0;
}
