/* pad_or_trim: arrays of one length, by filling up or cutting off the end. */
#include <stdlib.h>
#include <string.h>

#include "data/convert.h"
#include "ops/element/component.h"

static int pad_or_trim_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *name = cw_attr_string(op, "component");
    struct cw_type type;
    char shown[160];
    int r = cw_component_bind(b, op, &type, err);
    if (r < 0)
        return r;
    if (type.ndim < 1)
        return cw_attr_error(op, "component", err, "at least one dimension, but \"%s\" is %s", name,
                             cw_type_print(&type, shown));
    double value = cw_attr_float(op, "value");
    uint8_t *fill = op->state = calloc(1, 16);
    if (!fill)
        return cw_error_nomem(err, 16, "pad_or_trim");
    cw_convert(CW_FLOAT64, type.dtype, fill, &value, 1);
    type.dims[0] = cw_attr_int(op, "length");
    return cw_component_write(b, op, "component", &type, err);
}

static int pad_or_trim_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    size_t item = cw_dtype_size(out->type.dtype), length = (size_t)out->type.dims[0];
    int r = cw_block_column(b, out->value, &out->type, err);
    CW_ROWS_OK(i, b, r >= 0)
    {
        struct cw_tensor in = cw_in(op, b, 0, i);
        size_t n = (size_t)in.dims[0], row = item;
        for (int d = 1; d < in.ndim; d++)
            row *= (size_t)in.dims[d];
        size_t keep = (n < length ? n : length) * row, whole = length * row;
        in.dims[0] = (int64_t)length;
        uint8_t *to = cw_block_row_out(b, out->value, &out->type, i, in.dims, in.ndim, err);
        if (!to)
            return cw_component_status(err);
        if (keep)
            memcpy(to, in.data, keep);
        for (size_t at = keep; at < whole; at += item)
            memcpy(to + at, op->state, item);
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_COMPONENT_ATTR,
    {.name = "length",
     .kind = CW_ATTR_INT,
     .min = 0,
     .max = 0x1p40,
     .doc = "the new size of the first dimension"},
    {.name = "value", .kind = CW_ATTR_FLOAT, .def = "0", .doc = "what is added, converted as by `cast`"},
    {0},
};

const struct cw_op_desc cw_op_pad_or_trim = {
    .name = "pad_or_trim",
    .summary = "gives the first dimension a fixed length: pads at its end, or cuts its end off",
    .doc = "Clips of different lengths can then form a batch: samples [n] become [length]. All dtypes of "
           "numbers; other dimensions stay.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = pad_or_trim_bind,
    .run = pad_or_trim_run,
    .free_state = free,
};
