/* Sources whose files hold many records, found through index segments. Immutable once opened, except for the
 * kept stream, which has a lock: any thread may read. */
#include "ops/source/record_streams.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/thread.h"
#include "formats/decompress.h"
#include "formats/tfrecord.h"
#include "storage/file.h"

/* ---- the kept stream ---- */

/* A stream is kept if reading from the beginning or a restart point would decompress more than this many
 * bytes again: a chunk. That of a remote file is always kept, because reading bytes again takes requests. */
#define KEEP_FROM CW_CHUNK_BYTES

static void kept_free(struct cw_record_streams *f)
{
    struct cw_record_streams_kept *k = &f->kept;
    if (!k->z)
        return;
    k->z = cw_decompress_free(k->z);
    cw_budget_give(k->budget, cw_segment_read_bytes(&f->index.segments[k->file]));
}

static void streams_trim(struct cw_source *s, struct cw_budget *budget)
{
    struct cw_record_streams *f = (struct cw_record_streams *)s;
    CW_GUARD(&f->kept.mutex);
    if (f->kept.budget == budget)
        kept_free(f);
}

/* Returns the kept stream, if it is of this file and of this budget, and ends its charge; else NULL. Frees a
 * stream of another file, so that one budget has one stream at a time. */
static struct cw_decompress *kept_take(struct cw_record_streams *f, size_t file, struct cw_budget *budget)
{
    struct cw_record_streams_kept *k = &f->kept;
    CW_GUARD(&k->mutex);
    if (!k->z || k->budget != budget)
        return NULL;
    if (k->file != file) {
        kept_free(f);
        return NULL;
    }
    cw_budget_give(budget, cw_segment_read_bytes(&f->index.segments[file]));
    return CW_STEAL(k->z);
}

/* Keeps a stream (may be NULL) in place of the one before, or frees it. */
static void kept_put(struct cw_record_streams *f, size_t file, struct cw_budget *budget,
                     struct cw_decompress *z)
{
    struct cw_record_streams_kept *k = &f->kept;
    CW_GUARD(&k->mutex);
    if (!z)
        return;
    kept_free(f);
    if (!f->keeps[file] ||
        cw_budget_take(budget, cw_segment_read_bytes(&f->index.segments[file]), "decompression", NULL) < 0) {
        cw_decompress_free(z);
        return;
    }
    k->z = z;
    k->file = file;
    k->budget = budget;
}

/* ---- the source ---- */

static void streams_free(struct cw_source *s)
{
    struct cw_record_streams *f = (struct cw_record_streams *)s;
    kept_free(f);
    pthread_mutex_destroy(&f->kept.mutex);
    for (size_t i = 0; f->files && i < f->index.n; i++)
        cw_file_free(f->files[i]);
    free(f->files);
    free(f->first);
    free(f->chunk_ends);
    free(f->keeps);
    if (f->free_state)
        f->free_state(f->state);
    cw_index_deinit(&f->index);
    free(f);
}

/* Returns the number of the file that holds a row: the last file whose first row is at or before it (a file
 * without records has the first row of the next file). */
static size_t record_streams_file_of(const struct cw_record_streams *f, uint64_t row)
{
    return CW_FIRST(i, 1, f->index.n, f->first[i] > row) - 1;
}

static bool record_streams_holds(const struct cw_record_streams *f, size_t file, uint64_t row)
{
    return f->first[file] <= row && row < f->first[file + 1];
}

/* Returns the number of a row's record in the index of its file. */
static uint64_t record_streams_record(const struct cw_record_streams *f, size_t file, uint64_t row)
{
    return row - f->first[file] + f->options.n_headers;
}

static bool record_streams_too_long(const struct cw_record_streams *f, uint64_t length)
{
    return f->options.max_length && length > f->options.max_length;
}

static void streams_ids(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out)
{
    const struct cw_record_streams *f = (const struct cw_record_streams *)s;
    size_t file = 0;
    for (size_t i = 0; i < n; i++) {
        if (!record_streams_holds(f, file, rows[i]))
            file = record_streams_file_of(f, rows[i]);
        out[i].file_key = f->index.segments[file].file_key;
        out[i].row = rows[i] - f->first[file];
    }
}

static const char *streams_path(const struct cw_source *s, uint64_t row)
{
    const struct cw_record_streams *f = (const struct cw_record_streams *)s;
    return cw_file_path(f->files[record_streams_file_of(f, row)]);
}

static struct cw_file *streams_file(const struct cw_source *s, uint64_t row, bool *ret_partial)
{
    const struct cw_record_streams *f = (const struct cw_record_streams *)s;
    *ret_partial = f->options.partial_keys;
    return f->files[record_streams_file_of(f, row)];
}

static int streams_locate(const struct cw_source *s, uint64_t row, struct cw_extent *ret,
                          struct cw_error *err CW_UNUSED)
{
    const struct cw_record_streams *f = (const struct cw_record_streams *)s;
    size_t file = record_streams_file_of(f, row);
    const struct cw_segment *g = &f->index.segments[file];
    uint64_t i = record_streams_record(f, file, row);
    struct cw_span span = cw_segment_span(g, i);
    *ret = (struct cw_extent){.file = f->files[file],
                              .offset = span.offset,
                              .length = record_streams_too_long(f, g->lengths[i]) ? 0 : span.size};
    return 0;
}

struct wanted { /* a row to load, and its index in the caller's list */
    uint64_t row;
    size_t place;
};

static int record_streams_by_row(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    return x->row != y->row ? (x->row < y->row ? -1 : 1) : (x->place > y->place) - (x->place < y->place);
}

/* Loads the rows wanted[0..n), which are ascending and lie in one file; a row that occurs twice is read once.
 * `records` and `into` are scratch. */
static int record_streams_load_file(struct cw_record_streams *f, size_t file, const struct wanted *wanted,
                                    size_t n, uint64_t *records, uint8_t **into, struct cw_arena *arena,
                                    struct cw_tensor *raw, struct cw_error *err)
{
    const struct cw_segment *g = &f->index.segments[file];
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t record = record_streams_record(f, file, wanted[i].row);
        struct cw_span span = cw_segment_span(g, record);
        raw[wanted[i].place] = (struct cw_tensor){0};
        if (record_streams_too_long(f, g->lengths[record]))
            continue;
        if (m == 0 || records[m - 1] != record) {
            into[m] = cw_arena_alloc(arena, span.size, err);
            if (!into[m])
                return err ? err->status : CW_E_MEMORY;
            records[m++] = record;
        }
        raw[wanted[i].place] = (struct cw_tensor){.data = into[m - 1], .size = span.size};
    }
    struct cw_decompress *z = kept_take(f, file, arena->budget);
    int r = cw_arena_reserve(arena, cw_segment_read_bytes(g), "decompression", err);
    if (r < 0) {
        cw_decompress_free(z);
        return r;
    }
    r = cw_segment_read(g, f->files[file], records, m, into, &z, err);
    cw_arena_unreserve(arena, cw_segment_read_bytes(g));
    kept_put(f, file, arena->budget, z);
    return r;
}

static int streams_load(const struct cw_source *s, const struct cw_load *l, struct cw_tensor *raw,
                        struct cw_error *err)
{
    struct cw_arena *arena = l->arena;
    size_t n = l->n;
    /* only the kept stream, which has a lock, is changed */
    struct cw_record_streams *f = (struct cw_record_streams *)(uintptr_t)s;
    struct cw_error local = {0};
    err = err ? err : &local;
    struct wanted *wanted = cw_arena_alloc(arena, n * sizeof(*wanted), err);
    uint64_t *records = wanted ? cw_arena_alloc(arena, n * sizeof(*records), err) : NULL;
    uint8_t **into = records ? cw_arena_alloc(arena, n * sizeof(*into), err) : NULL;
    if (!into)
        return err->status;
    for (size_t i = 0; i < n; i++)
        wanted[i] = (struct wanted){.row = l->rows[i], .place = i};
    qsort(wanted, n, sizeof(*wanted), record_streams_by_row);
    int r = 0;
    for (size_t i = 0, end; r == 0 && i < n; i = end) {
        size_t file = record_streams_file_of(f, wanted[i].row);
        for (end = i + 1; end < n && record_streams_holds(f, file, wanted[end].row);)
            end++;
        r = record_streams_load_file(f, file, wanted + i, end - i, records, into, arena, raw, err);
    }
    return r;
}

uint64_t cw_record_streams_length(const struct cw_record_streams *f, uint64_t row, uint64_t *ret_number)
{
    size_t file = record_streams_file_of(f, row);
    *ret_number = row - f->first[file];
    return f->index.segments[file].lengths[record_streams_record(f, file, row)];
}

int cw_record_streams_read(const struct cw_record_streams *f, size_t file, uint64_t record, uint8_t **ret,
                           size_t *ret_size, struct cw_error *err)
{
    const struct cw_segment *g = &f->index.segments[file];
    struct cw_span span = cw_segment_span(g, record);
    const char *path = cw_file_path(f->files[file]);
    if (record_streams_too_long(f, g->lengths[record]))
        return cw_error_at_file(err, CW_E_DATA, path, 0,
                                "%s: a record of %" PRIu64 " bytes: expected at most %" PRIu64, path,
                                g->lengths[record], f->options.max_length);
    _cleanup_free_ uint8_t *data = malloc(CW_MAX(span.size, (uint64_t)1));
    struct cw_decompress *z = NULL;
    if (!data)
        return cw_error_nomem(err, span.size, "a record");
    int r = cw_segment_read(g, f->files[file], &record, 1, &data, &z, err);
    cw_decompress_free(z);
    if (r < 0)
        return r;
    *ret_size = g->lengths[record];
    *ret = CW_STEAL(data);
    return 0;
}

/* Stores the ends of a file's chunks at chunk_ends[at] and after it. Returns the number of its chunks.
 * Headers belong to no chunk. */
static uint64_t record_streams_chunks(struct cw_record_streams *f, size_t file, uint64_t at)
{
    const struct cw_segment *g = &f->index.segments[file];
    uint64_t headers = f->options.n_headers, n = 0;
    for (; headers == 0 && n < g->n_chunks; n++)
        f->chunk_ends[at + n] = f->first[file] + g->chunk_ends[n];
    for (uint64_t record = headers; headers && record < g->n_records; n++) {
        record = cw_chunk_end(g->lengths, record, g->n_records);
        f->chunk_ends[at + n] = f->first[file] + record - headers;
    }
    return n;
}

/* Fills in the source (number of records, chunks, snapshot, ...) from the segments. */
static int record_streams_sum_up(struct cw_record_streams *f, char *const *paths, struct cw_error *err)
{
    size_t n = f->index.n;
    uint64_t n_chunks = 0, headers = f->options.n_headers, header_bytes = 0;
    uint64_t discarded = 0;
    const char *discarded_in = NULL;
    size_t compressed = n; /* number of the first compressed file; n: no file is compressed */
    for (size_t i = 0; i < n; i++)
        n_chunks += f->index.segments[i].n_chunks;
    f->files = calloc(n, sizeof(*f->files));
    f->first = malloc((n + 1) * sizeof(*f->first));
    f->chunk_ends = malloc((n_chunks + 1) * sizeof(*f->chunk_ends));
    f->keeps = calloc(n, sizeof(*f->keeps));
    if (!f->files || !f->first || !f->chunk_ends || !f->keeps)
        return cw_error_nomem(err, (n + n_chunks) * 8, "a source");
    n_chunks = 0;
    int r = 0;
    XXH3_state_t snapshot;
    XXH3_64bits_reset(&snapshot);
    f->first[0] = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct cw_segment *g = &f->index.segments[i];
        struct cw_key k = {0};
        cw_key_u64(&k, g->file_key);
        cw_key_u64(&k, g->n_records);
        XXH3_64bits_update(&snapshot, k.bytes, k.size);
        n_chunks += record_streams_chunks(f, i, n_chunks);
        f->first[i + 1] = f->first[i] + g->n_records - CW_MIN(headers, g->n_records);
        for (uint64_t h = 0; h < CW_MIN(headers, g->n_records); h++)
            header_bytes += g->lengths[h];
        compressed = g->codec != CW_CODEC_PLAIN ? CW_MIN(compressed, i) : compressed;
        r = cw_file_new(paths[i], &g->file, &f->files[i], err);
        if (r == 0)
            cw_file_compare_by(f->files[i], cw_segment_same, f->index.segments, i);
        uint64_t bytes = r == 0 ? cw_segment_discarded(g) : 0;
        f->keeps[i] = bytes > KEEP_FROM || (g->remote && g->codec != CW_CODEC_PLAIN);
        if (bytes > discarded) {
            discarded = bytes;
            discarded_in = cw_file_path(f->files[i]);
        }
    }
    /* Uncompressed files are read one record at a time. If one file is compressed, all files are read by
     * `load`. */
    f->ops.locate = compressed < n ? NULL : streams_locate;
    f->ops.load = compressed < n ? streams_load : NULL;
    f->ops.trim = compressed < n ? streams_trim : NULL;
    if (r == 0)
        f->base = (struct cw_source){
            .ops = &f->ops,
            .n_records = f->first[n],
            .source_bytes = f->index.report.data_bytes - header_bytes,
            .random_access = compressed == n,
            .compressed = compressed < n ? cw_file_path(f->files[compressed]) : NULL,
            .discarded_bytes = discarded,
            .discarded_in = discarded_in,
            .n_chunks = n_chunks,
            .chunk_ends = f->chunk_ends,
            .snapshot = XXH3_64bits_digest(&snapshot),
        };
    return r;
}

int cw_record_streams_open_files(const struct cw_op *op, const struct cw_source_env *env,
                                 const struct cw_record_streams_options *options,
                                 const struct cw_source_files *files, enum cw_codec codec,
                                 struct cw_source **ret, struct cw_error *err)
{
    struct cw_index_options index = {
        .format = options->format,
        .codec = codec,
        .index_dir = env->index_dir,
        .threads = env->threads,
        .memory = env->memory,
        .cancelled = env->cancelled,
        .cancel_arg = env->cancel_arg,
    };
    struct cw_record_streams *f = calloc(1, sizeof(*f));
    if (!f)
        return cw_error_nomem(err, sizeof(*f), "a source");
    f->options = *options;
    pthread_mutex_init(&f->kept.mutex, NULL);
    f->ops = (struct cw_source_ops){.free = streams_free,
                                    .ids = streams_ids,
                                    .produce = options->produce,
                                    .file = streams_file,
                                    .path = streams_path};
    int r = cw_index_open(files->paths, files->prefixes, files->n, &index, &f->index, err);
    if (r == 0)
        r = record_streams_sum_up(f, files->paths, err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        streams_free(&f->base);
        return r;
    }
    *ret = &f->base;
    return 0;
}

int cw_record_streams_open(const struct cw_op *op, const struct cw_source_env *env,
                           const struct cw_record_streams_options *options, struct cw_source **ret,
                           struct cw_error *err)
{
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    enum cw_codec codec = (enum cw_codec)cw_codec_parse(cw_attr_string(op, "compression"));
    int r = cw_source_files(op, "files", env, &files, err);
    return r < 0 ? r : cw_record_streams_open_files(op, env, options, &files, codec, ret, err);
}

/* Checks that a record, whose data match their own CRC, is the record that was indexed. This finds a file
 * whose content has changed while its size and time stayed the same. CW_E_DATA: it is another record. */
static int record_streams_check_indexed(const struct cw_record_streams *t, uint64_t row,
                                        const struct cw_tensor *raw, struct cw_error *err)
{
    uint64_t number;
    size_t file = cw_record_streams_file(t, row, &number);
    uint32_t indexed = t->index.segments[file].crcs[number], found;
    /* little-endian, as base/hash.h */
    memcpy(&found, (const uint8_t *)raw->data + raw->size - sizeof(found), sizeof(found));
    if (found == indexed)
        return 0;
    const char *path = cw_file_path(t->files[file]);
    cw_error_file(err, path);
    return cw_error_set(err, CW_E_DATA,
                        "%s: record %" PRIu64 " is not the one that was indexed (checksum %08" PRIx32
                        ", the index has %08" PRIx32 "): the file has changed, but its size and time have "
                        "not; rebuild its index (cachew index --rebuild)",
                        path, number, found, indexed);
}

int cw_record_streams_check_crcs(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                                 struct cw_error *err)
{
    const struct cw_record_streams *t = (const struct cw_record_streams *)s;
    char why[160];
    int r = 0;
    CW_ROWS_OK(i, b, r == 0)
    if (cw_tfrecord_check(b->raw[i].data, b->raw[i].size, why))
        cw_block_fail(b, i, op->desc->name, "%s", why);
    else
        r = record_streams_check_indexed(t, b->rows[i], &b->raw[i], err);
    return r;
}

size_t cw_record_streams_file(const struct cw_record_streams *f, uint64_t row, uint64_t *ret_number)
{
    size_t file = record_streams_file_of(f, row);
    *ret_number = row - f->first[file];
    return file;
}
