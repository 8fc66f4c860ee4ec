/* flat_map: a Python function returns any number of elements for each element. */
#include <string.h>

#include "ops/python/function.h"

struct given { /* the elements that a row gives */
    uint32_t n;
    struct cw_tensor *values; /* for each of the n elements, a value for each output */
};

static int flat_row(void *arg, const struct cw_op *op, struct cw_block *b, const struct cw_exchange_answer *a,
                    size_t row, size_t first, uint32_t elements, bool kept CW_UNUSED, struct cw_error *err)
{
    struct given *g = (struct given *)arg + row;
    g->values = cw_block_alloc(b, (size_t)elements * op->n_out * sizeof(*g->values), err);
    if (!g->values)
        return err ? err->status : CW_E_MEMORY;
    g->n = elements;
    for (uint32_t i = 0; i < elements; i++)
        for (unsigned k = 0; k < op->n_out; k++) {
            struct cw_tensor *t = &g->values[(size_t)i * op->n_out + k];
            if (!op->out[k].live)
                continue;
            int r = cw_function_value(op, a, k, first + i, t, err);
            if (r < 0)
                return r;
            void *copy = cw_block_alloc(b, t->size, err);
            if (!copy)
                return err ? err->status : CW_E_MEMORY;
            if (t->size)
                memcpy(copy, t->data, t->size);
            t->data = copy;
        }
    return 0;
}

/* Makes output k of all elements a column of the expansion. */
static int flat_map_put_column(const struct cw_op *op, unsigned k, const struct cw_block *b,
                               const struct given *given, struct cw_expansion *e, struct cw_error *err)
{
    const struct cw_port *port = &op->out[k];
    struct cw_block to = {.n = e->n, .arena = b->arena, .columns = e->columns};
    int r = cw_block_column(&to, port->value, &port->type, err);
    struct cw_column *c = &e->columns[port->value];
    size_t at = 0;
    for (size_t row = 0; row < b->n && r >= 0; row++) {
        const struct given *g = &given[row];
        for (uint32_t i = 0; i < g->n; i++) {
            const struct cw_tensor *t = &g->values[(size_t)i * op->n_out + k];
            if (!c->dense)
                c->rows[at + i] = *t;
            else if (t->size)
                memcpy(c->data + (at + i) * c->stride, t->data, t->size);
        }
        at += CW_MAX(g->n, 1);
    }
    return r;
}

static int flat_map_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    struct given *given = cw_block_alloc(b, b->n * sizeof(*given), err);
    uint32_t *counts = cw_block_alloc(b, b->n * sizeof(*counts), err);
    if (!given || !counts)
        return err ? err->status : CW_E_MEMORY;
    memset(given, 0, b->n * sizeof(*given));
    int r = cw_function_run(op, b, flat_row, given, err);
    if (r < 0)
        return r;
    struct cw_expansion *e;
    for (size_t row = 0; row < b->n; row++)
        counts[row] = given[row].n;
    r = cw_block_expand(b, counts, &e, err);
    for (unsigned k = 0; k < op->n_out && r >= 0; k++)
        if (op->out[k].live)
            r = flat_map_put_column(op, k, b, given, e, err);
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_FUNCTION_ATTRS, CW_FUNCTION_CONCURRENCY, CW_FUNCTION_OUTPUTS, {0}};

const struct cw_op_desc cw_op_flat_map = {
    .name = "flat_map",
    .summary = "replaces each element by any number of elements that a Python function returns",
    .doc = "The function gets the element in the same form as that of `map`. It returns a list of dicts, or "
           "is a generator of dicts. The elements made from one record stay together, in order. The number "
           "of elements after `flat_map` is not known in advance. `flat_map` is not allowed with on_error "
           "\"replace\".",
    .kind = CW_OP_FLAT_MAP,
    .effects.count = CW_COUNT_ANY,
    .function = true,
    .attrs = attrs,
    .bind = cw_function_bind,
    .run = flat_map_run,
    .free_state = cw_function_free,
};
