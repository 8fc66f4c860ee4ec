/*
 * parquet: rows of Parquet files to components, one for each column. `bind` reads the footer of the first
 * file for the names and types of the columns. Only the column chunks of columns that a later operator or the
 * batch needs are read (parquet_groups.c).
 */
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "dataset/index.h"
#include "ops/source/parquet_groups.h"
#include "storage/file.h"

/* Decoded columns are kept at least up to this size, and at least two row groups of them. */
#define KEEP_BYTES ((size_t)64 << 20)

/* ---- names and types, from the first file ---- */

static int parquet_open_file(const char *path, struct cw_file **ret_file, struct cw_parquet_file *ret,
                             struct cw_error *err)
{
    struct cw_stat stat;
    int r = cw_stat_settled(path, &stat, err);
    if (r == 0 && stat.is_dir)
        r = cw_error_at_file(err, CW_E_DATA, path, 0, "%s is a directory, not a Parquet file", path);
    if (r == 0)
        r = cw_file_new(path, &stat, ret_file, err);
    if (r == 0)
        r = cw_file_verdict(*ret_file, cw_parquet_open(*ret_file, ret, err), err);
    return r;
}

/* Declares the columns that are chosen. */
static int parquet_declare(struct cw_bind *b, struct cw_op *op, const char *path,
                           const struct cw_parquet_file *f, const bool *chosen, struct cw_error *err)
{
    const char *readable = "NAME";
    for (size_t i = f->n_columns; i-- > 0;)
        readable = f->columns[i].unreadable ? readable : f->columns[i].name;
    int r = 0;
    for (size_t i = 0; r == 0 && i < f->n_columns; i++) {
        const struct cw_parquet_column *c = &f->columns[i];
        if (chosen[i] && c->unreadable)
            return cw_error_at_file(
                err, CW_E_PIPELINE, path, 0,
                "%s: column \"%.80s\" of %s has %s, which have no form as a component: name the "
                "other columns that you need: columns: [\"%.80s\", ...]",
                op->desc->name, c->name, path, c->unreadable, readable);
        if (chosen[i])
            r = cw_table_add(b, op, c->name, &c->type, err);
    }
    return r < 0 ? r : cw_table_read_nulls(op, err);
}

static int parquet_bind_file(struct cw_bind *b, struct cw_op *op, const char *path,
                             const struct cw_parquet_file *f, struct cw_error *err)
{
    _cleanup_free_ char **names = calloc(f->n_columns + 1, sizeof(*names));
    _cleanup_free_ bool *chosen = calloc(f->n_columns + 1, sizeof(*chosen));
    if (!names || !chosen)
        return cw_error_nomem(err, f->n_columns * sizeof(*names), "the columns of a file");
    for (size_t i = 0; i < f->n_columns; i++)
        names[i] = f->columns[i].name;
    int r = cw_table_choose(op, path, names, f->n_columns, chosen, err);
    return r < 0 ? r : parquet_declare(b, op, path, f, chosen, err);
}

static int parquet_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    struct cw_parquet_file f = {0};
    struct cw_file *file = NULL;
    if (!cw_table_new(op, err))
        return CW_E_MEMORY;
    int r = cw_table_files(b, op, &files, err);
    if (r == 0)
        r = parquet_open_file(files.paths[0], &file, &f, err);
    if (r == 0)
        r = parquet_bind_file(b, op, files.paths[0], &f, err);
    cw_parquet_close(&f);
    cw_file_free(file);
    if (r < 0)
        cw_error_op(err, op->desc->name);
    return r;
}

/* ---- the source ---- */

static void parquet_free(struct cw_source *base)
{
    struct parquet_source *s = (struct parquet_source *)base;
    for (struct parquet_entry *e = s->entries, *next; e; e = next) {
        next = e->next;
        if (e->kept)
            cw_budget_give(e->budget, e->values.bytes);
        cw_parquet_values_deinit(&e->values);
        free(e);
    }
    for (size_t i = 0; s->files && i < s->n_files; i++) {
        cw_file_free(s->files[i].file);
        cw_parquet_close(&s->files[i].meta);
        free(s->files[i].column);
    }
    free(s->files);
    free(s->first);
    free(s->groups);
    free(s->chunk_ends);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->decoded);
    free(s);
}

static size_t parquet_file_of(const struct parquet_source *s, uint64_t row)
{
    return CW_FIRST(i, 1, s->n_files, s->first[i] > row) - 1;
}

static void parquet_ids(const struct cw_source *base, const uint64_t *rows, size_t n,
                        struct cw_record_id *out)
{
    const struct parquet_source *s = (const struct parquet_source *)base;
    size_t file = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i] < s->first[file] || rows[i] >= s->first[file + 1])
            file = parquet_file_of(s, rows[i]);
        out[i].file_key = s->files[file].key;
        out[i].row = rows[i] - s->first[file];
    }
}

static const char *parquet_path(const struct cw_source *base, uint64_t row)
{
    const struct parquet_source *s = (const struct parquet_source *)base;
    return cw_file_path(s->files[parquet_file_of(s, row)].file);
}

static struct cw_file *parquet_file(const struct cw_source *base, uint64_t row, bool *ret_partial)
{
    const struct parquet_source *s = (const struct parquet_source *)base;
    *ret_partial = true; /* the footer */
    return s->files[parquet_file_of(s, row)].file;
}

/* Marks a row without a value as failed. */
static void parquet_fail_null(const struct parquet_source *s, struct cw_block *b, size_t row,
                              const struct cw_table_column *c, bool element)
{
    uint64_t number = b->rows[row] - s->first[parquet_file_of(s, b->rows[row])];
    bool list = c->type.ndim == 1 && !element;
    cw_block_fail(b, row, s->op->desc->name,
                  "row %" PRIu64
                  ", column \"%.80s\": %s null, and the column has no default; write nulls: {\"%.80s\": %s}",
                  number, c->name, element ? "an element of the list is" : "the value is", c->name,
                  c->type.dtype == CW_BYTES  ? "\"\""
                  : list                     ? "[]"
                  : c->type.dtype == CW_BOOL ? "false"
                                             : "0");
}

/* Writes rows i .. i + n - 1 of a port's column, which were loaded together, one after the other from `at`
 * on. */
static void parquet_put_rows(const struct parquet_source *s, struct cw_block *b, unsigned column,
                             const struct cw_port *port, const struct parquet_rows_column *from, size_t i,
                             size_t n, size_t at)
{
    const struct cw_column *out = &b->columns[port->value];
    size_t item = CW_MAX(cw_dtype_size(port->type.dtype), (size_t)1);
    for (size_t k = 0; from->valid && k < n; k++)
        if (from->valid[at + k] != 1 && b->status[i + k] == CW_ROW_OK)
            parquet_fail_null(s, b, i + k, &s->table->columns[column], from->valid[at + k] == 2);
    if (from->numbers && out->stride == item)
        memcpy(out->data + i * item, from->numbers + at * item, n * item);
    for (size_t k = 0; from->numbers && out->stride != item && k < n; k++)
        memcpy(out->data + (i + k) * out->stride, from->numbers + (at + k) * item, item);
    for (size_t k = 0; from->slices && k < n; k++) {
        struct cw_parquet_slice slice = from->slices[at + k];
        out->rows[i + k] = (struct cw_tensor){.data = (void *)(uintptr_t)slice.data,
                                              .size = slice.size,
                                              .ndim = port->type.ndim,
                                              .dims = {(int64_t)(slice.size / item)}};
    }
}

static int parquet_produce(const struct cw_source *base, const struct cw_op *op, struct cw_block *b,
                           struct cw_error *err)
{
    const struct parquet_source *s = (const struct parquet_source *)base;
    int r = 0;
    for (unsigned c = 0; r == 0 && c < s->table->n; c++) {
        const struct cw_port *port = &op->out[s->table->columns[c].port];
        if (port->live)
            r = cw_block_column(b, port->value, &port->type, err);
    }
    for (size_t i = 0, n; r == 0 && op->live && i < b->n; i += n) {
        const struct parquet_rows *rows = b->raw[i].data;
        size_t at = b->raw[i].size;
        for (n = 1; i + n < b->n && b->raw[i + n].data == rows && b->raw[i + n].size == at + n;)
            n++;
        for (unsigned c = 0; r == 0 && c < s->table->n; c++) {
            const struct parquet_rows_column *from = &rows->columns[c];
            const struct cw_port *port = &op->out[s->table->columns[c].port];
            if (port->live && !from->numbers && !from->slices)
                r = cw_error_set(
                    err, CW_E_BUG,
                    "column \"%.80s\" was not loaded; this is a defect of Cachew, please report it",
                    s->table->columns[c].name);
            else if (port->live)
                parquet_put_rows(s, b, c, port, from, i, n, at);
        }
    }
    return r;
}

/* ---- opening ---- */

/* A cw_file_same: reads the footer again. index: an array of struct parquet_file. */
static int parquet_same(const void *index, size_t i, struct cw_file *file, bool *ret, struct cw_error *err)
{
    const struct parquet_file *was = (const struct parquet_file *)index + i;
    struct cw_parquet_file now;
    int r = cw_parquet_open(file, &now, err);
    if (r < 0)
        return r;
    *ret = now.content == was->meta.content;
    cw_parquet_close(&now);
    return 0;
}

/* Finds the table's columns among those of a file. */
static int parquet_match(const struct cw_op *op, struct parquet_file *f, struct cw_error *err)
{
    const struct cw_table *t = op->state;
    const char *path = cw_file_path(f->file);
    if (!(f->column = calloc(t->n + 1, sizeof(*f->column))))
        return cw_error_nomem(err, t->n * sizeof(*f->column), "the columns of a file");
    for (unsigned c = 0; c < t->n; c++) {
        const struct cw_table_column *want = &t->columns[c];
        size_t i = 0;
        while (i < f->meta.n_columns && strcmp(f->meta.columns[i].name, want->name) != 0)
            i++;
        if (i == f->meta.n_columns)
            return cw_error_at_file(
                err, CW_E_DATA, path, 0,
                "%s: there is no column \"%.80s\": expected the columns of the first file", path, want->name);
        const struct cw_parquet_column *have = &f->meta.columns[i];
        if (have->unreadable || have->type.dtype != want->type.dtype || have->type.ndim != want->type.ndim) {
            char a[160], e[160];
            return cw_error_at_file(
                err, CW_E_DATA, path, 0, "%s: column \"%.80s\" is %s: expected %s, as in the first file",
                path, want->name, have->unreadable ? have->unreadable : cw_type_print(&have->type, a),
                cw_type_print(&want->type, e));
        }
        f->column[c] = i;
    }
    return 0;
}

struct opening {
    const struct cw_op *op;
    const struct cw_source_env *env;
    const struct cw_source_files *files;
    struct parquet_source *s;
    atomic_size_t next;
    struct cw_file_threads threads;
};

static int opening_file(struct opening *o, size_t i, struct cw_error *err)
{
    struct parquet_file *f = &o->s->files[i];
    if (o->env->cancelled && o->env->cancelled(o->env->cancel_arg))
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    int r = parquet_open_file(o->files->paths[i], &f->file, &f->meta, err);
    if (r == 0)
        r = parquet_match(o->op, f, err);
    if (r < 0)
        return r;
    const char *relative = o->files->paths[i] + o->files->prefixes[i];
    struct cw_key k = {0};
    cw_key_u64(&k, cw_file_size(f->file));
    cw_key_u64(&k, f->meta.content);
    XXH3_state_t x;
    XXH3_64bits_reset(&x);
    XXH3_64bits_update(&x, relative, strlen(relative) + 1);
    XXH3_64bits_update(&x, k.bytes, k.size);
    f->key = XXH3_64bits_digest(&x);
    cw_file_compare_by(f->file, parquet_same, o->s->files, i);
    return 0;
}

static void *opening_work(void *arg)
{
    struct opening *o = arg;
    for (size_t i;
         (i = atomic_fetch_add(&o->next, 1)) < CW_MIN(o->files->n, atomic_load(&o->threads.failed));) {
        struct cw_error error = {0};
        int r = opening_file(o, i, &error);
        if (r < 0)
            cw_file_threads_fail(&o->threads, i, r, &error);
    }
    return NULL;
}

static int parquet_open_files(struct parquet_source *s, const struct cw_op *op,
                              const struct cw_source_env *env, const struct cw_source_files *files,
                              struct cw_error *err)
{
    struct opening o = {.op = op, .env = env, .files = files, .s = s, .threads = {.n = files->n}};
    s->files = calloc(files->n + 1, sizeof(*s->files));
    if (!s->files)
        return cw_error_nomem(err, files->n * sizeof(*s->files), "a source");
    s->n_files = files->n;
    cw_file_threads_run(&o.threads, CW_MIN(files->n, (size_t)CW_MAX(env->threads, 1)), opening_work, &o);
    if (o.threads.status < 0 && err)
        *err = o.threads.error;
    return o.threads.status;
}

/* Fills in the source (row groups, chunks, snapshot, ...) from the footers. */
static int parquet_sum_up(struct parquet_source *s, struct cw_error *err)
{
    size_t n_groups = 0, largest = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->n_files; i++)
        n_groups += s->files[i].meta.n_groups;
    s->first = malloc((s->n_files + 1) * sizeof(*s->first));
    s->groups = malloc((n_groups + 1) * sizeof(*s->groups));
    s->chunk_ends = malloc((n_groups + 1) * sizeof(*s->chunk_ends));
    if (!s->first || !s->groups || !s->chunk_ends)
        return cw_error_nomem(err, n_groups * sizeof(*s->groups), "a source");
    XXH3_state_t snapshot;
    XXH3_64bits_reset(&snapshot);
    s->first[0] = 0;
    for (size_t i = 0; i < s->n_files; i++) {
        const struct parquet_file *f = &s->files[i];
        struct cw_key key = {0};
        uint64_t row = s->first[i];
        cw_key_u64(&key, f->key);
        cw_key_u64(&key, f->meta.n_rows);
        XXH3_64bits_update(&snapshot, key.bytes, key.size);
        for (size_t g = 0; g < f->meta.n_groups; g++) {
            const struct cw_parquet_group *group = &f->meta.groups[g];
            size_t decoded = 0;
            if (group->n_rows == 0)
                continue;
            for (unsigned c = 0; c < s->table->n; c++) {
                const struct cw_parquet_chunk *k = &group->chunks[f->column[c]];
                bytes += k->unpacked;
                if (s->op->out[s->table->columns[c].port].live)
                    decoded += CW_MIN(
                        cw_parquet_decode_bytes(&f->meta.columns[f->column[c]], k, group->n_rows),
                        SIZE_MAX / 256);
            }
            largest = CW_MAX(largest, decoded);
            s->groups[s->n_groups] = (struct parquet_group){.file = i, .number = g, .first = row};
            s->chunk_ends[s->n_groups++] = row += group->n_rows;
        }
        s->first[i + 1] = row;
    }
    s->keep_bytes = CW_MAX(KEEP_BYTES, 2 * largest);
    s->base = (struct cw_source){
        .ops = s->base.ops,
        .n_records = s->first[s->n_files],
        .source_bytes = bytes,
        .random_access = false,
        .compressed = s->n_groups ? cw_file_path(s->files[s->groups[0].file].file) : NULL,
        .row_groups = true,
        .n_chunks = s->n_groups,
        .chunk_ends = s->chunk_ends,
        .context = cw_table_context(s->table),
        .snapshot = XXH3_64bits_digest(&snapshot),
    };
    return 0;
}

static int parquet_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                        struct cw_error *err)
{
    static const struct cw_source_ops ops = {.free = parquet_free,
                                             .ids = parquet_ids,
                                             .load = parquet_load,
                                             .trim = parquet_trim,
                                             .produce = parquet_produce,
                                             .file = parquet_file,
                                             .path = parquet_path};
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    struct parquet_source *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a source");
    s->base.ops = &ops;
    s->table = op->state;
    s->op = op;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->decoded, NULL);
    int r = cw_source_files(op, "files", env, &files, err);
    if (r == 0)
        r = parquet_open_files(s, op, env, &files, err);
    if (r == 0)
        r = parquet_sum_up(s, err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        parquet_free(&s->base);
        return r;
    }
    *ret = &s->base;
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "files",
     .kind = CW_ATTR_STRINGS,
     .len_min = 1,
     .scalar_too = true,
     .path = true,
     .doc = CW_SOURCE_FILES_DOC},
    CW_TABLE_COLUMNS_ATTR,
    CW_TABLE_NULLS_ATTR,
    {0},
};

const struct cw_op_desc cw_op_parquet = {
    .name = "parquet",
    .summary = "rows of Parquet files, a component for each column",
    .doc =
        "Each row is an element; each column gives a component of its name. Only the columns that the batch "
        "or a "
        "later operator needs are read, so a `select` after it saves reading as `columns` does. Numbers and "
        "booleans keep their dtype; dates, times and timestamps are integers as stored (timestamps of 96 "
        "bits: "
        "nanoseconds since 1970); strings and binary values are bytes. A list of numbers is a component of "
        "one "
        "dimension that varies. A field of a struct is a column with the name STRUCT.FIELD. Decimal numbers, "
        "maps, "
        "lists of lists, of strings and of structs have no form as a component: they must be left out with "
        "`columns`. A null fails its row, unless `nulls` has a value for its column. For a column of lists, "
        "a list "
        "stands for a null list; a number stands for a null in a list, and a null list is then empty. All "
        "files "
        "must have the columns of the first one, with the same types. Pages may be compressed with snappy, "
        "gzip or "
        "zstd; checksums of pages are checked if the file has them. A row group is a chunk: `shuffle` is by "
        "chunk "
        "(docs/shuffling.md), and a column of a row group is decoded as a whole. The pipeline's description "
        "needs "
        "the first file: a program that only sends it to a service must be able to read it too.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = parquet_bind,
    .open = parquet_open,
    .free_state = cw_table_free,
};
