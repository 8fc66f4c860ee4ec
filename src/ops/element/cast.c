/* cast: a component in another dtype; fuses with image operators. */
#include "data/convert.h"
#include "ops/image/image_role.h"

static int cast_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    enum cw_dtype to = cw_attr_dtype(op, "dtype");
    const char *component = cw_attr_string(op, "component");
    int r = cw_bind_read(b, component, &type, err);
    if (r < 0)
        return r;
    if (type.dtype == CW_BYTES)
        return cw_attr_error(op, "component", err, "a component of numbers or bool, not bytes");
    if (type.dtype == to) { /* nothing to do: the component keeps its value */
        op->n_in = 0;
        return 0;
    }
    type.dtype = to;
    r = cw_bind_write(b, component, &type, err);
    return r < 0 ? r : 0;
}

static int cast_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    if (op->n_out == 0 || !op->out[0].live)
        return 0;
    const struct cw_port *in = &op->in[0], *out = &op->out[0];
    const struct cw_column *from = &block->columns[in->value];
    size_t size = cw_dtype_size(in->type.dtype);
    int r = cw_block_column(block, out->value, &out->type, err);
    if (r < 0)
        return r;
    const struct cw_column *to = &block->columns[out->value];
    if (to->dense && from->dense && from->stride == cw_type_bytes(&in->type)) {
        /* all rows at once; converting rows that are not CW_ROW_OK does no harm */
        cw_convert(in->type.dtype, out->type.dtype, to->data, from->data, block->n * (from->stride / size));
        return 0;
    }
    CW_ROWS_OK(i, block, true)
    {
        struct cw_tensor t = cw_in(op, block, 0, i);
        void *d = cw_block_row_out(block, out->value, &out->type, i, t.dims, t.ndim, err);
        if (!d)
            return err && err->status < 0 ? err->status : CW_E_MEMORY;
        cw_convert(in->type.dtype, out->type.dtype, d, t.data, t.size / size);
    }
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the component to convert"},
    {.name = "dtype", .kind = CW_ATTR_DTYPE, .doc = "the new dtype"},
    {0},
};

const struct cw_op_desc cw_op_cast = {
    .name = "cast",
    .summary = "converts a component to another dtype",
    .doc = "A floating-point value that becomes an integer is rounded to nearest, ties to even; values out "
           "of range become the smallest or largest integer, and NaN becomes 0. An integer that becomes "
           "another integer dtype wraps around. A value that becomes bool is true if it is not 0.",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_CAST,
    .attrs = attrs,
    .bind = cast_bind,
    .run = cast_run,
    .image = &cw_image_role_cast,
};
