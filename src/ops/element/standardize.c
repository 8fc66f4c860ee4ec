/* standardize: (x - mean) / std per feature, in float64. */
#include <stdlib.h>

#include "data/convert.h"
#include "ops/element/component.h"

struct standardize {
    size_t n; /* features; 1: the same mean and std for all values */
    const double *mean, *std;
    double values[];
};

static int standardize_state(struct cw_op *op, size_t n, struct cw_error *err)
{
    size_t bytes = sizeof(struct standardize) + 2 * n * sizeof(double);
    struct standardize *s = op->state = malloc(bytes);
    if (!s)
        return cw_error_nomem(err, bytes, "mean and std");
    *s = (struct standardize){.n = n, .mean = s->values, .std = s->values + n};
    for (size_t i = 0; i < n; i++) { /* a single value stands for all features */
        s->values[i] = cw_attr_float_at(op, "mean", cw_attr_len(op, "mean") == 1 ? 0 : i);
        s->values[n + i] = cw_attr_float_at(op, "std", cw_attr_len(op, "std") == 1 ? 0 : i);
        if (s->std[i] == 0)
            return cw_attr_error(op, "std", err, "values other than 0");
    }
    return 0;
}

static int standardize_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    size_t means = cw_attr_len(op, "mean"), stds = cw_attr_len(op, "std"), n = CW_MAX(means, stds);
    char text[160];
    int r = cw_component_bind(b, op, &type, err);
    if (r < 0)
        return r;
    if (means != stds && means != 1 && stds != 1)
        return cw_attr_error(op, "std", err, "%zu values, the number that mean has, or 1", means);
    if (n > 1 && (type.ndim < 1 || type.dims[type.ndim - 1] != (int64_t)n))
        return cw_attr_error(
            op, means == n ? "mean" : "std", err,
            "1 value, or one for each feature: \"%s\" is %s, so its last dimension is not %zu",
            cw_attr_string(op, "component"), cw_type_print(&type, text), n);
    type.dtype = cw_attr_dtype(op, "dtype");
    if (!cw_dtype_is_float(type.dtype))
        return cw_attr_error(op, "dtype", err, "float16, bfloat16, float32 or float64");
    r = standardize_state(op, n, err);
    return r < 0 ? r : cw_component_write(b, op, "component", &type, err);
}

static void standardize_values(const struct cw_op *op, void *dst, const void *src, size_t n, void *scratch)
{
    const struct standardize *s = op->state;
    double *v = scratch;
    cw_convert(op->in[0].type.dtype, CW_FLOAT64, v, src, n);
    if (s->n == 1) {
        double mean = s->mean[0], std = s->std[0];
        for (size_t i = 0; i < n; i++)
            v[i] = (v[i] - mean) / std;
    } else {
        for (size_t i = 0; i < n; i += s->n)
            for (size_t c = 0; c < s->n; c++)
                v[i + c] = (v[i + c] - s->mean[c]) / s->std[c];
    }
    for (size_t i = 0; i < n; i++) /* processors make NaNs of different bits */
        v[i] = v[i] != v[i] ? __builtin_nan("") : v[i];
    cw_convert(CW_FLOAT64, op->out[0].type.dtype, dst, v, n);
}

static int standardize_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    return cw_component_run(op, block, standardize_values, sizeof(double), err);
}

static const struct cw_attr_def attrs[] = {
    CW_COMPONENT_ATTR,
    {.name = "mean",
     .kind = CW_ATTR_FLOATS,
     .len_min = 1,
     .len_max = 65536,
     .scalar_too = true,
     .doc = "value to subtract, per feature; a single number: of all features"},
    {.name = "std",
     .kind = CW_ATTR_FLOATS,
     .len_min = 1,
     .len_max = 65536,
     .scalar_too = true,
     .doc = "value to divide the difference by, per feature; a single number: of all features"},
    {.name = "dtype",
     .kind = CW_ATTR_DTYPE,
     .def = "\"float32\"",
     .doc = "dtype of the result: float16, bfloat16, float32 or float64"},
    {0},
};

const struct cw_op_desc cw_op_standardize = {
    .name = "standardize",
    .summary = "computes (x - mean) / std for each feature",
    .doc = "The last dimension holds the features; a component may have any other dimensions, or be a single "
           "value. The computation is in float64, and its result is rounded once. For images, `normalize` "
           "is faster.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = standardize_bind,
    .run = standardize_run,
    .free_state = free,
};
