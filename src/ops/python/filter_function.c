/* filter_function: a Python function decides which elements are kept. */
#include "ops/python/function.h"

static int filter_row(void *arg CW_UNUSED, const struct cw_op *op CW_UNUSED, struct cw_block *b,
                      const struct cw_exchange_answer *a CW_UNUSED, size_t row, size_t first CW_UNUSED,
                      uint32_t elements CW_UNUSED, bool kept, struct cw_error *err CW_UNUSED)
{
    if (!kept) {
        b->status[row] = CW_ROW_DROPPED;
        b->all_ok = false;
    }
    return 0;
}

static int filter_function_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_function_run(op, b, filter_row, NULL, err);
}

static const struct cw_attr_def attrs[] = {CW_FUNCTION_ATTRS, CW_FUNCTION_CONCURRENCY, {0}};

const struct cw_op_desc cw_op_filter_function = {
    .name = "filter_function",
    .summary = "keeps the elements for which a Python function returns a true value, drops all others",
    .doc = "In Python it is written `filter(function)`. The function gets the element in the same form as "
           "that of `map`.",
    .kind = CW_OP_FILTER,
    .effects.count = CW_COUNT_FEWER,
    .function = true,
    .attrs = attrs,
    .bind = cw_function_bind,
    .run = filter_function_run,
    .free_state = cw_function_free,
};
