/* Reads and checks feature specs, converts their defaults, and writes values or defaults to rows. The
 * operators parse_example, jsonl and tar call it. op->state owns the specs, which are immutable after bind.
 */
#include "ops/element/feature_spec.h"

#include <stdio.h>
#include <string.h>

#include "formats/number.h"

/* values of one element of a feature; of one step, if the feature is variable */
#define MAX_VALUES ((int64_t)1 << 28)

struct reading { /* one feature of the attribute */
    const struct cw_feature_words *words;
    const struct cw_op *op;
    const char *name;
    struct cw_feature_spec *f;
    struct cw_type *type; /* of the component */
};

void cw_feature_specs_free(void *state)
{
    struct cw_feature_specs *specs = state;
    for (unsigned i = 0; specs && i < specs->n; i++)
        free(specs->items[i].def);
    free(specs);
}

static int feature_error(const struct reading *x, struct cw_error *err, const char *expected)
{
    return cw_attr_error(x->op, x->words->attr, err, "for the %s \"%.60s\" %s", x->words->noun, x->name,
                         expected);
}

static int feature_read_dtype(const struct reading *x, const json_t *v, struct cw_error *err)
{
    enum cw_dtype dtype;
    if (json_is_string(v) && cw_dtype_parse(json_string_value(v), &dtype) == 0 &&
        (x->words->dtypes >> dtype & 1)) {
        x->f->dtype = dtype;
        return 0;
    }
    return feature_error(x, err,
                         x->words->dtypes == CW_FEATURE_ALL
                             ? "a dtype (\"bytes\", \"int64\", \"float32\", \"bool\", ...), or an object "
                               "with dtype and possibly key, shape, variable and default"
                             : "a dtype \"bytes\", \"int64\" or \"float32\", or an object with dtype and "
                               "possibly key, shape, variable and default");
}

static int feature_read_shape(const struct reading *x, const json_t *v, struct cw_error *err)
{
    size_t n = json_array_size(v);
    bool good = json_is_array(v) && n <= CW_MAX_NDIM;
    for (size_t i = 0; good && i < n; i++) {
        const json_t *d = json_array_get(v, i);
        x->type->dims[i] = json_integer_value(d);
        good = json_is_integer(d) && x->type->dims[i] >= 1 && x->type->dims[i] <= MAX_VALUES / x->f->n_values;
        x->f->n_values *= good ? x->type->dims[i] : 1;
    }
    if (!good)
        return feature_error(
            x, err, "a shape that is a list of at most 6 positive integers, with at most 2^28 values in all");
    x->type->ndim = (int)n;
    return 0;
}

static bool feature_put_number(const json_t *v, enum cw_dtype dtype, void *out)
{
    if (dtype == CW_BOOL) {
        memcpy(out, &(uint8_t){json_is_true(v)}, 1);
        return json_is_boolean(v);
    }
    if (json_is_integer(v))
        return cw_number_from_int(json_integer_value(v), dtype, out) == CW_NUMBER_OK;
    return json_is_real(v) && cw_number_from_double(json_real_value(v), dtype, out) == CW_NUMBER_OK;
}

/* Appends the number v, or all numbers of the nested list v, to the default of f, which has room for `room`
 * numbers. Returns false if a value is not a number of the dtype, if lists are nested too deeply, or if there
 * is no room. */
static bool feature_put_numbers(struct cw_feature_spec *f, int64_t room, const json_t *v, int depth)
{
    bool good = true;
    if (json_is_array(v)) {
        for (size_t i = 0; good && i < json_array_size(v); i++)
            good = depth < CW_MAX_NDIM && feature_put_numbers(f, room, json_array_get(v, i), depth + 1);
        return good;
    }
    size_t item = cw_dtype_size(f->dtype);
    good = f->n_default < room &&
           feature_put_number(v, f->dtype, (uint8_t *)f->def + (size_t)f->n_default * item);
    f->n_default += good;
    return good;
}

static int64_t feature_count_leaves(const json_t *v, int depth)
{
    int64_t n = 0;
    if (!json_is_array(v))
        return 1;
    for (size_t i = 0; depth < CW_MAX_NDIM && i < json_array_size(v); i++)
        n += feature_count_leaves(json_array_get(v, i), depth + 1);
    return n;
}

/* Reads a default. For bytes: a string. For numbers: one number, which is repeated for all values; or a list
 * with one number per value. A list may be nested; its numbers are taken in order. If the feature is
 * variable, the list may have any multiple of n_values numbers. */
static int feature_read_default(const struct reading *x, const json_t *v, struct cw_error *err)
{
    struct cw_feature_spec *f = x->f;
    f->has_default = true;
    if (f->dtype == CW_BYTES) {
        if (!json_is_string(v))
            return feature_error(x, err, "a string as default");
        f->text = json_string_value(v);
        f->text_size = json_string_length(v);
        return 0;
    }
    int64_t given = feature_count_leaves(v, 0), room = CW_MAX(given, f->n_values);
    size_t item = cw_dtype_size(f->dtype);
    f->def = calloc((size_t)room, item);
    if (!f->def)
        return cw_error_nomem(err, (size_t)room * item, "a default");
    bool good = feature_put_numbers(f, room, v, 0);
    for (; good && given == 1 && f->n_default < f->n_values; f->n_default++)
        memcpy((uint8_t *)f->def + (size_t)f->n_default * item, f->def, item);
    if (!good || (f->variable ? f->n_default % f->n_values != 0 : f->n_default != f->n_values))
        return feature_error(x, err,
                             "a default that is one number of the feature's dtype, or a list with a number "
                             "for each of its values");
    return 0;
}

static int feature_read(const struct reading *x, const json_t *v, struct cw_error *err)
{
    const json_t *dtype = v, *key = NULL, *shape = NULL, *variable = NULL, *def = NULL, *value;
    struct cw_feature_spec *f = x->f;
    const char *field;
    if (json_is_object(v)) {
        dtype = NULL;
        json_object_foreach((json_t *)v, field, value)
        {
            const json_t **into = strcmp(field, "dtype") == 0      ? &dtype
                                  : strcmp(field, "key") == 0      ? &key
                                  : strcmp(field, "shape") == 0    ? &shape
                                  : strcmp(field, "variable") == 0 ? &variable
                                  : strcmp(field, "default") == 0  ? &def
                                                                   : NULL;
            if (!into)
                return feature_error(
                    x, err, "an object with no other keys than key, dtype, shape, variable and default");
            *into = value;
        }
    }
    int r = feature_read_dtype(x, dtype, err);
    if (r < 0)
        return r;
    if (key && !json_is_string(key))
        return feature_error(x, err, "a string as key");
    if (variable && !json_is_boolean(variable))
        return feature_error(x, err, "true or false for variable");
    struct cw_type *type = x->type;
    *type = cw_type_scalar(f->dtype);
    f->key = key ? json_string_value(key) : x->name;
    f->key_size = key ? json_string_length(key) : strlen(x->name);
    f->variable = json_is_true(variable);
    f->n_values = 1;
    if ((json_array_size(shape) > 0 || f->variable) && f->dtype == CW_BYTES)
        return feature_error(
            x, err, "neither shape nor variable, because a feature of dtype bytes has exactly one value");
    if (shape)
        r = feature_read_shape(x, shape, err);
    if (r == 0 && f->variable) {
        if (type->ndim == CW_MAX_NDIM)
            return feature_error(x, err, "a shape of at most 5 dimensions, because `variable` adds one");
        memmove(type->dims + 1, type->dims, (size_t)type->ndim * sizeof(type->dims[0]));
        type->dims[0] = CW_VARIES;
        type->ndim++;
    }
    return r == 0 && def ? feature_read_default(x, def, err) : r;
}

int cw_feature_specs_bind(const struct cw_feature_words *words, struct cw_bind *b, struct cw_op *op,
                          struct cw_error *err)
{
    const json_t *features = cw_attr_json(op, words->attr), *value;
    const char *name;
    struct cw_type type;
    /* the caller frees op->state, also after an error */
    struct cw_feature_specs *specs = op->state = calloc(1, sizeof(*specs));
    if (!specs)
        return cw_error_nomem(err, sizeof(*specs), op->desc->name);
    if (json_object_size(features) == 0 || json_object_size(features) > CW_OP_MAX_PORTS)
        return cw_attr_error(op, words->attr, err, "an object of 1 to %d %ss", CW_OP_MAX_PORTS, words->noun);
    json_object_foreach((json_t *)features, name, value)
    {
        struct cw_feature_spec *f = &specs->items[specs->n++];
        struct reading x = {.words = words, .op = op, .name = name, .f = f, .type = &type};
        int r = feature_read(&x, value, err);
        if (r < 0)
            return r;
        r = cw_bind_write(b, name, &type, err);
        if (r < 0)
            return r;
        f->port = (unsigned)r;
    }
    return 0;
}

/* ---- rows ---- */

int cw_feature_columns(const struct cw_feature_specs *specs, const struct cw_op *op, struct cw_block *b,
                       struct cw_error *err)
{
    int r = 0;
    for (unsigned i = 0; r == 0 && i < specs->n; i++) {
        const struct cw_port *port = &op->out[specs->items[i].port];
        if (port->live)
            r = cw_block_column(b, port->value, &port->type, err);
    }
    return r;
}

void *cw_feature_row(const struct cw_feature_spec *f, const struct cw_port *port, struct cw_block *b,
                     size_t row, int64_t n, struct cw_error *err)
{
    int64_t dims[CW_MAX_NDIM];
    memcpy(dims, port->type.dims, sizeof(dims));
    if (f->variable)
        dims[0] = n / f->n_values;
    return cw_block_row_out(b, port->value, &port->type, row, dims, port->type.ndim, err);
}

int cw_feature_default(const struct cw_feature_spec *f, const struct cw_port *port, struct cw_block *b,
                       size_t row, struct cw_error *err)
{
    if (f->dtype == CW_BYTES) {
        cw_feature_bytes_row(port, b, row, f->text, f->text_size);
        return 0;
    }
    void *out = cw_feature_row(f, port, b, row, f->n_default, err);
    if (!out)
        return err ? err->status : CW_E_MEMORY;
    if (f->n_default)
        memcpy(out, f->def, (size_t)f->n_default * cw_dtype_size(f->dtype));
    return 0;
}
