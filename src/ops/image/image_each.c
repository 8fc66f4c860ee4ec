/* The loop over images that image operators outside of chains share, and their attribute `fill`. */
#include "ops/image/image_each.h"

#include <string.h>

#include "data/convert.h"
#include "ops/image/image_annotations.h"

int cw_image_each(const struct cw_op *op, struct cw_block *b, cw_image_each_fn fn, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    if (!out->live && !cw_annotations_live(op))
        return 0;
    int r = out->live ? cw_block_column(b, out->value, &out->type, err) : 0;
    if (r >= 0)
        r = cw_annotations_columns(op, b, err);
    CW_ROWS_OK(row, b, r >= 0)
    {
        struct cw_tensor t = cw_in(op, b, 0, row);
        struct cw_image_in in = {.pixels = t.data,
                                 .h = t.dims[0],
                                 .w = t.dims[1],
                                 .channels = t.ndim == 3 ? (int)t.dims[2] : 1,
                                 .ndim = t.ndim};
        struct cw_error e;
        e.status = 0;
        e.message[0] = 0;
        in.pixel = (size_t)in.channels * cw_dtype_size(op->in[0].type.dtype);
        r = in.h < 1 || in.w < 1 || in.channels < 1 ? cw_error_set(&e, CW_E_RECORD, "an image without pixels")
                                                    : fn(op, b, row, &in, &e);
        if (r == CW_E_RECORD) {
            cw_block_fail(b, row, op->desc->name, "%s", e.message);
            r = 0;
        } else if (r < 0) {
            cw_error_set(err, r, "%s", e.message);
            cw_error_op(err, op->desc->name);
        }
    }
    return r;
}

void *cw_image_each_out(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                        int64_t h, int64_t w, struct cw_error *err)
{
    int64_t dims[3] = {h, w, in->channels};
    return cw_block_row_out(b, op->out[0].value, &op->out[0].type, row, dims, in->ndim, err);
}

int cw_image_each_copy(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                       struct cw_error *err)
{
    void *dst = cw_image_each_out(op, b, row, in, in->h, in->w, err);
    if (!dst)
        return err->status;
    memcpy(dst, in->pixels, (size_t)in->h * (size_t)in->w * in->pixel);
    return 0;
}

int cw_image_bind_uint8_float32(const struct cw_op *op, const struct cw_type *type, struct cw_error *err)
{
    if (type->dtype == CW_UINT8 || type->dtype == CW_FLOAT32)
        return 0;
    return cw_attr_error(op, "component", err, "an image of uint8 or float32, but \"%s\" is %s",
                         cw_attr_string(op, "component"), cw_dtype_name(type->dtype));
}

int cw_image_fill_bind(const struct cw_op *op, const char *attribute, const struct cw_type *type,
                       struct cw_image_fill *ret, struct cw_error *err)
{
    int64_t channels = type->ndim == 3 ? type->dims[2] : 1;
    bool one = !json_is_array(cw_attr_json(op, attribute));
    ret->n = (int)cw_attr_len(op, attribute);
    if (!one && channels != CW_VARIES && channels != ret->n)
        return cw_attr_error(op, attribute, err, "%lld values, one for each channel of \"%s\"",
                             (long long)channels, cw_attr_string(op, "component"));
    for (int i = 0; i < ret->n; i++) {
        uint64_t value;
        double back;
        ret->values[i] = cw_attr_float_at(op, attribute, (size_t)i);
        cw_convert(CW_FLOAT64, type->dtype, &value, &ret->values[i], 1);
        cw_convert(type->dtype, CW_FLOAT64, &back, &value, 1);
        if (!cw_dtype_is_float(type->dtype) && back != ret->values[i])
            return cw_attr_error(op, attribute, err, "values that %s has, because \"%s\" is %s",
                                 cw_dtype_name(type->dtype), cw_attr_string(op, "component"),
                                 cw_dtype_name(type->dtype));
    }
    if (one)
        ret->n = 1;
    return 0;
}

const void *cw_image_fill_pixel(const struct cw_image_fill *fill, const struct cw_op *op, struct cw_block *b,
                                const struct cw_image_in *in, struct cw_error *err)
{
    enum cw_dtype dtype = op->in[0].type.dtype;
    size_t value = cw_dtype_size(dtype);
    if (fill->n != 1 && fill->n != in->channels) {
        (void)cw_error_set(err, CW_E_RECORD, "an image of %d channels, but there are %d values to fill with",
                           in->channels, fill->n);
        return NULL;
    }
    uint8_t *pixel = cw_block_alloc(b, in->pixel, err);
    for (int c = 0; pixel && c < in->channels; c++)
        cw_convert(CW_FLOAT64, dtype, pixel + (size_t)c * value, &fill->values[fill->n == 1 ? 0 : c], 1);
    return pixel;
}
