/*
 * Makes the index segment of a data file in one pass over its stream, plain or decompressed. In the pass, the
 * format's walk finds the records, and restart points are collected. The caller owns the segment. The index
 * builder calls it; any thread.
 */
#include <string.h>

#include "base/array.h"
#include "formats/csv.h"
#include "formats/lines.h"
#include "formats/tar.h"
#include "formats/tfrecord.h"
#include "dataset/segment.h"
#include "storage/file.h"

/* A record that begins a chunk gets a restart point only if it begins at least this many bytes of the stream
 * after the last restart point. A restart point takes a window of up to 32 KiB; with small chunks (of tiny
 * records), the windows could be larger than the data. */
#define RESTART_SPACING ((uint64_t)512 << 10)
#define BUFFER_BYTES ((size_t)256 << 10)

struct restarts { /* the restart points so far */
    /* their `window` is an offset in `windows`, until build_assemble adds the offset of `windows` in the
     * segment */
    struct cw_restart *points;
    uint8_t *windows;
    size_t n, capacity, windows_size, windows_capacity;
};

struct place { /* a place at which decompression can begin, which may become a restart point */
    bool there;
    struct cw_restart restart;
    uint8_t window[CW_RESTART_WINDOW];
};

struct building {
    union {
        struct cw_walk base;
        struct cw_tfrecord_walk tfrecord;
        struct cw_line_walk lines;
        struct cw_tar_walk tar;
        struct cw_csv_walk csv;
    } walk;
    struct restarts restarts;
    size_t memory;                       /* bytes that decompression has allocated at most */
    size_t n_seen;                       /* records of the walk's list that were assigned to chunks */
    uint64_t chunk_bytes, chunk_records; /* size of the last chunk, to which records may still be added */
    /* before: the last place before the record that is being read; latest: the last place of all. When a
     * record turns out to begin a chunk, it has been read, and `latest` may lie inside it. Its restart point
     * must lie before it, so it is made of `before`. */
    struct place *before, *latest;
    struct place places[2];
    uint8_t buffer[BUFFER_BYTES];
};

static int build_restart_append(struct restarts *l, const struct cw_restart *r, const uint8_t *window,
                                struct cw_error *err)
{
    if (CW_ARRAY_ROOM(l->points, l->capacity, l->n + 1, "restart points", err) < 0 ||
        CW_ARRAY_ROOM(l->windows, l->windows_capacity, l->windows_size + CW_RESTART_WINDOW, "restart points",
                      err) < 0)
        return CW_E_MEMORY;
    memcpy(l->windows + l->windows_size, window, r->window_size);
    l->points[l->n] = *r;
    l->points[l->n++].window = l->windows_size;
    l->windows_size += r->window_size;
    return 0;
}

static void build_promote_place(struct building *b)
{
    struct place *old = b->before;
    b->before = b->latest;
    b->latest = old;
    old->there = false;
}

/* Adds a record to its chunk. If the record begins a chunk, makes a restart point of the last place before
 * it, unless the last restart point is less than RESTART_SPACING before the record. */
static int build_see_record(struct building *b, uint64_t offset, uint64_t length, struct cw_error *err)
{
    uint64_t last = b->restarts.n ? b->restarts.points[b->restarts.n - 1].out : 0;
    b->n_seen++;
    if (b->latest->there && b->latest->restart.out <= offset)
        build_promote_place(b);
    if (b->chunk_records == CW_CHUNK_RECORDS ||
        (b->chunk_records && (length > CW_CHUNK_BYTES || b->chunk_bytes > CW_CHUNK_BYTES - length))) {
        b->chunk_records = b->chunk_bytes = 0;
        if (b->before->there && b->before->restart.out > last && offset - last >= RESTART_SPACING) {
            int r = build_restart_append(&b->restarts, &b->before->restart, b->before->window, err);
            if (r < 0)
                return r;
        }
    }
    b->chunk_records++;
    b->chunk_bytes += length;
    return 0;
}

static int build_see_records(struct building *b, struct cw_error *err)
{
    const struct cw_record_list *l = &b->walk.base.list;
    int r = 0;
    while (r == 0 && b->n_seen < l->n)
        r = build_see_record(b, l->offsets[b->n_seen], l->lengths[b->n_seen], err);
    return r;
}

/* Reads and walks the next piece of the stream: up to the next place where decompression can begin, or a full
 * buffer. */
static int build_decompress_piece(struct building *b, struct cw_decompress *z, struct cw_error *err)
{
    uint64_t at = cw_decompress_position(z);
    size_t n;
    int r = cw_decompress_read(z, b->buffer, BUFFER_BYTES, true, &n, err);
    if (r == 0)
        r = cw_walk_feed(&b->walk.base, at, b->buffer, n, err);
    if (r == 0)
        r = build_see_records(b, err);
    if (r < 0)
        return r;
    if (b->latest->there && b->latest->restart.out <= b->walk.base.start)
        build_promote_place(b);
    /* With tiny blocks, only one place in 32 KiB is recorded, because recording a place copies its window. */
    const struct place *newest = b->latest->there ? b->latest : b->before;
    if ((!newest->there || cw_decompress_position(z) - newest->restart.out >= CW_RESTART_WINDOW) &&
        cw_decompress_restart(z, &b->latest->restart, b->latest->window))
        b->latest->there = true;
    return 0;
}

static int build_decompress_file(struct building *b, const struct cw_segment_input *in, struct cw_file *file,
                                 enum cw_codec codec, struct cw_error *err)
{
    struct cw_decompress *z;
    int r = cw_decompress_open(file, codec, in->memory, NULL, NULL, &z, err);
    if (r < 0)
        return r;
    for (unsigned pieces = 0; r == 0 && !cw_decompress_ended(z); pieces++) {
        r = build_decompress_piece(b, z, err);
        if (r == 0 && pieces % 16 == 0 && in->cancelled && in->cancelled(in->cancel_arg))
            r = cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    }
    b->walk.base.stream_size = cw_decompress_position(z);
    b->memory = cw_decompress_memory(z);
    cw_decompress_free(z);
    if (r == 0)
        r = cw_walk_end(&b->walk.base, b->walk.base.stream_size, err);
    return r < 0 ? r : build_see_records(b, err);
}

/* Chooses the requested codec, or finds the codec from the file's first bytes. A plain TFRecord file may
 * begin like a gzip file (with the low bytes of a length), so a TFRecord file is plain if it begins with a
 * header whose CRC is right. A text or a tar does not begin like a gzip file. But a text may begin like a
 * zlib file ("x" and another letter), so zlib is not detected in these formats. */
int cw_segment_codec(enum cw_record_format format, struct cw_file *file, enum cw_codec wanted,
                     enum cw_codec *ret, struct cw_error *err)
{
    uint8_t head[CW_MAX(CW_TFRECORD_HEADER, CW_CODEC_HEAD)];
    size_t n = (size_t)CW_MIN(cw_file_size(file), (uint64_t)sizeof(head));
    *ret = wanted;
    if (wanted != CW_CODEC_AUTO)
        return 0;
    int r = cw_file_read(file, 0, head, n, false, err);
    if (r < 0)
        return r;
    *ret = cw_codec_detect(head, n);
    bool header = format == CW_FORMAT_TFRECORD && cw_tfrecord_is_header(head, n);
    if (format == CW_FORMAT_TFRECORD ? header : *ret == CW_CODEC_ZLIB)
        *ret = CW_CODEC_PLAIN;
    const char *unreadable = *ret == CW_CODEC_PLAIN && !header ? cw_codec_unreadable(head, n) : NULL;
    if (unreadable)
        return cw_error_at_file(err, CW_E_DATA, cw_file_path(file), 0,
                                "%s: compressed with %s, which can't be read: decompress it, or compress it "
                                "with zstd, gzip, bzip2 or xz",
                                cw_file_path(file), unreadable);
    return 0;
}

static uint8_t *build_put(uint8_t *at, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(at, data, bytes);
    memset(at + bytes, 0, CW_ALIGN_UP(bytes, 8) - bytes);
    return at + CW_ALIGN_UP(bytes, 8);
}

/* Writes the records, chunks and restart points found as the bytes of a segment. */
static int build_assemble(struct building *b, const struct cw_segment_input *in, enum cw_codec codec,
                          struct cw_segment *ret, struct cw_error *err)
{
    const struct cw_record_list *l = &b->walk.base.list;
    struct cw_segment_body body = {
        .file_size = in->file.size,
        .mtime_ns = in->file.mtime_ns,
        .ctime_ns = in->file.ctime_ns,
        .codec = (uint64_t)codec,
        .stream_size = b->walk.base.stream_size,
        .memory = b->memory,
        .n_records = l->n,
        .n_restarts = b->restarts.n,
        .windows_size = b->restarts.windows_size,
        .path_size = strlen(in->relative_path) + 1,
    };
    struct cw_segment found = {
        /* the fields that cw_segment_file_key needs */
        .format = in->format,  .file = in->file, .n_records = l->n,
        .lengths = l->lengths, .crcs = l->crcs,  .content = b->walk.base.content,
    };
    body.file_key = cw_segment_file_key(&found, in->relative_path);
    bool crcs = in->format == CW_FORMAT_TFRECORD;
    const void *sums = crcs ? (const void *)l->crcs : &found.content;
    size_t sums_size = crcs ? l->n * 4 : 8;
    for (uint64_t first = 0; first < l->n; first = cw_chunk_end(l->lengths, first, l->n))
        body.n_chunks++;
    size_t head = sizeof(struct cw_index_header) + sizeof(body);
    size_t columns = l->n * 16 + CW_ALIGN_UP(sums_size, 8) + body.n_chunks * 8 +
                     body.n_restarts * sizeof(struct cw_restart);
    size_t size = head + columns + CW_ALIGN_UP(body.windows_size, 8) + CW_ALIGN_UP(body.path_size, 8);
    uint8_t *base = malloc(size);
    if (!base)
        return cw_error_nomem(err, size, "an index");
    uint8_t *at = build_put(base + sizeof(struct cw_index_header), &body, sizeof(body));
    at = build_put(at, l->offsets, l->n * 8);
    at = build_put(at, l->lengths, l->n * 8);
    at = build_put(at, sums, sums_size);
    for (uint64_t first = 0; first < l->n;) {
        first = cw_chunk_end(l->lengths, first, l->n);
        at = build_put(at, &first, 8);
    }
    for (size_t i = 0; i < b->restarts.n; i++)
        b->restarts.points[i].window += head + columns;
    at = build_put(at, b->restarts.points, b->restarts.n * sizeof(struct cw_restart));
    at = build_put(at, b->restarts.windows, b->restarts.windows_size);
    build_put(at, in->relative_path, body.path_size);
    cw_index_seal(base, size, cw_index_kind_of(in->format));
    if (cw_segment_attach(base, size, ret) < 0) {
        free(base);
        return cw_error_set(
            err, CW_E_BUG,
            "%s: the index that was built is inconsistent; this is a defect of Cachew, please report it",
            in->path);
    }
    return 0;
}

static int build_start_walk(struct building *b, const struct cw_segment_input *in, struct cw_error *err)
{
    switch (in->format) {
    case CW_FORMAT_TAR:
        return cw_tar_walk_init(&b->walk.tar, in->path, UINT64_MAX, err);
    case CW_FORMAT_LINES:
        return cw_line_walk_init(&b->walk.lines, in->path, UINT64_MAX, err);
    case CW_FORMAT_TFRECORD:
        cw_tfrecord_walk_init(&b->walk.tfrecord, in->path, UINT64_MAX);
        return 0;
    default:
        return cw_csv_walk_init(&b->walk.csv, in->path, UINT64_MAX, cw_format_delimiter(in->format), err);
    }
}

int cw_segment_build(const struct cw_segment_input *in, struct cw_segment *ret, struct cw_error *err)
{
    struct cw_file *file = in->opened;
    enum cw_codec codec = CW_CODEC_PLAIN;
    _cleanup_free_ struct building *b = malloc(sizeof(*b));
    if (!b)
        return cw_error_nomem(err, sizeof(*b), "an index");
    memset(b, 0, offsetof(struct building, places));
    b->before = &b->places[0];
    b->latest = &b->places[1];
    b->before->there = b->latest->there = false;
    int r = build_start_walk(b, in, err);
    if (r == 0 && !file)
        r = cw_file_new(in->path, &in->file, &file, err);
    if (r == 0)
        r = cw_segment_codec(in->format, file, in->codec, &codec, err);
    if (r == 0 && codec == CW_CODEC_PLAIN) {
        b->walk.base.stream_size = in->file.size;
        r = cw_walk_scan(&b->walk.base, file, in->cancelled, in->cancel_arg, err);
    } else if (r == 0) {
        r = build_decompress_file(b, in, file, codec, err);
    }
    if (file && r != CW_E_INTERRUPTED)
        r = cw_file_verdict(file, r, err);
    if (r == 0)
        r = build_assemble(b, in, codec, ret, err);
    if (!in->opened)
        cw_file_free(file);
    cw_walk_deinit(&b->walk.base);
    free(b->restarts.points);
    free(b->restarts.windows);
    return r;
}

int cw_segment_same(const void *index, size_t i, struct cw_file *file, bool *ret, struct cw_error *err)
{
    const struct cw_segment *was = (const struct cw_segment *)index + i;
    struct cw_segment now;
    struct cw_segment_input in = {
        .format = was->format,
        .path = cw_file_path(file),
        .relative_path = was->relative_path,
        .file = was->file,
        .opened = file,
        .codec = was->codec,
        .memory = was->memory,
    };
    int r = cw_segment_build(&in, &now, err);
    if (r < 0)
        return r;
    *ret = now.size == was->size && memcmp(now.base, was->base, now.size) == 0;
    cw_segment_deinit(&now);
    return 0;
}
