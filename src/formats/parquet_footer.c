/* Reads the footer of a Parquet file: the schema, as a list of its leaves (columns), and where their chunks
 * lie. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "formats/parquet.h"
#include "formats/thrift.h"
#include "storage/file.h"

/* A footer with more bytes than this is taken to be damaged: it would describe tens of millions of chunks. */
#define MAX_FOOTER ((uint32_t)1 << 30)
#define MAX_DEPTH 32

enum { REQUIRED, OPTIONAL, REPEATED };

/* What a logical or converted type says about a column; of the integers: bits, and whether they are signed.
 */
enum note { NOTE_NONE, NOTE_LIST, NOTE_MAP, NOTE_DECIMAL, NOTE_FLOAT16, NOTE_INTEGER, NOTE_INTERVAL };

struct element { /* of the schema */
    int64_t physical, width, repetition, n_children;
    const uint8_t *name;
    size_t name_size;
    enum note note;
    unsigned bits;
    bool is_signed;
};

/* Reads a struct LogicalType (a union). */
static void footer_logical(struct cw_thrift *t, struct element *e)
{
    struct cw_thrift_field f = {0}, g;
    while (cw_thrift_field(t, &f)) {
        enum note note = f.id == 2    ? NOTE_MAP
                         : f.id == 3  ? NOTE_LIST
                         : f.id == 5  ? NOTE_DECIMAL
                         : f.id == 15 ? NOTE_FLOAT16
                         : f.id == 10 ? NOTE_INTEGER
                                      : NOTE_NONE;
        e->note = note != NOTE_NONE ? note : e->note;
        if (f.id != 10 || f.type != CW_THRIFT_STRUCT) {
            cw_thrift_skip(t, f.type);
            continue;
        }
        for (g = (struct cw_thrift_field){0}; cw_thrift_field(t, &g);) {
            if (g.id == 1 && g.type == CW_THRIFT_BYTE) {
                e->bits = t->p < t->end ? *t->p : 0;
                cw_thrift_skip(t, g.type);
            } else if (g.id == 2 && (g.type == CW_THRIFT_TRUE || g.type == CW_THRIFT_FALSE)) {
                e->is_signed = g.type == CW_THRIFT_TRUE;
            } else {
                cw_thrift_skip(t, g.type);
            }
        }
    }
}

static void footer_converted(int64_t converted, struct element *e)
{
    switch (e->note == NOTE_NONE ? converted : -1) {
    case 1:
    case 2:
        e->note = NOTE_MAP;
        break;
    case 3:
        e->note = NOTE_LIST;
        break;
    case 5:
        e->note = NOTE_DECIMAL;
        break;
    case 21:
        e->note = NOTE_INTERVAL;
        break;
    default:
        if (e->note == NOTE_NONE && converted >= 11 && converted <= 18) {
            e->note = NOTE_INTEGER;
            e->is_signed = converted >= 15;
            e->bits = 8u << ((converted - 11) & 3);
        }
    }
}

static struct element footer_element(struct cw_thrift *t)
{
    struct element e = {.physical = -1};
    struct cw_thrift_field f = {0};
    int64_t converted = -1;
    while (cw_thrift_field(t, &f)) {
        int64_t *into = f.id == 1   ? &e.physical
                        : f.id == 2 ? &e.width
                        : f.id == 3 ? &e.repetition
                        : f.id == 5 ? &e.n_children
                        : f.id == 6 ? &converted
                                    : NULL;
        if (into && f.type == CW_THRIFT_I32)
            *into = cw_thrift_int(t);
        else if (f.id == 4 && f.type == CW_THRIFT_BINARY)
            e.name = cw_thrift_binary(t, &e.name_size);
        else if (f.id == 10 && f.type == CW_THRIFT_STRUCT)
            footer_logical(t, &e);
        else
            cw_thrift_skip(t, f.type);
    }
    footer_converted(converted, &e);
    return e;
}

/* The dtype of a leaf; CW_N_DTYPES: *unreadable says what it is. */
static enum cw_dtype footer_dtype(const struct element *e, const char **unreadable)
{
    static const enum cw_dtype dtypes[] = {CW_BOOL,    CW_INT32,   CW_INT64, CW_INT64,
                                           CW_FLOAT32, CW_FLOAT64, CW_BYTES, CW_BYTES};

    static const enum cw_dtype integers[2][4] = {{CW_UINT8, CW_UINT16, CW_UINT32, CW_UINT64},
                                                 {CW_INT8, CW_INT16, CW_INT32, CW_INT64}};

    *unreadable = e->note == NOTE_DECIMAL ? "decimal numbers" : e->note == NOTE_INTERVAL ? "intervals" : NULL;
    if (*unreadable)
        return CW_N_DTYPES;
    if (e->note == NOTE_FLOAT16 && e->physical == CW_PARQUET_FIXED && e->width == 2)
        return CW_FLOAT16;
    if (e->note == NOTE_INTEGER && (e->physical == CW_PARQUET_INT32 || e->physical == CW_PARQUET_INT64) &&
        (e->bits == 8 || e->bits == 16 || e->bits == 32 || e->bits == 64) &&
        (e->bits == 64) == (e->physical == CW_PARQUET_INT64))
        return integers[e->is_signed][__builtin_ctz(e->bits) - 3];
    return dtypes[e->physical];
}

struct schema {
    struct cw_thrift *t;
    size_t left, room;
    struct cw_parquet_file *f;
    struct cw_error *err;
    int status;
};

struct level { /* of the schema's tree, above an element */
    char name[512];
    size_t size; /* bytes of name */
    uint8_t def, rep, list_def;
    bool in_list;  /* a list begins here, so names below are left out */
    bool repeated; /* the elements of a list lie directly below */
    const char *unreadable;
};

static int schema_leaf(struct schema *s, const struct element *e, const struct level *at)
{
    struct cw_parquet_file *f = s->f;
    if (e->physical < 0 || e->physical > CW_PARQUET_FIXED || e->width < 0 || e->width > INT32_MAX) {
        s->t->bad = true;
        return 0;
    }
    if (CW_ARRAY_ROOM(f->columns, s->room, f->n_columns + 1, "the columns of a file", s->err) < 0)
        return CW_E_MEMORY;
    struct cw_parquet_column *c = &f->columns[f->n_columns];
    *c = (struct cw_parquet_column){.physical = (enum cw_parquet_physical)e->physical,
                                    .width = (uint32_t)e->width,
                                    .max_def = at->def,
                                    .max_rep = at->rep,
                                    .list_def = at->list_def};
    enum cw_dtype dtype = footer_dtype(e, &c->unreadable);
    c->unreadable = at->unreadable ? at->unreadable : c->unreadable;
    if (!c->unreadable && at->rep > 0 && dtype == CW_BYTES)
        c->unreadable = "lists of strings";
    if (!c->unreadable && at->rep > 1)
        c->unreadable = "lists of lists";
    if (!c->unreadable && e->physical == CW_PARQUET_FIXED && e->width == 0)
        c->unreadable = "strings of no bytes";
    c->type = cw_type_scalar(c->unreadable ? CW_BYTES : dtype);
    if (!c->unreadable && at->rep == 1) {
        c->type.ndim = 1;
        c->type.dims[0] = CW_VARIES;
    }
    if (!(c->name = strndup(at->name, at->size)))
        return cw_error_nomem(s->err, at->size, "a column");
    f->n_columns++;
    return 0;
}

/* Reads an element of the schema and those below it. */
static int schema_walk(struct schema *s, const struct level *above, unsigned depth)
{
    if (s->left-- == 0 || depth > MAX_DEPTH) {
        s->t->bad = true;
        s->left = 0;
        return 0;
    }
    struct element e = footer_element(s->t);
    struct level at = *above;
    if (s->t->bad)
        return 0;
    if (depth > 0) {
        at.def += e.repetition != REQUIRED;
        if (e.repetition == REPEATED) {
            at.rep++;
            at.list_def = at.def;
        }
        if (!at.in_list) {
            size_t room = sizeof(at.name) - at.size - 1, dot = at.size > 0;
            if (e.name_size + dot > room) {
                s->t->bad = true;
                return 0;
            }
            at.name[at.size] = '.';
            if (e.name_size)
                memcpy(at.name + at.size + dot, e.name, e.name_size);
            at.size += dot + e.name_size;
        }
        at.unreadable = above->unreadable                              ? above->unreadable
                        : e.note == NOTE_MAP                           ? "maps"
                        : above->repeated && e.note == NOTE_LIST       ? "lists of lists"
                        : above->repeated && e.n_children > 0          ? "lists of structs"
                        : e.repetition == REPEATED && e.n_children > 1 ? "lists of structs"
                                                                       : NULL;
        at.in_list |= e.note == NOTE_LIST || e.note == NOTE_MAP || e.repetition == REPEATED;
        at.repeated = e.repetition == REPEATED;
    }
    if (e.n_children == 0 && depth > 0)
        return schema_leaf(s, &e, &at);
    int r = 0;
    for (int64_t i = 0; r == 0 && i < e.n_children && !s->t->bad; i++)
        r = schema_walk(s, &at, depth + 1);
    return r;
}

static int footer_schema(struct cw_thrift *t, struct cw_parquet_file *f, struct cw_error *err)
{
    int type;
    struct schema s = {.t = t, .left = cw_thrift_list(t, &type), .f = f, .err = err};
    const struct level root = {.name = ""};
    t->bad |= type != CW_THRIFT_STRUCT;
    int r = t->bad ? 0 : schema_walk(&s, &root, 0);
    t->bad |= s.left != 0;
    return r;
}

static void footer_column(struct cw_thrift *t, struct cw_parquet_chunk *k)
{
    struct cw_thrift_field f = {0};
    int64_t codec = 0, values = 0, packed = 0, unpacked = 0, data = -1, dictionary = -1;
    while (cw_thrift_field(t, &f)) {
        int64_t *into = f.id == 4    ? &codec
                        : f.id == 5  ? &values
                        : f.id == 6  ? &unpacked
                        : f.id == 7  ? &packed
                        : f.id == 9  ? &data
                        : f.id == 11 ? &dictionary
                                     : NULL;
        if (into && (f.type == CW_THRIFT_I32 || f.type == CW_THRIFT_I64))
            *into = cw_thrift_int(t);
        else
            cw_thrift_skip(t, f.type);
    }
    /* some writers give 0 for no dictionary */
    int64_t offset = dictionary > 0 && dictionary < data ? dictionary : data;
    t->bad |= values < 0 || packed < 0 || unpacked < 0 || (offset < 4 && values > 0);
    *k = (struct cw_parquet_chunk){.offset = values > 0 ? (uint64_t)offset : 0,
                                   .size = (uint64_t)packed,
                                   .unpacked = (uint64_t)unpacked,
                                   .n_values = (uint64_t)values,
                                   .codec = (int)codec};
}

static void footer_chunk(struct cw_thrift *t, struct cw_parquet_chunk *k)
{
    struct cw_thrift_field f = {0};
    bool there = false;
    while (cw_thrift_field(t, &f)) {
        if (f.id == 3 && f.type == CW_THRIFT_STRUCT) {
            footer_column(t, k);
            there = true;
        } else { /* a file_path, for data in another file, is not supported by writers in use */
            t->bad |= f.id == 1 && f.type == CW_THRIFT_BINARY;
            cw_thrift_skip(t, f.type);
        }
    }
    t->bad |= !there;
}

static int footer_group(struct cw_thrift *t, const struct cw_parquet_file *f, uint64_t file_size,
                        struct cw_parquet_group *g, struct cw_error *err)
{
    struct cw_thrift_field field = {0};
    int type;
    g->chunks = calloc(f->n_columns + 1, sizeof(*g->chunks));
    if (!g->chunks)
        return cw_error_nomem(err, f->n_columns * sizeof(*g->chunks), "a row group");
    size_t found = 0;
    while (cw_thrift_field(t, &field)) {
        if (field.id == 1 && field.type == CW_THRIFT_LIST) {
            found = cw_thrift_list(t, &type);
            t->bad |= type != CW_THRIFT_STRUCT || found != f->n_columns;
            for (size_t i = 0; i < found && !t->bad; i++) {
                struct cw_parquet_chunk *k = &g->chunks[i];
                footer_chunk(t, k);
                t->bad |= k->offset > file_size || k->size > file_size - k->offset;
            }
        } else if (field.id == 3 && field.type == CW_THRIFT_I64) {
            int64_t n = cw_thrift_int(t);
            t->bad |= n < 0;
            g->n_rows = (uint64_t)n;
        } else {
            cw_thrift_skip(t, field.type);
        }
    }
    t->bad |= found != f->n_columns;
    for (size_t i = 0; i < found && !t->bad; i++)
        t->bad |= f->columns[i].max_rep == 0 && g->chunks[i].n_values != g->n_rows;
    return 0;
}

static int footer_parse(struct cw_thrift *t, uint64_t file_size, struct cw_parquet_file *f,
                        struct cw_error *err)
{
    struct cw_thrift_field field = {0};
    int r = 0, type;
    while (r == 0 && cw_thrift_field(t, &field)) {
        if (field.id == 2 && field.type == CW_THRIFT_LIST && !f->columns) {
            r = footer_schema(t, f, err);
        } else if (field.id == 4 && field.type == CW_THRIFT_LIST && f->columns && !f->groups) {
            size_t n = cw_thrift_list(t, &type);
            t->bad |= type != CW_THRIFT_STRUCT;
            f->groups = calloc(n + 1, sizeof(*f->groups));
            if (!f->groups)
                return cw_error_nomem(err, n * sizeof(*f->groups), "the row groups of a file");
            for (size_t i = 0; r == 0 && i < n && !t->bad; i++) {
                r = footer_group(t, f, file_size, &f->groups[f->n_groups++], err);
                t->bad |= f->groups[i].n_rows > (UINT64_C(1) << 62) - f->n_rows;
                f->n_rows += f->groups[i].n_rows;
            }
        } else {
            cw_thrift_skip(t, field.type);
        }
    }
    t->bad |= !f->columns || !f->groups;
    return r;
}

void cw_parquet_close(struct cw_parquet_file *f)
{
    for (size_t i = 0; i < f->n_columns; i++)
        free(f->columns[i].name);
    for (size_t i = 0; i < f->n_groups; i++)
        free(f->groups[i].chunks);
    free(f->columns);
    free(f->groups);
    *f = (struct cw_parquet_file){0};
}

static int footer_damaged(struct cw_file *file, const char *what, struct cw_error *err)
{
    const char *path = cw_file_path(file);
    return cw_error_at_file(err, CW_E_DATA, path, 0, "%s %s", path, what);
}

int cw_parquet_open(struct cw_file *file, struct cw_parquet_file *ret, struct cw_error *err)
{
    uint64_t size = cw_file_size(file);
    uint8_t tail[8];
    uint32_t footer;
    if (size < 12)
        return footer_damaged(file, "is no Parquet file: it has less than 12 bytes", err);
    int r = cw_file_read(file, size - sizeof(tail), tail, sizeof(tail), false, err);
    if (r < 0)
        return r;
    memcpy(&footer, tail, sizeof(footer));
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return footer_damaged(file, "is encrypted: expected a Parquet file that is not", err);
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return footer_damaged(file, "is no Parquet file, or truncated: it does not end with PAR1", err);
    if (footer > size - 12 || footer > MAX_FOOTER)
        return footer_damaged(file, "is damaged: its footer does not fit into it", err);
    _cleanup_free_ uint8_t *data = malloc(footer + (size_t)1);
    if (!data)
        return cw_error_nomem(err, footer, "the footer of a file");
    r = cw_file_read(file, size - sizeof(tail) - footer, data, footer, false, err);
    if (r < 0)
        return r;
    struct cw_thrift t = {.p = data, .end = data + footer};
    struct cw_parquet_file f = {.content = cw_hash64(data, footer)};
    r = footer_parse(&t, size - sizeof(tail) - footer, &f, err);
    if (r == 0 && t.bad)
        r = footer_damaged(file, "has a damaged footer", err);
    if (r < 0) {
        cw_parquet_close(&f);
        return r;
    }
    *ret = f;
    return 0;
}
