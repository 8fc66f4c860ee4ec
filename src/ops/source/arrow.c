/* arrow: rows of Arrow IPC files and streams, and of Feather files of version 2, to components, one for each
 * column. Batches that are not compressed are read in place (arrow_rows.c), others are decompressed by
 * column.
 */
#include "formats/arrow.h"

#include <string.h>

#include "ops/source/arrow_rows.h"
#include "storage/file.h"

static int arrow_open(struct cw_file *file, void **ret, struct cw_error *err)
{
    struct cw_arrow_file *f = calloc(1, sizeof(*f));
    int r = f ? cw_arrow_open(file, f, err) : cw_error_nomem(err, sizeof(*f), "an Arrow file");
    if (r < 0) {
        free(f);
        return r;
    }
    *ret = f;
    return 0;
}

static void arrow_close(void *meta)
{
    cw_arrow_close(meta);
    free(meta);
}

static uint64_t arrow_content(const void *meta)
{
    return ((const struct cw_arrow_file *)meta)->content;
}

static size_t arrow_n_columns(const void *meta)
{
    return ((const struct cw_arrow_file *)meta)->n_columns;
}

static struct cw_column_facts arrow_column(const void *meta, size_t column)
{
    const struct cw_arrow_column *c = &((const struct cw_arrow_file *)meta)->columns[column];
    return (struct cw_column_facts){c->name, c->unreadable, c->type};
}

static size_t arrow_n_groups(const void *meta)
{
    return ((const struct cw_arrow_file *)meta)->n_batches;
}

static uint64_t arrow_n_rows(const void *meta, size_t group)
{
    return ((const struct cw_arrow_file *)meta)->batches[group].n_rows;
}

static uint64_t arrow_source_bytes(const void *meta, size_t group, size_t column)
{
    const struct cw_arrow_file *f = meta;
    return cw_arrow_stored(&f->columns[column], &f->batches[group]);
}

static bool arrow_random_access(const void *meta, size_t group)
{
    return ((const struct cw_arrow_file *)meta)->batches[group].codec == CW_ARROW_UNCOMPRESSED;
}

static bool arrow_in_place(const void *meta, size_t group, size_t column)
{
    const struct cw_arrow_file *f = meta;
    const struct cw_arrow_column *c = &f->columns[column];
    /* dictionaries and views need a read for each row, unless the file is mapped */
    return arrow_random_access(meta, group) &&
           (f->mapped || !(c->has_dictionary || c->kind == CW_ARROW_VIEWS));
}

/* An estimate: the batch itself says how large its buffers are. */
static size_t arrow_decode_bytes(const void *meta, size_t group, size_t column)
{
    const struct cw_arrow_file *f = meta;
    return (size_t)CW_MIN(4 * arrow_source_bytes(meta, group, column) +
                              f->batches[group].n_rows * f->columns[column].width,
                          SIZE_MAX / 256);
}

void arrow_values_free(void *values)
{
    struct arrow_values *v = values;
    for (size_t i = 0; v && i < v->n_buffers; i++)
        free(v->buffers[i]);
    if (v)
        free(v->buffers);
    free(v);
}

/* Reads the buffers of an array. */
static int values_read_array(const struct cw_arrow_file *f, const struct cw_arrow_batch *batch,
                             struct cw_arrow_array *a, struct arrow_values *v, struct cw_arena *arena,
                             struct cw_error *err)
{
    int r = 0;
    for (size_t k = 0; r == 0 && k < a->n_slots; k++) {
        uint8_t *data;
        uint64_t size;
        r = cw_arrow_read(f, batch, &a->slots[k], arena, &data, &size, err);
        if (r == 0 && data) {
            a->slots[k] = (struct cw_arrow_buffer){.memory = data, .size = size};
            v->buffers[v->n_buffers++] = data;
            v->bytes += size;
        }
    }
    return r;
}

/* Copies what the arena has of an array to memory of the values. */
static struct cw_arrow_array *values_keep(const struct cw_arrow_array *from, size_t n, struct arrow_values *v)
{
    struct cw_arrow_array *to = calloc(n + 1, sizeof(*to));
    if (!to)
        return NULL;
    v->buffers[v->n_buffers++] = to;
    for (size_t i = 0; i < n; i++) {
        to[i] = from[i];
        to[i].slots = malloc((from[i].n_slots + 1) * sizeof(*to[i].slots));
        if (!to[i].slots)
            return NULL;
        v->buffers[v->n_buffers++] = to[i].slots;
        memcpy(to[i].slots, from[i].slots, from[i].n_slots * sizeof(*to[i].slots));
        v->bytes += sizeof(*to) + from[i].n_slots * sizeof(*to[i].slots);
    }
    return to;
}

static int values_read_into(const struct row_group_at *at, struct arrow_values *v, struct cw_arena *arena,
                            struct cw_error *err)
{
    const struct cw_arrow_file *f = at->meta;
    const struct cw_arrow_column *c = &f->columns[at->column];
    const struct cw_arrow_batch *batch = &f->batches[at->number];
    struct cw_arrow_array a;
    int r = cw_arrow_locate(f, c, batch, arena, &a, err);
    if (r < 0)
        return r;
    size_t n = a.n_slots + a.n_parts * 2 + 4;
    for (size_t i = 0; i < a.n_parts; i++)
        n += a.dictionary[i].n_slots;
    if (!(v->buffers = calloc(n, sizeof(*v->buffers))))
        return cw_error_nomem(err, n * sizeof(*v->buffers), "a record batch of an Arrow file");
    r = values_read_array(f, batch, &a, v, arena, err);
    size_t from = batch->n_dictionaries;
    for (size_t i = a.n_parts; r == 0 && i-- > 0;) { /* the last parts of its id */
        do
            from--;
        while (f->dictionaries[from].dictionary != c->dictionary);
        r = values_read_array(f, &f->dictionaries[from], &a.dictionary[i], v, arena, err);
    }
    if (r < 0)
        return r;
    if ((a.n_parts && !(a.dictionary = values_keep(a.dictionary, a.n_parts, v))) ||
        !(v->array = values_keep(&a, 1, v)))
        return cw_error_nomem(err, 0, "a record batch of an Arrow file");
    return 0;
}

int arrow_values_read(const struct row_group_at *at, struct cw_arena *arena, void **ret, size_t *ret_bytes,
                      struct cw_error *err)
{
    struct arrow_values *v = calloc(1, sizeof(*v));
    size_t reserved = arena->reserved;
    if (!v)
        return cw_error_nomem(err, sizeof(*v), "a record batch of an Arrow file");
    int r = values_read_into(at, v, arena, err);
    cw_arena_unreserve(arena, arena->reserved - reserved);
    if (r < 0) {
        arrow_values_free(v);
        return r;
    }
    *ret = v;
    *ret_bytes = v->bytes + sizeof(*v);
    return 0;
}

/* ---- the operator ---- */

static const struct row_group_format arrow_format = {
    .file = "Arrow",
    .open = arrow_open,
    .close = arrow_close,
    .content = arrow_content,
    .n_columns = arrow_n_columns,
    .column = arrow_column,
    .n_groups = arrow_n_groups,
    .n_rows = arrow_n_rows,
    .source_bytes = arrow_source_bytes,
    .random_access = arrow_random_access,
    .in_place = arrow_in_place,
    .decode_bytes = arrow_decode_bytes,
    .decode = arrow_values_read,
    .free_values = arrow_values_free,
    .gather = arrow_gather,
};

static int arrow_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    return row_groups_bind(b, op, &arrow_format, err);
}

static int arrow_open_source(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                             struct cw_error *err)
{
    return row_groups_open(op, &arrow_format, env, ret, err);
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

const struct cw_op_desc cw_op_arrow = {
    .name = "arrow",
    .summary = "rows of Arrow files, a component for each column",
    .doc =
        "Reads IPC files, IPC streams, and Feather files of version 2; the content decides, not the name. "
        "Each row is an element; each column gives a component of its name. Only the columns that the batch "
        "or a later operator needs are read, so a `select` after it saves reading as `columns` does. Numbers "
        "and booleans keep their dtype; dates, times, timestamps and durations are integers as stored; "
        "strings and binary values are bytes. A list of numbers is a component of one dimension that varies, "
        "a list of fixed size one of this shape. A column with a dictionary gives the values. A field of a "
        "struct is a column with the name STRUCT.FIELD. Decimal numbers, maps, unions, lists of lists, of "
        "strings and of structs have no form as a component: they must be left out with `columns`. A null "
        "fails its row, unless `nulls` has a value for its column. For a column of lists, a list stands for "
        "a "
        "null list; a number stands for a null in a list, and a null list is then empty, or full of the "
        "number if its size is fixed. All files must have the columns of the first one, with the same types. "
        "Buffers may be compressed with LZ4 or zstd. A record batch is a chunk: `shuffle` is by chunk if a "
        "file is compressed, else by record (docs/shuffling.md). The pipeline's description needs the first "
        "file: a program that only sends it to a service must be able to read it too.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = arrow_bind,
    .open = arrow_open_source,
    .free_state = cw_table_free,
};
