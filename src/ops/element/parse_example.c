/*
 * parse_example: tf.train.Example to components. Only features that a later operator or the batch needs are
 * checked and extracted. Bytes are not copied; they point into the record.
 */
#include "formats/example.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/element/feature_spec.h"

static enum cw_feature_kind parse_example_kind_of(enum cw_dtype dtype)
{
    return dtype == CW_BYTES ? CW_FEATURE_BYTES : dtype == CW_INT64 ? CW_FEATURE_INT64 : CW_FEATURE_FLOAT;
}

static int parse_example_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    static const struct cw_feature_words words = {
        .attr = "features",
        .noun = "feature",
        .dtypes = 1ul << CW_BYTES | 1ul << CW_INT64 | 1ul << CW_FLOAT32,
    };
    struct cw_type type;
    int port = cw_bind_read(b, cw_attr_string(op, "component"), &type, err);
    if (port < 0)
        return port;
    if (type.dtype != CW_BYTES)
        return cw_attr_error(op, "component", err, "a component of bytes (it is %s)",
                             cw_dtype_name(type.dtype));
    while (cw_bind_count(b) > 0) {
        int r = cw_bind_remove(b, cw_bind_name(b, 0, &type), err);
        if (r < 0)
            return r;
    }
    return cw_feature_specs_bind(&words, b, op, err);
}

/* ---- records ---- */

/* Finds the last occurrence of each requested feature; false: the record failed. */
static bool parse_example_find_features(const struct cw_feature_specs *p, const struct cw_op *op,
                                        struct cw_block *b, size_t row, struct cw_feature *found)
{
    struct cw_tensor record = cw_in(op, b, 0, row);
    struct cw_example_walk walk;
    struct cw_feature f;
    unsigned likely = 0; /* guess of the next spec to match: writers keep an order, so it is often the one
                            after the last match */
    int r;
    memset(found, 0, p->n * sizeof(*found));
    cw_example_walk_init(&walk, record.data, record.size);
    while ((r = cw_example_next(&walk, &f)) > 0)
        for (unsigned i = 0, from = likely; i < p->n;
             i++) { /* tries all specs: two outputs may have the same key */
            unsigned k = from + i < p->n ? from + i : from + i - p->n;
            const struct cw_feature_spec *want = &p->items[k];
            if (want->key_size != f.key_size || memcmp(want->key, f.key, f.key_size) != 0)
                continue;
            found[k] = f;
            likely = k + 1 < p->n ? k + 1 : 0;
        }
    if (r < 0)
        cw_block_fail(b, row, op->desc->name, "malformed Example: %s at byte %zu of %zu", walk.why,
                      walk.where, record.size);
    return r == 0;
}

/* *ret of parse_example_check_feature: the number of values of a feature, or TAKE_DEFAULT. It returns false
 * if the record failed. */
enum { TAKE_DEFAULT = -1 };

static bool parse_example_check_feature(const struct cw_feature_spec *want, const struct cw_feature *f,
                                        const struct cw_op *op, struct cw_block *b, size_t row, int64_t *ret)
{
    const char *name = op->desc->name, *kind = cw_feature_kind_name(parse_example_kind_of(want->dtype));
    int key_size = (int)CW_MIN(want->key_size, (size_t)80);
    int64_t n = *ret = f->kind == CW_FEATURE_NONE ? 0 : cw_feature_count(f);
    if (n < 0)
        return cw_block_fail(b, row, name,
                             "malformed Example: the values of the feature \"%.*s\" can't "
                             "be read",
                             key_size, want->key);
    /* The feature is missing, or empty and not variable. */
    if (f->kind == CW_FEATURE_NONE || (n == 0 && !want->variable)) {
        if (want->has_default || want->variable) {
            *ret = want->has_default ? TAKE_DEFAULT : 0;
            return true;
        }
        return cw_block_fail(b, row, name, "the feature \"%.*s\" (%s) is %s and has no default", key_size,
                             want->key, kind, f->key ? "empty" : "missing");
    }
    if (f->kind != parse_example_kind_of(want->dtype))
        return cw_block_fail(b, row, name, "the feature \"%.*s\" holds %s, expected %s", key_size, want->key,
                             cw_feature_kind_name(f->kind), kind);
    if (want->variable ? n % want->n_values == 0 : n == want->n_values)
        return true;
    return cw_block_fail(b, row, name,
                         "the feature \"%.*s\" holds %" PRId64 " values of %s, expected %s%" PRId64, key_size,
                         want->key, n, kind, want->variable ? "a multiple of " : "", want->n_values);
}

static int parse_example_extract(const struct cw_feature_spec *want, const struct cw_feature *f, int64_t n,
                                 const struct cw_port *port, struct cw_block *b, size_t row,
                                 struct cw_error *err)
{
    if (n == TAKE_DEFAULT)
        return cw_feature_default(want, port, b, row, err);
    if (want->dtype == CW_BYTES) {
        struct cw_bytes_view view;
        cw_feature_bytes(f, &view);
        cw_feature_bytes_row(port, b, row, view.data, view.size);
        return 0;
    }
    void *out = cw_feature_row(want, port, b, row, n, err);
    if (!out)
        return err ? err->status : CW_E_MEMORY;
    if (n && want->dtype == CW_INT64)
        cw_feature_integers(f, sizeof(int64_t), out);
    else if (n)
        cw_feature_floats(f, out);
    return 0;
}

static int parse_example_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_feature_specs *p = op->state;
    struct cw_feature found[CW_OP_MAX_PORTS];
    int64_t counts[CW_OP_MAX_PORTS];
    int r = cw_feature_columns(p, op, b, err);
    CW_ROWS_OK(row, b, r == 0)
    {
        if (!parse_example_find_features(p, op, b, row, found))
            continue;
        bool good = true;
        for (unsigned i = 0; good && i < p->n; i++)
            if (op->out[p->items[i].port].live)
                good = parse_example_check_feature(&p->items[i], &found[i], op, b, row, &counts[i]);
        for (unsigned i = 0; good && r == 0 && i < p->n; i++) {
            const struct cw_port *port = &op->out[p->items[i].port];
            if (port->live)
                r = parse_example_extract(&p->items[i], &found[i], counts[i], port, b, row, err);
        }
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    {.name = "features",
     .kind = CW_ATTR_OBJECT,
     .doc = "the components to read: {name: \"bytes\"|\"int64\"|\"float32\"}, or {name: {key, dtype, shape, "
            "variable, default}}"},
    {.name = "component",
     .kind = CW_ATTR_COMPONENT,
     .def = "\"record\"",
     .doc = "the component with the bytes of the Example"},
    {0},
};

const struct cw_op_desc cw_op_parse_example = {
    .name = "parse_example",
    .summary = "reads components from a tf.train.Example, drops all other components",
    .doc = "In `features`, a dtype alone declares a feature of exactly one value, a scalar. An object "
           "declares the feature `key` (default: the component's name), with values of `dtype`, exactly as "
           "many as `shape` holds. If `variable` is true, the feature may hold any number of arrays of this "
           "shape, and the component has one more dimension in front, which varies. `default` (a string, one "
           "number for all values, or a list of numbers) is used if the feature is missing, or if it is "
           "empty and not variable. Without a default, a variable feature then has no values, and any other "
           "feature fails the record. A record also fails if a feature has another dtype or number of "
           "values, or if the Example is malformed.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = parse_example_bind,
    .run = parse_example_run,
    .free_state = cw_feature_specs_free,
};
