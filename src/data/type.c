/* Names and sizes of dtypes and types. */
#include "data/type.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t size;
    bool is_float, is_signed;
} dtypes[CW_N_DTYPES] = {
    [CW_BOOL] = {"bool", 1, false, false},        [CW_UINT8] = {"uint8", 1, false, false},
    [CW_UINT16] = {"uint16", 2, false, false},    [CW_UINT32] = {"uint32", 4, false, false},
    [CW_UINT64] = {"uint64", 8, false, false},    [CW_INT8] = {"int8", 1, false, true},
    [CW_INT16] = {"int16", 2, false, true},       [CW_INT32] = {"int32", 4, false, true},
    [CW_INT64] = {"int64", 8, false, true},       [CW_FLOAT16] = {"float16", 2, true, false},
    [CW_BFLOAT16] = {"bfloat16", 2, true, false}, [CW_FLOAT32] = {"float32", 4, true, false},
    [CW_FLOAT64] = {"float64", 8, true, false},   [CW_BYTES] = {"bytes", 0, false, false},
};

const char *cw_dtype_name(enum cw_dtype dtype)
{
    return dtypes[dtype].name;
}

int cw_dtype_parse(const char *name, enum cw_dtype *ret)
{
    for (int i = 0; i < CW_N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *ret = (enum cw_dtype)i;
            return 0;
        }
    return -1;
}

size_t cw_dtype_size(enum cw_dtype dtype)
{
    return dtypes[dtype].size;
}

bool cw_dtype_is_float(enum cw_dtype dtype)
{
    return dtypes[dtype].is_float;
}

bool cw_dtype_is_signed(enum cw_dtype dtype)
{
    return dtypes[dtype].is_signed;
}

bool cw_dtype_is_integer(enum cw_dtype dtype)
{
    return dtype >= CW_UINT8 && dtype <= CW_INT64;
}

bool cw_type_fixed(const struct cw_type *t)
{
    if (t->dtype == CW_BYTES || t->ndim < 0)
        return false;
    for (int i = 0; i < t->ndim; i++)
        if (t->dims[i] < 0)
            return false;
    return true;
}

size_t cw_type_bytes(const struct cw_type *t)
{
    size_t n = cw_dtype_size(t->dtype);
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(n, (size_t)t->dims[i], &n))
            return SIZE_MAX;
    return n;
}

const char *cw_type_print(const struct cw_type *t, char buf[160])
{
    size_t at = (size_t)snprintf(buf, 160, "%s", cw_dtype_name(t->dtype));
    if (t->ndim < 0)
        snprintf(buf + at, 160 - at, "[...]");
    for (int i = 0; i < t->ndim; i++) {
        const char *open = i == 0 ? "[" : ",", *close = i == t->ndim - 1 ? "]" : "";
        if (t->dims[i] < 0)
            at += (size_t)snprintf(buf + at, 160 - at, "%s?%s", open, close);
        else
            at += (size_t)snprintf(buf + at, 160 - at, "%s%lld%s", open, (long long)t->dims[i], close);
    }
    return buf;
}

struct cw_type cw_type_scalar(enum cw_dtype dtype)
{
    return (struct cw_type){.dtype = dtype, .ndim = 0};
}

int cw_type_merge(struct cw_type *a, const struct cw_type *b)
{
    if (a->dtype != b->dtype)
        return -1;
    if (a->ndim != b->ndim) {
        a->ndim = -1;
        return 0;
    }
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i])
            a->dims[i] = CW_VARIES;
    return 0;
}
