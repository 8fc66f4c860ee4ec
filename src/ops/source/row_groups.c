/*
 * Sources whose files have columns in groups of rows: binds names and types of the first file's columns,
 * opens the files, and makes the outputs from the rows that row_groups_load.c loads.
 */
#include "ops/source/row_groups.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "dataset/index.h"
#include "storage/file.h"

/* Decoded columns are kept at least up to this size, and at least two groups of them. */
#define KEEP_BYTES ((size_t)64 << 20)

/* ---- files ---- */

static void group_file_close(struct row_group_file *f)
{
    if (f->meta)
        f->format->close(f->meta);
    cw_file_free(f->file);
    free(f->column);
    *f = (struct row_group_file){0};
}

/* Opens a file. The caller closes *ret, also after an error. */
static int group_file_open(const struct row_group_format *format, const char *path,
                           struct row_group_file *ret, struct cw_error *err)
{
    struct cw_stat stat;
    *ret = (struct row_group_file){.format = format};
    int r = cw_stat_settled(path, &stat, err);
    if (r == 0 && stat.is_dir)
        r = cw_error_at_file(err, CW_E_DATA, path, 0, "%s is a directory: expected a file of the format %s",
                             path, format->file);
    if (r == 0)
        r = cw_file_new(path, &stat, &ret->file, err);
    if (r == 0)
        r = cw_file_verdict(ret->file, format->open(ret->file, &ret->meta, err), err);
    return r;
}

/* ---- names and types, from the first file ---- */

/* Declares the columns that are chosen. */
static int groups_declare(struct cw_bind *b, struct cw_op *op, const char *path,
                          const struct row_group_file *f, const bool *chosen, struct cw_error *err)
{
    const char *readable = "NAME";
    size_t n = f->format->n_columns(f->meta);
    for (size_t i = n; i-- > 0;) {
        struct cw_column_facts c = f->format->column(f->meta, i);
        readable = c.unreadable ? readable : c.name;
    }
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct cw_column_facts c = f->format->column(f->meta, i);
        if (chosen[i] && c.unreadable)
            return cw_error_at_file(
                err, CW_E_PIPELINE, path, 0,
                "%s: column \"%.80s\" of %s has %s, which have no form as a component: name the "
                "other columns that you need: columns: [\"%.80s\", ...]",
                op->desc->name, c.name, path, c.unreadable, readable);
        if (chosen[i])
            r = cw_table_add(b, op, c.name, &c.type, err);
    }
    return r < 0 ? r : cw_table_read_nulls(op, err);
}

static int groups_bind_file(struct cw_bind *b, struct cw_op *op, const char *path,
                            const struct row_group_file *f, struct cw_error *err)
{
    size_t n = f->format->n_columns(f->meta);
    _cleanup_free_ char **names = calloc(n + 1, sizeof(*names));
    _cleanup_free_ bool *chosen = calloc(n + 1, sizeof(*chosen));
    if (!names || !chosen)
        return cw_error_nomem(err, n * sizeof(*names), "the columns of a file");
    for (size_t i = 0; i < n; i++)
        names[i] = (char *)(uintptr_t)f->format->column(f->meta, i).name;
    int r = cw_table_choose(op, path, names, n, chosen, err);
    return r < 0 ? r : groups_declare(b, op, path, f, chosen, err);
}

int row_groups_bind(struct cw_bind *b, struct cw_op *op, const struct row_group_format *format,
                    struct cw_error *err)
{
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    _cleanup_(group_file_close) struct row_group_file f = {0};
    if (!cw_table_new(op, err))
        return CW_E_MEMORY;
    int r = cw_table_files(b, op, &files, err);
    if (r == 0)
        r = group_file_open(format, files.paths[0], &f, err);
    if (r == 0)
        r = groups_bind_file(b, op, files.paths[0], &f, err);
    if (r < 0)
        cw_error_op(err, op->desc->name);
    return r;
}

/* ---- the source ---- */

static void groups_free(struct cw_source *base)
{
    struct row_groups *s = (struct row_groups *)base;
    for (struct row_group_entry *e = s->entries, *next; e; e = next) {
        next = e->next;
        if (e->kept)
            cw_budget_give(e->budget, e->bytes);
        s->format->free_values(e->values);
        free(e);
    }
    for (size_t i = 0; s->files && i < s->n_files; i++)
        group_file_close(&s->files[i]);
    free(s->files);
    free(s->first);
    free(s->groups);
    free(s->chunk_ends);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->decoded);
    free(s);
}

static size_t groups_file_of(const struct row_groups *s, uint64_t row)
{
    return CW_FIRST(i, 1, s->n_files, s->first[i] > row) - 1;
}

static void groups_ids(const struct cw_source *base, const uint64_t *rows, size_t n, struct cw_record_id *out)
{
    const struct row_groups *s = (const struct row_groups *)base;
    size_t file = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i] < s->first[file] || rows[i] >= s->first[file + 1])
            file = groups_file_of(s, rows[i]);
        out[i].file_key = s->files[file].key;
        out[i].row = rows[i] - s->first[file];
    }
}

static const char *groups_path(const struct cw_source *base, uint64_t row)
{
    const struct row_groups *s = (const struct row_groups *)base;
    return cw_file_path(s->files[groups_file_of(s, row)].file);
}

static struct cw_file *groups_file(const struct cw_source *base, uint64_t row, bool *ret_partial)
{
    const struct row_groups *s = (const struct row_groups *)base;
    *ret_partial = true; /* what the file says about its columns and groups */
    return s->files[groups_file_of(s, row)].file;
}

/* Marks a row without a value as failed. */
static void groups_fail_null(const struct row_groups *s, struct cw_block *b, size_t row,
                             const struct cw_table_column *c, bool element)
{
    uint64_t number = b->rows[row] - s->first[groups_file_of(s, b->rows[row])];
    bool list = !cw_type_fixed(&c->type) && !element;
    cw_block_fail(b, row, s->op->desc->name,
                  "row %" PRIu64
                  ", column \"%.80s\": %s null, and the column has no default; write nulls: {\"%.80s\": %s}",
                  number, c->name, element ? "an element of the list is" : "the value is", c->name,
                  c->type.dtype == CW_BYTES  ? "\"\""
                  : list                     ? "[]"
                  : c->type.dtype == CW_BOOL ? "false"
                                             : "0");
}

/* Returns the value of a row whose type is bytes or varies in its first dimension. */
static struct cw_tensor groups_tensor(const struct cw_type *type, struct cw_slice slice)
{
    struct cw_tensor t = {.data = (void *)(uintptr_t)slice.data, .size = slice.size, .ndim = type->ndim};
    size_t item = CW_MAX(cw_dtype_size(type->dtype), (size_t)1);
    for (int d = 1; d < type->ndim; d++)
        item *= (size_t)(t.dims[d] = type->dims[d]);
    if (type->ndim > 0)
        t.dims[0] = (int64_t)(slice.size / item);
    return t;
}

/* Writes rows i .. i + n - 1 of a port's column, which were loaded together, one after the other from `at`
 * on. */
static void groups_put_rows(const struct row_groups *s, struct cw_block *b, unsigned column,
                            const struct cw_port *port, const struct row_group_column *from, size_t i,
                            size_t n, size_t at)
{
    const struct cw_column *out = &b->columns[port->value];
    size_t item = from->numbers ? cw_type_bytes(&port->type) : 0;
    for (size_t k = 0; from->valid && k < n; k++)
        if (from->valid[at + k] != 1 && b->status[i + k] == CW_ROW_OK)
            groups_fail_null(s, b, i + k, &s->table->columns[column], from->valid[at + k] == 2);
    if (from->numbers && out->stride == item)
        memcpy(out->data + i * item, from->numbers + at * item, n * item);
    for (size_t k = 0; from->numbers && out->stride != item && k < n; k++)
        memcpy(out->data + (i + k) * out->stride, from->numbers + (at + k) * item, item);
    for (size_t k = 0; from->slices && k < n; k++)
        out->rows[i + k] = groups_tensor(&port->type, from->slices[at + k]);
}

static int groups_produce(const struct cw_source *base, const struct cw_op *op, struct cw_block *b,
                          struct cw_error *err)
{
    const struct row_groups *s = (const struct row_groups *)base;
    int r = 0;
    for (unsigned c = 0; r == 0 && c < s->table->n; c++) {
        const struct cw_port *port = &op->out[s->table->columns[c].port];
        if (port->live)
            r = cw_block_column(b, port->value, &port->type, err);
    }
    for (size_t i = 0, n; r == 0 && op->live && i < b->n; i += n) {
        const struct row_group_rows *rows = b->raw[i].data;
        size_t at = b->raw[i].size;
        for (n = 1; i + n < b->n && b->raw[i + n].data == rows && b->raw[i + n].size == at + n;)
            n++;
        for (unsigned c = 0; r == 0 && c < s->table->n; c++) {
            const struct row_group_column *from = &rows->columns[c];
            const struct cw_port *port = &op->out[s->table->columns[c].port];
            if (port->live && !from->numbers && !from->slices)
                r = cw_error_set(
                    err, CW_E_BUG,
                    "column \"%.80s\" was not loaded; this is a defect of Cachew, please report it",
                    s->table->columns[c].name);
            else if (port->live)
                groups_put_rows(s, b, c, port, from, i, n, at);
        }
    }
    return r;
}

/* ---- opening ---- */

/* A cw_file_same: opens the file again. index: an array of struct row_group_file. */
static int groups_same(const void *index, size_t i, struct cw_file *file, bool *ret, struct cw_error *err)
{
    const struct row_group_file *was = (const struct row_group_file *)index + i;
    void *now;
    int r = was->format->open(file, &now, err);
    if (r < 0)
        return r;
    *ret = was->format->content(now) == was->format->content(was->meta);
    was->format->close(now);
    return 0;
}

/* Finds the table's columns among those of a file. */
static int groups_match(const struct cw_op *op, struct row_group_file *f, struct cw_error *err)
{
    const struct cw_table *t = op->state;
    const char *path = cw_file_path(f->file);
    size_t n = f->format->n_columns(f->meta);
    if (!(f->column = calloc(t->n + 1, sizeof(*f->column))))
        return cw_error_nomem(err, t->n * sizeof(*f->column), "the columns of a file");
    for (unsigned c = 0; c < t->n; c++) {
        const struct cw_table_column *want = &t->columns[c];
        size_t i = 0;
        while (i < n && strcmp(f->format->column(f->meta, i).name, want->name) != 0)
            i++;
        if (i == n)
            return cw_error_at_file(
                err, CW_E_DATA, path, 0,
                "%s: there is no column \"%.80s\": expected the columns of the first file", path, want->name);
        struct cw_column_facts have = f->format->column(f->meta, i);
        bool same = !have.unreadable && have.type.dtype == want->type.dtype &&
                    have.type.ndim == want->type.ndim;
        for (int d = 0; same && d < have.type.ndim; d++)
            same = have.type.dims[d] == want->type.dims[d];
        if (!same) {
            char a[160], e[160];
            return cw_error_at_file(
                err, CW_E_DATA, path, 0, "%s: column \"%.80s\" is %s: expected %s, as in the first file",
                path, want->name, have.unreadable ? have.unreadable : cw_type_print(&have.type, a),
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
    struct row_groups *s;
    atomic_size_t next;
    struct cw_file_threads threads;
};

static int opening_file(struct opening *o, size_t i, struct cw_error *err)
{
    struct row_group_file *f = &o->s->files[i];
    if (o->env->cancelled && o->env->cancelled(o->env->cancel_arg))
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    int r = group_file_open(o->s->format, o->files->paths[i], f, err);
    if (r == 0)
        r = groups_match(o->op, f, err);
    if (r < 0)
        return r;
    const char *relative = o->files->paths[i] + o->files->prefixes[i];
    struct cw_key k = {0};
    cw_key_u64(&k, cw_file_size(f->file));
    cw_key_u64(&k, f->format->content(f->meta));
    XXH3_state_t x;
    XXH3_64bits_reset(&x);
    XXH3_64bits_update(&x, relative, strlen(relative) + 1);
    XXH3_64bits_update(&x, k.bytes, k.size);
    f->key = XXH3_64bits_digest(&x);
    cw_file_compare_by(f->file, groups_same, o->s->files, i);
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

static int groups_open_files(struct row_groups *s, const struct cw_op *op, const struct cw_source_env *env,
                             const struct cw_source_files *files, struct cw_error *err)
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

/* Adds a group with rows to the source. *largest: the most bytes that the columns of a group are decoded to.
 */
static void groups_add(struct row_groups *s, size_t file, size_t number, uint64_t *row, size_t *largest)
{
    const struct row_group_file *f = &s->files[file];
    size_t decoded = 0;
    for (unsigned c = 0; c < s->table->n; c++) {
        size_t column = f->column[c];
        s->base.source_bytes += f->format->source_bytes(f->meta, number, column);
        if (s->op->out[s->table->columns[c].port].live &&
            !(f->format->in_place && f->format->in_place(f->meta, number, column)))
            decoded += CW_MIN(f->format->decode_bytes(f->meta, number, column), SIZE_MAX / 256);
    }
    *largest = CW_MAX(*largest, decoded);
    if (!f->format->random_access || !f->format->random_access(f->meta, number)) {
        s->base.random_access = false;
        s->base.compressed = s->base.compressed ? s->base.compressed : cw_file_path(f->file);
    }
    s->groups[s->n_groups] = (struct row_group){.file = file, .number = number, .first = *row};
    s->chunk_ends[s->n_groups++] = *row += f->format->n_rows(f->meta, number);
}

/* Fills in the source (groups, chunks, snapshot, ...). */
static int groups_sum_up(struct row_groups *s, struct cw_error *err)
{
    size_t n_groups = 0, largest = 0;
    uint64_t row = 0;
    for (size_t i = 0; i < s->n_files; i++)
        n_groups += s->format->n_groups(s->files[i].meta);
    s->first = malloc((s->n_files + 1) * sizeof(*s->first));
    s->groups = malloc((n_groups + 1) * sizeof(*s->groups));
    s->chunk_ends = malloc((n_groups + 1) * sizeof(*s->chunk_ends));
    if (!s->first || !s->groups || !s->chunk_ends)
        return cw_error_nomem(err, n_groups * sizeof(*s->groups), "a source");
    XXH3_state_t snapshot;
    XXH3_64bits_reset(&snapshot);
    s->base.random_access = s->format->random_access != NULL;
    for (size_t i = 0; i < s->n_files; i++) {
        const struct row_group_file *f = &s->files[i];
        struct cw_key key = {0};
        s->first[i] = row;
        for (size_t g = 0, n = f->format->n_groups(f->meta); g < n; g++)
            if (f->format->n_rows(f->meta, g) > 0)
                groups_add(s, i, g, &row, &largest);
        cw_key_u64(&key, f->key);
        cw_key_u64(&key, row - s->first[i]);
        XXH3_64bits_update(&snapshot, key.bytes, key.size);
    }
    s->first[s->n_files] = row;
    s->keep_bytes = CW_MAX(KEEP_BYTES, 2 * largest);
    s->base.n_records = row;
    s->base.row_groups = !s->format->random_access;
    s->base.n_chunks = s->n_groups;
    s->base.chunk_ends = s->chunk_ends;
    s->base.context = cw_table_context(s->table);
    s->base.snapshot = XXH3_64bits_digest(&snapshot);
    return 0;
}

int row_groups_open(const struct cw_op *op, const struct row_group_format *format,
                    const struct cw_source_env *env, struct cw_source **ret, struct cw_error *err)
{
    static const struct cw_source_ops ops = {.free = groups_free,
                                             .ids = groups_ids,
                                             .load = row_groups_load,
                                             .trim = row_groups_trim,
                                             .produce = groups_produce,
                                             .file = groups_file,
                                             .path = groups_path};
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    struct row_groups *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a source");
    s->base.ops = &ops;
    s->format = format;
    s->table = op->state;
    s->op = op;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->decoded, NULL);
    int r = cw_source_files(op, "files", env, &files, err);
    if (r == 0)
        r = groups_open_files(s, op, env, &files, err);
    if (r == 0)
        r = groups_sum_up(s, err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        groups_free(&s->base);
        return r;
    }
    *ret = &s->base;
    return 0;
}
