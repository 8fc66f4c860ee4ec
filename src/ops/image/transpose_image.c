/* The operator transpose_image. HWC to CHW (layout "chw") is done while an image chain writes its result
 * (image_chain.c); CHW to HWC is done here. */
#include <stdlib.h>
#include <string.h>

#include "ops/image/image_role.h"

static bool transpose_image_to_chw(const struct cw_op *op)
{
    return op->state != NULL;
}

static const struct cw_image_role role = {.step = CW_IMAGE_LAYOUT, .fuses = transpose_image_to_chw};

static int transpose_image_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, false, &type, err);
    if (r < 0)
        return r;
    bool chw = strcmp(cw_attr_string(op, "layout"), "chw") == 0;
    struct cw_type out = {.dtype = type.dtype, .ndim = 3};
    for (int i = 0; i < 3; i++)
        out.dims[i] = type.dims[(i + (chw ? 2 : 1)) % 3];
    op->state = chw ? (void *)&role : NULL; /* used as a flag: not NULL means layout "chw" */
    return cw_image_bind_write(b, op, &out, err);
}

/* Copies CHW pixels as HWC. value: bytes of a value. */
static void transpose_image_interleave(uint8_t *dst, const uint8_t *src, const int64_t chw[3], size_t value)
{
    size_t pixels = (size_t)chw[1] * (size_t)chw[2], channels = (size_t)chw[0];
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < pixels; i++)
            memcpy(dst + (i * channels + c) * value, src + (c * pixels + i) * value, value);
}

static int transpose_image_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    if (transpose_image_to_chw(op))
        return cw_image_run(op, b, err);
    const struct cw_port *out = &op->out[0];
    if (!out->live)
        return 0;
    int r = cw_block_column(b, out->value, &out->type, err);
    CW_ROWS_OK(row, b, r >= 0)
    {
        struct cw_tensor in = cw_in(op, b, 0, row);
        int64_t dims[3] = {in.dims[1], in.dims[2], in.dims[0]};
        void *dst = cw_block_row_out(b, out->value, &out->type, row, dims, 3, err);
        if (!dst)
            return err ? err->status : CW_E_MEMORY;
        transpose_image_interleave(dst, in.data, in.dims, cw_dtype_size(out->type.dtype));
    }
    return r;
}

static const char *const layouts[] = {"chw", "hwc", NULL};

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "layout",
     .kind = CW_ATTR_STRING,
     .def = "\"chw\"",
     .choices = layouts,
     .doc = "\"chw\": [height, width, channels] to [channels, height, width]; \"hwc\": the reverse"},
    {0},
};

const struct cw_op_desc cw_op_transpose_image = {
    .name = "transpose_image",
    .summary = "moves the channels of an image first ([height, width, channels] to [channels, height, "
               "width]) or last",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_LAYOUT,
    .attrs = attrs,
    .bind = transpose_image_bind,
    .run = transpose_image_run,
    .image = &role,
};
