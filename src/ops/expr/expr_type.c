/* NumPy's rules for the types of results: promotion of dtypes, ranges of literals, broadcasting of shapes.
 * Pure functions. */
#include "ops/expr/expr_impl.h"

/* Size in bits of an integer dtype; bool counts as an unsigned integer of 0 bits. */
static int expr_dtype_width(enum cw_dtype t)
{
    return t == CW_BOOL ? 0 : (int)cw_dtype_size(t) * 8;
}

static enum cw_dtype expr_signed_of(int bits)
{
    return bits <= 8 ? CW_INT8 : bits <= 16 ? CW_INT16 : bits <= 32 ? CW_INT32 : CW_INT64;
}

/* The floating dtype that NumPy gives for an integer of dtype t together with a float16. */
static enum cw_dtype expr_float_holding(enum cw_dtype t)
{
    return expr_dtype_width(t) <= 8 ? CW_FLOAT16 : expr_dtype_width(t) <= 16 ? CW_FLOAT32 : CW_FLOAT64;
}

enum cw_dtype cw_promote(enum cw_dtype a, enum cw_dtype b)
{
    if (a == b)
        return a;
    bool fa = cw_dtype_is_float(a), fb = cw_dtype_is_float(b);
    if (!fa && fb)
        return cw_promote(b, a);
    if (fa && fb) {
        if (a == CW_FLOAT64 || b == CW_FLOAT64)
            return CW_FLOAT64;
        return CW_FLOAT32; /* float32 with a half, or the two halves */
    }
    if (fa) {
        if (a == CW_BFLOAT16)
            return CW_BFLOAT16;
        enum cw_dtype f = expr_float_holding(b);
        return CW_MAX(a, f); /* float16 < float32 < float64 in the enumeration */
    }
    bool sa = cw_dtype_is_signed(a), sb = cw_dtype_is_signed(b);
    int wa = expr_dtype_width(a), wb = expr_dtype_width(b);
    if (sa == sb || a == CW_BOOL || b == CW_BOOL)
        return wa > wb ? a : b;
    int ws = sa ? wa : wb, wu = sa ? wb : wa;
    if (ws > wu)
        return expr_signed_of(ws);
    return wu == 64 ? CW_FLOAT64 : expr_signed_of(wu * 2);
}

enum cw_dtype cw_float_for(enum cw_dtype t)
{
    return cw_dtype_is_float(t) ? t : expr_float_holding(t);
}

bool cw_integer_fits(cw_i128 v, enum cw_dtype t)
{
    int bits = expr_dtype_width(t);
    if (cw_dtype_is_signed(t)) {
        cw_i128 limit = (cw_i128)1 << (bits - 1);
        return v >= -limit && v < limit;
    }
    return v >= 0 && v < (cw_i128)1 << bits;
}

static int64_t expr_slice_bound(int64_t bound, int64_t n, bool backwards)
{
    if (bound < 0)
        bound = bound < -n ? -1 : bound + n;
    return CW_MAX(backwards ? -1 : 0, CW_MIN(bound, backwards ? n - 1 : n));
}

int64_t cw_slice_count(const struct cw_slice *s, int64_t n, int64_t *ret_first)
{
    bool backwards = s->step < 0;
    int64_t start = s->start != CW_SLICE_OPEN ? expr_slice_bound(s->start, n, backwards)
                    : backwards               ? n - 1
                                              : 0;
    int64_t stop = s->stop != CW_SLICE_OPEN ? expr_slice_bound(s->stop, n, backwards) : backwards ? -1 : n;
    if (ret_first)
        *ret_first = start;
    if (backwards ? stop >= start : start >= stop)
        return 0;
    return backwards ? (start - stop - 1) / -s->step + 1 : (stop - start - 1) / s->step + 1;
}

void cw_shape_cut(struct cw_type *shape, int axis, const struct cw_slice *slice)
{
    if (slice) {
        if (shape->dims[axis] >= 0)
            shape->dims[axis] = cw_slice_count(slice, shape->dims[axis], NULL);
        return;
    }
    shape->ndim--;
    for (int i = axis; i < shape->ndim; i++)
        shape->dims[i] = shape->dims[i + 1];
}

bool cw_broadcast(const struct cw_type *a, const struct cw_type *b, struct cw_type *ret)
{
    struct cw_type r = {.dtype = ret->dtype, .ndim = -1};
    if (a->ndim == 0 || b->ndim == 0) { /* a scalar takes the other shape, even an unknown one */
        r = a->ndim == 0 ? *b : *a;
        r.dtype = ret->dtype;
        *ret = r;
        return true;
    }
    if (a->ndim < 0 || b->ndim < 0) {
        *ret = r;
        return true;
    }
    r.ndim = CW_MAX(a->ndim, b->ndim);
    for (int i = 1; i <= r.ndim; i++) { /* from the last dimension */
        int64_t x = i <= a->ndim ? a->dims[a->ndim - i] : 1, y = i <= b->ndim ? b->dims[b->ndim - i] : 1, d;
        if (x == y || y == 1)
            d = x;
        else if (x == 1 || x == CW_VARIES)
            d = y;
        else if (y == CW_VARIES)
            d = x;
        else
            return false;
        r.dims[r.ndim - i] = d;
    }
    *ret = r;
    return true;
}
