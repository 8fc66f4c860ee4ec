/* parquet: rows of Parquet files to components, one for each column. Only the column chunks of columns that a
 * later operator or the batch needs are read. */
#include "formats/parquet.h"

#include <string.h>

#include "ops/source/row_groups.h"
#include "storage/file.h"

static int parquet_open(struct cw_file *file, void **ret, struct cw_error *err)
{
    struct cw_parquet_file *f = calloc(1, sizeof(*f));
    int r = f ? cw_parquet_open(file, f, err) : cw_error_nomem(err, sizeof(*f), "a Parquet file");
    if (r < 0) {
        free(f);
        return r;
    }
    *ret = f;
    return 0;
}

static void parquet_close(void *meta)
{
    cw_parquet_close(meta);
    free(meta);
}

static uint64_t parquet_content(const void *meta)
{
    return ((const struct cw_parquet_file *)meta)->content;
}

static size_t parquet_n_columns(const void *meta)
{
    return ((const struct cw_parquet_file *)meta)->n_columns;
}

static struct cw_column_facts parquet_column(const void *meta, size_t column)
{
    const struct cw_parquet_column *c = &((const struct cw_parquet_file *)meta)->columns[column];
    return (struct cw_column_facts){c->name, c->unreadable, c->type};
}

static size_t parquet_n_groups(const void *meta)
{
    return ((const struct cw_parquet_file *)meta)->n_groups;
}

static const struct cw_parquet_group *parquet_group(const void *meta, size_t group)
{
    return &((const struct cw_parquet_file *)meta)->groups[group];
}

static uint64_t parquet_n_rows(const void *meta, size_t group)
{
    return parquet_group(meta, group)->n_rows;
}

static uint64_t parquet_source_bytes(const void *meta, size_t group, size_t column)
{
    return parquet_group(meta, group)->chunks[column].unpacked;
}

static size_t parquet_decode_bytes(const void *meta, size_t group, size_t column)
{
    const struct cw_parquet_group *g = parquet_group(meta, group);
    return cw_parquet_decode_bytes(&((const struct cw_parquet_file *)meta)->columns[column],
                                   &g->chunks[column], g->n_rows);
}

/* Puts the defaults of attribute `nulls` in place of nulls. */
static void parquet_fill_nulls(const struct cw_table_column *c, struct cw_parquet_values *v)
{
    uint64_t bad = 0;
    bool list = c->type.ndim == 1;
    if (v->element_valid) { /* a list with a null element that has no default can't be delivered */
        bool filled = c->has_default && !c->default_is_list;
        if (!filled && !v->valid && (v->valid = malloc(v->n_rows + 1))) {
            memset(v->valid, 1, v->n_rows);
            v->bytes += v->n_rows;
        }
        for (uint64_t row = 0, at = 0; row < v->n_rows; row++)
            for (uint64_t n = v->slices[row].size / v->item; n > 0; n--, at++)
                if (!v->element_valid[at] && filled)
                    memcpy(v->numbers + at * v->item, c->def, v->item);
                else if (!v->element_valid[at] && v->valid)
                    v->valid[row] = 2;
    }
    for (uint64_t row = 0; v->valid && row < v->n_rows; row++) {
        if (v->valid[row] == 0 && c->has_default) {
            v->valid[row] = 1;
            if (c->type.dtype == CW_BYTES)
                v->slices[row] = (struct cw_slice){(const uint8_t *)c->text, c->text_size};
            else if (list)
                v->slices[row] = (struct cw_slice){c->def, c->default_is_list ? c->n_default * v->item : 0};
            else
                memcpy(v->numbers + row * v->item, c->def, v->item);
        }
        bad += v->valid[row] != 1;
    }
    if (v->valid && bad == 0) {
        free(CW_STEAL(v->valid));
        v->bytes -= v->n_rows;
    }
}

static void parquet_free_values(void *values)
{
    if (values)
        cw_parquet_values_deinit(values);
    free(values);
}

static int parquet_decode(const struct row_group_at *at, struct cw_arena *arena, void **ret,
                          size_t *ret_bytes, struct cw_error *err)
{
    const struct cw_parquet_file *f = at->meta;
    const struct cw_parquet_column *c = &f->columns[at->column];
    const struct cw_parquet_group *group = &f->groups[at->number];
    const struct cw_parquet_chunk *k = &group->chunks[at->column];
    size_t bytes = (size_t)k->size + cw_parquet_decode_bytes(c, k, group->n_rows);
    char why[CW_PARQUET_WHY] = "";
    int r = cw_arena_reserve(arena, bytes, "a row group of a Parquet file", err);
    if (r < 0)
        return r;
    struct cw_parquet_values *v = calloc(1, sizeof(*v));
    uint8_t *data = malloc(k->size + CW_PARQUET_SLACK);
    r = v && data ? cw_file_read(at->file, k->offset, data, (size_t)k->size, false, err) : CW_E_MEMORY;
    if (r == 0) {
        memset(data + k->size, 0, CW_PARQUET_SLACK);
        r = cw_parquet_decode(c, k, group->n_rows, &data, v, why);
    }
    if (r == 0)
        parquet_fill_nulls(at->table, v);
    if (r == CW_E_MEMORY)
        r = cw_error_nomem(err, bytes, "a row group of a Parquet file");
    else if (r == CW_E_DATA && why[0])
        r = cw_error_at_file(err, r, cw_file_path(at->file), 0, "%s: row group %zu, column \"%.80s\": %s",
                             cw_file_path(at->file), at->number, c->name, why);
    free(data);
    cw_arena_unreserve(arena, bytes);
    if (r < 0) {
        free(v);
        return r;
    }
    *ret = v;
    *ret_bytes = v->bytes;
    return 0;
}

#define SCATTER(type) \
    for (size_t i = 0; i < n; i++) \
    memcpy(out + w[i].place * sizeof(type), numbers + w[i].row * sizeof(type), sizeof(type))

static void parquet_gather_numbers(const uint8_t *numbers, size_t item, const struct row_group_wanted *w,
                                   size_t n, uint8_t *out)
{
    if (w[n - 1].row - w[0].row == n - 1 && w[n - 1].place - w[0].place == n - 1 &&
        w[0].place + n / 2 == w[n / 2].place)
        memcpy(out + w[0].place * item, numbers + w[0].row * item, n * item);
    else if (item == 8)
        SCATTER(uint64_t);
    else if (item == 4)
        SCATTER(uint32_t);
    else if (item == 2)
        SCATTER(uint16_t);
    else
        SCATTER(uint8_t);
}

static int parquet_gather(const struct row_group_at *at CW_UNUSED, const void *values,
                          const struct row_group_wanted *w, size_t n, struct row_group_column *out,
                          size_t n_rows, struct cw_arena *arena, struct cw_error *err)
{
    const struct cw_parquet_values *v = values;
    if (v->valid && !row_groups_valid(out, n_rows, arena, err))
        return err->status;
    for (size_t i = 0; v->valid && i < n; i++)
        out->valid[w[i].place] = v->valid[w[i].row];
    if (!v->slices) {
        parquet_gather_numbers(v->numbers, v->item, w, n, out->numbers);
        return 0;
    }
    size_t align = CW_MAX(v->item, (size_t)1), total = 0;
    for (size_t i = 0; i < n; i++)
        total += v->slices[w[i].row].size;
    uint8_t *to = cw_arena_alloc(arena, total + align, err);
    if (!to)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        struct cw_slice from = v->slices[w[i].row];
        out->slices[w[i].place] = (struct cw_slice){to, from.size};
        if (from.size)
            memcpy(to, from.data, from.size);
        to += from.size;
    }
    return 0;
}

/* ---- the operator ---- */

static const struct row_group_format parquet_format = {
    .file = "Parquet",
    .open = parquet_open,
    .close = parquet_close,
    .content = parquet_content,
    .n_columns = parquet_n_columns,
    .column = parquet_column,
    .n_groups = parquet_n_groups,
    .n_rows = parquet_n_rows,
    .source_bytes = parquet_source_bytes,
    .decode_bytes = parquet_decode_bytes,
    .decode = parquet_decode,
    .free_values = parquet_free_values,
    .gather = parquet_gather,
};

static int parquet_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    return row_groups_bind(b, op, &parquet_format, err);
}

static int parquet_open_source(const struct cw_op *op, const struct cw_source_env *env,
                               struct cw_source **ret, struct cw_error *err)
{
    return row_groups_open(op, &parquet_format, env, ret, err);
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
        "gzip, LZ4 or "
        "zstd; checksums of pages are checked if the file has them. A row group is a chunk: `shuffle` is by "
        "chunk "
        "(docs/shuffling.md), and a column of a row group is decoded as a whole. The pipeline's description "
        "needs "
        "the first file: a program that only sends it to a service must be able to read it too.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = parquet_bind,
    .open = parquet_open_source,
    .free_state = cw_table_free,
};
