/* bucketize: the number of the interval that each value lies in. */
#include <stdlib.h>

#include "data/convert.h"
#include "ops/element/component.h"

struct bucketize {
    size_t n;
    double boundaries[]; /* strictly ascending */
};

static int bucketize_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    size_t n = cw_attr_len(op, "boundaries");
    int r = cw_component_bind(b, op, &type, err);
    if (r < 0)
        return r;
    struct bucketize *s = op->state = malloc(sizeof(*s) + n * sizeof(s->boundaries[0]));
    if (!s)
        return cw_error_nomem(err, n * sizeof(s->boundaries[0]), "boundaries");
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        s->boundaries[i] = cw_attr_float_at(op, "boundaries", i);
        if (i && s->boundaries[i] <= s->boundaries[i - 1])
            return cw_attr_error(op, "boundaries", err, "numbers in strictly ascending order");
    }
    type.dtype = CW_INT64;
    return cw_component_write(b, op, "component", &type, err);
}

/* Returns the number of boundaries that are at most v; all of them if v is NaN. */
static size_t bucketize_one(const struct bucketize *s, double v)
{
    size_t low = 0, n = s->n;
    while (n > 0) {
        size_t half = n / 2;
        bool right = !(v < s->boundaries[low + half]);
        low = right ? low + half + 1 : low;
        n = right ? n - half - 1 : half;
    }
    return low;
}

static void bucketize_values(const struct cw_op *op, void *dst, const void *src, size_t n, void *scratch)
{
    const double *wide = scratch;
    int64_t *d = dst;
    cw_convert(op->in[0].type.dtype, CW_FLOAT64, scratch, src, n);
    for (size_t i = 0; i < n; i++)
        d[i] = (int64_t)bucketize_one(op->state, wide[i]);
}

static int bucketize_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    return cw_component_run(op, block, bucketize_values, sizeof(double), err);
}

static const struct cw_attr_def attrs[] = {
    CW_COMPONENT_ATTR,
    {.name = "boundaries",
     .kind = CW_ATTR_FLOATS,
     .len_min = 1,
     .len_max = 65536,
     .doc = "limits between the buckets, in ascending order: bucket k holds values from boundaries[k-1] up "
            "to, but not including, boundaries[k]"},
    {0},
};

const struct cw_op_desc cw_op_bucketize = {
    .name = "bucketize",
    .summary = "replaces each value by the number of its bucket (int64)",
    .doc = "The number of a value's bucket is the number of boundaries that are at most the value, as "
           "numpy.digitize gives it; NaN is in the last bucket. Values are compared with the boundaries as "
           "float64. The shape stays the same.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = bucketize_bind,
    .run = bucketize_run,
    .free_state = free,
};
