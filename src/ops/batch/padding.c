/* The attribute `pad` of batchers: how the components of a batch are padded. */
#include "ops/batch/padding.h"

#include <math.h>
#include <string.h>

#include "data/convert.h"

const char *const cw_padding_longest[] = {"longest", NULL};

/* Sets p->value to a JSON number or boolean in the component's dtype. Integers must hold it exactly; in a
 * floating dtype it must be finite; bool holds any value. */
static int padding_value(const struct cw_op *op, const char *component, enum cw_dtype dtype, const json_t *v,
                         struct cw_padding *p, struct cw_error *err)
{
    double d = json_is_boolean(v) ? json_is_true(v) : json_number_value(v), back = d;
    int64_t i = json_integer_value(v);
    if (json_is_integer(v))
        cw_convert(CW_INT64, dtype, p->value, &i, 1);
    else
        cw_convert(CW_FLOAT64, dtype, p->value, &d, 1);
    if (dtype == CW_BOOL || json_is_boolean(v))
        return 0;
    cw_convert(dtype, CW_FLOAT64, &back, p->value, 1);
    if (cw_dtype_is_float(dtype) ? isfinite(back) : back == d)
        return 0;
    return cw_attr_error(op, "pad", err,
                         "padding that fits the dtype of its component; \"%.60s\" has dtype %s", component,
                         cw_dtype_name(dtype));
}

/* Sets p->to to a list of sizes: integers, or null for the longest of the batch. */
static int padding_sizes(const struct cw_op *op, const char *component, const struct cw_type *type,
                         const json_t *sizes, struct cw_padding *p, struct cw_error *err)
{
    size_t n = json_array_size(sizes);
    bool good = n <= CW_MAX_NDIM && (type->ndim < 0 || n == (size_t)type->ndim);
    for (size_t d = 0; d < n && good; d++) {
        const json_t *size = json_array_get(sizes, d);
        int64_t least = type->ndim < 0 ? 0 : CW_MAX(type->dims[d], 0), to = json_integer_value(size);
        good = json_is_null(size) || (json_is_integer(size) && to >= least && to <= INT64_C(1) << 32);
        p->to[d] = json_is_integer(size) ? to : CW_PAD_LONGEST;
    }
    p->ndim = (int)n;
    char shown[160];
    return good ? 0
                : cw_attr_error(op, "pad", err,
                                "\"to\" with a size for each dimension, not less than those of \"%.60s\", "
                                "%s; null: the longest of the batch",
                                component, cw_type_print(type, shown));
}

/* Sets p->to to that of a text, "longest" or "boundary". False: it is neither (NULL: no text), or the
 * operator has no boundaries. */
static bool padding_target(const struct cw_type *type, const char *text, bool boundaries,
                           struct cw_padding *p)
{
    bool boundary = text && boundaries && strcmp(text, "boundary") == 0;
    for (int d = 0; boundary && d < CW_MAX_NDIM; d++)
        p->to[d] = type->ndim < 0 || type->dims[d] == CW_VARIES ? CW_PAD_BOUNDARY : CW_PAD_LONGEST;
    return boundary || (text && strcmp(text, "longest") == 0);
}

/* Sets *value and *to (NULL: not given) of the padding of one component: a number, a text, or an object of
 * both. False: it is none of these. */
static bool padding_split(const json_t *own, const json_t **value, const json_t **to)
{
    bool number = json_is_number(own) || json_is_boolean(own), text = json_is_string(own);
    *value = number ? own : json_object_get(own, "value");
    *to = text ? own : json_object_get(own, "to");
    return number || text ||
           (json_is_object(own) && json_object_size(own) == (size_t)(*value != NULL) + (*to != NULL));
}

int cw_padding_read(const struct cw_op *op, const char *component, const struct cw_type *type,
                    struct cw_padding *ret, struct cw_error *err)
{
    const json_t *pad = cw_attr_json(op, "pad"), *value, *to;
    const json_t *own = json_is_object(pad) ? json_object_get(pad, component) : pad;
    bool padded = type->dtype != CW_BYTES, boundaries = op->desc->batcher->longest;
    *ret = (struct cw_padding){.on = padded && (own || op->desc->batcher->keyed), .ndim = -1};
    for (int d = 0; d < CW_MAX_NDIM; d++)
        ret->to[d] = CW_PAD_LONGEST;
    if (!own || (own == pad && (!padded || cw_type_fixed(type))))
        return 0;
    bool good = padding_split(own, &value, &to) && padded;
    good = good && (!value || json_is_number(value) || json_is_boolean(value));
    good = good && (!to || json_is_array(to) || padding_target(type, json_string_value(to), boundaries, ret));
    if (!good)
        return cw_attr_error(
            op, "pad", err,
            "{component: number}, or {component: {\"value\": number, \"to\": \"longest\"%s or "
            "sizes}}; \"%.60s\" is not a component of numbers, or its padding is none of these",
            boundaries ? ", \"boundary\"" : "", component);
    int r = json_is_array(to) ? padding_sizes(op, component, type, to, ret, err) : 0;
    return r < 0 || !value ? r : padding_value(op, component, type->dtype, value, ret, err);
}

int cw_padding_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const json_t *pad = cw_attr_json(op, "pad");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(json_is_object(pad) ? pad : NULL), name, value)
    {
        size_t i = 0;
        while (i < cw_bind_count(b) && strcmp(cw_bind_name(b, i, NULL), name) != 0)
            i++;
        if (i == cw_bind_count(b))
            return cw_attr_error(op, "pad", err, "names of components; there is no component \"%.60s\"",
                                 name);
    }
    for (size_t i = 0; i < cw_bind_count(b); i++) {
        struct cw_type type;
        struct cw_padding p;
        const char *component = cw_bind_name(b, i, &type);
        int r = cw_padding_read(op, component, &type, &p, err);
        if (r < 0)
            return r;
    }
    return 0;
}
