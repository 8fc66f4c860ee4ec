/* map: a Python function computes each element, in host processes. */
#include "ops/python/function.h"

static const struct cw_attr_def attrs[] = {
    CW_FUNCTION_ATTRS, CW_FUNCTION_CONCURRENCY, CW_FUNCTION_OUTPUTS, {0}};

const struct cw_op_desc cw_op_map = {
    .name = "map",
    .summary = "replaces each element by the result of a Python function",
    .doc = "The function gets the element as a dict of NumPy arrays and scalars (bytes as bytes) and returns "
           "such a dict. Components that the function does not return are dropped. It runs in host "
           "processes: child processes with a Python interpreter, one for each compute thread. The record "
           "fails if the function raises an exception. It also fails if in every attempt the host process "
           "dies or the call takes longer than `timeout_s`.",
    .kind = CW_OP_MAP,
    .function = true,
    .attrs = attrs,
    .bind = cw_function_bind,
    .run = cw_function_map_run,
    .free_state = cw_function_free,
};
