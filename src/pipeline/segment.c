/* One file's index segment: its bytes, their checks, and making it from the file. Any thread. */
#include "pipeline/segment.h"

#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "formats/tfrecord.h"
#include "storage/file.h"

#define MAGIC 0x317865646e497743u /* "CwIndex1" */
#define VERSION 1
/* Restart points are at least this far apart: where chunks are small (tiny records) their windows would outgrow the data. */
#define RESTART_SPACING ((uint64_t)512 << 10)
#define BUFFER_BYTES ((size_t)256 << 10)

struct body { /* of a TFRecord segment, after struct cw_index_header */
    uint64_t file_size;
    int64_t mtime_ns;
    uint64_t file_key, codec, stream_size, n_records, n_chunks, n_restarts;
    uint64_t windows_size, path_size; /* path_size counts the NUL */
};

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

int cw_tfrecord_file_key(const char *relative_path, uint64_t file_size, const uint64_t *lengths, const uint32_t *crcs, uint64_t n,
                         uint64_t *ret, struct cw_error *err)
{
    XXH3_state_t *x = XXH3_createState();
    if (!x)
        return cw_error_nomem(err, 576, "a hash");
    XXH3_64bits_reset(x);
    XXH3_64bits_update(x, relative_path, strlen(relative_path) + 1);
    struct cw_key k = {0};
    cw_key_u64(&k, file_size);
    XXH3_64bits_update(x, k.bytes, k.size);
    for (uint64_t i = 0; i < n; i++) {
        k.size = 0;
        cw_key_u64(&k, lengths[i]);
        cw_key_u64(&k, cw_tfrecord_length_crc(lengths[i]) | (uint64_t)crcs[i] << 32);
        XXH3_64bits_update(x, k.bytes, k.size);
    }
    *ret = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return 0;
}

/* ---- from bytes ---- */

/* Takes count items of a column off the bytes left; NULL when there are not so many. */
static const uint8_t *take(const uint8_t **at, const uint8_t *end, uint64_t count, size_t item)
{
    const uint8_t *p = *at;
    uint64_t bytes;
    if (__builtin_mul_overflow(count, (uint64_t)item, &bytes) || bytes > UINT64_MAX - 8 || CW_ALIGN_UP(bytes, 8) > (uint64_t)(end - p))
        return NULL;
    *at = p + CW_ALIGN_UP(bytes, 8);
    return p;
}

static bool records_fit(const struct cw_segment *s)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < s->n_records; i++) {
        if (s->offsets[i] != at || s->stream_size - at < CW_TFRECORD_FRAME || s->lengths[i] > s->stream_size - at - CW_TFRECORD_FRAME)
            return false;
        at += s->lengths[i] + CW_TFRECORD_FRAME;
    }
    return at == s->stream_size;
}

static bool chunks_fit(const struct cw_segment *s)
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

static bool restarts_fit(const struct cw_segment *s, uint64_t windows, uint64_t windows_size)
{
    for (uint64_t i = 0; i < s->n_restarts; i++) {
        const struct cw_restart *r = &s->restarts[i];
        if (r->out > s->stream_size || r->in > s->file_size || r->bits > 7 || (r->bits && r->in == 0) ||
            (i && r->out <= s->restarts[i - 1].out) || r->window_size > CW_INFLATE_WINDOW || r->window < windows ||
            r->window > windows + windows_size || r->window_size > windows + windows_size - r->window)
            return false;
    }
    return true;
}

int cw_segment_attach(const uint8_t *base, size_t size, struct cw_segment *ret)
{
    struct body b;
    if (size < sizeof(struct cw_index_header) + sizeof(b) || !cw_index_sound(base, size, CW_INDEX_TFRECORD))
        return -1;
    memcpy(&b, base + sizeof(struct cw_index_header), sizeof(b));
    if (b.codec < CW_CODEC_PLAIN || b.codec > CW_CODEC_ZLIB || b.path_size == 0 || b.stream_size > INT64_MAX || b.file_size > INT64_MAX ||
        (b.codec == CW_CODEC_PLAIN && (b.stream_size != b.file_size || b.n_restarts != 0)))
        return -1;
    const uint8_t *at = base + sizeof(struct cw_index_header) + sizeof(b), *end = base + size;
    struct cw_segment s = {
        .file_key = b.file_key,
        .file_size = b.file_size,
        .mtime_ns = b.mtime_ns,
        .codec = (enum cw_codec)b.codec,
        .stream_size = b.stream_size,
        .n_records = b.n_records,
        .n_chunks = b.n_chunks,
        .n_restarts = b.n_restarts,
        .base = base,
        .size = size,
    };
    const uint8_t *windows, *path;
    if (!(s.offsets = (const void *)take(&at, end, b.n_records, 8)) || !(s.lengths = (const void *)take(&at, end, b.n_records, 8)) ||
        !(s.crcs = (const void *)take(&at, end, b.n_records, 4)) || !(s.chunk_ends = (const void *)take(&at, end, b.n_chunks, 8)) ||
        !(s.restarts = (const void *)take(&at, end, b.n_restarts, sizeof(struct cw_restart))) ||
        !(windows = take(&at, end, b.windows_size, 1)) || !(path = take(&at, end, b.path_size, 1)) || at != end)
        return -1;
    s.relative_path = (const char *)path;
    if (memchr(path, 0, b.path_size) != path + b.path_size - 1 || !records_fit(&s) || !chunks_fit(&s) ||
        !restarts_fit(&s, (uint64_t)(windows - base), b.windows_size))
        return -1;
    s.data_bytes = s.stream_size - CW_TFRECORD_FRAME * s.n_records;
    *ret = s;
    return 0;
}

/* ---- from a file ---- */

struct restarts { /* growing */
    struct cw_restart *points; /* window counts from windows */
    uint8_t *windows;
    size_t n, capacity, windows_size, windows_capacity;
};

struct building {
    struct cw_tfrecord_walk walk;
    struct restarts restarts;
    size_t n_seen;                       /* records that the open chunk was told of */
    uint64_t chunk_bytes, chunk_records; /* of the open chunk */
    struct cw_restart candidate;
    bool has_candidate;
    uint8_t window[CW_INFLATE_WINDOW]; /* of the candidate */
    uint8_t buffer[BUFFER_BYTES];
};

static int restart_append(struct restarts *l, const struct cw_restart *r, const uint8_t *window, struct cw_error *err)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? l->capacity * 2 : 16;
        void *p = realloc(l->points, capacity * sizeof(*l->points));
        if (!p)
            return cw_error_nomem(err, capacity * sizeof(*l->points), "restart points");
        l->points = p;
        l->capacity = capacity;
    }
    if (l->windows_capacity - l->windows_size < CW_INFLATE_WINDOW) {
        size_t capacity = CW_MAX(l->windows_capacity * 2, (size_t)16 * CW_INFLATE_WINDOW);
        void *p = realloc(l->windows, capacity);
        if (!p)
            return cw_error_nomem(err, capacity, "restart points");
        l->windows = p;
        l->windows_capacity = capacity;
    }
    memcpy(l->windows + l->windows_size, window, r->window_size);
    l->points[l->n] = *r;
    l->points[l->n++].window = l->windows_size;
    l->windows_size += r->window_size;
    return 0;
}

/* A record of the stream: where it opens a chunk, the last place between blocks before it becomes a restart point, unless the one before
 * is near enough. */
static int see_record(struct building *b, uint64_t offset, uint64_t length, struct cw_error *err)
{
    uint64_t last = b->restarts.n ? b->restarts.points[b->restarts.n - 1].out : 0;
    b->n_seen++;
    if (b->chunk_records == CW_CHUNK_RECORDS ||
        (b->chunk_records && (length > CW_CHUNK_BYTES || b->chunk_bytes > CW_CHUNK_BYTES - length))) {
        b->chunk_records = b->chunk_bytes = 0;
        if (b->has_candidate && b->candidate.out <= offset && b->candidate.out > last && offset - last >= RESTART_SPACING) {
            int r = restart_append(&b->restarts, &b->candidate, b->window, err);
            if (r < 0)
                return r;
        }
    }
    b->chunk_records++;
    b->chunk_bytes += length;
    return 0;
}

/* One piece of the stream, up to a place between two blocks or a buffer full. */
static int inflate_piece(struct building *b, struct cw_inflate *z, struct cw_error *err)
{
    const struct cw_tfrecord_walk *w = &b->walk;
    uint64_t at = cw_inflate_position(z);
    size_t n;
    int r = cw_inflate_read(z, b->buffer, BUFFER_BYTES, true, &n, err);
    if (r == 0)
        r = cw_tfrecord_feed(&b->walk, at, b->buffer, n, err);
    while (r == 0 && b->n_seen < w->list.n)
        r = see_record(b, w->list.offsets[b->n_seen], w->list.lengths[b->n_seen], err);
    if (r == 0 && w->in_tail && b->n_seen == w->list.n) /* the one being read */
        r = see_record(b, w->start, w->length, err);
    if (r < 0)
        return r;
    /* With half a header read, the next chunk may start before this place. Where blocks are tiny, one place in 32 KiB will do: its window
     * has to be copied. */
    struct cw_restart place;
    if ((w->in_tail || w->have == 0) &&
        (!b->has_candidate || cw_inflate_position(z) - b->candidate.out >= CW_INFLATE_WINDOW) &&
        cw_inflate_restart(z, &place, b->window)) {
        b->candidate = place;
        b->has_candidate = true;
    }
    return 0;
}

static int inflate_file(struct building *b, const struct cw_segment_input *in, struct cw_file *file, enum cw_codec codec,
                        struct cw_error *err)
{
    struct cw_inflate *z;
    int r = cw_inflate_open(file, codec, NULL, NULL, &z, err);
    if (r < 0)
        return r;
    for (unsigned pieces = 0; r == 0 && !cw_inflate_ended(z); pieces++) {
        r = inflate_piece(b, z, err);
        if (r == 0 && pieces % 16 == 0 && in->cancelled && in->cancelled(in->cancel_arg))
            r = cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    }
    b->walk.stream_size = cw_inflate_position(z);
    cw_inflate_free(z);
    return r < 0 ? r : cw_tfrecord_end(&b->walk, b->walk.stream_size, err);
}

/* The codec asked for, or what the file's first bytes are. A plain file may begin like a gzip one (its length's low bytes): a header whose
 * CRC is right settles it. */
static int choose_codec(const struct cw_segment_input *in, struct cw_file *file, enum cw_codec *ret, struct cw_error *err)
{
    uint8_t head[CW_TFRECORD_HEADER];
    size_t n = (size_t)CW_MIN(in->file_size, (uint64_t)sizeof(head));
    *ret = in->codec;
    if (in->codec != CW_CODEC_AUTO)
        return 0;
    int r = cw_file_read(file, 0, head, n, false, err);
    if (r == 0)
        *ret = cw_tfrecord_is_header(head, n) ? CW_CODEC_PLAIN : cw_codec_detect(head, n);
    return r;
}

static uint8_t *put(uint8_t *at, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(at, data, bytes);
    memset(at + bytes, 0, CW_ALIGN_UP(bytes, 8) - bytes);
    return at + CW_ALIGN_UP(bytes, 8);
}

/* All that was found as the bytes of a segment. */
static int assemble(struct building *b, const struct cw_segment_input *in, enum cw_codec codec, struct cw_segment *ret,
                    struct cw_error *err)
{
    const struct cw_tfrecord_list *l = &b->walk.list;
    struct body body = {
        .file_size = in->file_size,
        .mtime_ns = in->mtime_ns,
        .codec = (uint64_t)codec,
        .stream_size = b->walk.stream_size,
        .n_records = l->n,
        .n_restarts = b->restarts.n,
        .windows_size = b->restarts.windows_size,
        .path_size = strlen(in->relative_path) + 1,
    };
    int r = cw_tfrecord_file_key(in->relative_path, in->file_size, l->lengths, l->crcs, l->n, &body.file_key, err);
    if (r < 0)
        return r;
    for (uint64_t first = 0; first < l->n; first = cw_chunk_end(l->lengths, first, l->n))
        body.n_chunks++;
    size_t head = sizeof(struct cw_index_header) + sizeof(body);
    size_t columns = l->n * 16 + CW_ALIGN_UP(l->n * 4, 8) + body.n_chunks * 8 + body.n_restarts * sizeof(struct cw_restart);
    size_t size = head + columns + CW_ALIGN_UP(body.windows_size, 8) + CW_ALIGN_UP(body.path_size, 8);
    uint8_t *base = malloc(size);
    if (!base)
        return cw_error_nomem(err, size, "an index");
    uint8_t *at = put(base + sizeof(struct cw_index_header), &body, sizeof(body));
    at = put(at, l->offsets, l->n * 8);
    at = put(at, l->lengths, l->n * 8);
    at = put(at, l->crcs, l->n * 4);
    for (uint64_t first = 0; first < l->n;) {
        first = cw_chunk_end(l->lengths, first, l->n);
        at = put(at, &first, 8);
    }
    for (size_t i = 0; i < b->restarts.n; i++)
        b->restarts.points[i].window += head + columns;
    at = put(at, b->restarts.points, b->restarts.n * sizeof(struct cw_restart));
    at = put(at, b->restarts.windows, b->restarts.windows_size);
    put(at, in->relative_path, body.path_size);
    cw_index_seal(base, size, CW_INDEX_TFRECORD);
    if (cw_segment_attach(base, size, ret) < 0) {
        free(base);
        return cw_error_set(err, CW_E_BUG, "%s: the index that was built does not hold together", in->path);
    }
    return 0;
}

int cw_segment_build(const struct cw_segment_input *in, struct cw_segment *ret, struct cw_error *err)
{
    struct cw_file *file = NULL;
    enum cw_codec codec = CW_CODEC_PLAIN;
    struct building *b = malloc(sizeof(*b));
    if (!b)
        return cw_error_nomem(err, sizeof(*b), "an index");
    memset(b, 0, offsetof(struct building, window));
    cw_tfrecord_walk_init(&b->walk, in->path, UINT64_MAX);
    int r = cw_file_new(in->path, in->file_size, in->mtime_ns, &file, err);
    if (r == 0)
        r = choose_codec(in, file, &codec, err);
    if (r == 0 && codec == CW_CODEC_PLAIN) {
        b->walk.stream_size = in->file_size;
        r = cw_tfrecord_scan(&b->walk, file, in->cancelled, in->cancel_arg, err);
    } else if (r == 0) {
        r = inflate_file(b, in, file, codec, err);
    }
    if (r == 0)
        r = assemble(b, in, codec, ret, err);
    cw_file_free(file);
    cw_tfrecord_list_deinit(&b->walk.list);
    free(b->restarts.points);
    free(b->restarts.windows);
    free(b);
    return r;
}
