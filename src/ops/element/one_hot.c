/* one_hot: class numbers as vectors with a one at the place of the class. */
#include <stdlib.h>
#include <string.h>

#include "data/convert.h"
#include "ops/element/component.h"

struct one_hot {
    int64_t classes;
    size_t size;     /* bytes of a value of the result */
    uint8_t one[16]; /* the value 1 in the dtype of the result */
};

static int one_hot_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    char text[160];
    int r = cw_component_bind(b, op, &type, err);
    if (r < 0)
        return r;
    if (!cw_dtype_is_integer(type.dtype) && type.dtype != CW_BOOL)
        return cw_attr_error(op, "component", err, "integers, but \"%s\" is %s",
                             cw_attr_string(op, "component"), cw_type_print(&type, text));
    if (type.ndim == CW_MAX_NDIM)
        return cw_attr_error(op, "component", err, "at most %d dimensions, but \"%s\" is %s", CW_MAX_NDIM - 1,
                             cw_attr_string(op, "component"), cw_type_print(&type, text));
    struct one_hot *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "one_hot");
    s->classes = cw_attr_int(op, "classes");
    type.dtype = cw_attr_dtype(op, "dtype");
    if (type.dtype == CW_BYTES)
        return cw_attr_error(op, "dtype", err, "a dtype of numbers, or bool");
    s->size = cw_dtype_size(type.dtype);
    cw_convert(CW_UINT8, type.dtype, s->one, &(uint8_t){1}, 1);
    if (type.ndim >= 0)
        type.dims[type.ndim++] = s->classes;
    return cw_component_write(b, op, "component", &type, err);
}

/* Returns class i of `src`. A uint64 that int64 can't hold is negative, and so no class either. */
static int64_t one_hot_class(enum cw_dtype dtype, const void *src, size_t i)
{
    int64_t k;
    cw_convert(dtype, CW_INT64, &k, (const uint8_t *)src + i * cw_dtype_size(dtype), 1);
    return k;
}

static int one_hot_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const struct one_hot *s = op->state;
    const struct cw_port *out = &op->out[0];
    enum cw_dtype from = op->in[0].type.dtype;
    int r = cw_block_column(block, out->value, &out->type, err);
    CW_ROWS_OK(row, block, r == 0)
    {
        struct cw_tensor t = cw_in(op, block, 0, row);
        size_t n = cw_component_values(&t, from), vector = (size_t)s->classes * s->size;
        if (t.ndim == CW_MAX_NDIM) {
            cw_block_fail(block, row, op->desc->name, "\"%.60s\" has %d dimensions: expected at most %d",
                          cw_attr_string(op, "component"), t.ndim, CW_MAX_NDIM - 1);
            continue;
        }
        t.dims[t.ndim] = s->classes;
        uint8_t *dst = cw_block_row_out(block, out->value, &out->type, row, t.dims, t.ndim + 1, err);
        if (!dst)
            return cw_component_status(err);
        memset(dst, 0, n * vector);
        for (size_t i = 0; i < n; i++, dst += vector) {
            int64_t k = one_hot_class(from, t.data, i);
            if (k < 0 || k >= s->classes) {
                cw_block_fail(block, row, op->desc->name,
                              "\"%.60s\" has class %lld: expected 0 to %lld, as classes is %lld",
                              cw_attr_string(op, "component"), (long long)k, (long long)s->classes - 1,
                              (long long)s->classes);
                break;
            }
            memcpy(dst + (size_t)k * s->size, s->one, s->size);
        }
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_COMPONENT_ATTR,
    {.name = "classes",
     .kind = CW_ATTR_INT,
     .min = 1,
     .max = 16777216,
     .doc = "number of classes, the size of the new last dimension"},
    {.name = "dtype", .kind = CW_ATTR_DTYPE, .def = "\"float32\"", .doc = "dtype of the result"},
    {0},
};

const struct cw_op_desc cw_op_one_hot = {
    .name = "one_hot",
    .summary = "replaces each class number by a vector with a one at the place of the class, else zeros",
    .doc = "The component is an integer, or an array of integers; the result has one dimension more, the "
           "last one, of size `classes`. A record with a class below 0, or of `classes` or more, fails.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = one_hot_bind,
    .run = one_hot_run,
    .free_state = free,
};
