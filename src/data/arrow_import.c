/*
 * Makes data sets in memory of Arrow streams. Buffers are used where they are. Only data whose layout differs
 * here are copied and expanded: the bits of bools, and numbers that a dictionary encodes. The Arrow arrays
 * live as long as the data set. Arrow's interface does not tell the sizes of buffers, so they can't be
 * checked: the producer of the stream must get them right.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/array.h"
#include "base/macro.h"
#include "data/arrays.h"
#include "data/arrow_impl.h"

struct import { /* the batches of the stream, released with the data set */
    struct ArrowArray *batches;
    size_t n, capacity;
};

/* A range of the elements of an Arrow array. */
struct range {
    const struct ArrowArray *array;
    uint64_t start, n; /* start counts from the beginning of the buffers: the array's offset is included */
};

/* Says which row of the stream an element of a range belongs to. */
struct row_map {
    uint64_t first;    /* the first row */
    uint64_t per_item; /* elements of an item; an item is a row, or, with offsets, an item of a row's list */
    const void *offsets; /* n_rows + 1 offsets of the rows' lists; NULL: no lists */
    unsigned offset_size;
    uint64_t n_rows;
};

/* ---- buffers ---- */

static const void *arrow_buffer(const struct ArrowArray *a, int64_t i)
{
    return i < a->n_buffers ? a->buffers[i] : NULL;
}

static bool arrow_bit(const uint8_t *bits, uint64_t i)
{
    return bits[i / 8] >> i % 8 & 1;
}

static int arrow_malformed(const struct cw_arrow_column *c, struct cw_error *err)
{
    return cw_arrow_bad(
        err, c->schema->name,
        "is malformed: its Arrow array does not have the buffers, children or length of its type (\"%.40s\")",
        c->schema->format);
}

/* Returns the number that the data set gives a row of the stream, which is chosen if rows are. */
static uint64_t arrow_element_of(const struct cw_arrow_column *c, uint64_t row)
{
    uint64_t i = 0;
    while (c->rows && i + 1 < c->n_rows && c->rows[i] != row)
        i++;
    return c->rows ? i : row;
}

static uint64_t arrow_offset_at(const void *offsets, unsigned size, uint64_t i)
{
    return size == 8 ? ((const uint64_t *)offsets)[i] : (uint64_t)(int64_t)((const int32_t *)offsets)[i];
}

static uint64_t arrow_row_of(const struct row_map *m, uint64_t i)
{
    uint64_t item = i / m->per_item;
    if (!m->offsets)
        return m->first + item;
    uint64_t at = item + arrow_offset_at(m->offsets, m->offset_size, 0);
    return m->first + CW_FIRST(k, 0, m->n_rows, arrow_offset_at(m->offsets, m->offset_size, k + 1) > at);
}

/* CW_E_DATA if an element of the range is null and its row is chosen. */
static int arrow_check_nulls(const struct cw_arrow_column *c, const struct range *x, const struct row_map *m,
                             struct cw_error *err)
{
    const uint8_t *valid = x->array->null_count ? arrow_buffer(x->array, 0) : NULL;
    for (uint64_t i = 0; valid && i < x->n; i++) {
        if (arrow_bit(valid, x->start + i))
            continue;
        uint64_t row = arrow_row_of(m, i);
        if (!c->chosen || arrow_bit(c->chosen, row))
            return cw_arrow_bad(err, c->schema->name,
                                "has a null in %srow %" PRIu64
                                ": components can't hold nulls, so fill them or leave these rows out",
                                m->offsets ? "a list, in " : "", arrow_element_of(c, row));
    }
    return 0;
}

/* Makes the range of elements [start, start + n) of a child, as the parent counts them. */
static int arrow_child_range(const struct cw_arrow_column *c, const struct ArrowArray *child, uint64_t start,
                             uint64_t n, struct range *ret, struct cw_error *err)
{
    if (!child || child->length < 0 || child->offset < 0 || start > (uint64_t)child->length ||
        n > (uint64_t)child->length - start)
        return arrow_malformed(c, err);
    *ret = (struct range){.array = child, .start = start + (uint64_t)child->offset, .n = n};
    return 0;
}

static int arrow_nomem(size_t bytes, struct cw_error *err)
{
    return cw_error_nomem(err, bytes, "arrays from Arrow");
}

/* Finds the numbers of a range: in place, or for bools in new memory, one byte for each bit. */
static int arrow_number_data(struct cw_arrays *a, const struct cw_arrow_column *c, const struct range *x,
                             const uint8_t **ret, struct cw_error *err)
{
    const uint8_t *data = arrow_buffer(x->array, 1);
    *ret = data;
    if (x->n == 0)
        return 0;
    if (!data)
        return arrow_malformed(c, err);
    if (c->type.dtype != CW_BOOL) {
        *ret = data + x->start * cw_dtype_size(c->type.dtype);
        return 0;
    }
    uint8_t *bytes = cw_arrays_own(a, x->n);
    if (!bytes)
        return arrow_nomem(x->n, err);
    for (uint64_t i = 0; i < x->n; i++)
        bytes[i] = arrow_bit(data, x->start + i);
    *ret = bytes;
    return 0;
}

/* Finds the numbers of nested fixed-size lists. */
static int arrow_fixed_data(struct cw_arrays *a, const struct cw_arrow_column *c, struct range x,
                            struct row_map m, const uint8_t **ret, struct cw_error *err)
{
    int first = c->type.ndim && c->type.dims[0] == CW_VARIES;
    for (int d = first; d < c->type.ndim; d++) {
        uint64_t times = (uint64_t)c->type.dims[d], start, n;
        int r = arrow_check_nulls(c, &x, &m, err);
        if (r < 0)
            return r;
        if (x.array->n_children != 1 || __builtin_mul_overflow(x.start, times, &start) ||
            __builtin_mul_overflow(x.n, times, &n))
            return arrow_malformed(c, err);
        r = arrow_child_range(c, x.array->children[0], start, n, &x, err);
        if (r < 0)
            return r;
        m.per_item *= times;
    }
    int r = arrow_check_nulls(c, &x, &m, err);
    return r < 0 ? r : arrow_number_data(a, c, &x, ret, err);
}

/* ---- columns of one batch ---- */

static int import_list(struct cw_arrays *a, const struct cw_arrow_column *c, const struct range *x,
                       uint64_t row, struct cw_array_piece *p, struct cw_error *err)
{
    unsigned size = c->schema->format[1] == 'L' ? 8 : 4;
    const uint8_t *offsets = arrow_buffer(x->array, 1);
    if (!offsets || x->array->n_children != 1)
        return x->n ? arrow_malformed(c, err) : 0;
    p->offsets = offsets + x->start * size;
    p->offset_size = size;
    uint64_t begin = arrow_offset_at(p->offsets, size, 0), end = arrow_offset_at(p->offsets, size, x->n);
    if (end < begin)
        return arrow_malformed(c, err);
    struct range items;
    p->base = begin;
    int r = arrow_child_range(c, x->array->children[0], begin, end - begin, &items, err);
    struct row_map m = {row, 1, p->offsets, size, x->n};
    return r < 0 ? r : arrow_fixed_data(a, c, items, m, &p->data, err);
}

/* Makes views of the elements of a range, each of which is a string or binary value. */
static int arrow_view_strings(struct cw_arrays *a, const struct cw_arrow_column *c, const char *format,
                              const struct range *x, const struct cw_array_view **ret, struct cw_error *err)
{
    struct cw_array_view *views = cw_arrays_own(a, x->n * sizeof(*views));
    if (!views)
        return arrow_nomem(x->n * sizeof(*views), err);
    *ret = views;
    const uint8_t *first = arrow_buffer(x->array, 1), *data = arrow_buffer(x->array, 2);
    if (x->n && !first)
        return arrow_malformed(c, err);
    for (uint64_t i = 0; i < x->n; i++) {
        if (format[0] == 'v') {
            /* 16 bytes: the size; then the value itself if it has up to 12 bytes, else its first 4 bytes, the
             * number of its buffer, and its offset there */
            const uint8_t *view = first + 16 * (x->start + i);
            int32_t size, number, at;
            memcpy(&size, view, 4);
            memcpy(&number, view + 8, 4);
            memcpy(&at, view + 12, 4);
            const uint8_t *inside = size > 12 && number >= 0 ? arrow_buffer(x->array, 2 + (int64_t)number)
                                                             : view + 4;
            if (size < 0 || (size > 12 &&
                             (number < 0 || at < 0 || 3 + (int64_t)number >= x->array->n_buffers || !inside)))
                return arrow_malformed(c, err);
            views[i] = (struct cw_array_view){.data = size > 12 ? inside + at : inside, .size = (size_t)size};
        } else {
            unsigned width = format[0] == 'U' || format[0] == 'Z' ? 8 : 4;
            uint64_t begin = arrow_offset_at(first, width, x->start + i),
                     end = arrow_offset_at(first, width, x->start + i + 1);
            if (end < begin || end > INT64_MAX || (end > begin && !data))
                return arrow_malformed(c, err);
            views[i] = (struct cw_array_view){.data = data ? data + begin : NULL, .size = end - begin};
        }
    }
    return 0;
}

static int import_binary(struct cw_arrays *a, const struct cw_arrow_column *c, const struct range *x,
                         struct cw_array_piece *p, struct cw_error *err)
{
    const char *format = c->schema->format;
    if (format[0] == 'v')
        return arrow_view_strings(a, c, format, x, &p->views, err);
    unsigned size = format[0] == 'U' || format[0] == 'Z' ? 8 : 4;
    const uint8_t *offsets = arrow_buffer(x->array, 1);
    if (!offsets)
        return x->n ? arrow_malformed(c, err) : 0;
    p->offsets = offsets + x->start * size;
    p->offset_size = size;
    p->data = arrow_buffer(x->array, 2);
    return 0;
}

static uint64_t arrow_index_at(const void *indices, enum cw_dtype dtype, uint64_t i)
{
    int64_t v = 0;
    size_t size = cw_dtype_size(dtype);
    memcpy(&v, (const uint8_t *)indices + i * size, size); /* little-endian */
    bool negative = cw_dtype_is_signed(dtype) && size < 8 && v >> (8 * size - 1) & 1;
    return negative ? UINT64_MAX : (uint64_t)v;
}

static int import_dictionary(struct cw_arrays *a, const struct cw_arrow_column *c, const struct range *x,
                             struct cw_array_piece *p, struct cw_error *err)
{
    const uint8_t *indices = arrow_buffer(x->array, 1), *numbers = NULL;
    const struct ArrowArray *dictionary = x->array->dictionary;
    const struct cw_array_view *strings = NULL;
    struct range values;
    if (!dictionary || (x->n && !indices))
        return arrow_malformed(c, err);
    int r = arrow_child_range(c, dictionary, 0, (uint64_t)dictionary->length, &values, err);
    if (r == 0 && dictionary->null_count && arrow_buffer(dictionary, 0))
        for (uint64_t i = 0; r == 0 && i < values.n; i++)
            if (!arrow_bit(arrow_buffer(dictionary, 0), values.start + i))
                r = cw_arrow_bad(err, c->schema->name,
                                 "has a null in its dictionary: components can't hold nulls");
    if (r == 0)
        r = c->type.dtype == CW_BYTES
                ? arrow_view_strings(a, c, c->schema->dictionary->format, &values, &strings, err)
                : arrow_number_data(a, c, &values, &numbers, err);
    size_t item = strings ? sizeof(*strings) : cw_dtype_size(c->type.dtype);
    uint8_t *out = r == 0 ? cw_arrays_own(a, x->n * item) : NULL;
    if (!out)
        return r < 0 ? r : arrow_nomem(x->n * item, err);
    for (uint64_t i = 0; i < x->n; i++) {
        uint64_t k = arrow_index_at(indices, c->index, x->start + i);
        if (k >= values.n)
            return arrow_malformed(c, err);
        memcpy(out + i * item, strings ? (const uint8_t *)&strings[k] : numbers + k * item, item);
    }
    if (strings)
        p->views = (const void *)out;
    else
        p->data = out;
    return 0;
}

static int import_piece(struct cw_arrays *a, const struct cw_arrow_column *c, const struct range *x,
                        uint64_t row, struct cw_array_piece *p, struct cw_error *err)
{
    const struct row_map m = {.first = row, .per_item = 1};
    int r = arrow_check_nulls(c, x, &m, err);
    if (r < 0)
        return r;
    if (c->schema->dictionary)
        return import_dictionary(a, c, x, p, err);
    if (cw_arrow_is_list(c->schema->format))
        return import_list(a, c, x, row, p, err);
    if (c->type.dtype != CW_BYTES)
        return arrow_fixed_data(a, c, *x, m, &p->data, err);
    if (c->width == 0)
        return import_binary(a, c, x, p, err);
    p->data = arrow_buffer(x->array, 1);
    if (p->data)
        p->data += x->start * c->width;
    return 0;
}

/* ---- the stream ---- */

static void import_free(void *arg)
{
    struct import *m = arg;
    for (size_t i = 0; i < m->n; i++)
        if (m->batches[i].release)
            m->batches[i].release(&m->batches[i]);
    free(m->batches);
    free(m);
}

static int arrow_stream_failed(struct ArrowArrayStream *s, int code, struct cw_error *err)
{
    const char *why = s->get_last_error ? s->get_last_error(s) : NULL;
    return cw_error_set(err, code == ENOMEM ? CW_E_MEMORY : CW_E_DATA, "the Arrow stream failed: %s",
                        why && *why ? why : strerror(code));
}

static int arrow_read_batches(struct ArrowArrayStream *s, struct import *m, int64_t n_children,
                              struct cw_error *err)
{
    for (;;) {
        if (CW_ARRAY_ROOM(m->batches, m->capacity, m->n + 1, "arrays from Arrow", err) < 0)
            return CW_E_MEMORY;
        struct ArrowArray *b = &m->batches[m->n];
        *b = (struct ArrowArray){0};
        int code = s->get_next(s, b);
        if (code)
            return arrow_stream_failed(s, code, err);
        if (!b->release)
            return 0;
        m->n++;
        if (b->length < 0 || b->offset < 0 || b->n_children != n_children)
            return cw_error_set(
                err, CW_E_DATA,
                "the Arrow stream is malformed: a batch does not have the columns of its schema");
        if (b->length == 0) { /* an empty piece */
            b->release(b);
            m->n--;
        }
    }
}

static int import_column(struct cw_arrays *a, const struct import *m, size_t i, struct ArrowSchema *schema,
                         const uint8_t *chosen, struct cw_error *err)
{
    struct cw_arrow_column c;
    int r = schema ? cw_arrow_column(schema, &c, err)
                   : cw_error_set(err, CW_E_DATA, "the Arrow stream is malformed: a column has no schema");
    c.rows = a->rows;
    c.n_rows = a->n_elements;
    c.chosen = chosen;
    if (r == 0)
        r = cw_arrays_column(a, i, schema->name, &c.type, err);
    if (r == 0 && c.width)
        a->columns[i].item = c.width;
    for (size_t k = 0; r == 0 && k < m->n; k++) {
        const struct ArrowArray *b = &m->batches[k];
        struct range top = {.array = b, .start = (uint64_t)b->offset, .n = (uint64_t)b->length}, x = {0};
        r = arrow_check_nulls(&c, &top, &(struct row_map){.first = a->first[k], .per_item = 1}, err);
        if (r == 0)
            r = arrow_child_range(&c, b->children[i], (uint64_t)b->offset, (uint64_t)b->length, &x, err);
        if (r == 0)
            r = import_piece(a, &c, &x, a->first[k], &a->columns[i].pieces[k], err);
    }
    return r;
}

/* Chooses the rows, and sets *ret to a bitmap of them, which the caller frees. */
static int import_rows(struct cw_arrays *a, const uint64_t *rows, uint64_t n, uint8_t **ret,
                       struct cw_error *err)
{
    int r = cw_arrays_choose(a, rows, n, err);
    uint64_t size = a->first[a->n_pieces] / 8 + 1;
    if (r < 0)
        return r;
    if (!(*ret = calloc(1, size)))
        return arrow_nomem(size, err);
    for (uint64_t i = 0; i < n; i++)
        (*ret)[rows[i] / 8] |= (uint8_t)(1 << rows[i] % 8);
    return 0;
}

static int import_all(struct ArrowArrayStream *s, struct ArrowSchema *schema, const uint64_t *rows,
                      uint64_t n_rows, struct import *m, struct cw_arrays **a, struct cw_error *err)
{
    _cleanup_free_ uint8_t *chosen = NULL;
    if (!schema->format || strcmp(schema->format, "+s") != 0)
        return cw_error_set(
            err, CW_E_DATA,
            "the elements of the Arrow stream are of type %s: expected structs (record batches)",
            schema->format ? cw_arrow_format_name(schema->format) : "nothing");
    int r = arrow_read_batches(s, m, schema->n_children, err);
    if (r < 0)
        return r;
    *a = cw_arrays_new((size_t)schema->n_children, m->n);
    if (!*a)
        return arrow_nomem(0, err);
    for (size_t k = 0; k < m->n; k++)
        if (__builtin_add_overflow((*a)->first[k], (uint64_t)m->batches[k].length, &(*a)->first[k + 1]))
            return cw_error_set(err, CW_E_DATA, "the Arrow stream is malformed: it has 2^64 rows or more");
    if (rows)
        r = import_rows(*a, rows, n_rows, &chosen, err);
    for (size_t i = 0; r == 0 && i < (*a)->n_columns; i++)
        r = import_column(*a, m, i, schema->children[i], chosen, err);
    (*a)->release = import_free;
    (*a)->arg = m;
    return r < 0 ? r : cw_arrays_register(*a, err);
}

int cw_arrays_from_arrow(struct ArrowArrayStream *stream, const uint64_t *rows, uint64_t n_rows,
                         struct cw_arrays **ret, struct cw_error *err)
{
    struct ArrowSchema schema = {0};
    struct cw_arrays *a = NULL;
    struct import *m = calloc(1, sizeof(*m));
    int r = m ? 0 : arrow_nomem(sizeof(*m), err);
    if (r == 0) {
        int code = stream->get_schema(stream, &schema);
        r = code ? arrow_stream_failed(stream, code, err)
                 : import_all(stream, &schema, rows, n_rows, m, &a, err);
    }
    if (schema.release)
        schema.release(&schema);
    if (stream->release)
        stream->release(stream);
    if (r < 0) {
        cw_arrays_free(a);
        if (m)
            import_free(m);
        return r;
    }
    *ret = a;
    return 0;
}
