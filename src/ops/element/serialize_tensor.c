/* serialize_tensor: an array as bytes, with its shape. engine/tail.c reads these bytes. */
#include "ops/element/serialize_tensor.h"

#include <string.h>

#include "ops/element/component.h"

bool cw_keep_components(json_t *chain, size_t at, const char *const *names, const bool *serialized,
                        unsigned n)
{
    json_t *keep = json_array();
    int r = keep ? 0 : -1;
    for (unsigned i = 0; i < n && r == 0; i++)
        r = json_array_append_new(keep, json_string(names[i]));
    if (r == 0)
        r = json_array_insert_new(chain, at++, json_pack("{s:s, s:O}", "op", "select", "components", keep));
    for (unsigned i = 0; i < n && r == 0; i++)
        if (serialized[i])
            r = json_array_insert_new(
                chain, at++, json_pack("{s:s, s:s}", "op", "serialize_tensor", "component", names[i]));
    json_decref(keep);
    return r == 0;
}

static int serialize_tensor_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type, bytes = cw_type_scalar(CW_BYTES);
    int r = cw_component_bind(b, op, &type, err);
    if (r >= 0)
        r = cw_bind_write(b, cw_attr_string(op, "component"), &bytes, err);
    return r < 0 ? r : 0;
}

static int serialize_tensor_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    unsigned value = op->out[0].value;
    int r = cw_block_ragged(block, value, err);
    CW_ROWS_OK(row, block, r >= 0)
    {
        struct cw_tensor in = cw_in(op, block, 0, row);
        int64_t head[1 + CW_MAX_NDIM] = {in.ndim};
        size_t head_size = (1 + (size_t)in.ndim) * sizeof(*head), padded = CW_ALIGN_UP(in.size, (size_t)8);
        uint8_t *to = cw_block_alloc(block, head_size + padded, err);
        if (!to)
            return cw_component_status(err);
        memcpy(head + 1, in.dims, (size_t)in.ndim * sizeof(*head));
        memcpy(to, head, head_size);
        if (in.size)
            memcpy(to + head_size, in.data, in.size);
        memset(to + head_size + in.size, 0, padded - in.size);
        block->columns[value].rows[row] = (struct cw_tensor){.data = to, .size = head_size + padded};
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_COMPONENT_ATTR,
    {0},
};

const struct cw_op_desc cw_op_serialize_tensor = {
    .name = "serialize_tensor",
    .summary = "an array as bytes: its shape, then its values",
    .doc =
        "Elements of any shape then fit in one batch. The bytes are little-endian: the number of "
        "dimensions (int64), the size of each dimension (int64), the values, and zeros up to a multiple of "
        "8. Workers of a service use it where a pipeline is cut before its elements have equal shapes "
        "(docs/service.md).",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = serialize_tensor_bind,
    .run = serialize_tensor_run,
};
