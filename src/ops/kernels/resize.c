/* Resizes an image row by row, with the kernels of one instruction set. The caller owns all memory. */
#include "ops/kernels/resize.h"

#include <string.h>

#include "ops/kernels/isa.h"

static size_t resize_power_of_two(size_t n)
{
    size_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

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

/* Rows that are kept are those from keep[next] up to the last one that came, which was needed for an output
 * up to next. */
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
        return 0; /* rows go on as they come */
    size_t n = resize_power_of_two((size_t)span);
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
    if (!r->taps || !r->tap_w || !r->out || (bytes && (!r->tables || !r->padded)))
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
    if (px == 3) {
        for (size_t i = 0; i < n; i++, dst += 3) {
            const uint8_t *s = src + 3 * (size_t)lo[i];
            dst[0] = s[0];
            dst[1] = s[1];
            dst[2] = s[2];
        }
        return;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(dst + i * px, src + (size_t)lo[i] * px, px);
}

/* ---- dtypes other than uint8: double precision, in order ---- */

static double resize_load_value(enum cw_dtype t, const uint8_t *p)
{
    uint16_t u;
    float f;
    double d;
    switch (t) {
    case CW_UINT16:
        memcpy(&u, p, 2);
        return u;
    case CW_FLOAT32:
        memcpy(&f, p, 4);
        return (double)f;
    default:
        memcpy(&d, p, 8);
        return d;
    }
}

static void resize_store_value(enum cw_dtype t, uint8_t *p, double v)
{
    if (t == CW_UINT16) {
        v = __builtin_floor(v + 0.5);
        uint16_t u = (uint16_t)(v >= 65535 ? 65535 : v > 0 ? v : 0);
        memcpy(p, &u, 2);
    } else if (t == CW_FLOAT32) {
        float f = (float)v;
        memcpy(p, &f, 4);
    } else {
        memcpy(p, &v, 8);
    }
}

static void resize_float_horizontal(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    enum cw_dtype t = r->spec.dtype;
    size_t value = cw_dtype_size(t), channels = (size_t)r->spec.channels;
    for (size_t i = 0; i < (size_t)r->x.out; i++) {
        const double *w = r->x.v + i * (size_t)r->x.taps;
        for (size_t c = 0; c < channels; c++, dst += value) {
            const uint8_t *s = src + (size_t)r->x.lo[i] * r->pixel + c * value;
            double sum = 0.0;
            for (int32_t k = 0; k < r->x.n[i]; k++)
                sum += w[k] * resize_load_value(t, s + (size_t)k * r->pixel);
            resize_store_value(t, dst, sum);
        }
    }
}

static void resize_float_vertical(const struct cw_resize *r, int64_t y, uint8_t *dst)
{
    enum cw_dtype t = r->spec.dtype;
    const double *w = r->y.v + (size_t)y * (size_t)r->y.taps;
    size_t value = cw_dtype_size(t);
    for (size_t at = 0; at < r->row; at += value) {
        double sum = 0.0;
        for (int32_t k = 0; k < r->y.n[y]; k++)
            sum += w[k] * resize_load_value(t, r->taps[k] + at);
        resize_store_value(t, dst + at, sum);
    }
}

/* ---- rows ---- */

/* Source row y through the horizontal pass: into the ring, or as it is where it need not be kept. */
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

/* Output row y: into dst, or where it lies already. latest: the source row that came last. */
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
        return; /* nothing depends on it */
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
