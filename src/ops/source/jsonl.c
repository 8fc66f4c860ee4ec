/*
 * jsonl: lines of files, each a JSON object, to components. Only features that a later operator or the batch
 * needs are checked and extracted. Strings without escapes are not copied; they point into the line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/json.h"
#include "formats/number.h"
#include "ops/element/feature_spec.h"
#include "ops/source/line_source.h"

struct row { /* the line that is being read */
    const struct cw_source *source;
    const struct cw_op *op;
    struct cw_block *b;
    size_t row;
};

/* Marks the row as failed, with a message that names its line. Returns false. */
#define fail(x, fmt, ...) \
    cw_block_fail((x)->b, (x)->row, (x)->op->desc->name, "line %" PRIu64 ": " fmt, \
                  cw_line_number((x)->source, (x)->b->rows[(x)->row]), __VA_ARGS__)

static int jsonl_key_size(const struct cw_feature_spec *f)
{
    return (int)CW_MIN(f->key_size, (size_t)80);
}

/* Finds the last occurrence of each feature; its kind is CW_JSON_NULL if it does not occur. False: the line
 * failed.
 */
static bool jsonl_find_features(const struct row *x, const struct cw_feature_specs *specs,
                                const uint8_t *line, size_t size, struct cw_json_value *found)
{
    struct cw_json_walk w;
    struct cw_json_value key, value;
    unsigned likely = 0; /* guess of the next spec to match: writers keep an order, so it is often the one
                            after the last match */
    int r = cw_json_open(&w, line, size);
    memset(found, 0, specs->n * sizeof(*found));
    while (r >= 0 && (r = cw_json_member(&w, &key, &value)) > 0)
        for (unsigned i = 0, from = likely; i < specs->n; i++) {
            /* tries all specs: two outputs may have the same key */
            unsigned k = from + i < specs->n ? from + i : from + i - specs->n;
            if (!cw_json_string_is(&key, specs->items[k].key, specs->items[k].key_size))
                continue;
            found[k] = value;
            likely = k + 1 < specs->n ? k + 1 : 0;
        }
    if (r < 0)
        fail(x, "malformed JSON: %s at byte %zu of %zu", w.why, w.where, size);
    return r == 0;
}

/* Writes one number or bool to out; false: the row failed. */
static bool jsonl_put_scalar(const struct row *x, const struct cw_feature_spec *f,
                             const struct cw_json_value *v, void *out)
{
    const char *dtype = cw_dtype_name(f->dtype);
    if (f->dtype == CW_BOOL && (v->kind == CW_JSON_TRUE || v->kind == CW_JSON_FALSE)) {
        *(uint8_t *)out = v->kind == CW_JSON_TRUE;
        return true;
    }
    if (f->dtype == CW_BOOL || v->kind != CW_JSON_NUMBER)
        return fail(x, "\"%.*s\" holds %s, expected %s", jsonl_key_size(f), f->key,
                    cw_json_kind_name(v->kind), f->dtype == CW_BOOL ? "true or false" : dtype);
    enum cw_number n = cw_number_parse(v->text, v->size, f->dtype, out);
    if (n != CW_NUMBER_OK)
        fail(x, "\"%.*s\" holds %.*s, which %s for %s", jsonl_key_size(f), f->key,
             (int)CW_MIN(v->size, (size_t)40), v->text, cw_number_why(n), dtype);
    return n == CW_NUMBER_OK;
}

/* Writes the values of v, which must have this shape, from *out on, and advances *out. dims[0] < 0: the
 * length may be any. False: the row failed. */
static bool jsonl_put_values(const struct row *x, const struct cw_feature_spec *f,
                             const struct cw_json_value *v, const int64_t *dims, int ndim, uint8_t **out)
{
    if (ndim == 0) {
        bool good = jsonl_put_scalar(x, f, v, *out);
        *out += cw_dtype_size(f->dtype);
        return good;
    }
    if (v->kind != CW_JSON_ARRAY)
        return fail(x, "\"%.*s\" holds %s where an array is expected", jsonl_key_size(f), f->key,
                    cw_json_kind_name(v->kind));
    struct cw_json_items items = cw_json_items(v);
    struct cw_json_value item;
    int64_t n = 0;
    for (; (dims[0] < 0 || n <= dims[0]) && cw_json_item(&items, &item); n++)
        if ((dims[0] < 0 || n < dims[0]) && !jsonl_put_values(x, f, &item, dims + 1, ndim - 1, out))
            return false;
    if (dims[0] >= 0 && n != dims[0])
        return fail(x, "\"%.*s\" has an array of %s%" PRId64 " values where %" PRId64 " are expected",
                    jsonl_key_size(f), f->key, n > dims[0] ? "more than " : "", n > dims[0] ? dims[0] : n,
                    dims[0]);
    return true;
}

static int64_t jsonl_count_items(const struct cw_json_value *v)
{
    struct cw_json_items items = cw_json_items(v);
    struct cw_json_value item;
    int64_t n = 0;
    while (cw_json_item(&items, &item))
        n++;
    return n;
}

static int jsonl_put_string(const struct row *x, const struct cw_feature_spec *f,
                            const struct cw_json_value *v, const struct cw_port *port, struct cw_error *err)
{
    if (v->kind != CW_JSON_STRING)
        return fail(x, "\"%.*s\" holds %s, expected a string", jsonl_key_size(f), f->key,
                    cw_json_kind_name(v->kind));
    if (!v->escaped) {
        cw_feature_bytes_row(port, x->b, x->row, v->text, v->size);
        return 0;
    }
    char *text = cw_block_alloc(x->b, v->size, err);
    if (!text)
        return err ? err->status : CW_E_MEMORY;
    cw_feature_bytes_row(port, x->b, x->row, text, cw_json_unescape(v, text));
    return 0;
}

static int jsonl_put_feature(const struct row *x, const struct cw_feature_spec *f,
                             const struct cw_json_value *v, struct cw_error *err)
{
    const struct cw_port *port = &x->op->out[f->port];
    if (v->kind == CW_JSON_NULL)
        return f->has_default || f->variable
                   ? cw_feature_default(f, port, x->b, x->row, err)
                   : fail(x, "\"%.*s\" (%s) is %s and has no default", jsonl_key_size(f), f->key,
                          cw_dtype_name(f->dtype), v->text ? "null" : "missing");
    if (f->dtype == CW_BYTES)
        return jsonl_put_string(x, f, v, port, err);
    int64_t n = f->variable && v->kind == CW_JSON_ARRAY ? jsonl_count_items(v) : 0;
    uint8_t *out = cw_feature_row(f, port, x->b, x->row, n * f->n_values, err);
    if (!out)
        return err ? err->status : CW_E_MEMORY;
    (void)jsonl_put_values(x, f, v, port->type.dims, port->type.ndim, &out);
    return 0;
}

static int jsonl_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                         struct cw_error *err)
{
    const struct cw_feature_specs *specs = op->state;
    struct cw_json_value found[CW_OP_MAX_PORTS];
    if (!op->live)
        return 0;
    int r = cw_feature_columns(specs, op, b, err);
    CW_ROWS_OK(row, b, r == 0)
    {
        struct row x = {.source = s, .op = op, .b = b, .row = row};
        const uint8_t *line;
        size_t size;
        if (!cw_line_of(s, op, b, row, &line, &size) || !jsonl_find_features(&x, specs, line, size, found))
            continue;
        for (unsigned i = 0; r == 0 && i < specs->n && b->status[row] == CW_ROW_OK; i++)
            if (op->out[specs->items[i].port].live)
                r = jsonl_put_feature(&x, &specs->items[i], &found[i], err);
    }
    return r;
}

static int jsonl_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                      struct cw_error *err)
{
    return cw_lines_open(op, env, jsonl_produce, ret, err);
}

static int jsonl_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    static const struct cw_feature_words words = {
        .attr = "features", .noun = "feature", .dtypes = CW_FEATURE_ALL};
    return cw_feature_specs_bind(&words, b, op, err);
}

static const struct cw_attr_def attrs[] = {
    CW_LINE_ATTRS,
    {.name = "features",
     .kind = CW_ATTR_OBJECT,
     .doc = "the components to read: {name: \"bytes\"|\"int64\"|...}, or {name: {key, dtype, shape, "
            "variable, default}}"},
    {0},
};

const struct cw_op_desc cw_op_jsonl = {
    .name = "jsonl",
    .summary = "components from the lines of JSON files (JSON Lines)",
    .doc = "Each line is a JSON object, and each of its keys is a feature. `features` has the same form as "
           "in `parse_example`, and allows every dtype: JSON strings give `bytes` (UTF-8), true and false "
           "give `bool`, numbers give any other dtype. A feature with a shape of n dimensions is a JSON "
           "array nested n deep; if `variable` is true, the array is nested one level deeper. A feature that "
           "is null or missing gets its `default`. Without a default, a variable feature then has no values, "
           "and any other feature fails the record. A record also fails on malformed JSON, on a value of "
           "another type or shape, on a number that the dtype can't hold, and on a fraction where the dtype "
           "is an integer. NaN, Infinity and -Infinity are allowed as numbers. If a key occurs twice in a "
           "line, the last value counts. `jsonl` finds files and lines in the same way as `text`; an empty "
           "line is not a JSON object, so its record fails.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = jsonl_bind,
    .open = jsonl_open,
    .free_state = cw_feature_specs_free,
};
