/*
 * tfrecord: records of TFRecord files. The source owns the index segments and a cw_file per file; it is immutable, so that any thread may
 * read. A record's bytes (block->raw) are the whole frame: header, data, CRC.
 */
#include "formats/tfrecord.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "ops/source_files.h"
#include "pipeline/index.h"
#include "pipeline/source.h"
#include "storage/file.h"

struct tfrecord {
    struct cw_source base;
    struct cw_index index;
    struct cw_file **files; /* index.n */
    uint64_t *first;        /* index.n + 1: first row of each file, then the number of records */
    uint64_t *chunk_ends;
    bool verify;
};

static void tfrecord_free(struct cw_source *s)
{
    struct tfrecord *t = (struct tfrecord *)s;
    for (size_t i = 0; t->files && i < t->index.n; i++)
        cw_file_free(t->files[i]);
    free(t->files);
    free(t->first);
    free(t->chunk_ends);
    cw_index_deinit(&t->index);
    free(t);
}

/* The file that holds a row: the last that starts at or before it (files without records start where the next one does). */
static size_t file_of(const struct tfrecord *t, uint64_t row)
{
    size_t low = 0, high = t->index.n - 1;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (t->first[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool holds(const struct tfrecord *t, size_t file, uint64_t row) { return t->first[file] <= row && row < t->first[file + 1]; }

static void tfrecord_ids(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out)
{
    const struct tfrecord *t = (const struct tfrecord *)s;
    size_t file = 0;
    for (size_t i = 0; i < n; i++) {
        if (!holds(t, file, rows[i]))
            file = file_of(t, rows[i]);
        out[i].file_key = t->index.segments[file].file_key;
        out[i].row = rows[i] - t->first[file];
    }
}

static const char *tfrecord_path(const struct cw_source *s, uint64_t row)
{
    const struct tfrecord *t = (const struct tfrecord *)s;
    return cw_file_path(t->files[file_of(t, row)]);
}

static int tfrecord_locate(const struct cw_source *s, uint64_t row, struct cw_extent *ret, struct cw_error *err CW_UNUSED)
{
    const struct tfrecord *t = (const struct tfrecord *)s;
    size_t file = file_of(t, row);
    const struct cw_segment *g = &t->index.segments[file];
    uint64_t i = row - t->first[file];
    *ret = (struct cw_extent){.file = t->files[file], .offset = g->offsets[i], .length = g->lengths[i] + CW_TFRECORD_FRAME};
    return 0;
}

struct wanted { /* a row to load, and its place in the caller's order */
    uint64_t row;
    size_t place;
};

static int by_row(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    return x->row != y->row ? (x->row < y->row ? -1 : 1) : (x->place > y->place) - (x->place < y->place);
}

/* Loads the different rows among wanted[0..n) (ascending, of one file). */
static int load_file(const struct tfrecord *t, size_t file, const struct wanted *wanted, size_t n, uint64_t *records, uint8_t **into,
                     struct cw_arena *arena, struct cw_tensor *raw, struct cw_error *err)
{
    const struct cw_segment *g = &t->index.segments[file];
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t record = wanted[i].row - t->first[file];
        if (m == 0 || records[m - 1] != record) {
            into[m] = cw_arena_alloc(arena, g->lengths[record] + CW_TFRECORD_FRAME, err);
            if (!into[m])
                return err ? err->status : CW_E_MEMORY;
            records[m++] = record;
        }
        raw[wanted[i].place] = (struct cw_tensor){.data = into[m - 1], .size = g->lengths[record] + CW_TFRECORD_FRAME};
    }
    return cw_segment_read(g, t->files[file], records, m, into, err);
}

static int tfrecord_load(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_arena *arena, struct cw_tensor *raw,
                         struct cw_error *err)
{
    const struct tfrecord *t = (const struct tfrecord *)s;
    struct cw_error local = {0};
    err = err ? err : &local;
    struct wanted *wanted = cw_arena_alloc(arena, n * sizeof(*wanted), err);
    uint64_t *records = wanted ? cw_arena_alloc(arena, n * sizeof(*records), err) : NULL;
    uint8_t **into = records ? cw_arena_alloc(arena, n * sizeof(*into), err) : NULL;
    if (!into)
        return err->status;
    for (size_t i = 0; i < n; i++)
        wanted[i] = (struct wanted){.row = rows[i], .place = i};
    qsort(wanted, n, sizeof(*wanted), by_row);
    int r = cw_arena_reserve(arena, CW_SEGMENT_READ_BYTES, "decompression", err);
    if (r < 0)
        return r;
    for (size_t i = 0, end; r == 0 && i < n; i = end) {
        size_t file = file_of(t, wanted[i].row);
        for (end = i + 1; end < n && holds(t, file, wanted[end].row);)
            end++;
        r = load_file(t, file, wanted + i, end - i, records, into, arena, raw, err);
    }
    cw_arena_unreserve(arena, CW_SEGMENT_READ_BYTES);
    return r;
}

/* Whether a record, whose bytes fit its own CRC, is the one that was indexed. A file of another content but the same size and time is found here. */
static int check_indexed(const struct tfrecord *t, uint64_t row, const struct cw_tensor *raw, struct cw_error *err)
{
    size_t file = file_of(t, row);
    uint32_t indexed = t->index.segments[file].crcs[row - t->first[file]], found;
    memcpy(&found, (const uint8_t *)raw->data + raw->size - sizeof(found), sizeof(found)); /* little-endian, as base/hash.h */
    if (found == indexed)
        return 0;
    cw_error_file(err, cw_file_path(t->files[file]));
    return cw_error_set(err, CW_E_DATA, "%s: record %" PRIu64 " is not the one that was indexed (checksum %08" PRIx32 ", the index has %08" PRIx32
                        "): the file was changed and its size and time were kept; make its index anew (cachew index --rebuild)",
                        cw_file_path(t->files[file]), row - t->first[file], found, indexed);
}

static int tfrecord_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct tfrecord *t = (const struct tfrecord *)s;
    const struct cw_port *port = &op->out[0];
    char why[160];
    if (!port->live)
        return 0;
    int r = 0;
    for (size_t i = 0; t->verify && i < b->n && r >= 0; i++)
        if (b->status[i] == CW_ROW_OK && cw_tfrecord_check(b->raw[i].data, b->raw[i].size, why))
            cw_block_fail(b, i, op->desc->name, "%s", why);
        else if (b->status[i] == CW_ROW_OK)
            r = check_indexed(t, b->rows[i], &b->raw[i], err);
    if (r >= 0)
        r = cw_block_ragged(b, port->value, err);
    if (r < 0)
        return r;
    struct cw_tensor *rows = b->columns[port->value].rows;
    for (size_t i = 0; i < b->n; i++)
        if (b->status[i] == CW_ROW_OK) {
            rows[i].data = (uint8_t *)b->raw[i].data + CW_TFRECORD_HEADER;
            rows[i].size = b->raw[i].size - CW_TFRECORD_FRAME;
        }
    return 0;
}

/* Plain files are read at any record; where one file is compressed, all go through load. */
static const struct cw_source_ops plain_ops = {
    .free = tfrecord_free, .ids = tfrecord_ids, .locate = tfrecord_locate, .produce = tfrecord_produce, .path = tfrecord_path,
};
static const struct cw_source_ops compressed_ops = {
    .free = tfrecord_free, .ids = tfrecord_ids, .load = tfrecord_load, .produce = tfrecord_produce, .path = tfrecord_path,
};

/* Everything about the data set as a whole, from the segments. */
static int tfrecord_sum_up(struct tfrecord *t, char *const *paths, struct cw_error *err)
{
    size_t n = t->index.n;
    uint64_t n_chunks = 0, chunk = 0;
    bool compressed = false;
    for (size_t i = 0; i < n; i++)
        n_chunks += t->index.segments[i].n_chunks;
    t->files = calloc(n, sizeof(*t->files));
    t->first = malloc((n + 1) * sizeof(*t->first));
    t->chunk_ends = malloc((n_chunks + 1) * sizeof(*t->chunk_ends));
    XXH3_state_t *snapshot = XXH3_createState();
    int r = t->files && t->first && t->chunk_ends && snapshot ? 0 : cw_error_nomem(err, (n + n_chunks) * 8, "a source");
    if (r == 0) {
        XXH3_64bits_reset(snapshot);
        t->first[0] = 0;
    }
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct cw_segment *g = &t->index.segments[i];
        struct cw_key k = {0};
        cw_key_u64(&k, g->file_key);
        cw_key_u64(&k, g->n_records);
        XXH3_64bits_update(snapshot, k.bytes, k.size);
        for (uint64_t c = 0; c < g->n_chunks; c++)
            t->chunk_ends[chunk++] = t->first[i] + g->chunk_ends[c];
        t->first[i + 1] = t->first[i] + g->n_records;
        compressed |= g->codec != CW_CODEC_PLAIN;
        r = cw_file_new(paths[i], g->file_size, g->mtime_ns, &t->files[i], err);
    }
    if (r == 0)
        t->base = (struct cw_source){
            .ops = compressed ? &compressed_ops : &plain_ops,
            .n_records = t->first[n],
            .source_bytes = t->index.report.data_bytes,
            .random_access = !compressed,
            .n_chunks = n_chunks,
            .chunk_ends = t->chunk_ends,
            .snapshot = XXH3_64bits_digest(snapshot),
        };
    XXH3_freeState(snapshot);
    return r;
}

static int tfrecord_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret, struct cw_error *err)
{
    struct tfrecord *t = calloc(1, sizeof(*t));
    if (!t)
        return cw_error_nomem(err, sizeof(*t), "a source");
    struct cw_source_files files = {0};
    struct cw_index_options options = {
        .codec = (enum cw_codec)cw_codec_parse(cw_attr_string(op, "compression")),
        .index_dir = env->index_dir,
        .threads = env->threads,
        .cancelled = env->cancelled,
        .cancel_arg = env->cancel_arg,
    };
    t->verify = cw_attr_bool(op, "verify");
    int r = cw_source_files(op, "files", env, &files, err);
    if (r == 0)
        r = cw_index_open(files.paths, files.prefixes, files.n, &options, &t->index, err);
    if (r == 0)
        r = tfrecord_sum_up(t, files.paths, err);
    cw_source_files_deinit(&files);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        tfrecord_free(&t->base);
        return r;
    }
    *ret = &t->base;
    return 0;
}

static int tfrecord_bind(struct cw_bind *b, struct cw_op *op CW_UNUSED, struct cw_error *err)
{
    struct cw_type type = cw_type_scalar(CW_BYTES);
    int r = cw_bind_write(b, "record", &type, err);
    return r < 0 ? r : 0;
}

static const char *const compressions[] = {"auto", "none", "gzip", "zlib", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "files", .kind = CW_ATTR_STRINGS, .len_min = 1, .scalar_too = true, .path = true, .doc = "patterns (glob) or names of the files"},
    {.name = "compression", .kind = CW_ATTR_STRING, .def = "\"auto\"", .choices = compressions, .doc = "of the files; auto: by content"},
    {.name = "verify", .kind = CW_ATTR_BOOL, .def = "true", .doc = "check the CRC of each record's data, and that it is the one in the index"},
    {0},
};

const struct cw_op_desc cw_op_tfrecord = {
    .name = "tfrecord",
    .summary = "records of TFRecord files",
    .doc = "Gives `record`, the bytes of each record. Files are taken pattern by pattern, those of a pattern sorted by bytes; index files (*.cwx) "
           "that a wildcard matches are left out. The CRC of a record's length is always checked, when a file is indexed.",
    .kind = CW_OP_SOURCE,
    .attrs = attrs,
    .bind = tfrecord_bind,
    .open = tfrecord_open,
};
