/* reshape: the same values in another shape. Copies nothing unless the result lies in a batch. */
#include "ops/element/reshape.h"

#include <stdlib.h>
#include <string.h>

#include "ops/element/component.h"

struct reshape {
    int ndim;
    int open;                  /* the dimension that is -1; -1: none */
    int64_t dims[CW_MAX_NDIM]; /* as given */
    size_t values;             /* product of the dimensions other than -1 */
};

/* Sets dims to the new shape of an array with n values. False: it does not fit. */
static bool reshape_dims(const struct reshape *s, size_t n, int64_t dims[CW_MAX_NDIM])
{
    memcpy(dims, s->dims, sizeof(s->dims));
    if (s->open < 0)
        return n == s->values;
    dims[s->open] = (int64_t)(n / s->values);
    return n % s->values == 0;
}

int cw_reshape_bind(struct cw_bind *b, struct cw_op *op, const char *attribute, const int64_t *dims, int ndim,
                    struct cw_error *err)
{
    struct cw_type type;
    char text[160];
    int r = cw_component_bind(b, op, &type, err);
    if (r < 0)
        return r;
    struct reshape *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a shape");
    *s = (struct reshape){.ndim = ndim, .open = -1, .values = 1};
    for (int i = 0; i < ndim; i++) {
        s->dims[i] = dims[i];
        if (dims[i] == -1 && s->open >= 0)
            return cw_attr_error(op, attribute, err, "at most one -1");
        if (dims[i] == -1)
            s->open = i;
        else if (__builtin_mul_overflow(s->values, (size_t)dims[i], &s->values) || s->values > SIZE_MAX / 64)
            return cw_attr_error(op, attribute, err, "a shape that fits in memory");
    }
    if (s->open >= 0 && s->values == 0)
        return cw_attr_error(op, attribute, err, "no 0 beside -1, whose size would not be defined");
    struct cw_type to = {.dtype = type.dtype, .ndim = ndim};
    memcpy(to.dims, s->dims, sizeof(to.dims));
    if (s->open >= 0)
        to.dims[s->open] = CW_VARIES;
    if (cw_type_fixed(&type) && !reshape_dims(s, cw_type_bytes(&type) / cw_dtype_size(type.dtype), to.dims))
        return cw_attr_error(op, attribute, err, "a shape for the %zu values of \"%.60s\", which is %s",
                             cw_type_bytes(&type) / cw_dtype_size(type.dtype),
                             cw_attr_string(op, "component"), cw_type_print(&type, text));
    return cw_component_write(b, op, "component", &to, err);
}

int cw_reshape_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const struct reshape *s = op->state;
    const struct cw_port *in = &op->in[0], *out = &op->out[0];
    const struct cw_column *from = &block->columns[in->value];
    size_t size = cw_dtype_size(out->type.dtype);
    int r;
    if (from->dense && cw_type_fixed(&out->type) && !(block->slots && block->slots[out->value])) {
        block->columns[out->value] = *from;
        block->columns[out->value].type = &out->type;
        return 0;
    }
    if ((r = cw_block_column(block, out->value, &out->type, err)) < 0)
        return r;
    const struct cw_column *to = &block->columns[out->value];
    if (to->dense && from->dense && from->stride == to->stride) {
        if (block->n && to->stride) /* rows that are not CW_ROW_OK too: copying them does no harm */
            memcpy(to->data, from->data, block->n * to->stride);
        return 0;
    }
    CW_ROWS_OK(row, block, true)
    {
        struct cw_tensor t = cw_in(op, block, 0, row);
        int64_t dims[CW_MAX_NDIM];
        char text[160];
        if (!reshape_dims(s, t.size / size, dims))
            cw_block_fail(
                block, row, op->desc->name, "\"%.60s\" has %zu values: expected %s%zu for the shape %s",
                cw_attr_string(op, "component"), t.size / size, s->open >= 0 ? "a multiple of " : "",
                s->values, cw_component_shape(s->dims, s->ndim, text));
        else if (to->dense && t.size)
            memcpy(to->data + row * to->stride, t.data, t.size);
        else if (!to->dense) {
            memcpy(t.dims, dims, sizeof(t.dims));
            t.ndim = s->ndim;
            to->rows[row] = t;
        }
    }
    return 0;
}

static int reshape_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    int64_t dims[CW_MAX_NDIM];
    int ndim = (int)cw_attr_len(op, "shape");
    for (int i = 0; i < ndim; i++)
        dims[i] = cw_attr_int_at(op, "shape", (size_t)i);
    return cw_reshape_bind(b, op, "shape", dims, ndim, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COMPONENT_ATTR,
    {.name = "shape",
     .kind = CW_ATTR_INTS,
     .min = -1,
     .max = 1099511627776.0,
     .len_max = CW_MAX_NDIM,
     .doc = "the new shape; one size may be -1 and follows from the number of values"},
    {0},
};

const struct cw_op_desc cw_op_reshape = {
    .name = "reshape",
    .summary = "gives an array another shape with the same values, in the same order",
    .doc = "A record fails if its number of values does not fit the shape. `[]` is the shape of a scalar.",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_LAYOUT,
    .attrs = attrs,
    .bind = reshape_bind,
    .run = cw_reshape_run,
    .free_state = free,
};
