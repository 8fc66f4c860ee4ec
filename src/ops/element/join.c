/* The work of concat_components and stack: both copy, for each index of the dimensions before the axis, the
 * values of each input one after the other. */
#include "ops/element/join.h"

#include <stdlib.h>
#include <string.h>

#include "ops/element/component.h"

struct join {
    bool stacks;
    int axis; /* as given: negative counts from the last dimension */
    size_t n; /* inputs; one component may be several of them */
    unsigned ports[CW_OP_MAX_PORTS];
};

/* Returns the axis in a result of ndim dimensions, or -1 if there is none. */
static int join_axis(const struct join *s, int ndim)
{
    int axis = s->axis < 0 ? s->axis + ndim : s->axis;
    return axis >= 0 && axis < ndim ? axis : -1;
}

/* Adds the shape of another input to that of the inputs before it. A dimension may be CW_VARIES. False: they
 * don't fit. */
static bool join_add(const struct join *s, int64_t *dims, int ndim, const int64_t *other, int other_ndim)
{
    if (ndim != other_ndim)
        return false;
    for (int i = 0; i < ndim; i++) {
        if (!s->stacks && i == join_axis(s, ndim)) {
            dims[i] = dims[i] < 0 || other[i] < 0 ? CW_VARIES : dims[i] + other[i];
            continue;
        }
        if (dims[i] >= 0 && other[i] >= 0 && dims[i] != other[i])
            return false;
        dims[i] = dims[i] < 0 ? other[i] : dims[i];
    }
    return true;
}

/* Makes the shape of a result from that of all inputs together. */
static bool join_finish(const struct join *s, int64_t *dims, int *ndim)
{
    int have = *ndim + s->stacks, axis = join_axis(s, have);
    if (have > CW_MAX_NDIM || axis < 0)
        return false;
    if (s->stacks) {
        memmove(dims + axis + 1, dims + axis, (size_t)(*ndim - axis) * sizeof(dims[0]));
        dims[axis] = (int64_t)s->n;
    }
    *ndim = have;
    return true;
}

int cw_join_bind(struct cw_bind *b, struct cw_op *op, bool stacks, struct cw_error *err)
{
    struct join *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), op->desc->name);
    *s = (struct join){
        .stacks = stacks, .axis = (int)cw_attr_int(op, "axis"), .n = cw_attr_len(op, "components")};
    struct cw_type type = {0}, first = {0}, other;
    char left[160], right[160];
    for (size_t i = 0; i < s->n; i++) {
        const char *name = cw_attr_string_at(op, "components", i);
        int port = cw_component_read(b, op, "components", name, &other, err);
        if (port < 0)
            return port;
        s->ports[i] = (unsigned)port;
        if (i == 0) {
            type = first = other;
            continue;
        }
        bool known = type.ndim >= 0 && other.ndim >= 0;
        if (other.dtype != type.dtype ||
            (known && !join_add(s, type.dims, type.ndim, other.dims, other.ndim)))
            return cw_attr_error(op, "components", err,
                                 "components of the same dtype and %s shape; \"%.40s\" is %s, \"%.40s\" %s",
                                 stacks ? "the same" : "(except for the axis) the same",
                                 cw_attr_string_at(op, "components", 0), cw_type_print(&first, left), name,
                                 cw_type_print(&other, right));
        type.ndim = known ? type.ndim : -1;
    }
    if (type.ndim == 0 && !stacks)
        return cw_attr_error(op, "components", err,
                             "arrays, but \"%.60s\" is a scalar; `stack` makes an array of scalars",
                             cw_attr_string_at(op, "components", 0));
    if (type.ndim >= 0 && !join_finish(s, type.dims, &type.ndim))
        return type.ndim + stacks > CW_MAX_NDIM
                   ? cw_attr_error(op, "components", err, "at most %d dimensions", CW_MAX_NDIM - stacks)
                   : cw_attr_error(op, "axis", err, "%d to %d, as the result has %d dimensions",
                                   -type.ndim - stacks, type.ndim + stacks - 1, type.ndim + stacks);
    return cw_component_write(b, op, "name", &type, err);
}

static size_t join_outer(const struct join *s, const int64_t *dims, int ndim)
{
    size_t outer = 1;
    for (int i = 0; i < join_axis(s, ndim); i++)
        outer *= (size_t)dims[i];
    return outer;
}

/* Copies n pieces of `bytes` bytes each. Sizes of 4 and 8 are constants for the compiler, which makes loops
 * without calls of them. */
static void join_copy(uint8_t *dst, size_t dst_step, const uint8_t *src, size_t src_step, size_t bytes,
                      size_t n)
{
    if (bytes == 4)
        for (size_t i = 0; i < n; i++)
            memcpy(dst + i * dst_step, src + i * src_step, 4);
    else if (bytes == 8)
        for (size_t i = 0; i < n; i++)
            memcpy(dst + i * dst_step, src + i * src_step, 8);
    else
        for (size_t i = 0; i < n && bytes; i++)
            memcpy(dst + i * dst_step, src + i * src_step, bytes);
}

/* Joins all rows at once, if all columns are dense; rows that are not CW_ROW_OK too, which does no harm.
 * False: some are not. */
static bool join_dense(const struct cw_op *op, struct cw_block *block)
{
    const struct join *s = op->state;
    const struct cw_column *to = &block->columns[op->out[0].value];
    bool dense = to->dense;
    for (size_t i = 0; i < s->n; i++)
        dense &= block->columns[op->in[s->ports[i]].value].dense;
    if (!dense)
        return false;
    size_t outer = join_outer(s, op->out[0].type.dims, op->out[0].type.ndim), at = 0;
    for (size_t i = 0; i < s->n && outer; i++) {
        const struct cw_column *from = &block->columns[op->in[s->ports[i]].value];
        size_t bytes = from->stride / outer;
        for (size_t k = 0; k < outer; k++)
            join_copy(to->data + at + k * (to->stride / outer), to->stride, from->data + k * bytes,
                      from->stride, bytes, block->n);
        at += bytes;
    }
    return true;
}

/* Sets t to the shape of the result of a row; t has its first input. False: the row has failed. */
static bool join_shape(const struct cw_op *op, struct cw_block *block, size_t row, struct cw_tensor *t)
{
    const struct join *s = op->state;
    char left[160], right[160];
    for (size_t i = 1; i < s->n; i++) {
        struct cw_tensor other = cw_in(op, block, s->ports[i], row),
                         first = cw_in(op, block, s->ports[0], row);
        if (!join_add(s, t->dims, t->ndim, other.dims, other.ndim))
            return cw_block_fail(
                block, row, op->desc->name,
                "\"%.40s\" has shape %s and \"%.40s\" %s: expected shapes that fit",
                cw_attr_string_at(op, "components", 0), cw_component_shape(first.dims, first.ndim, left),
                cw_attr_string_at(op, "components", i), cw_component_shape(other.dims, other.ndim, right));
    }
    if (!join_finish(s, t->dims, &t->ndim))
        return cw_block_fail(block, row, op->desc->name, "\"%.60s\" has %d dimensions, too %s for axis %d",
                             cw_attr_string_at(op, "components", 0), t->ndim,
                             t->ndim + s->stacks > CW_MAX_NDIM ? "many" : "few", s->axis);
    return true;
}

int cw_join_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const struct join *s = op->state;
    const struct cw_port *out = &op->out[0];
    int r = cw_block_column(block, out->value, &out->type, err);
    if (r < 0 || join_dense(op, block))
        return r;
    CW_ROWS_OK(row, block, true)
    {
        struct cw_tensor t = cw_in(op, block, s->ports[0], row);
        if (!join_shape(op, block, row, &t))
            continue;
        uint8_t *dst = cw_block_row_out(block, out->value, &out->type, row, t.dims, t.ndim, err);
        if (!dst)
            return cw_component_status(err);
        size_t outer = join_outer(s, t.dims, t.ndim), all = 0, at = 0;
        for (size_t i = 0; i < s->n; i++)
            all += cw_in(op, block, s->ports[i], row).size;
        for (size_t i = 0; i < s->n && outer; i++) {
            struct cw_tensor part = cw_in(op, block, s->ports[i], row);
            join_copy(dst + at, all / outer, part.data, part.size / outer, part.size / outer, outer);
            at += part.size / outer;
        }
    }
    return 0;
}
