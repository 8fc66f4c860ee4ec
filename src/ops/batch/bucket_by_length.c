/* bucket_by_length: batches of elements of similar length. At run time it computes the bucket of each
 * element, an int32; the engine makes the batches. */
#include <string.h>

#include "ops/batch/padding.h"
#include "ops/expr/expr.h"

/* Largest group: the batches of a group wait in memory for each other. */
#define GROUP_MAX 1024

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

static int bucket_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    size_t n = cw_attr_len(op, "boundaries");
    if (cw_attr_len(op, "sizes") != n + 1)
        return cw_attr_error(op, "sizes", err, "one more value than boundaries has: %zu", n + 1);
    if (strcmp(cw_attr_string(op, "remainder"), "pad") == 0 && cw_attr_bool(op, "drop_remainder") &&
        cw_attr_int(op, "group") > 1)
        return cw_attr_error(
            op, "remainder", err,
            "\"next\" or \"drop\", because drop_remainder leaves out batches that are not full");
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
    r = cw_padding_bind(b, op, err);
    if (r < 0)
        return r;
    struct cw_type bucket = cw_type_scalar(CW_INT32);
    r = cw_bind_write(b, NULL, &bucket, err);
    return r < 0 ? r : 0;
}

/* Returns the bucket of a length: the number of boundaries that are at most `length`. */
static int32_t bucket_of(const struct bucket_state *s, int64_t length)
{
    return (int32_t)CW_FIRST(i, 0, s->n, s->boundaries[i] > length);
}

/* Returns the largest length that a bucket holds. */
static int64_t bucket_longest(const struct cw_op *op, unsigned key)
{
    const struct bucket_state *s = op->state;
    return key < s->n ? CW_MAX(s->boundaries[key] - 1, INT64_C(0)) : CW_PAD_LONGEST;
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

static const char *const pads[] = {"longest", "boundary", NULL};

static const char *const remainders[] = {"next", "pad", "drop", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "length",
     .kind = CW_ATTR_EXPR,
     .doc = "the length of an element: an expression that gives an integer"},
    {.name = "boundaries",
     .kind = CW_ATTR_INTS,
     .len_min = 1,
     .len_max = CW_KEYS_MAX - 1,
     .doc = "limits between the buckets, in ascending order: bucket k holds lengths from boundaries[k-1] up "
            "to, but not including, boundaries[k]"},
    {.name = "sizes",
     .kind = CW_ATTR_INTS,
     .len_min = 2,
     .len_max = CW_KEYS_MAX,
     .min = 1,
     .max = 1 << 20,
     .doc = "elements per batch, for each bucket: one value more than boundaries"},
    {.name = "pad",
     .kind = CW_ATTR_OBJECT,
     .def = "\"longest\"",
     .choices = pads,
     .scalar_too = true,
     .doc =
         "to which size components are padded, and with which value: \"longest\", the largest size in the "
         "batch; \"boundary\", the largest length that the bucket holds, boundaries[k] - 1 (in the last "
         "bucket: longest); a number: pad with it in place of 0; {component: number}, or {component: "
         "{\"value\": number, \"to\": \"longest\", \"boundary\" or [size of each dimension, or null]}}: for "
         "these components"},
    {.name = "drop_remainder",
     .kind = CW_ATTR_BOOL,
     .def = "false",
     .doc = "true: leave out the batches that are not full at the end of the epoch"},
    {.name = "group",
     .kind = CW_ATTR_INT,
     .def = "1",
     .min = 1,
     .max = GROUP_MAX,
     .doc = "number of consecutive batches that share a bucket: batches k*group to k*group + group - 1. The "
            "number of ranks must divide it"},
    {.name = "remainder",
     .kind = CW_ATTR_STRING,
     .def = "\"next\"",
     .choices = remainders,
     .doc = "what happens at the end of the epoch to the elements of a bucket that do not fill a group: "
            "`next`, they go to the next larger bucket, and those of the last bucket make a group of batches "
            "with fewer elements; `pad`, those of each bucket do (if there is an element for each batch; "
            "otherwise as `next`); `drop`, they are left out. With group 1, `next` is the same as `pad`: "
            "each bucket gives a short batch"},
    {0},
};

static const struct cw_batcher batcher = {
    .sizes = "sizes", .keyed = true, .padding = cw_padding_read, .longest = bucket_longest};

const struct cw_op_desc cw_op_bucket_by_length = {
    .name = "bucket_by_length",
    .summary = "makes batches of elements of similar length, padded to one shape",
    .doc = "Each element goes to the bucket of its length, and a batch is made of elements of one bucket. "
           "Components whose shape varies are padded at the end of each dimension. Bytes are not padded.",
    .kind = CW_OP_BATCHER,
    .effects = {.count = CW_COUNT_GROUPS, .state = CW_STATE_COUNTED},
    .batcher = &batcher,
    .attrs = attrs,
    .bind = bucket_bind,
    .run = bucket_run,
    .free_state = bucket_free,
};
