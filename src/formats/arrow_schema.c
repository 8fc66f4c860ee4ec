/* Fields are walked in the order in which a record batch has their nodes and buffers, so that each column
 * knows the numbers of its own. */
#include "formats/arrow_schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define MAX_DEPTH 64    /* of nested fields; more is taken for damage */
#define FIELD_BYTES 16u /* a field takes at least so many bytes */

enum { /* enum Type of Schema.fbs */
       NONE,
       NUL,
       INT,
       FLOAT,
       BINARY,
       UTF8,
       BOOL,
       DECIMAL,
       DATE,
       TIME,
       TIMESTAMP,
       INTERVAL,
       LIST,
       STRUCT,
       UNION,
       FIXED_BINARY,
       FIXED_LIST,
       MAP,
       DURATION,
       LARGE_BINARY,
       LARGE_UTF8,
       LARGE_LIST,
       RUN_END,
       BINARY_VIEW,
       UTF8_VIEW,
       LIST_VIEW,
       LARGE_LIST_VIEW
};

struct walk {
    struct cw_flatbuffer *b;
    int64_t version;              /* of the metadata: 4 is V5, in which unions have no validity */
    size_t left;                  /* fields that may still come */
    uint32_t node, buffer, views; /* so far */
    struct cw_arrow_column *columns;
    size_t n, room;
    struct cw_error *err;
};

/* A field, with what is above it. */
struct above {
    char name[512];
    size_t size;              /* bytes of name */
    struct cw_arrow_column c; /* what levels above have found out */
    unsigned depth;
    bool in_list;
};

static int schema_walk_field(struct walk *w, struct cw_flat_table field, const struct above *above);

static int schema_field_type(struct walk *w, struct cw_flat_table field)
{
    return (int)cw_flat_int(w->b, field, 2, 1, 0) & 0xff;
}

static void schema_slot(struct cw_arrow_column *c, uint32_t buffer, uint32_t node)
{
    c->buffers[c->n_slots] = buffer;
    c->nodes[c->n_slots++] = node;
}

/* Sets how numbers, bools and strings lie. Returns NULL, or what else it is. */
static const char *schema_leaf(struct walk *w, int type, struct cw_flat_table t, struct cw_arrow_column *c)
{
    static const enum cw_dtype integers[2][4] = {{CW_UINT8, CW_UINT16, CW_UINT32, CW_UINT64},
                                                 {CW_INT8, CW_INT16, CW_INT32, CW_INT64}};

    static const enum cw_dtype floats[] = {CW_FLOAT16, CW_FLOAT32, CW_FLOAT64};

    int64_t bits = 0, unit;
    enum cw_dtype dtype = CW_N_DTYPES;
    c->kind = CW_ARROW_NUMBERS;
    switch (type) {
    case INT:
        bits = cw_flat_int(w->b, t, 0, 4, 0);
        c->is_signed = cw_flat_int(w->b, t, 1, 1, 0) != 0;
        if (bits == 8 || bits == 16 || bits == 32 || bits == 64)
            dtype = integers[c->is_signed][__builtin_ctz((unsigned)bits) - 3];
        break;
    case FLOAT:
        unit = cw_flat_int(w->b, t, 0, 2, 0);
        dtype = unit >= 0 && unit <= 2 ? floats[unit] : CW_N_DTYPES;
        break;
    case DATE:
        dtype = cw_flat_int(w->b, t, 0, 2, 1) == 0 ? CW_INT32 : CW_INT64;
        break;
    case TIME:
        bits = cw_flat_int(w->b, t, 1, 4, 32);
        dtype = bits == 32 ? CW_INT32 : bits == 64 ? CW_INT64 : CW_N_DTYPES;
        break;
    case TIMESTAMP:
    case DURATION:
        dtype = CW_INT64;
        break;
    case BOOL:
        dtype = CW_BOOL;
        c->kind = CW_ARROW_BOOLS;
        break;
    case FIXED_BINARY:
        bits = cw_flat_int(w->b, t, 0, 4, 0);
        if (bits <= 0)
            return "strings of no bytes";
        dtype = CW_BYTES;
        c->kind = CW_ARROW_FIXED;
        break;
    case BINARY:
    case UTF8:
    case LARGE_BINARY:
    case LARGE_UTF8:
        dtype = CW_BYTES;
        c->kind = CW_ARROW_STRINGS;
        bits = type == BINARY || type == UTF8 ? 4 : 8;
        break;
    case BINARY_VIEW:
    case UTF8_VIEW:
        dtype = CW_BYTES;
        c->kind = CW_ARROW_VIEWS;
        break;
    case NUL:
        return "nulls only";
    case DECIMAL:
        return "decimal numbers";
    case INTERVAL:
        return "intervals";
    case STRUCT:
        return "structs";
    case UNION:
        return "unions";
    case MAP:
        return "maps";
    case RUN_END:
        return "run-end encoded values";
    case LIST_VIEW:
    case LARGE_LIST_VIEW:
        return "list views";
    default:
        break;
    }
    if (dtype == CW_N_DTYPES)
        return "values of an unknown type";
    c->type.dtype = dtype;
    c->width = dtype == CW_BYTES ? (uint32_t)bits : (uint32_t)cw_dtype_size(dtype);
    return NULL;
}

/* Counts a field's node and buffers; those of its children follow. */
static void schema_count(struct walk *w, int type, struct cw_flat_table t)
{
    w->node++;
    switch (type) {
    case NUL:
    case RUN_END:
        break;
    case STRUCT:
    case FIXED_LIST:
        w->buffer += 1;
        break;
    case UNION:
        w->buffer += 1u + (w->version < 4) + (cw_flat_int(w->b, t, 0, 2, 0) == 1); /* dense: offsets too */
        break;
    case BINARY:
    case UTF8:
    case LARGE_BINARY:
    case LARGE_UTF8:
    case LIST_VIEW:
    case LARGE_LIST_VIEW:
        w->buffer += 3;
        break;
    case BINARY_VIEW:
    case UTF8_VIEW:
        w->buffer += 2;
        w->views++;
        break;
    default: /* numbers; lists and maps, which have offsets */
        w->buffer += 2;
    }
}

static int schema_add(struct walk *w, const struct above *at, const struct cw_arrow_column *c)
{
    int r = CW_ARRAY_ROOM(w->columns, w->room, w->n + 1, "the columns of a file", w->err);
    if (r < 0)
        return r;
    struct cw_arrow_column *to = &w->columns[w->n];
    *to = *c;
    if (c->unreadable)
        to->type = cw_type_scalar(CW_BYTES);
    if (!(to->name = strndup(at->name, at->size))) {
        free(to->values);
        return cw_error_nomem(w->err, at->size, "a column");
    }
    w->n++;
    return 0;
}

/* A column whose values are in a dictionary: `c` has the slots of the indexes. */
static int schema_dictionary(struct walk *w, struct cw_flat_table encoding, int type, struct cw_flat_table t,
                             struct cw_arrow_column *c)
{
    struct cw_arrow_column *values = calloc(1, sizeof(*values));
    if (!values)
        return cw_error_nomem(w->err, sizeof(*values), "a column");
    const char *other = schema_leaf(w, type, t, values);
    values->type.ndim = 0;
    values->per_row = 1;
    for (uint32_t k = 0; k < (values->kind == CW_ARROW_STRINGS ? 3u : 2u); k++)
        schema_slot(values, k, 0);
    c->has_dictionary = true;
    c->dictionary = cw_flat_int(w->b, encoding, 0, 8, 0);
    struct cw_flat_table index = cw_flat_child(w->b, encoding, 1);
    if (index.at) {
        const char *bad = schema_leaf(w, INT, index, c);
        other = other ? other : bad;
    } else { /* int32, by default */
        c->kind = CW_ARROW_NUMBERS;
        c->width = 4;
        c->is_signed = true;
    }
    c->type = values->type;
    c->unreadable = c->unreadable ? c->unreadable : other;
    c->values = values;
    return 0;
}

/* Walks the entries of a list, whose field is the only child. */
static int schema_list(struct walk *w, int type, struct cw_flat_table t, struct cw_flat_table child,
                       struct above *at)
{
    struct cw_arrow_column *c = &at->c;
    int inner = schema_field_type(w, child);
    bool fixed = type == FIXED_LIST, inner_dictionary = cw_flat_child(w->b, child, 4).at != 0;
    int64_t n = fixed ? cw_flat_int(w->b, t, 0, 4, 0) : CW_VARIES;
    const char *other = NULL;
    if (!fixed)
        c->list_width = type == LIST ? 4 : 8;
    if (fixed && n <= 0)
        other = "lists of no values";
    else if (c->type.ndim == CW_MAX_NDIM)
        other = "lists in lists with more than 6 dimensions";
    else if (inner == LIST || inner == LARGE_LIST || inner == LIST_VIEW || inner == LARGE_LIST_VIEW)
        other = "lists of lists";
    else if (inner == STRUCT)
        other = "lists of structs";
    else if (inner == UTF8 || inner == BINARY || inner == LARGE_UTF8 || inner == LARGE_BINARY ||
             inner == UTF8_VIEW || inner == BINARY_VIEW || inner == FIXED_BINARY || inner_dictionary)
        other = "lists of strings";
    c->unreadable = c->unreadable ? c->unreadable : other;
    if (!c->unreadable) {
        c->type.dims[c->type.ndim++] = n;
        for (uint32_t k = 0; fixed && k < c->n_inner; k++)
            c->inner_numbers[k] *= (uint64_t)n;
        c->per_row *= fixed ? (uint64_t)n : 1;
        if (c->per_row > (1u << 30))
            c->unreadable = "lists of more than 2^30 values";
        c->inner_numbers[c->n_inner++] = 1;
    }
    at->in_list = true;
    return schema_walk_field(w, child, at);
}

static int schema_struct(struct walk *w, struct cw_flat_vector children, struct above *at)
{
    struct cw_arrow_column *c = &at->c;
    if (c->n_above == CW_ARROW_MAX_ABOVE)
        c->unreadable = c->unreadable ? c->unreadable : "structs in structs, more than 8 deep";
    else
        c->n_above++;
    int r = 0;
    for (size_t i = 0; r == 0 && i < children.n && !w->b->bad; i++)
        r = schema_walk_field(w, cw_flat_item(w->b, children, i), at);
    return r;
}

/* Counts the fields below one that has no form as a component. */
static int schema_skip(struct walk *w, struct cw_flat_vector children, struct above *at)
{
    int r = 0;
    size_t n = w->n;
    at->in_list = true; /* their names do not count */
    for (size_t i = 0; r == 0 && i < children.n && !w->b->bad; i++)
        r = schema_walk_field(w, cw_flat_item(w->b, children, i), at);
    while (w->n > n) { /* one column stands for all of them */
        w->n--;
        free(w->columns[w->n].name);
        free(w->columns[w->n].values);
    }
    return r;
}

static int schema_walk_field(struct walk *w, struct cw_flat_table field, const struct above *above)
{
    struct above at = *above;
    struct cw_arrow_column *c = &at.c;
    int type = schema_field_type(w, field), r = 0;
    struct cw_flat_table t = cw_flat_child(w->b, field, 3), encoding = cw_flat_child(w->b, field, 4);
    struct cw_flat_vector children = cw_flat_list(w->b, field, 5, 4), name = cw_flat_list(w->b, field, 0, 1);
    if (w->b->bad || w->left == 0 || at.depth++ == MAX_DEPTH) {
        w->b->bad = true;
        return 0;
    }
    w->left--;
    if (!at.in_list) {
        size_t dot = at.size > 0;
        if (name.n + dot > sizeof(at.name) - at.size - 1 || memchr(w->b->data + name.at, 0, name.n)) {
            w->b->bad = true;
            return 0;
        }
        at.name[at.size] = '.';
        memcpy(at.name + at.size + dot, w->b->data + name.at, name.n);
        at.size += dot + name.n;
    }
    bool one_child = type == LIST || type == LARGE_LIST || type == FIXED_LIST;
    if (one_child && children.n != 1) {
        w->b->bad = true;
        return 0;
    }
    if (!c->unreadable)
        schema_slot(c, w->buffer, w->node);
    c->views_before = w->views;
    uint32_t buffer = w->buffer, node = w->node;
    bool encoded = encoding.at != 0;
    if (encoded) { /* the batch has indexes, and the children are in the dictionary */
        w->node++;
        w->buffer += 2;
        if (!c->unreadable)
            schema_slot(c, buffer + 1, node);
        r = at.in_list ? 0 : schema_dictionary(w, encoding, type, t, c);
        return r < 0 ? r : schema_add(w, &at, c);
    }
    schema_count(w, type, t);
    if (one_child) {
        if (!c->unreadable && type != FIXED_LIST)
            schema_slot(c, buffer + 1, node);
        return schema_list(w, type, t, cw_flat_item(w->b, children, 0), &at);
    }
    if (type == STRUCT && !at.in_list)
        return schema_struct(w, children, &at);
    const char *other = schema_leaf(w, type, t, c);
    c->unreadable = c->unreadable ? c->unreadable : other;
    if (!c->unreadable) {
        schema_slot(c, buffer + 1, node);
        if (c->kind == CW_ARROW_STRINGS)
            schema_slot(c, buffer + 2, node);
    }
    if (children.n)
        r = schema_skip(w, children, &at);
    return r < 0 ? r : schema_add(w, &at, c);
}

void cw_arrow_columns_free(struct cw_arrow_column *columns, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(columns[i].name);
        free(columns[i].values);
    }
    free(columns);
}

int cw_arrow_schema(struct cw_flatbuffer *b, struct cw_flat_table schema, int64_t version,
                    struct cw_arrow_column **ret, size_t *ret_n, struct cw_error *err)
{
    struct walk w = {.b = b, .version = version, .left = b->size / FIELD_BYTES, .err = err};
    const struct above top = {.c = {.per_row = 1}};
    struct cw_flat_vector fields = cw_flat_list(b, schema, 1, 4);
    int r = 0;
    if (cw_flat_int(b, schema, 0, 2, 0) != 0)
        return cw_error_set(err, CW_E_DATA, "its numbers are big-endian: expected little-endian ones");
    for (size_t i = 0; r == 0 && i < fields.n && !b->bad; i++)
        r = schema_walk_field(&w, cw_flat_item(b, fields, i), &top);
    if (r == 0 && (b->bad || schema.at == 0))
        r = cw_error_set(err, CW_E_DATA, "its schema is damaged, or nested more than %d deep", MAX_DEPTH);
    if (r < 0) {
        cw_arrow_columns_free(w.columns, w.n);
        return r;
    }
    *ret = w.columns;
    *ret_n = w.n;
    return 0;
}
