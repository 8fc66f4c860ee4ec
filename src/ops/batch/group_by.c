/* group_by: batches of elements with the same key. At run time it computes the key of each element, an int32;
 * the engine makes the batches. */
#include <inttypes.h>

#include "ops/batch/padding.h"
#include "ops/expr/expr.h"

static int group_by_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_expr *key;
    int r = cw_expr_bind(b, op, "key", cw_attr_string(op, "key"), CW_EXPR_INTEGER, &key, err);
    if (r < 0)
        return r;
    op->state = key;
    r = cw_padding_bind(b, op, err);
    struct cw_type type = cw_type_scalar(CW_INT32);
    if (r >= 0)
        r = cw_bind_write(b, NULL, &type, err);
    return CW_MIN(r, 0);
}

static int group_by_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    int64_t *keys = cw_block_alloc(b, b->n * sizeof(*keys), err), n = cw_attr_int(op, "keys");
    if (!keys)
        return err ? err->status : CW_E_MEMORY;
    int r = cw_expr_eval_into(op->state, op->in, op->desc->name, b, keys, err);
    if (r >= 0)
        r = cw_block_dense(b, op->out[0].value, &op->out[0].type, err);
    if (r < 0)
        return r;
    int32_t *to = (int32_t *)(void *)b->columns[op->out[0].value].data;
    for (size_t i = 0; i < b->n; i++) {
        to[i] = 0;
        if (b->status[i] == CW_ROW_OK && (keys[i] < 0 || keys[i] >= n))
            cw_block_fail(b, i, op->desc->name,
                          "the key is %" PRIi64 ": expected an integer from 0 to %" PRIi64
                          " (keys is %" PRIi64 ")",
                          keys[i], n - 1, n);
        else if (b->status[i] == CW_ROW_OK)
            to[i] = (int32_t)keys[i];
    }
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "key",
     .kind = CW_ATTR_EXPR,
     .doc = "the key of an element: an expression that gives an integer from 0 on"},
    {.name = "keys", .kind = CW_ATTR_INT, .min = 1, .max = CW_KEYS_MAX, .doc = "number of different keys"},
    CW_BATCH_ATTRS,
    {0},
};

static const struct cw_batcher batcher = {
    .sizes = "size", .keys = "keys", .keyed = true, .padding = cw_padding_read};

const struct cw_op_desc cw_op_group_by = {
    .name = "group_by",
    .summary = "makes batches of elements with the same key",
    .doc = "A batch is made as soon as `size` elements of one key have come. At the end of the epoch the "
           "elements that are left make smaller batches, in ascending order of the keys. For a key without a "
           "bound, group by its remainder: `number % 100`.",
    .kind = CW_OP_BATCHER,
    .effects = {.count = CW_COUNT_GROUPS, .state = CW_STATE_COUNTED},
    .batcher = &batcher,
    .attrs = attrs,
    .bind = group_by_bind,
    .run = group_by_run,
    .free_state = cw_expr_free,
};
