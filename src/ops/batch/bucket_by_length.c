/* bucket_by_length: batches of elements of similar length. At run time it computes the bucket of each
 * element, an int32; the engine makes the batches. */
#include <math.h>
#include <string.h>

#include "data/convert.h"
#include "ops/expr/expr.h"
#include "pipeline/roles.h"

/* Largest number of buckets. The entries of a batch (places.c) take 16 bytes per bucket, so at most 16 KiB,
 * and a worker sends the number of a bucket in at most 2 bytes. */
#define BUCKETS_MAX 1024

struct bucket_state {
    struct cw_expr *length;
    size_t n;
    int64_t boundaries[];
};

static void bucket_free(void *state)
{
    struct bucket_state *s = state;
    cw_expr_free(s->length);
    free(s);
}

/* Sets ret to the padding of a component, in its dtype: the value in the attribute `pad`. Leaves ret
 * unchanged if `pad` does not name the component. */
static void bucket_pad(const json_t *attrs, const char *component, enum cw_dtype dtype, uint8_t ret[8])
{
    const json_t *v = json_object_get(json_object_get(attrs, "pad"), component);
    double d = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
    int64_t i = json_integer_value(v);
    if (v && json_is_integer(v))
        cw_convert(CW_INT64, dtype, ret, &i, 1);
    else if (v)
        cw_convert(CW_FLOAT64, dtype, ret, &d, 1);
}

/* Whether a dtype can hold the padding of a component: integers must hold it exactly; in a floating dtype it
 * must be finite. bool holds any value. */
static bool bucket_pad_fits(const struct cw_op *op, const char *component, enum cw_dtype dtype)
{
    uint8_t bits[8] = {0};
    const json_t *pad = json_object_get(cw_attr_json(op, "pad"), component);
    double back, value = json_number_value(pad);
    if (dtype == CW_BOOL || json_is_boolean(pad))
        return true;
    bucket_pad(op->attrs, component, dtype, bits);
    cw_convert(dtype, CW_FLOAT64, &back, bits, 1);
    return cw_dtype_is_float(dtype) ? isfinite(back) : back == value;
}

static int bucket_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    size_t n = cw_attr_len(op, "boundaries");
    if (cw_attr_len(op, "sizes") != n + 1)
        return cw_attr_error(op, "sizes", err, "one more value than boundaries has: %zu", n + 1);
    struct bucket_state *s = calloc(1, sizeof(*s) + n * sizeof(s->boundaries[0]));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "bucket_by_length");
    op->state = s;
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        s->boundaries[i] = cw_attr_int_at(op, "boundaries", i);
        if (i && s->boundaries[i] <= s->boundaries[i - 1])
            return cw_attr_error(op, "boundaries", err, "integers in strictly ascending order");
    }
    int r = cw_expr_bind(b, op, "length", cw_attr_string(op, "length"), CW_EXPR_INTEGER, &s->length, err);
    if (r < 0)
        return r;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)cw_attr_json(op, "pad"), name, value)
    {
        size_t i = 0;
        struct cw_type type;
        while (i < cw_bind_count(b) && strcmp(cw_bind_name(b, i, &type), name) != 0)
            i++;
        if (i == cw_bind_count(b) || type.dtype == CW_BYTES ||
            !(json_is_number(value) || json_is_boolean(value)))
            return cw_attr_error(
                op, "pad", err,
                "{component: number}; \"%.60s\" is not a component of numbers, or its value is not a number",
                name);
        if (!bucket_pad_fits(op, name, type.dtype))
            return cw_attr_error(op, "pad", err,
                                 "padding that fits the dtype of its component; \"%.60s\" has dtype %s", name,
                                 cw_dtype_name(type.dtype));
    }
    struct cw_type bucket = cw_type_scalar(CW_INT32);
    r = cw_bind_write(b, NULL, &bucket, err);
    return r < 0 ? r : 0;
}

/* Returns the bucket of a length: the number of boundaries that are at most `length`. */
static int32_t bucket_of(const struct bucket_state *s, int64_t length)
{
    return (int32_t)CW_FIRST(i, 0, s->n, s->boundaries[i] > length);
}

static int bucket_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct bucket_state *s = op->state;
    int64_t *lengths = cw_block_alloc(b, b->n * sizeof(*lengths), err);
    if (!lengths)
        return err->status;
    int r = cw_expr_eval_into(s->length, op->in, op->desc->name, b, lengths, err);
    if (r >= 0)
        r = cw_block_dense(b, op->out[0].value, &op->out[0].type, err);
    if (r < 0)
        return r;
    int32_t *buckets = (int32_t *)(void *)b->columns[op->out[0].value].data;
    for (size_t i = 0; i < b->n; i++) {
        buckets[i] = b->status[i] == CW_ROW_OK ? bucket_of(s, lengths[i]) : 0;
    }
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "length",
     .kind = CW_ATTR_EXPR,
     .doc = "the length of an element: an expression that gives an integer"},
    {.name = "boundaries",
     .kind = CW_ATTR_INTS,
     .len_min = 1,
     .len_max = BUCKETS_MAX - 1,
     .doc = "limits between the buckets, in ascending order: bucket k holds lengths from boundaries[k-1] up "
            "to, but not including, boundaries[k]"},
    {.name = "sizes",
     .kind = CW_ATTR_INTS,
     .len_min = 2,
     .len_max = BUCKETS_MAX,
     .min = 1,
     .max = 1 << 20,
     .doc = "elements per batch, for each bucket: one value more than boundaries"},
    {.name = "pad",
     .kind = CW_ATTR_OBJECT,
     .def = "{}",
     .doc = "the value that pads each component: {component: value}; components that are not named are "
            "padded with 0"},
    {0},
};

static const struct cw_batcher batcher = {.sizes = "sizes",
                                          .keyed = true,
                                          .pad = bucket_pad,
                                          .differs = "its number of dimensions",
                                          .expected = "equal numbers of dimensions",
                                          .advice = ""};

const struct cw_op_desc cw_op_bucket_by_length = {
    .name = "bucket_by_length",
    .summary = "makes batches of elements of similar length, padded to the longest element of the batch",
    .doc = "Each element goes to the bucket of its length, and a batch is made of elements of one bucket. "
           "Components whose shape varies are padded at the end of each dimension to the largest size in "
           "the batch. Bytes are not padded.",
    .kind = CW_OP_BATCHER,
    .effects = {.count = CW_COUNT_GROUPS, .state = CW_STATE_COUNTED},
    .batcher = &batcher,
    .attrs = attrs,
    .bind = bucket_bind,
    .run = bucket_run,
    .free_state = bucket_free,
};
