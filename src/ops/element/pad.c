/* pad: arrays filled up to a given shape with a value. */
#include <stdlib.h>
#include <string.h>

#include "data/convert.h"
#include "ops/element/component.h"

struct pad {
    int ndim;                  /* -1: `to` is given, which says nothing about the number of dimensions */
    int64_t dims[CW_MAX_NDIM]; /* CW_VARIES: the dimension keeps its size */
    uint8_t value[16];         /* one value, in the dtype of the component */
};

static int pad_bind_shape(struct cw_op *op, struct pad *s, struct cw_type *type, struct cw_error *err)
{
    char text[160];
    const char *name = cw_attr_string(op, "component");
    size_t n = cw_attr_len(op, "shape");
    int64_t to = cw_attr_int(op, "to");
    if ((n > 0) == (to >= 0))
        return cw_attr_error(op, n > 0 ? "to" : "shape", err, "either `shape` or `to`");
    if (n > 0 ? type->ndim >= 0 && type->ndim != (int)n : type->ndim == 0)
        return cw_attr_error(op, n > 0 ? "shape" : "to", err,
                             n > 0 ? "one size for each dimension of \"%.60s\", which is %s"
                                   : "a component with dimensions: \"%.60s\" is %s",
                             name, cw_type_print(type, text));
    s->ndim = n > 0 ? (int)n : -1;
    for (int i = 0; i < CW_MAX_NDIM; i++)
        s->dims[i] = n == 0       ? (i == 0 ? to : CW_VARIES)
                     : i < (int)n ? cw_attr_int_at(op, "shape", (size_t)i)
                                  : CW_VARIES;
    if (n > 0 && type->ndim < 0) {
        type->ndim = (int)n;
        for (int i = 0; i < type->ndim; i++)
            type->dims[i] = CW_VARIES;
    }
    for (int i = 0; i < type->ndim; i++) {
        if (s->dims[i] == CW_VARIES)
            continue;
        if (type->dims[i] > s->dims[i])
            return cw_attr_error(op, n > 0 ? "shape" : "to", err,
                                 "a size of at least %lld for dimension %d: \"%.60s\" is %s",
                                 (long long)type->dims[i], i, name, cw_type_print(type, text));
        type->dims[i] = s->dims[i];
    }
    return 0;
}

static int pad_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_component_bind(b, op, &type, err);
    if (r < 0)
        return r;
    struct pad *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "pad");
    double value = cw_attr_float(op, "value"), back;
    cw_convert(CW_FLOAT64, type.dtype, s->value, &value, 1);
    cw_convert(type.dtype, CW_FLOAT64, &back, s->value, 1);
    if (!cw_dtype_is_float(type.dtype) && back != value)
        return cw_attr_error(op, "value", err, "a value of the component's dtype, %s",
                             cw_dtype_name(type.dtype));
    r = pad_bind_shape(op, s, &type, err);
    return r < 0 ? r : cw_component_write(b, op, "component", &type, err);
}

static void pad_fill(uint8_t *dst, size_t bytes, const uint8_t *value, size_t size)
{
    if (size == 1) {
        memset(dst, value[0], bytes);
        return;
    }
    if (bytes)
        memcpy(dst, value, size);
    for (size_t done = size; done < bytes; done *= 2) /* each copy doubles what is filled */
        memcpy(dst + done, dst, CW_MIN(done, bytes - done));
}

/* Copies an array into one that is larger in some dimensions, and fills the rest. Sizes are in bytes per
 * index of dimension 0: of the destination and of the source. */
static void pad_copy(uint8_t *dst, const int64_t *to, size_t dst_step, const uint8_t *src,
                     const int64_t *from, size_t src_step, int ndim, const uint8_t *value, size_t size)
{
    size_t n = (size_t)from[0];
    if (dst_step == src_step) { /* only this dimension grows */
        if (n && src_step)
            memcpy(dst, src, n * src_step);
    } else {
        for (size_t i = 0; i < n && ndim > 1; i++)
            pad_copy(dst + i * dst_step, to + 1, to[1] ? dst_step / (size_t)to[1] : 0, src + i * src_step,
                     from + 1, from[1] ? src_step / (size_t)from[1] : 0, ndim - 1, value, size);
    }
    pad_fill(dst + n * dst_step, ((size_t)to[0] - n) * dst_step, value, size);
}

/* Sets dims to the padded shape of a tensor. False: the tensor does not fit. */
static bool pad_dims(const struct pad *s, const struct cw_tensor *t, int64_t dims[CW_MAX_NDIM])
{
    if (s->ndim >= 0 ? t->ndim != s->ndim : t->ndim == 0)
        return false;
    for (int i = 0; i < t->ndim; i++) {
        dims[i] = s->dims[i] == CW_VARIES ? t->dims[i] : s->dims[i];
        if (t->dims[i] > dims[i])
            return false;
    }
    return true;
}

static void pad_fail(const struct cw_op *op, struct cw_block *block, size_t row, const struct cw_tensor *t)
{
    const struct pad *s = op->state;
    char have[160], want[160];
    if (s->ndim < 0)
        cw_block_fail(block, row, op->desc->name,
                      "\"%.60s\" has shape %s: expected at most %lld in its first dimension",
                      cw_attr_string(op, "component"), cw_component_shape(t->dims, t->ndim, have),
                      (long long)s->dims[0]);
    else
        cw_block_fail(block, row, op->desc->name, "\"%.60s\" has shape %s: expected at most %s",
                      cw_attr_string(op, "component"), cw_component_shape(t->dims, t->ndim, have),
                      cw_component_shape(s->dims, s->ndim, want));
}

static int pad_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const struct pad *s = op->state;
    const struct cw_port *out = &op->out[0];
    size_t size = cw_dtype_size(out->type.dtype);
    int r = cw_block_column(block, out->value, &out->type, err);
    CW_ROWS_OK(row, block, r == 0)
    {
        struct cw_tensor t = cw_in(op, block, 0, row);
        int64_t dims[CW_MAX_NDIM] = {0};
        if (!pad_dims(s, &t, dims)) {
            pad_fail(op, block, row, &t);
            continue;
        }
        uint8_t *dst = cw_block_row_out(block, out->value, &out->type, row, dims, t.ndim, err);
        if (!dst)
            return cw_component_status(err);
        size_t dst_step = size, src_step = size;
        for (int i = 1; i < t.ndim; i++) {
            dst_step *= (size_t)dims[i];
            src_step *= (size_t)t.dims[i];
        }
        if (t.size)
            pad_copy(dst, dims, dst_step, t.data, t.dims, src_step, t.ndim, s->value, size);
        else
            pad_fill(dst, (size_t)dims[0] * dst_step, s->value, size);
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_COMPONENT_ATTR,
    {.name = "shape",
     .kind = CW_ATTR_INTS,
     .def = "[]",
     .min = -1,
     .max = 1099511627776.0,
     .len_max = CW_MAX_NDIM,
     .doc = "the shape of the result; -1: the dimension keeps its size"},
    {.name = "to",
     .kind = CW_ATTR_INT,
     .def = "-1",
     .min = -1,
     .max = 1099511627776.0,
     .doc = "instead of `shape`: the size of the first dimension of the result; all others keep their sizes"},
    {.name = "value", .kind = CW_ATTR_FLOAT, .def = "0", .doc = "the value that is filled in"},
    {0},
};

const struct cw_op_desc cw_op_pad = {
    .name = "pad",
    .summary = "fills an array up to a given shape, at the end of each dimension",
    .doc = "A record fails if its array is larger than the result in any dimension. To cut it first, use "
           "`assign` with a slice such as `tokens[:512]` (docs/expressions.md). To pad to the longest "
           "element of a batch instead, use `bucket_by_length`.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = pad_bind,
    .run = pad_run,
    .free_state = free,
};
