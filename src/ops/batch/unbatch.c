/* unbatch: the rows of an element, along the first dimension of its components, become elements. */
#include "ops/batch/unbatch.h"

#include <inttypes.h>
#include <string.h>

struct unbatch {
    char *names[CW_OP_MAX_PORTS]; /* by port: the component, for messages */
};

void cw_unbatch_free(void *state)
{
    struct unbatch *u = state;
    for (size_t i = 0; i < CW_OP_MAX_PORTS; i++)
        free(u->names[i]);
    free(u);
}

int cw_unbatch_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    size_t n = cw_bind_count(b);
    struct unbatch *u = op->state = calloc(1, sizeof(*u));
    if (!u)
        return cw_error_nomem(err, sizeof(*u), "unbatch");
    for (size_t i = 0; i < n; i++) {
        struct cw_type type;
        char shown[160];
        const char *name = cw_bind_name(b, i, NULL);
        int r = cw_bind_read(b, name, &type, err);
        if (r < 0)
            return r;
        if (!(u->names[r] = strdup(name)))
            return cw_error_nomem(err, strlen(name), "a component");
        if (type.ndim == 0 || type.dtype == CW_BYTES)
            return cw_error_value(err, CW_E_PIPELINE, "component", name, "a component with a first dimension",
                                  "%s: component \"%s\" is %s: expected a first dimension in every "
                                  "component; leave the component out before with drop or select",
                                  op->desc->name, name, cw_type_print(&type, shown));
    }
    for (size_t i = 0; i < n; i++) { /* writing a component does not change the order of the names */
        struct cw_type type;
        const char *name = cw_bind_name(b, i, &type);
        if (type.ndim > 0)
            memmove(type.dims, type.dims + 1, (size_t)--type.ndim * sizeof(type.dims[0]));
        int r = cw_bind_write(b, name, &type, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Returns the number of rows of an element, or fails it. */
static uint32_t unbatch_count(const struct cw_op *op, struct cw_block *b, size_t row)
{
    const struct unbatch *u = op->state;
    int64_t n = 0;
    for (unsigned k = 0; k < op->n_in; k++) {
        struct cw_tensor t = cw_in(op, b, k, row);
        if (t.ndim == 0)
            return cw_block_fail(b, row, op->desc->name, "%s has no dimensions: expected at least one",
                                 u->names[k]);
        if (k > 0 && t.dims[0] != n)
            return cw_block_fail(b, row, op->desc->name,
                                 "%s has %" PRIi64 " rows, but %s has %" PRIi64
                                 ": expected equally many in all components",
                                 u->names[k], t.dims[0], u->names[0], n);
        n = t.dims[0];
    }
    if (n > UINT32_MAX)
        return cw_block_fail(b, row, op->desc->name, "%" PRIi64 " rows: expected fewer than 2^32", n);
    return (uint32_t)n;
}

/* Makes port k of all rows a column of the expansion: a view of the elements where they lie one after the
 * other. */
static int unbatch_column(const struct cw_op *op, unsigned k, const struct cw_block *b, const uint32_t *given,
                          const struct cw_expansion *e, bool whole, struct cw_error *err)
{
    const struct cw_port *out = &op->out[k];
    const struct cw_column *from = &b->columns[op->in[k].value];
    struct cw_column *to = &e->columns[out->value];
    if (whole && from->dense) {
        *to = (struct cw_column){
            .dense = true, .data = from->data, .stride = cw_type_bytes(&out->type), .type = &out->type};
        return 0;
    }
    struct cw_block all = {.n = e->n, .arena = b->arena, .columns = e->columns};
    int r = cw_block_column(&all, out->value, &out->type, err);
    for (size_t row = 0, at = 0; row < b->n && r >= 0; at += CW_MAX(given[row], 1u), row++) {
        struct cw_tensor t = cw_in(op, b, k, row);
        size_t n = given[row], bytes = n ? t.size / n : 0;
        if (to->dense && n * bytes > 0)
            memcpy(to->data + at * to->stride, t.data, n * bytes);
        for (size_t i = 0; i < n && !to->dense; i++) {
            to->rows[at + i] = (struct cw_tensor){
                .data = (uint8_t *)t.data + i * bytes, .size = bytes, .ndim = t.ndim - 1};
            memcpy(to->rows[at + i].dims, t.dims + 1, (size_t)(t.ndim - 1) * sizeof(t.dims[0]));
        }
    }
    return r;
}

int cw_unbatch_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    uint32_t *given = cw_block_alloc(b, b->n * sizeof(*given), err);
    if (!given)
        return err ? err->status : CW_E_MEMORY;
    bool whole = b->all_ok; /* every element has rows, equally many if the column is dense */
    for (size_t row = 0; row < b->n; row++) {
        given[row] = b->status[row] == CW_ROW_OK ? unbatch_count(op, b, row) : 0;
        whole &= given[row] > 0;
    }
    struct cw_expansion *e;
    int r = cw_block_expand(b, given, &e, err);
    for (unsigned k = 0; k < op->n_out && r >= 0; k++)
        if (op->out[k].live)
            r = unbatch_column(op, k, b, given, e, whole, err);
    return r;
}

static const struct cw_attr_def attrs[] = {{0}};

const struct cw_op_desc cw_op_unbatch = {
    .name = "unbatch",
    .summary = "makes elements of the rows of each element",
    .doc = "Row i of an element has part i of each component along its first dimension. Every component must "
           "have a first dimension, of the same size within an element. The rows of an element stay "
           "together, in order. If a `batch` comes before `unbatch`, both are left out: between them there "
           "may be only operators on elements, and the `batch` must keep the remainder and must not pad. The "
           "number of "
           "elements after `unbatch` is otherwise not known in advance. `unbatch` is not allowed with "
           "on_error \"replace\".",
    .kind = CW_OP_FLAT_MAP,
    .effects.count = CW_COUNT_ANY,
    .takes_batches = true,
    .attrs = attrs,
    .bind = cw_unbatch_bind,
    .run = cw_unbatch_run,
    .free_state = cw_unbatch_free,
};
