/*
 * parse_example: tf.train.Example to components. Of the features asked for, those that somebody needs are checked and extracted; bytes are
 * views into the record.
 */
#include "formats/example.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/op.h"

#define MAX_VALUES ((int64_t)1 << 28) /* of one feature of fixed shape */

struct feature { /* one of those asked for */
    const char *key; /* in the Example; owned by the attributes */
    size_t key_size;
    enum cw_feature_kind kind;
    bool variable;
    int64_t n_values; /* exactly so many; variable: a multiple of it */
    unsigned port;
    bool has_default;
    int64_t n_default;
    void *def;             /* numbers: n_default of them */
    struct cw_bytes_view text; /* bytes; owned by the attributes */
};

struct parse_example {
    unsigned port; /* of the record */
    unsigned n;
    struct feature features[CW_OP_MAX_PORTS];
};

static void parse_example_free(void *state)
{
    struct parse_example *p = state;
    if (!p)
        return;
    for (unsigned i = 0; i < p->n; i++)
        free(p->features[i].def);
    free(p);
}

/* ---- the attribute `features` ---- */

static int bad(const struct cw_op *op, const char *name, struct cw_error *err, const char *expected)
{
    return cw_attr_error(op, "features", err, "for the feature \"%.60s\" %s", name, expected);
}

static int read_dtype(const struct cw_op *op, const char *name, const json_t *v, enum cw_dtype *ret, struct cw_error *err)
{
    enum cw_dtype dtype;
    if (!json_is_string(v) || cw_dtype_parse(json_string_value(v), &dtype) < 0 ||
        (dtype != CW_BYTES && dtype != CW_INT64 && dtype != CW_FLOAT32))
        return bad(op, name, err, "a dtype \"bytes\", \"int64\" or \"float32\", or an object with dtype and more");
    *ret = dtype;
    return 0;
}

static int read_shape(const struct cw_op *op, const char *name, const json_t *v, struct feature *f, struct cw_type *type,
                      struct cw_error *err)
{
    size_t n = json_array_size(v);
    bool good = json_is_array(v) && n <= CW_MAX_NDIM;
    for (size_t i = 0; good && i < n; i++) {
        const json_t *d = json_array_get(v, i);
        type->dims[i] = json_integer_value(d);
        good = json_is_integer(d) && type->dims[i] >= 1 && type->dims[i] <= MAX_VALUES / f->n_values;
        f->n_values *= good ? type->dims[i] : 1;
    }
    if (!good)
        return bad(op, name, err, "a shape: a list of at most 6 positive integers, 2^28 values in all");
    type->ndim = (int)n;
    return 0;
}

/* Appends the numbers of a list, of lists in it too, to a default with room for `room`; false: not numbers of the dtype, or too many. */
static bool put_numbers(struct feature *f, int64_t room, const json_t *v, int depth)
{
    bool good = true;
    if (json_is_array(v)) {
        for (size_t i = 0; good && i < json_array_size(v); i++)
            good = depth < CW_MAX_NDIM && put_numbers(f, room, json_array_get(v, i), depth + 1);
        return good;
    }
    good = f->n_default < room && (f->kind == CW_FEATURE_INT64 ? json_is_integer(v) : json_is_number(v));
    if (good && f->kind == CW_FEATURE_INT64)
        ((int64_t *)f->def)[f->n_default++] = json_integer_value(v);
    else if (good)
        ((float *)f->def)[f->n_default++] = (float)json_number_value(v);
    return good;
}

static int64_t count_leaves(const json_t *v, int depth)
{
    int64_t n = 0;
    if (!json_is_array(v))
        return 1;
    for (size_t i = 0; depth < CW_MAX_NDIM && i < json_array_size(v); i++)
        n += count_leaves(json_array_get(v, i), depth + 1);
    return n;
}

/* A string; or a number, which stands for all values; or a list of as many numbers as there are values. */
static int read_default(const struct cw_op *op, const char *name, const json_t *v, struct feature *f, struct cw_error *err)
{
    f->has_default = true;
    if (f->kind == CW_FEATURE_BYTES) {
        if (!json_is_string(v))
            return bad(op, name, err, "a string as default");
        f->text = (struct cw_bytes_view){.data = (const uint8_t *)json_string_value(v), .size = json_string_length(v)};
        return 0;
    }
    int64_t given = count_leaves(v, 0), room = CW_MAX(given, f->n_values);
    f->def = calloc((size_t)room, f->kind == CW_FEATURE_INT64 ? sizeof(int64_t) : sizeof(float));
    if (!f->def)
        return cw_error_nomem(err, (size_t)room * 8, "a default");
    bool good = put_numbers(f, room, v, 0);
    if (good && given == 1)
        while (f->n_default < f->n_values) {
            if (f->kind == CW_FEATURE_INT64)
                ((int64_t *)f->def)[f->n_default++] = ((int64_t *)f->def)[0];
            else
                ((float *)f->def)[f->n_default++] = ((float *)f->def)[0];
        }
    if (!good || (f->variable ? f->n_default % f->n_values != 0 : f->n_default != f->n_values))
        return bad(op, name, err, "as default a number of its dtype, or a list of as many as it has values");
    return 0;
}

static int read_feature(const struct cw_op *op, const char *name, const json_t *v, struct feature *f, struct cw_type *type,
                        struct cw_error *err)
{
    const json_t *dtype = v, *key = NULL, *shape = NULL, *variable = NULL, *def = NULL, *value;
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
                return bad(op, name, err, "an object of key, dtype, shape, variable and default only");
            *into = value;
        }
    }
    enum cw_dtype parsed = CW_BYTES;
    int r = read_dtype(op, name, dtype, &parsed, err);
    if (r < 0)
        return r;
    if (key && !json_is_string(key))
        return bad(op, name, err, "a string as key");
    if (variable && !json_is_boolean(variable))
        return bad(op, name, err, "true or false for variable");
    *type = cw_type_scalar(parsed);
    f->key = key ? json_string_value(key) : name;
    f->key_size = key ? json_string_length(key) : strlen(name);
    f->kind = parsed == CW_BYTES ? CW_FEATURE_BYTES : parsed == CW_INT64 ? CW_FEATURE_INT64 : CW_FEATURE_FLOAT;
    f->variable = json_is_true(variable);
    f->n_values = 1;
    if ((json_array_size(shape) > 0 || f->variable) && parsed == CW_BYTES)
        return bad(op, name, err, "exactly one value where it is bytes: no shape, not variable");
    if (shape)
        r = read_shape(op, name, shape, f, type, err);
    if (r == 0 && f->variable) {
        if (type->ndim == CW_MAX_NDIM)
            return bad(op, name, err, "a shape of at most 5 dimensions beside the one that varies");
        memmove(type->dims + 1, type->dims, (size_t)type->ndim * sizeof(type->dims[0]));
        type->dims[0] = CW_VARIES;
        type->ndim++;
    }
    return r == 0 && def ? read_default(op, name, def, f, err) : r;
}

static int parse_example_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const json_t *features = cw_attr_json(op, "features"), *value;
    const char *name;
    struct cw_type type;
    if (json_object_size(features) == 0 || json_object_size(features) > CW_OP_MAX_PORTS)
        return cw_attr_error(op, "features", err, "an object of 1 to %d features", CW_OP_MAX_PORTS);
    int port = cw_bind_read(b, cw_attr_string(op, "component"), &type, err);
    if (port < 0)
        return port;
    if (type.dtype != CW_BYTES)
        return cw_attr_error(op, "component", err, "a component of bytes (it is %s)", cw_dtype_name(type.dtype));
    struct parse_example *p = op->state = calloc(1, sizeof(*p)); /* the caller frees it, in case of error too */
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "parse_example");
    p->port = (unsigned)port;
    while (cw_bind_count(b) > 0) {
        int r = cw_bind_remove(b, cw_bind_name(b, 0, &type), err);
        if (r < 0)
            return r;
    }
    json_object_foreach((json_t *)features, name, value)
    {
        struct feature *f = &p->features[p->n++];
        int r = read_feature(op, name, value, f, &type, err);
        if (r < 0)
            return r;
        r = cw_bind_write(b, name, &type, err);
        if (r < 0)
            return r;
        f->port = (unsigned)r;
    }
    return 0;
}

/* ---- records ---- */

/* The last occurrence of each feature asked for; false: the record failed. */
static bool find_features(const struct parse_example *p, const struct cw_op *op, struct cw_block *b, size_t row, struct cw_feature *found)
{
    struct cw_tensor record = cw_in(op, b, p->port, row);
    struct cw_example_walk walk;
    struct cw_feature f;
    unsigned likely = 0; /* writers keep an order: often it is the one after the last match */
    int r;
    memset(found, 0, p->n * sizeof(*found));
    cw_example_walk_init(&walk, record.data, record.size);
    while ((r = cw_example_next(&walk, &f)) > 0)
        for (unsigned i = 0, from = likely; i < p->n; i++) { /* all of them: two outputs may have one key */
            unsigned k = from + i < p->n ? from + i : from + i - p->n;
            const struct feature *want = &p->features[k];
            if (want->key_size != f.key_size || memcmp(want->key, f.key, f.key_size) != 0)
                continue;
            found[k] = f;
            likely = k + 1 < p->n ? k + 1 : 0;
        }
    if (r < 0)
        cw_block_fail(b, row, op->desc->name, "malformed Example: %s at byte %zu of %zu", walk.why, walk.where, record.size);
    return r == 0;
}

/* Number of values of a feature, TAKE_DEFAULT, or FAILED. */
enum { TAKE_DEFAULT = -1, FAILED = -2 };
static int64_t check_feature(const struct feature *want, const struct cw_feature *f, const struct cw_op *op, struct cw_block *b, size_t row)
{
    const char *name = op->desc->name, *kind = cw_feature_kind_name(want->kind);
    int key_size = (int)CW_MIN(want->key_size, (size_t)80);
    int64_t n = f->kind == CW_FEATURE_NONE ? 0 : cw_feature_count(f);
    if (n < 0) {
        cw_block_fail(b, row, name, "malformed Example: the values of the feature \"%.*s\"", key_size, want->key);
        return FAILED;
    }
    /* Missing, or empty where an empty list is not a value. */
    if (f->kind == CW_FEATURE_NONE || (n == 0 && !want->variable)) {
        if (want->has_default)
            return TAKE_DEFAULT;
        if (want->variable)
            return 0;
        cw_block_fail(b, row, name, "the feature \"%.*s\" (%s) is %s and has no default", key_size, want->key, kind,
                      f->entry ? "empty" : "missing");
        return FAILED;
    }
    if (f->kind != want->kind) {
        cw_block_fail(b, row, name, "the feature \"%.*s\" holds %s, expected %s", key_size, want->key, cw_feature_kind_name(f->kind), kind);
        return FAILED;
    }
    if (want->variable ? n % want->n_values == 0 : n == want->n_values)
        return n;
    cw_block_fail(b, row, name, "the feature \"%.*s\" holds %" PRId64 " values of %s, expected %s%" PRId64, key_size, want->key, n, kind,
                  want->variable ? "a multiple of " : "", want->n_values);
    return FAILED;
}

static int extract(const struct feature *want, const struct cw_feature *f, int64_t n, const struct cw_port *port, struct cw_block *b,
                   size_t row, struct cw_error *err)
{
    bool def = n == TAKE_DEFAULT;
    if (want->kind == CW_FEATURE_BYTES) {
        struct cw_bytes_view view = want->text;
        if (!def)
            cw_feature_bytes(f, &view);
        b->columns[port->value].rows[row] = (struct cw_tensor){.data = (void *)view.data, .size = view.size};
        return 0;
    }
    int64_t length = def ? want->n_default : n, dims[CW_MAX_NDIM];
    memcpy(dims, port->type.dims, sizeof(dims));
    if (want->variable)
        dims[0] = length / want->n_values;
    void *out = cw_block_row_out(b, port->value, &port->type, row, dims, port->type.ndim, err);
    if (!out)
        return err ? err->status : CW_E_MEMORY;
    if (def)
        memcpy(out, want->def, (size_t)length * (want->kind == CW_FEATURE_INT64 ? 8 : 4));
    else if (n && want->kind == CW_FEATURE_INT64)
        cw_feature_int64s(f, out);
    else if (n)
        cw_feature_floats(f, out);
    return 0;
}

static int parse_example_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct parse_example *p = op->state;
    struct cw_feature found[CW_OP_MAX_PORTS];
    int64_t counts[CW_OP_MAX_PORTS];
    int r = 0;
    for (unsigned i = 0; r == 0 && i < p->n; i++) {
        const struct cw_port *port = &op->out[p->features[i].port];
        if (port->live)
            r = cw_type_fixed(&port->type) ? cw_block_dense(b, port->value, &port->type, err) : cw_block_ragged(b, port->value, err);
    }
    for (size_t row = 0; r == 0 && row < b->n; row++) {
        if (b->status[row] != CW_ROW_OK || !find_features(p, op, b, row, found))
            continue;
        bool good = true;
        for (unsigned i = 0; good && i < p->n; i++)
            if (op->out[p->features[i].port].live)
                good = (counts[i] = check_feature(&p->features[i], &found[i], op, b, row)) != FAILED;
        for (unsigned i = 0; good && r == 0 && i < p->n; i++) {
            const struct cw_port *port = &op->out[p->features[i].port];
            if (port->live)
                r = extract(&p->features[i], &found[i], counts[i], port, b, row, err);
        }
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    {.name = "features", .kind = CW_ATTR_OBJECT,
     .doc = "{name: \"bytes\"|\"int64\"|\"float32\"}, or {name: {key, dtype, shape, variable, default}}"},
    {.name = "component", .kind = CW_ATTR_COMPONENT, .def = "\"record\"", .doc = "the component that holds the Example"},
    {0},
};

const struct cw_op_desc cw_op_parse_example = {
    .name = "parse_example",
    .summary = "components from a tf.train.Example; all others are dropped",
    .doc = "A dtype alone asks for exactly one value, a scalar. An object asks for the feature `key` (default: the name) of `dtype` with exactly as "
           "many values as `shape` has; where `variable` is true, with any number of such shapes, along a first dimension that varies. `default` (a "
           "string, a number for all values, or a list of numbers) is taken where the feature is missing, or empty and not variable; a variable one "
           "without default then has no values, any other fails the record, as another dtype or number of values and malformed data do.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = parse_example_bind,
    .run = parse_example_run,
    .free_state = parse_example_free,
};
