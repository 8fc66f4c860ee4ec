/* map: a Python function computes each element, in host processes. */
#include <string.h>

#include "ops/python/function.h"

static int map_row(void *arg CW_UNUSED, const struct cw_op *op, struct cw_block *b,
                   const struct cw_exchange_answer *a, size_t row, size_t first, uint32_t elements CW_UNUSED,
                   bool kept CW_UNUSED, struct cw_error *err)
{
    for (unsigned k = 0; k < op->n_out; k++) {
        const struct cw_port *port = &op->out[k];
        struct cw_tensor t;
        if (!port->live)
            continue;
        int r = cw_function_value(op, a, k, first, &t, err);
        if (r < 0)
            return r;
        struct cw_column *c = &b->columns[port->value];
        if (!c->dense) {
            struct cw_tensor *to = &c->rows[row];
            *to = t;
            to->data = cw_block_alloc(b, t.size, err);
            if (!to->data)
                return err ? err->status : CW_E_MEMORY;
        }
        if (t.size)
            memcpy(c->dense ? c->data + row * c->stride : c->rows[row].data, t.data, t.size);
    }
    return 0;
}

static int map_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    for (unsigned k = 0; k < op->n_out; k++) {
        const struct cw_port *port = &op->out[k];
        int r = !port->live ? 0 : cw_block_column(b, port->value, &port->type, err);
        if (r < 0)
            return r;
    }
    return cw_function_run(op, b, map_row, NULL, err);
}

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
    .run = map_run,
    .free_state = cw_function_free,
};
