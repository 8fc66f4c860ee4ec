/* Resizes an image row by row, with the kernels of one instruction set. The caller owns all memory. */
#include "ops/kernels/resize.h"

#include <string.h>

#include "data/convert.h"
#include "ops/kernels/isa.h"

static bool resize_passes_through(const struct cw_axis *a)
{
    return a->gather && !a->lo;
}

static int32_t resize_first_tap(const struct cw_axis *a, int64_t i)
{
    return a->lo ? a->lo[i] : (int32_t)i;
}

static int32_t resize_last_tap(const struct cw_axis *a, int64_t i)
{
    return a->gather ? resize_first_tap(a, i) : a->lo[i] + a->n[i] - 1;
}

/* Computes keep[] and the size of the ring, and allocates the ring. While output row `next` is made, the ring
 * holds the source rows from keep[next] up to the last one that came. */
static int resize_ring_init(struct cw_resize *r, struct cw_arena *arena, struct cw_error *err)
{
    const struct cw_axis *a = &r->y;
    int32_t last = 0, span = 1;
    r->keep = cw_arena_alloc(arena, (size_t)a->out * sizeof(*r->keep), err);
    if (!r->keep)
        return err ? err->status : CW_E_MEMORY;
    for (int64_t i = a->out - 1; i >= 0; i--)
        r->keep[i] = i + 1 < a->out ? CW_MIN(resize_first_tap(a, i), r->keep[i + 1]) : resize_first_tap(a, i);
    for (int64_t i = 0; i < a->out; i++) {
        last = CW_MAX(last, resize_last_tap(a, i));
        span = CW_MAX(span, last - r->keep[i] + 1);
    }
    if (a->gather && resize_passes_through(&r->x))
        return 0; /* no ring: each output row is a copy of the source row that just came */
    size_t n = 1;
    while (n < (size_t)span)
        n *= 2;
    r->ring_mask = n - 1;
    r->ring_stride = CW_ALIGN_UP(r->row + CW_ROW_SLACK, 64);
    r->ring = cw_arena_alloc(arena, n * r->ring_stride, err);
    return r->ring ? 0 : err ? err->status : CW_E_MEMORY;
}

int cw_resize_plan_isa(struct cw_resize *r, const struct cw_resize_spec *spec, const struct cw_pixel_isa *isa,
                       struct cw_arena *arena, struct cw_error *err)
{
    *r = (struct cw_resize){.spec = *spec, .isa = isa};
    r->pixel = cw_dtype_size(spec->dtype) * (size_t)spec->channels;
    r->out_h = spec->cut_h ? spec->cut_h : spec->out_h;
    r->out_w = spec->cut_w ? spec->cut_w : spec->out_w;
    r->row = r->pixel * (size_t)r->out_w;
    int e = cw_axis_init(&r->x, spec, true, arena, err);
    if (e >= 0)
        e = cw_axis_init(&r->y, spec, false, arena, err);
    if (e >= 0)
        e = resize_ring_init(r, arena, err);
    if (e < 0)
        return e;
    r->x_isa = isa;
    size_t bytes = spec->dtype == CW_UINT8 && !r->x.gather && isa->table_bytes ? isa->table_bytes(r) : 0;
    if (bytes)
        r->tables = cw_arena_alloc(arena, bytes, err);
    else
        r->x_isa = &cw_pixel_isa_c;
    size_t taps = (size_t)r->y.taps;
    r->taps = cw_arena_alloc(arena, taps * sizeof(*r->taps), err);
    r->tap_w = cw_arena_alloc(arena, taps * sizeof(*r->tap_w), err);
    r->out = cw_arena_alloc(arena, r->row + CW_ROW_SLACK, err);
    r->padded = bytes ? cw_arena_alloc(arena, r->pixel * (size_t)r->x.used + r->pad, err) : NULL;
    bool real = spec->dtype != CW_UINT8 && !(r->x.gather && r->y.gather);
    size_t channels = (size_t)spec->channels;
    if (real) {
        r->values = cw_arena_alloc(arena, (size_t)CW_MAX(r->x.used, r->out_w) * channels * sizeof(double),
                                   err);
        r->sums = cw_arena_alloc(arena, (size_t)r->out_w * channels * sizeof(double), err);
    }
    if (!r->taps || !r->tap_w || !r->out || (real && (!r->values || !r->sums)) ||
        (bytes && (!r->tables || !r->padded)))
        return err ? err->status : CW_E_MEMORY;
    if (bytes) {
        memset(r->padded + r->pixel * (size_t)r->x.used, 0, r->pad);
        r->x_isa->tables(r);
    }
    return 0;
}

int cw_resize_plan(struct cw_resize *r, const struct cw_resize_spec *spec, struct cw_arena *arena,
                   struct cw_error *err)
{
    return cw_resize_plan_isa(r, spec, cw_pixel_isa(), arena, err);
}

static void resize_gather_row(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    const int32_t *lo = r->x.lo;
    size_t n = (size_t)r->x.out, px = r->pixel;
    for (size_t i = 0; i < n; i++, dst += px)
        memcpy(dst, src + (size_t)lo[i] * px,
               px == 3 ? 3 : px); /* a constant size for RGB, so that memcpy is inlined */
}

/* ---- dtypes other than uint8: double precision, in order ---- */

/* Converts r->sums to a row of the image's dtype. */
static void resize_store_sums(const struct cw_resize *r, uint8_t *dst)
{
    size_t n = (size_t)r->out_w * (size_t)r->spec.channels;
    for (size_t i = 0; r->spec.dtype == CW_UINT16 && i < n; i++)
        r->sums[i] = __builtin_floor(r->sums[i] + 0.5);
    cw_convert(CW_FLOAT64, r->spec.dtype, dst, r->sums, n); /* saturates uint16 */
}

static void resize_float_horizontal(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    size_t channels = (size_t)r->spec.channels;
    double *sum = r->sums;
    cw_convert(r->spec.dtype, CW_FLOAT64, r->values, src, (size_t)r->x.used * channels);
    for (size_t i = 0; i < (size_t)r->x.out; i++) {
        const double *w = r->x.v + i * (size_t)r->x.taps, *from = r->values + (size_t)r->x.lo[i] * channels;
        for (size_t c = 0; c < channels; c++, sum++) {
            *sum = 0.0;
            for (size_t k = 0; k < (size_t)r->x.n[i]; k++)
                *sum += w[k] * from[k * channels + c];
        }
    }
    resize_store_sums(r, dst);
}

static void resize_float_vertical(const struct cw_resize *r, int64_t y, uint8_t *dst)
{
    const double *w = r->y.v + (size_t)y * (size_t)r->y.taps;
    size_t n = (size_t)r->out_w * (size_t)r->spec.channels;
    memset(r->sums, 0, n * sizeof(*r->sums));
    for (int32_t k = 0; k < r->y.n[y]; k++) {
        cw_convert(r->spec.dtype, CW_FLOAT64, r->values, r->taps[k], n);
        for (size_t i = 0; i < n; i++)
            r->sums[i] += w[k] * r->values[i];
    }
    resize_store_sums(r, dst);
}

/* ---- rows ---- */

/* Puts source row y through the horizontal pass into the ring, and returns it there. Without a ring returns
 * src. */
static const uint8_t *resize_horizontal(struct cw_resize *r, int64_t y, const uint8_t *src, size_t slack)
{
    if (!r->ring)
        return src;
    uint8_t *dst = r->ring + ((size_t)y & r->ring_mask) * r->ring_stride;
    if (resize_passes_through(&r->x)) {
        memcpy(dst, src, r->row);
    } else if (r->x.gather) {
        resize_gather_row(r, src, dst);
    } else if (r->spec.dtype != CW_UINT8) {
        resize_float_horizontal(r, src, dst);
    } else {
        if (r->tables && slack < r->pad) /* the kernel would read past the image's end */
            src = memcpy(r->padded, src, r->pixel * (size_t)r->x.used);
        r->x_isa->horizontal(r, src, dst);
    }
    return dst;
}

static const uint8_t *resize_kept_row(const struct cw_resize *r, int64_t y)
{
    return r->ring + ((size_t)y & r->ring_mask) * r->ring_stride;
}

/* Returns output row y: computed into dst, or where it exists already. latest: the source row that came last.
 */
static const uint8_t *resize_make_row(struct cw_resize *r, int64_t y, const uint8_t *latest, uint8_t *dst)
{
    const struct cw_axis *a = &r->y;
    if (a->gather)
        return latest;
    int n = 0;
    if (r->spec.dtype != CW_UINT8) {
        for (int32_t k = 0; k < a->n[y]; k++)
            r->taps[k] = resize_kept_row(r, a->lo[y] + k);
        resize_float_vertical(r, y, dst);
        return dst;
    }
    const int32_t *w = a->w + (size_t)y * (size_t)a->taps;
    for (int32_t k = 0; k < a->n[y]; k++) {
        if (!w[k])
            continue;
        r->taps[n] = resize_kept_row(r, a->lo[y] + k);
        r->tap_w[n++] = w[k];
    }
    if (n == 1 && r->tap_w[0] == 1 << a->p)
        return r->taps[0];
    r->isa->vertical(r->taps, r->tap_w, n, a->p, dst, r->row);
    return dst;
}

void cw_resize_row(struct cw_resize *r, int64_t y, const uint8_t *row, size_t slack,
                   const struct cw_row_sink *sink)
{
    if (r->next == r->out_h || y < r->keep[r->next])
        return; /* no output row depends on it */
    const uint8_t *latest = resize_horizontal(r, y, row, slack);
    for (; r->next < r->out_h && resize_last_tap(&r->y, r->next) <= y; r->next++) {
        uint8_t *dst = sink->direct ? sink->direct + r->next * sink->stride : r->out;
        const uint8_t *made = resize_make_row(r, r->next, latest, dst);
        if (!sink->direct)
            sink->put(sink->arg, r->next, made);
        else if (made != dst)
            memcpy(dst, made, r->row);
    }
}

void cw_resize_run(struct cw_resize *r, const uint8_t *src, size_t stride, size_t slack,
                   const struct cw_row_sink *sink)
{
    for (int64_t y = 0; y < r->y.used; y++)
        cw_resize_row(r, y, src + (size_t)y * stride, (size_t)(r->y.used - 1 - y) * stride + slack, sink);
}
