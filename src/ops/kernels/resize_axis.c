/*
 * Taps and weights of one axis (docs/pixels.md section 1). Uses only + - * / and rounding of doubles, so that
 * the bits are the same on every machine.
 */
#include <math.h>
#include <string.h>

#include "ops/kernels/resize.h"

static inline double axis_filter_bilinear(double x)
{
    if (x < 0)
        x = -x;
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double axis_filter_bicubic(double x)
{
    const double a = -0.5; /* Keys' cubic, as Pillow has it */
    if (x < 0)
        x = -x;
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

struct taps { /* of one axis, in double precision, not yet scaled to sum 1 */
    double scale, fs, support;
    double (*filter)(double);
    int ksize;
    double *w;   /* ksize per output */
    double *sum; /* per output */
};

static int64_t axis_clamp_index(double v, int64_t max)
{
    return v >= (double)max ? max : v > 0 ? (int64_t)v : 0;
}

static void axis_taps_compute(const struct taps *t, int64_t in, struct cw_axis *a)
{
    double ss = 1.0 / t->fs;
    for (int64_t i = 0; i < a->out; i++) {
        double centre = ((double)i + 0.5) * t->scale;
        int64_t lo = axis_clamp_index(centre - t->support + 0.5, in),
                hi = axis_clamp_index(centre + t->support + 0.5, in);
        double *w = t->w + (size_t)i * (size_t)t->ksize, sum = 0.0;
        int n = (int)(hi - lo);
        for (int k = 0; k < n; k++) {
            w[k] = t->filter(((double)(k + lo) - centre + 0.5) * ss);
            sum += w[k];
        }
        a->lo[i] = (int32_t)lo;
        a->n[i] = n;
        t->sum[i] = sum;
    }
}

/* Pillow rounds each weight by itself, to 22 bits. */
static int32_t axis_round_weight(double v)
{
    return v < 0 ? (int32_t)(v * (1 << 22) - 0.5) : (int32_t)(v * (1 << 22) + 0.5);
}

/* Removes taps with weight zero at both ends. With p = 14 (plain bilinear), weights are differences of the
 * rounded partial sums, so their sum is exact. Rounding of the taps' bounds can give three taps; the outer
 * ones then have weight zero. */
static void axis_taps_integer(const struct taps *t, struct cw_axis *a)
{
    bool plain = a->p == 14;
    a->taps = plain ? 2 : 1;
    for (int64_t i = 0; i < a->out; i++) {
        const double *d = t->w + (size_t)i * (size_t)t->ksize;
        int32_t *o = a->w + (size_t)i * (size_t)t->ksize, before = 0;
        int n = 0, skipped = 0, used = 0;
        double part = 0.0;
        for (int k = 0; k < a->n[i]; k++) {
            part += d[k];
            int32_t upto = !plain            ? 0
                           : k + 1 < a->n[i] ? (int32_t)(part / t->sum[i] * (1 << 14) + 0.5)
                                             : 1 << 14;
            int32_t r = plain ? upto - before : axis_round_weight(d[k] / t->sum[i]);
            before = upto;
            if (!r && !n) {
                skipped++;
                continue;
            }
            o[n++] = r;
            if (r)
                used = n;
        }
        for (int k = used; k < t->ksize; k++)
            o[k] = 0;
        a->lo[i] += skipped;
        a->n[i] = used;
        a->taps = CW_MAX(a->taps, used);
    }
}

static void axis_taps_float(const struct taps *t, struct cw_axis *a)
{
    a->taps = t->ksize;
    for (int64_t i = 0; i < a->out; i++) {
        double *w = t->w + (size_t)i * (size_t)t->ksize;
        for (int k = 0; k < a->n[i]; k++)
            w[k] = w[k] / t->sum[i];
    }
    a->v = t->w;
}

static int axis_weights_init(struct cw_axis *a, int64_t in, const struct cw_resize_spec *spec,
                             struct cw_arena *arena, struct cw_error *err)
{
    struct taps t = {.scale = (double)in / (double)a->out, .fs = 1.0};
    t.filter = spec->interp == CW_BICUBIC ? axis_filter_bicubic : axis_filter_bilinear;
    if (spec->antialias && t.scale > 1)
        t.fs = t.scale;
    t.support = t.fs * (spec->interp == CW_BICUBIC ? 2.0 : 1.0);
    t.ksize = (int)ceil(t.support) * 2 + 1;
    size_t out = (size_t)a->out, all = out * (size_t)t.ksize;
    t.w = cw_arena_alloc(arena, all * sizeof(double), err);
    t.sum = t.w ? cw_arena_alloc(arena, out * sizeof(double), err) : NULL;
    if (!t.sum)
        return err ? err->status : CW_E_MEMORY;
    axis_taps_compute(&t, in, a);
    if (spec->dtype != CW_UINT8) {
        axis_taps_float(&t, a);
        return 0;
    }
    a->p = spec->interp == CW_BILINEAR && !spec->antialias ? 14 : 22;
    a->w = cw_arena_alloc(arena, all * sizeof(*a->w), err);
    if (!a->w)
        return err ? err->status : CW_E_MEMORY;
    axis_taps_integer(&t, a);
    /* Moves weights together: kernels expect `taps` weights per output. */
    for (size_t i = 0; i < out; i++)
        memmove(a->w + i * (size_t)a->taps, a->w + i * (size_t)t.ksize, (size_t)a->taps * sizeof(*a->w));
    return 0;
}

static void axis_nearest_init(struct cw_axis *a, int64_t in)
{
    double scale = (double)in / (double)a->out, at = scale * 0.5;
    for (int64_t i = 0; i < a->out; i++, at += scale)
        a->lo[i] = (int32_t)CW_MIN((int64_t)at, in - 1);
}

/* Keeps only the outputs cut .. cut+n-1. */
static void axis_cut_outputs(struct cw_axis *a, int64_t cut, int64_t n)
{
    a->out = n;
    if (!a->lo)
        return;
    a->lo += cut;
    a->n += cut;
    if (a->w)
        a->w += cut * a->taps;
    if (a->v)
        a->v += cut * a->taps;
}

/* Sets first and used, the inputs that the remaining outputs depend on, and makes lo count from first. */
static void axis_find_used(struct cw_axis *a, int64_t cut)
{
    if (!a->lo) {
        a->first = cut;
        a->used = a->out;
        return;
    }
    int32_t first = INT32_MAX, last = 0;
    for (int64_t i = 0; i < a->out; i++) {
        int32_t end = a->lo[i] + (a->gather ? 1 : a->n[i]);
        first = CW_MIN(first, a->lo[i]);
        last = CW_MAX(last, end);
    }
    for (int64_t i = 0; i < a->out; i++)
        a->lo[i] -= first;
    a->first = first;
    a->used = last - first;
}

/* Reverses the order of n items of `size` bytes; items NULL: there are none. */
static void axis_reverse(void *items, size_t n, size_t size)
{
    uint8_t *bytes = items;
    for (size_t i = 0, j = n - 1; items && i < j; i++, j--)
        for (size_t k = 0; k < size; k++) {
            uint8_t t = bytes[i * size + k];
            bytes[i * size + k] = bytes[j * size + k];
            bytes[j * size + k] = t;
        }
}

int cw_axis_init(struct cw_axis *a, const struct cw_resize_spec *spec, bool horizontal,
                 struct cw_arena *arena, struct cw_error *err)
{
    int64_t in = horizontal ? spec->in_w : spec->in_h, out = horizontal ? spec->out_w : spec->out_h;
    int64_t cut = horizontal ? spec->cut_x : spec->cut_y, n = horizontal ? spec->cut_w : spec->cut_h;
    *a = (struct cw_axis){.out = out, .taps = 1};
    bool flip = horizontal && spec->flip_x, same = in == out;
    a->gather = same || spec->interp == CW_NEAREST;
    int r = 0;
    if (!same || flip) {
        a->lo = cw_arena_alloc(arena, 2 * (size_t)out * sizeof(*a->lo), err);
        if (!a->lo)
            return err ? err->status : CW_E_MEMORY;
        a->n = a->lo + out;
        if (!a->gather)
            r = axis_weights_init(a, in, spec, arena, err);
        else if (!same)
            axis_nearest_init(a, in);
        else
            for (int64_t i = 0; i < out; i++)
                a->lo[i] = (int32_t)i;
    }
    if (r < 0)
        return r;
    if (n)
        axis_cut_outputs(a, cut, n);
    axis_find_used(a, cut);
    if (flip) {
        axis_reverse(a->lo, (size_t)a->out, sizeof(*a->lo));
        axis_reverse(a->gather ? NULL : a->n, (size_t)a->out, sizeof(*a->n));
        axis_reverse(a->w, (size_t)a->out, (size_t)a->taps * sizeof(*a->w));
        axis_reverse(a->v, (size_t)a->out, (size_t)a->taps * sizeof(*a->v));
    }
    return 0;
}
