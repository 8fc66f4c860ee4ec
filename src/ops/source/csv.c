/*
 * csv: rows of CSV files to components, one for each column. `bind` reads the beginning of the first file,
 * for the names and types of the columns; `open` compares the header of every file with them. Only columns
 * that a later operator or the batch needs are parsed. Fields without `""` are not copied; they point into
 * the record.
 */
#include "formats/csv.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "data/convert.h"
#include "formats/number.h"
#include "ops/source/line_source.h"
#include "ops/source/table.h"
#include "storage/file.h"

/* Types are inferred from at most this many rows, and from at most this many bytes of the first file. */
#define SAMPLE_ROWS 1000
#define SAMPLE_BYTES ((size_t)1 << 20)

static enum cw_record_format csv_format(const struct cw_op *op)
{
    enum cw_record_format f = CW_FORMAT_CSV;
    while (cw_format_delimiter(f) != cw_attr_string(op, "delimiter")[0])
        f++;
    return f;
}

/* ---- names and types, from the first file ---- */

struct head { /* the beginning of the first file */
    const char *path;
    uint8_t *data;
    size_t size;
    bool whole; /* it is the whole file */
    struct cw_csv_walk walk;
    char **names; /* of the columns */
    size_t n_names;
};

static void head_deinit(struct head *h)
{
    for (size_t i = 0; i < h->n_names; i++)
        free(h->names[i]);
    free(h->names);
    free(h->data);
    cw_walk_deinit(&h->walk.base);
}

static int head_fill(const struct cw_op *op, struct head *h, struct cw_file *file, struct cw_error *err)
{
    enum cw_codec codec;
    int r = cw_segment_codec(csv_format(op), file,
                             (enum cw_codec)cw_codec_parse(cw_attr_string(op, "compression")), &codec, err);
    if (r < 0)
        return r;
    if (codec == CW_CODEC_PLAIN) {
        h->size = (size_t)CW_MIN(cw_file_size(file), (uint64_t)SAMPLE_BYTES);
        h->whole = h->size == cw_file_size(file);
        return cw_file_read(file, 0, h->data, h->size, false, err);
    }
    struct cw_decompress *z;
    r = cw_decompress_open(file, codec, 0, NULL, NULL, &z, err);
    for (size_t n = 1; r == 0 && n > 0 && h->size < SAMPLE_BYTES; h->size += n)
        r = cw_decompress_read(z, h->data + h->size, SAMPLE_BYTES - h->size, false, &n, err);
    if (r == 0)
        h->whole = cw_decompress_ended(z);
    cw_decompress_free(z);
    return r;
}

/* Reads the beginning of the file and finds its records. */
static int head_read(const struct cw_op *op, struct head *h, struct cw_error *err)
{
    struct cw_stat stat;
    struct cw_file *file = NULL;
    if (!(h->data = malloc(SAMPLE_BYTES)))
        return cw_error_nomem(err, SAMPLE_BYTES, "the beginning of a file");
    int r = cw_stat(h->path, &stat, err);
    if (r == 0)
        r = cw_file_new(h->path, &stat, &file, err);
    if (r == 0)
        r = head_fill(op, h, file, err);
    cw_file_free(file);
    if (r == 0)
        r = cw_csv_walk_init(&h->walk, h->path, UINT64_MAX, cw_format_delimiter(csv_format(op)), err);
    if (r == 0)
        r = cw_walk_feed(&h->walk.base, 0, h->data, h->size, err);
    if (r == 0 && h->whole)
        r = cw_walk_end(&h->walk.base, h->size, err);
    if (r == 0 && h->walk.base.list.n == 0)
        r = cw_error_at_file(
            err, CW_E_DATA, h->path, 0,
            h->whole ? "%s is empty: expected a row" : "%s: the first row is longer than 1 MiB", h->path);
    return r;
}

/* Returns a copy of a column's name: the text of its field in the header, or f and the column's number if it
 * has none. NULL: out of memory. */
static char *csv_name(const struct cw_csv_field *f, size_t number)
{
    char own[32];
    if (!f || f->size == 0) {
        snprintf(own, sizeof(own), "f%zu", number);
        return strdup(own);
    }
    char *name = malloc(f->size + 1);
    if (!name)
        return NULL;
    size_t size = f->size;
    if (f->escaped)
        size = cw_csv_unescape(f, name);
    else
        memcpy(name, f->text, size);
    name[size] = 0;
    return name;
}

/* Reads the names of columns from a file's first record; without header, they are f0, f1, ... The caller
 * frees the names and their list, also after an error. */
static int csv_names(const struct cw_op *op, const char *path, const uint8_t *record, size_t size,
                     char ***ret, size_t *ret_n, struct cw_error *err)
{
    bool header = cw_attr_bool(op, "header");
    struct cw_csv_split s = cw_csv_split(record, size, cw_attr_string(op, "delimiter")[0]);
    struct cw_csv_field f;
    size_t room = 0;
    int r;
    while ((r = cw_csv_next(&s, &f)) > 0) {
        if (CW_ARRAY_ROOM(*ret, room, *ret_n + 1, "the columns of a file", err) < 0)
            return CW_E_MEMORY;
        char *name = csv_name(header ? &f : NULL, *ret_n);
        if (!name)
            return cw_error_nomem(err, f.size, "a column");
        (*ret)[(*ret_n)++] = name;
    }
    if (r < 0)
        return cw_error_at_file(err, CW_E_DATA, path, 0,
                                "%s: field %zu of the first record has text after its closing quote", path,
                                *ret_n);
    return 0;
}

static bool csv_parse_bool(const struct cw_csv_field *f, uint8_t *ret)
{
    static const char *const words[] = {"false", "False", "FALSE", "true", "True", "TRUE"};
    for (size_t i = 0; i < CW_COUNT_OF(words); i++)
        if (f->size == strlen(words[i]) && memcmp(f->text, words[i], f->size) == 0) {
            *ret = i >= 3;
            return true;
        }
    return false;
}

struct sample { /* what the fields of a column are, so far */
    bool values, missing, not_int, not_float, not_bool;
};

static void sample_add(struct sample *s, const struct cw_csv_field *field)
{
    uint8_t out[8];
    struct cw_csv_field f = cw_csv_trim(field);
    if (cw_csv_missing(&f)) {
        s->missing = true;
        return;
    }
    s->values = true;
    if (!s->not_int &&
        (cw_number_parse(f.text, f.size, CW_INT64, out) != CW_NUMBER_OK || memchr(f.text, '.', f.size) ||
         memchr(f.text, 'e', f.size) || memchr(f.text, 'E', f.size)))
        s->not_int = true;
    if (!s->not_float && s->not_int && cw_number_parse(f.text, f.size, CW_FLOAT64, out) != CW_NUMBER_OK)
        s->not_float = true;
    if (!s->not_bool && !csv_parse_bool(&f, out))
        s->not_bool = true;
}

static enum cw_dtype sample_dtype(const struct sample *s)
{
    if (!s->values)
        return s->missing ? CW_FLOAT64 : CW_BYTES;
    if (!s->not_bool && !s->missing)
        return CW_BOOL;
    if (!s->not_int && !s->missing)
        return CW_INT64;
    return s->not_float ? CW_BYTES : CW_FLOAT64;
}

/* Returns whether a record has this many fields. */
static bool csv_has_fields(struct cw_csv_split s, size_t n)
{
    struct cw_csv_field f;
    int r;
    while ((r = cw_csv_next(&s, &f)) > 0)
        if (n-- == 0)
            return false;
    return r == 0 && n == 0;
}

/* Infers the dtypes of the columns from the rows of the head that have a field for each. */
static void head_sample(const struct cw_op *op, const struct head *h, struct sample *samples)
{
    const struct cw_record_list *l = &h->walk.base.list;
    size_t first = cw_attr_bool(op, "header");
    for (size_t i = first; i < l->n && i < first + SAMPLE_ROWS; i++) {
        struct cw_csv_split s = cw_csv_split(h->data + l->offsets[i], l->lengths[i],
                                             cw_attr_string(op, "delimiter")[0]);
        struct cw_csv_field f;
        if (!csv_has_fields(s, h->n_names))
            continue;
        for (size_t k = 0; k < h->n_names && cw_csv_next(&s, &f) > 0; k++)
            sample_add(&samples[k], &f);
    }
}

static int csv_declare(struct cw_bind *b, struct cw_op *op, const struct head *h, const bool *chosen,
                       const struct sample *samples, struct cw_error *err)
{
    const json_t *types = cw_attr_json(op, "types");
    int r = 0;
    for (size_t i = 0; r == 0 && i < h->n_names; i++) {
        const json_t *given = json_object_get(types, h->names[i]);
        enum cw_dtype dtype = sample_dtype(&samples[i]);
        if (given && (!json_is_string(given) || cw_dtype_parse(json_string_value(given), &dtype) < 0))
            return cw_attr_error(op, "types", err,
                                 "the name of a dtype (\"int64\", \"float32\", \"bytes\", ...) for "
                                 "column \"%.80s\"",
                                 h->names[i]);
        struct cw_type type = cw_type_scalar(dtype);
        if (chosen[i])
            r = cw_table_add(b, op, h->names[i], &type, err);
    }
    return r < 0 ? r : cw_table_check_keys(op, "types", err);
}

static int csv_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    _cleanup_(head_deinit) struct head h = {0};
    if (!cw_table_new(op, err))
        return CW_E_MEMORY;
    int r = cw_table_files(b, op, &files, err);
    if (r < 0)
        return r;
    h.path = files.paths[0];
    r = head_read(op, &h, err);
    if (r == 0)
        r = csv_names(op, h.path, h.data + h.walk.base.list.offsets[0], h.walk.base.list.lengths[0], &h.names,
                      &h.n_names, err);
    _cleanup_free_ bool *chosen = calloc(h.n_names + 1, sizeof(*chosen));
    _cleanup_free_ struct sample *samples = calloc(h.n_names + 1, sizeof(*samples));
    if (r == 0 && (!chosen || !samples))
        r = cw_error_nomem(err, h.n_names * sizeof(*samples), "the columns of a file");
    if (r == 0)
        r = cw_table_choose(op, h.path, h.names, h.n_names, chosen, err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        return r;
    }
    head_sample(op, &h, samples);
    return csv_declare(b, op, &h, chosen, samples, err);
}

/* ---- the files ---- */

struct layout { /* the columns of a file */
    size_t n_fields;
    int *column; /* by field: the column of the table, or -1 */
};

struct layouts {
    size_t n;
    struct layout *files;
};

static void csv_layouts_free(void *state)
{
    struct layouts *l = state;
    for (size_t i = 0; i < l->n; i++)
        free(l->files[i].column);
    free(l->files);
    free(l);
}

/* Reports that a file lacks a column of the first file. */
static int csv_lacks(const struct cw_op *op, const char *path, const char *name, size_t n,
                     struct cw_error *err)
{
    if (cw_attr_bool(op, "header"))
        return cw_error_at_file(
            err, CW_E_DATA, path, 0,
            "%s: the header lacks column \"%.80s\": expected the columns of the first file", path, name);
    return cw_error_at_file(
        err, CW_E_DATA, path, 0,
        "%s: the first row has %zu fields and so lacks column \"%.80s\": expected as many as in "
        "the first file",
        path, n, name);
}

static int csv_read_layout(const struct cw_op *op, const struct cw_record_streams *f, size_t file,
                           struct layout *ret, struct cw_error *err)
{
    const struct cw_table *t = op->state;
    const char *path = cw_file_path(f->files[file]);
    _cleanup_free_ uint8_t *record = NULL;
    size_t size, n = 0;
    char **names = NULL;
    if (f->index.segments[file].n_records == 0)
        return f->options.n_headers
                   ? cw_error_at_file(err, CW_E_DATA, path, 0, "%s is empty: expected a header", path)
                   : 0;
    int r = cw_record_streams_read(f, file, 0, &record, &size, err);
    if (r == 0)
        r = csv_names(op, path, record, size, &names, &n, err);
    ret->n_fields = n;
    if (r == 0 && !(ret->column = malloc((n + 1) * sizeof(*ret->column))))
        r = cw_error_nomem(err, n * sizeof(*ret->column), "the columns of a file");
    size_t found = 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        found += (ret->column[i] = cw_table_find(t, names[i])) >= 0;
    for (unsigned c = 0; r == 0 && found < t->n && c < t->n; c++) {
        size_t i = 0;
        while (i < n && ret->column[i] != (int)c)
            i++;
        if (i == n)
            r = csv_lacks(op, path, t->columns[c].name, n, err);
    }
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return r;
}

/* ---- rows ---- */

struct row { /* the row that is being read */
    const struct cw_op *op;
    struct cw_block *b;
    size_t row;
    uint64_t number; /* in its file */
};

/* Marks the row as failed, with a message that names the row and its column. Returns false. */
#define fail(x, c, fmt, ...) \
    cw_block_fail((x)->b, (x)->row, (x)->op->desc->name, "row %" PRIu64 ", column \"%.80s\": " fmt, \
                  (x)->number, (c)->name, __VA_ARGS__)

static void csv_put_number(const struct row *x, const struct cw_table_column *c,
                           const struct cw_csv_field *field, void *out)
{
    struct cw_csv_field f = cw_csv_trim(field);
    const char *dtype = cw_dtype_name(c->type.dtype);
    bool is_float = cw_dtype_is_float(c->type.dtype);
    static const double nan = NAN;
    if (c->type.dtype == CW_BOOL && csv_parse_bool(&f, out))
        return;
    if (!cw_csv_missing(&f)) {
        enum cw_number n = cw_number_parse(f.text, f.size, c->type.dtype, out);
        if (n != CW_NUMBER_OK)
            fail(x, c,
                 "\"%.*s\" %s for %s; to read the column as another dtype, write types: {\"%.80s\": \"%s\"}",
                 (int)CW_MIN(f.size, (size_t)40), f.text,
                 c->type.dtype == CW_BOOL ? "is neither true nor false" : cw_number_why(n), dtype, c->name,
                 n == CW_NUMBER_FRACTION ? "float64" : "bytes");
    } else if (is_float) {
        cw_convert(CW_FLOAT64, c->type.dtype, out, &nan, 1);
    } else {
        fail(x, c,
             "the value is missing (\"%.*s\"), expected %s; to read it as NaN, write types: {\"%.80s\": "
             "\"float64\"}",
             (int)f.size, f.text, dtype, c->name);
    }
}

static int csv_put_bytes(const struct row *x, const struct cw_port *port, const struct cw_csv_field *f,
                         struct cw_error *err)
{
    struct cw_tensor *out = &x->b->columns[port->value].rows[x->row];
    *out = (struct cw_tensor){.data = (void *)(uintptr_t)f->text, .size = f->size};
    if (!f->escaped)
        return 0;
    if (!(out->data = cw_block_alloc(x->b, f->size, err)))
        return err ? err->status : CW_E_MEMORY;
    out->size = cw_csv_unescape(f, out->data);
    return 0;
}

/* Finds the fields of the table's columns; false: the row failed. */
static bool csv_find_fields(const struct row *x, const struct layout *l, const uint8_t *record, size_t size,
                            char delimiter, struct cw_csv_field *found)
{
    struct cw_csv_split s = cw_csv_split(record, size, delimiter);
    struct cw_csv_field f;
    size_t n = 0;
    int r;
    for (; (r = cw_csv_next(&s, &f)) > 0; n++)
        if (n < l->n_fields && l->column[n] >= 0)
            found[l->column[n]] = f;
    if (r < 0)
        return cw_block_fail(x->b, x->row, x->op->desc->name,
                             "row %" PRIu64 ": field %zu has text after its closing quote, or is not closed",
                             x->number, n);
    if (n != l->n_fields)
        return cw_block_fail(x->b, x->row, x->op->desc->name,
                             "row %" PRIu64 " has %zu fields: expected %zu, as in the %s", x->number, n,
                             l->n_fields, cw_attr_bool(x->op, "header") ? "header" : "file's first row");
    return true;
}

static int csv_put_row(const struct row *x, const struct cw_csv_field *found, struct cw_error *err)
{
    const struct cw_table *t = x->op->state;
    int r = 0;
    for (unsigned c = 0; r == 0 && c < t->n && x->b->status[x->row] == CW_ROW_OK; c++) {
        const struct cw_port *port = &x->op->out[t->columns[c].port];
        const struct cw_column *column = &x->b->columns[port->value];
        if (port->live && port->type.dtype == CW_BYTES)
            r = csv_put_bytes(x, port, &found[c], err);
        else if (port->live)
            csv_put_number(x, &t->columns[c], &found[c], column->data + x->row * column->stride);
    }
    return r;
}

static int csv_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                       struct cw_error *err)
{
    const struct cw_table *t = op->state;
    const struct cw_record_streams *streams = (const struct cw_record_streams *)s;
    const struct layouts *layouts = streams->state;
    struct cw_csv_field found[CW_OP_MAX_PORTS];
    char delimiter = cw_format_delimiter(streams->options.format);
    int r = 0;
    if (!op->live)
        return 0;
    for (unsigned c = 0; r == 0 && c < t->n; c++) {
        const struct cw_port *port = &op->out[t->columns[c].port];
        if (port->live)
            r = cw_block_column(b, port->value, &port->type, err);
    }
    CW_ROWS_OK(row, b, r == 0)
    {
        struct row x = {.op = op, .b = b, .row = row};
        size_t file = cw_record_streams_file(streams, b->rows[row], &x.number);
        uint64_t size = streams->index.segments[file].lengths[x.number + streams->options.n_headers];
        if (size > streams->options.max_length)
            cw_block_fail(b, row, op->desc->name,
                          "row %" PRIu64 " has %" PRIu64 " bytes: expected at most max_line, %" PRIu64,
                          x.number, size, streams->options.max_length);
        else if (csv_find_fields(&x, &layouts->files[file], b->raw[row].data, size, delimiter, found))
            r = csv_put_row(&x, found, err);
    }
    return r;
}

static int csv_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                    struct cw_error *err)
{
    struct cw_record_streams_options options = {.format = csv_format(op),
                                                .produce = csv_produce,
                                                .n_headers = cw_attr_bool(op, "header"),
                                                .max_length = (uint64_t)cw_attr_int(op, "max_line")};
    struct cw_source *s;
    int r = cw_record_streams_open(op, env, &options, &s, err);
    if (r < 0)
        return r;
    struct cw_record_streams *f = (struct cw_record_streams *)s;
    struct layouts *l = calloc(1, sizeof(*l));
    f->state = l;
    f->free_state = l ? csv_layouts_free : NULL;
    if (!l || !(l->files = calloc(f->index.n, sizeof(*l->files))))
        r = cw_error_nomem(err, f->index.n * sizeof(*l->files), "a source");
    for (; r == 0 && l->n < f->index.n; l->n++)
        r = csv_read_layout(op, f, l->n, &l->files[l->n], err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        cw_source_free(s);
        return r;
    }
    s->context = cw_table_context(op->state);
    *ret = s;
    return 0;
}

static const char *const delimiters[] = {",", "\t", ";", "|", NULL};

static const struct cw_attr_def attrs[] = {
    CW_LINE_ATTRS,
    {.name = "header",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "the first row of each file names its columns; false: they are f0, f1, ..."},
    {.name = "types",
     .kind = CW_ATTR_OBJECT,
     .def = "{}",
     .doc = "dtypes of columns, {\"label\": \"int32\"}; those of other columns are inferred"},
    CW_TABLE_COLUMNS_ATTR,
    {.name = "delimiter",
     .kind = CW_ATTR_STRING,
     .def = "\",\"",
     .choices = delimiters,
     .doc = "what separates the fields of a row"},
    {0},
};

const struct cw_op_desc cw_op_csv = {
    .name = "csv",
    .summary = "rows of CSV files, a component for each column",
    .doc = "Each row is an element; each column gives a component of its name, a scalar. Fields are as in "
           "RFC 4180: a "
           "field may be quoted with `\"`, and then hold delimiters, line breaks and quotes, written twice. "
           "Empty lines "
           "are not rows, and a byte order mark is left out. A column whose name is empty is called f and "
           "its number, "
           "from 0. The first file decides which columns there are. In other files they may have another "
           "order, and "
           "there may be others besides. The dtypes that `types` does not give are inferred from the first "
           "1,000 rows "
           "(at most 1 MiB) of the first file: bool if all values are true or false (also True, TRUE, ...), "
           "int64, "
           "float64, else bytes. A value that is empty or one of NA, N/A, n/a, <NA>, #N/A, NaN, nan, NULL, "
           "null and None "
           "is missing, except in quotes: it becomes NaN in a column of a floating dtype, so int64 is not "
           "inferred for "
           "a column with a missing value. A bytes column has the text of the field, whatever it is. A row "
           "fails if it "
           "has more or fewer fields than the first row of its file, if text follows the closing quote of a "
           "field, or "
           "if the dtype of a column that is needed can't hold its value. Files are found and decompressed "
           "as those of "
           "`text`. The pipeline's description needs the first file: a program that only sends it to a "
           "service must be "
           "able to read it too.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = csv_bind,
    .open = csv_open,
    .free_state = cw_table_free,
};
