/* normalize: (x - mean) / std per channel, in float32. */
#include <stdlib.h>

#include "data/convert.h"
#include "ops/image/image_role.h"
#include "ops/kernels/isa.h"

static void normalize_floats(const struct cw_normalize *s, float *v, size_t n_pixels)
{
    for (size_t i = 0; i < n_pixels; i++)
        for (int c = 0; c < s->channels; c++, v++)
            *v = (*v - s->mean[c]) / s->std[c];
}

static int normalize_pixels(const struct cw_op *op, void *dst, const void *src, size_t n, int channels,
                            struct cw_error *err)
{
    const struct cw_normalize *s = op->state;
    enum cw_dtype from = op->in[0].type.dtype, to = op->out[0].type.dtype;
    if (channels != s->channels)
        return cw_error_set(err, CW_E_RECORD, "an image of %d channels, but mean and std have %d values",
                            channels, s->channels);
    if (from == CW_UINT8 && to == CW_FLOAT32 && (channels == 1 || channels == 3)) {
        cw_pixel_isa()->normalize_packed(dst, src, n, channels, s->mean, s->std);
        return 0;
    }
    float buffer[768];
    size_t step = CW_COUNT_OF(buffer) / (size_t)channels;
    size_t in = cw_dtype_size(from) * (size_t)channels, out = cw_dtype_size(to) * (size_t)channels;
    for (size_t i = 0; i < n; i += step) {
        size_t m = CW_MIN(step, n - i);
        cw_convert(from, CW_FLOAT32, buffer, (const uint8_t *)src + i * in, m * (size_t)channels);
        normalize_floats(s, buffer, m);
        cw_convert(CW_FLOAT32, to, (uint8_t *)dst + i * out, buffer, m * (size_t)channels);
    }
    return 0;
}

const struct cw_image_role cw_image_role_normalize = {.step = CW_IMAGE_PIXELWISE, .pixels = normalize_pixels};

static int normalize_state(struct cw_op *op, int channels, struct cw_error *err)
{
    size_t size = sizeof(struct cw_normalize) + 2 * (size_t)channels * sizeof(float);
    struct cw_normalize *s = op->state = calloc(1, size);
    if (!s)
        return cw_error_nomem(err, size, "normalize");
    s->channels = channels;
    s->mean = s->values;
    s->std = s->mean + channels;
    for (int c = 0; c < channels; c++) {
        s->mean[c] = (float)cw_attr_float_at(op, "mean", (size_t)c);
        s->std[c] = (float)cw_attr_float_at(op, "std", (size_t)c);
        if (s->std[c] == 0)
            return cw_attr_error(op, "std", err, "values that are not zero when rounded to float32");
    }
    return 0;
}

static int normalize_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, true, &type, err);
    if (r < 0)
        return r;
    int64_t have = type.ndim == 3 ? type.dims[2] : 1;
    bool one_mean = !json_is_array(cw_attr_json(op, "mean")),
         one_std = !json_is_array(cw_attr_json(op, "std"));
    size_t channels = one_mean && have != CW_VARIES ? (size_t)have
                                                    : cw_attr_len(op, one_mean ? "std" : "mean");
    if (have != CW_VARIES && have != (int64_t)channels)
        return cw_attr_error(op, "mean", err, "%lld values, one for each channel of \"%s\"", (long long)have,
                             cw_attr_string(op, "component"));
    if (!one_std && cw_attr_len(op, "std") != channels)
        return cw_attr_error(op, "std", err, "%zu values, the number that mean has", channels);
    enum cw_dtype dtype = cw_attr_dtype(op, "dtype");
    if (!cw_dtype_is_float(dtype))
        return cw_attr_error(op, "dtype", err, "float16, bfloat16, float32 or float64");
    r = normalize_state(op, (int)channels, err);
    if (r < 0)
        return r;
    type.dtype = dtype;
    return cw_image_bind_write(b, op, &type, err);
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "mean",
     .kind = CW_ATTR_FLOATS,
     .min = -1e30,
     .max = 1e30,
     .len_min = 1,
     .len_max = 64,
     .scalar_too = true,
     .doc = "value to subtract, per channel, in units of the input; a single number: of all channels"},
    {.name = "std",
     .kind = CW_ATTR_FLOATS,
     .min = -1e30,
     .max = 1e30,
     .len_min = 1,
     .len_max = 64,
     .scalar_too = true,
     .doc = "value to divide the difference by, per channel; a single number: of all channels"},
    {.name = "dtype",
     .kind = CW_ATTR_DTYPE,
     .def = "\"float32\"",
     .doc = "dtype of the result: float16, bfloat16, float32 or float64"},
    {0},
};

const struct cw_op_desc cw_op_normalize = {
    .name = "normalize",
    .summary = "computes (x - mean) / std for each channel of an image",
    .doc = "The computation is in float32, whatever the dtype of the input. The last axis holds the "
           "channels, so `normalize` must come before `transpose_image`. A two-dimensional image has one "
           "channel.",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_PIXELWISE,
    .attrs = attrs,
    .bind = normalize_bind,
    .run = cw_image_run,
    .free_state = free,
    .image = &cw_image_role_normalize,
};
