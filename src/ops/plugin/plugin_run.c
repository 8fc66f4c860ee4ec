/* Runs an operator of a plug-in: calls the plug-in's function `run` for each element of a block. An element
 * fails if `run` returns an error for it, or does not keep to the operator's declaration. Only lack of memory
 * ends the whole iteration. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "ops/plugin/plugin_impl.h"

struct running {
    struct cachew_row face; /* what the plug-in sees; the first member, so plugin_run_of can cast back */
    const struct cw_op *op;
    const struct cw_plugin_bound *bound;
    struct cw_block *block;
    size_t row;
    uint64_t written; /* outputs of this element that `run` has written: bit i for output i */
    int status;       /* < 0: an allocation failed (CW_E_MEMORY or CW_E_BUDGET), and err says why; else 0 */
    void *scratch;
    size_t scratch_size;
    struct cw_error *err;
    struct cachew_tensor in[CW_OP_MAX_PORTS];
};

_Static_assert(CW_OP_MAX_PORTS <= 64, "a bit of `written` for each output");

static struct running *plugin_run_of(struct cachew_row *row)
{
    return (struct running *)(void *)row;
}

#define fail_element(x, ...) cw_block_fail((x)->block, (x)->row, (x)->op->desc->name, __VA_ARGS__)

/* Notes that an allocation failed, which ends the iteration. Returns NULL, for the plug-in. */
static void *plugin_run_no_memory(struct running *x)
{
    x->status = x->err && x->err->status < 0 ? x->err->status : CW_E_MEMORY;
    return NULL;
}

/* ---- outputs ---- */

static const struct cw_port *plugin_run_port_of(struct running *x, unsigned output)
{
    if (output < x->op->n_out)
        return &x->op->out[output];
    fail_element(x, "the plug-in writes output %u: bind declared %u outputs", output, x->op->n_out);
    return NULL;
}

static bool plugin_run_fits(const struct cw_type *type, const int64_t *dims, int ndim)
{
    if (ndim < 0 || ndim > CW_MAX_NDIM || (type->ndim >= 0 && ndim != type->ndim))
        return false;
    for (int i = 0; i < ndim; i++)
        if (dims[i] < 0 || (type->ndim >= 0 && type->dims[i] >= 0 && dims[i] != type->dims[i]))
            return false;
    return true;
}

static void *plugin_run_wrong_shape(struct running *x, unsigned output, const int64_t *dims, int ndim)
{
    const struct cw_type *type = &x->op->out[output].type;
    struct cw_type given = {.dtype = type->dtype, .ndim = ndim};
    char declared[160], text[160];
    cw_type_print(type, declared);
    if (!dims)
        snprintf(text, sizeof(text), "with no shape");
    else if (ndim < 0 || ndim > CW_MAX_NDIM)
        snprintf(text, sizeof(text), "with %d dimensions", ndim);
    else {
        char shape[160];
        memcpy(given.dims, dims, (size_t)ndim * sizeof(*dims));
        snprintf(text, sizeof(text), "as %.140s", cw_type_print(&given, shape));
    }
    fail_element(x, "the plug-in writes output %u %s: bind declared %s", output, text, declared);
    return NULL;
}

static void *plugin_run_row_output(struct cachew_row *row, unsigned output, const int64_t *dims, int ndim)
{
    struct running *x = plugin_run_of(row);
    const struct cw_port *port = plugin_run_port_of(x, output);
    if (!port)
        return NULL;
    const struct cw_type *type = &port->type;
    if (type->dtype == CW_BYTES) {
        fail_element(x, "the plug-in writes output %u as an array: bind declared bytes", output);
        return NULL;
    }
    if (!dims && cw_type_fixed(type)) {
        dims = type->dims;
        ndim = type->ndim;
    }
    if ((!dims && ndim != 0) || !plugin_run_fits(type, dims, ndim))
        return plugin_run_wrong_shape(x, output, dims, ndim);
    x->written |= UINT64_C(1) << output;
    void *data = cw_block_row_out(x->block, port->value, type, x->row, dims, ndim, x->err);
    return data ? data : plugin_run_no_memory(x);
}

static void *plugin_run_row_bytes(struct cachew_row *row, unsigned output, size_t size)
{
    struct running *x = plugin_run_of(row);
    const struct cw_port *port = plugin_run_port_of(x, output);
    if (!port)
        return NULL;
    if (port->type.dtype != CW_BYTES) {
        char declared[160];
        fail_element(x, "the plug-in writes output %u as bytes: bind declared %s", output,
                     cw_type_print(&port->type, declared));
        return NULL;
    }
    x->written |= UINT64_C(1) << output;
    void *data = cw_block_alloc(x->block, size, x->err);
    x->block->columns[port->value].rows[x->row] = (struct cw_tensor){.data = data, .size = size};
    return data ? data : plugin_run_no_memory(x);
}

static int plugin_run_row_wanted(struct cachew_row *row, unsigned output)
{
    const struct running *x = plugin_run_of(row);
    return output < x->op->n_out && x->op->out[output].live;
}

/* ---- other functions that `run` may call ---- */

static void *plugin_run_row_scratch(struct cachew_row *row, size_t size)
{
    struct running *x = plugin_run_of(row);
    if (size > x->scratch_size || !x->scratch) {
        size_t most = CW_MAX(size,
                             x->scratch_size * 2); /* smaller scratch from before is freed with the block */
        x->scratch = cw_block_alloc(x->block, most, x->err);
        x->scratch_size = x->scratch ? most : 0;
    }
    return x->scratch ? x->scratch : plugin_run_no_memory(x);
}

static void plugin_run_row_draw(struct cachew_row *row, uint32_t n, uint32_t words[4])
{
    struct running *x = plugin_run_of(row);
    memset(words, 0, 4 * sizeof(*words));
    if (x->op->desc->effects.random)
        cw_block_draw(x->block, x->op->index, x->row, n, words);
    else
        fail_element(x, "the plug-in draws random numbers, but its descriptor does not set `random`");
}

static int plugin_run_row_fail(struct cachew_row *row, const char *text)
{
    char clean[300];
    snprintf(clean, sizeof(clean), "%s", text ? text : "");
    cw_plugin_clean(clean);
    fail_element(plugin_run_of(row), "%s", clean);
    return CACHEW_E_RECORD;
}

static const struct cachew_row_calls calls = {
    .output = plugin_run_row_output,
    .bytes = plugin_run_row_bytes,
    .wanted = plugin_run_row_wanted,
    .scratch = plugin_run_row_scratch,
    .draw = plugin_run_row_draw,
    .fail_row = plugin_run_row_fail,
};

/* ---- blocks ---- */

/* Makes a column for each output, also for those that nothing reads, because a plug-in may write them. */
static int plugin_run_make_columns(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    int r = 0;
    for (unsigned i = 0; i < op->n_out && r >= 0; i++) {
        const struct cw_port *out = &op->out[i];
        r = cw_type_fixed(&out->type) && out->live ? cw_block_dense(block, out->value, &out->type, err)
                                                   : cw_block_ragged(block, out->value, err);
    }
    return r;
}

static void plugin_run_set_inputs(struct running *x)
{
    for (unsigned i = 0; i < x->bound->n_in; i++) {
        const struct cw_port *port = &x->op->in[x->bound->in[i]];
        const struct cw_column *c = &x->block->columns[port->value];
        const struct cw_tensor *row = c->dense ? NULL : &c->rows[x->row];
        x->in[i] = (struct cachew_tensor){.dtype = (enum cachew_dtype)port->type.dtype,
                                          .data = row ? row->data : c->data + x->row * c->stride,
                                          .size = row ? row->size : c->stride,
                                          .ndim = row ? row->ndim : c->type->ndim,
                                          .dims = row ? row->dims : c->type->dims};
    }
}

/* Sets the element's status from the result of `run`. < 0: memory is exhausted, and the iteration ends. */
static int plugin_run_settle(struct running *x, int result)
{
    uint8_t *status = &x->block->status[x->row];
    if (x->status < 0)
        return x->status;
    if (*status == CW_ROW_FAILED)
        return 0;
    if (result == CACHEW_E_MEMORY)
        return cw_error_nomem(x->err, 0, x->op->desc->name);
    if (result == CACHEW_DROP && x->op->desc->kind == CW_OP_FILTER) {
        *status = CW_ROW_DROPPED;
        x->block->all_ok = false;
    } else if (result != CACHEW_OK) {
        fail_element(x,
                     "the plug-in's run returned %d: expected CACHEW_OK%s, or the result of cachew_row_fail",
                     result, x->op->desc->kind == CW_OP_FILTER ? ", CACHEW_DROP" : "");
    }
    for (unsigned i = 0; i < x->op->n_out && *status == CW_ROW_OK; i++)
        if (x->op->out[i].live && !(x->written >> i & 1))
            fail_element(x, "the plug-in did not write output %u", i);
    return 0;
}

int cw_plugin_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const struct cw_plugin_bound *bound = op->state;
    struct running x; /* `in` is most of its size, and is filled in only for the inputs that exist */
    memset(&x, 0, offsetof(struct running, in));
    x.face = (struct cachew_row){.calls = &calls, .in = x.in};
    x.op = op;
    x.bound = bound;
    x.block = block;
    x.err = err;
    int r = plugin_run_make_columns(op, block, err);
    for (; r >= 0 && x.row < block->n; x.row++) {
        if (block->status[x.row] != CW_ROW_OK)
            continue;
        plugin_run_set_inputs(&x);
        x.written = 0;
        r = plugin_run_settle(&x, bound->from->run(bound->state, &x.face));
    }
    return r;
}
