/* What operators on components of numbers share: checks of types, and the loop over rows. */
#include "ops/element/component.h"

#include <string.h>

int cw_component_read(struct cw_bind *b, const struct cw_op *op, const char *attribute, const char *name,
                      struct cw_type *ret, struct cw_error *err)
{
    int port = cw_bind_read(b, name, ret, err);
    if (port >= 0 && ret->dtype == CW_BYTES)
        return cw_attr_error(op, attribute, err, "numbers or bool, but \"%.60s\" is bytes", name);
    return port;
}

int cw_component_bind(struct cw_bind *b, const struct cw_op *op, struct cw_type *ret, struct cw_error *err)
{
    int port = cw_component_read(b, op, "component", cw_attr_string(op, "component"), ret, err);
    return CW_MIN(port, 0);
}

int cw_component_write(struct cw_bind *b, const struct cw_op *op, const char *name_attribute,
                       const struct cw_type *type, struct cw_error *err)
{
    if (cw_type_fixed(type) && cw_type_bytes(type) > SIZE_MAX / 16)
        return cw_attr_error(op, name_attribute, err, "a result that fits in memory");
    int port = cw_bind_write(b, cw_attr_string(op, name_attribute), type, err);
    return CW_MIN(port, 0);
}

const char *cw_component_shape(const int64_t *dims, int ndim, char buf[160])
{
    struct cw_type type = {.dtype = CW_BOOL, .ndim = ndim};
    if (ndim == 0)
        return "a scalar";
    if (ndim > 0)
        memcpy(type.dims, dims, (size_t)ndim * sizeof(dims[0]));
    return cw_type_print(&type, buf) + strlen(cw_dtype_name(CW_BOOL));
}

int cw_component_run(const struct cw_op *op, struct cw_block *block, cw_component_values_fn values,
                     size_t scratch_bytes, struct cw_error *err)
{
    const struct cw_port *in = &op->in[0], *out = &op->out[0];
    const struct cw_column *from = &block->columns[in->value];
    size_t most = 0;
    void *scratch = NULL;
    int r = cw_block_column(block, out->value, &out->type, err);
    if (r < 0)
        return r;
    const struct cw_column *to = &block->columns[out->value];
    bool at_once = to->dense && from->dense && from->stride == cw_type_bytes(&in->type);
    if (at_once) /* computing rows that are not CW_ROW_OK does no harm */
        most = block->n * from->stride / cw_dtype_size(in->type.dtype);
    else
        for (size_t i = 0; i < block->n; i++)
            most = CW_MAX(most, cw_block_row(block, in->value, i).size / cw_dtype_size(in->type.dtype));
    if (scratch_bytes && !(scratch = cw_block_alloc(block, most * scratch_bytes, err)))
        return cw_component_status(err);
    if (at_once) {
        values(op, to->data, from->data, most, scratch);
        return 0;
    }
    CW_ROWS_OK(i, block, true)
    {
        struct cw_tensor t = cw_in(op, block, 0, i);
        void *dst = cw_block_row_out(block, out->value, &out->type, i, t.dims, t.ndim, err);
        if (!dst)
            return cw_component_status(err);
        values(op, dst, t.data, cw_component_values(&t, in->type.dtype), scratch);
    }
    return 0;
}
