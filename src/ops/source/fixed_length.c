/* fixed_length: records of a fixed number of bytes, found by arithmetic, without an index. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "ops/source/record_files.h"
#include "storage/file.h"

/* A chunk has at most so many records and bytes (docs/semantics.md, section 1). */
#define CHUNK_RECORDS 1024
#define CHUNK_BYTES ((uint64_t)4 << 20)

struct fixed_length {
    struct cw_record_files files; /* .base: the source, whose records are parts of the files */
    uint64_t record_bytes, header_bytes;
    uint64_t *first; /* by file: its first row; then the number of rows */
    uint64_t *chunk_ends;
};

static void fixed_length_free(struct cw_source *base)
{
    struct fixed_length *s = (struct fixed_length *)base;
    cw_record_files_deinit(&s->files);
    free(s->first);
    free(s->chunk_ends);
    free(s);
}

static size_t fixed_length_file_of(const struct fixed_length *s, uint64_t row)
{
    return CW_FIRST(i, 1, s->files.index.n, s->first[i] > row) - 1;
}

static void fixed_length_ids(const struct cw_source *base, const uint64_t *rows, size_t n,
                             struct cw_record_id *out)
{
    const struct fixed_length *s = (const struct fixed_length *)base;
    size_t file = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i] < s->first[file] || rows[i] >= s->first[file + 1])
            file = fixed_length_file_of(s, rows[i]);
        out[i].file_key = s->files.index.keys[file];
        out[i].row = rows[i] - s->first[file];
    }
}

static int fixed_length_locate(const struct cw_source *base, uint64_t row, struct cw_extent *ret,
                               struct cw_error *err CW_UNUSED)
{
    const struct fixed_length *s = (const struct fixed_length *)base;
    size_t file = fixed_length_file_of(s, row);
    *ret = (struct cw_extent){.file = s->files.files[file],
                              .offset = s->header_bytes + (row - s->first[file]) * s->record_bytes,
                              .length = (size_t)s->record_bytes};
    return 0;
}

static int fixed_length_produce(const struct cw_source *base CW_UNUSED, const struct cw_op *op,
                                struct cw_block *b, struct cw_error *err)
{
    return cw_record_files_produce_data(b, &op->out[0], err);
}

static struct cw_file *fixed_length_file(const struct cw_source *base, uint64_t row, bool *ret_partial)
{
    const struct fixed_length *s = (const struct fixed_length *)base;
    return cw_record_files_file(base, fixed_length_file_of(s, row), ret_partial);
}

static const char *fixed_length_path(const struct cw_source *base, uint64_t row)
{
    return cw_record_files_path(base, fixed_length_file_of((const struct fixed_length *)base, row));
}

static const struct cw_source_ops fixed_length_ops = {
    .free = fixed_length_free,
    .ids = fixed_length_ids,
    .locate = fixed_length_locate,
    .produce = fixed_length_produce,
    .file = fixed_length_file,
    .path = fixed_length_path,
};

/* Sets s->first. */
static int fixed_length_count(struct fixed_length *s, uint64_t footer_bytes, struct cw_error *err)
{
    const struct cw_file_index *x = &s->files.index;
    uint64_t around;
    if (!(s->first = malloc((x->n + 1) * sizeof(*s->first))))
        return cw_error_nomem(err, x->n * sizeof(*s->first), "a source");
    s->first[0] = 0;
    around = s->header_bytes + footer_bytes;
    for (size_t i = 0; i < x->n; i++) {
        const char *path = cw_file_index_path(x, i);
        uint64_t size = x->sizes[i];
        if (size < around || (size - around) % s->record_bytes != 0)
            return cw_error_at_file(err, CW_E_DATA, path, 0,
                                    "%s has %" PRIu64
                                    " bytes: expected header_bytes + footer_bytes = %" PRIu64
                                    " bytes and a multiple of record_bytes = %" PRIu64,
                                    path, size, around, s->record_bytes);
        s->first[i + 1] = s->first[i] + (size - around) / s->record_bytes;
    }
    return 0;
}

/* Fills in the source. */
static int fixed_length_sum_up(struct fixed_length *s, struct cw_error *err)
{
    const struct cw_file_index *x = &s->files.index;
    uint64_t rows = s->first[x->n],
             most = CW_MIN(CW_MAX(CHUNK_BYTES / s->record_bytes, UINT64_C(1)), (uint64_t)CHUNK_RECORDS);
    size_t n_chunks = 0;
    XXH3_state_t snapshot;
    XXH3_64bits_reset(&snapshot);
    if (!(s->chunk_ends = malloc((rows / most + x->n + 1) * sizeof(*s->chunk_ends))))
        return cw_error_nomem(err, rows / most * sizeof(*s->chunk_ends), "a source");
    for (size_t i = 0; i < x->n; i++) {
        struct cw_key key = {0};
        cw_key_u64(&key, x->keys[i]);
        cw_key_u64(&key, s->first[i + 1] - s->first[i]);
        XXH3_64bits_update(&snapshot, key.bytes, key.size);
        for (uint64_t at = s->first[i]; at < s->first[i + 1];)
            s->chunk_ends[n_chunks++] = at = CW_MIN(at + most, s->first[i + 1]);
    }
    struct cw_key context = {0}; /* a row is other bytes with another layout */
    cw_key_u64(&context, s->record_bytes);
    cw_key_u64(&context, s->header_bytes);
    s->files.base = (struct cw_source){
        .ops = &fixed_length_ops,
        .n_records = rows,
        .source_bytes = rows * s->record_bytes,
        .random_access = true,
        .n_chunks = n_chunks,
        .chunk_ends = s->chunk_ends,
        .context = cw_key_hash(&context),
        .snapshot = XXH3_64bits_digest(&snapshot),
    };
    return 0;
}

static int fixed_length_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                             struct cw_error *err)
{
    _cleanup_(cw_source_files_deinit) struct cw_source_files found = {0};
    struct fixed_length *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a source");
    s->record_bytes = (uint64_t)cw_attr_int(op, "record_bytes");
    s->header_bytes = (uint64_t)cw_attr_int(op, "header_bytes");
    _cleanup_free_ char *identity = cw_record_files_identity(op, env);
    int r = identity ? cw_source_files(op, "files", env, &found, err) : cw_error_nomem(err, 0, "a source");
    if (r == 0)
        r = cw_record_files_init(&s->files, &found, "files", identity, NULL, env, err);
    if (r == 0)
        r = fixed_length_count(s, (uint64_t)cw_attr_int(op, "footer_bytes"), err);
    if (r == 0)
        r = fixed_length_sum_up(s, err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        fixed_length_free(&s->files.base);
        return r;
    }
    *ret = &s->files.base;
    return 0;
}

static const struct cw_output_def outputs[] = {{"record", CW_BYTES}, {0}};

static const struct cw_attr_def attrs[] = {
    {.name = "files",
     .kind = CW_ATTR_STRINGS,
     .len_min = 1,
     .scalar_too = true,
     .path = true,
     .doc = CW_SOURCE_FILES_DOC},
    {.name = "record_bytes", .kind = CW_ATTR_INT, .min = 1, .max = 0x1p30, .doc = "bytes of a record"},
    {.name = "header_bytes",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = 0,
     .max = 0x1p40,
     .doc = "bytes at the beginning of each file that belong to no record"},
    {.name = "footer_bytes",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = 0,
     .max = 0x1p40,
     .doc = "bytes at the end of each file that belong to no record"},
    {0},
};

const struct cw_op_desc cw_op_fixed_length = {
    .name = "fixed_length",
    .summary = "records of a fixed number of bytes",
    .doc = "Gives `record`, the bytes of each record, as the files of CIFAR or MNIST have them. A file must "
           "have a whole number of records between its header and its footer. Files come in the order of the "
           "patterns; the files of one pattern are sorted by the bytes of their paths.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .outputs = outputs,
    .open = fixed_length_open,
};
