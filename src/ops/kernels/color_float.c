/* Changes of the colours of float32 images with values in [0, 1]; all arithmetic is in float32 unless a
 * comment says otherwise. */
#include <math.h>
#include <string.h>

#include "ops/kernels/color.h"

static size_t float_values(const struct cw_color_shape *s)
{
    return (size_t)s->h * (size_t)s->w * (size_t)s->channels;
}

/* Returns x, but for NaN always the same one: processors differ in its sign. */
static inline float float_one_nan(float x)
{
    return isnan(x) ? NAN : x;
}

/* Returns x cut to [0, 1]; NaN stays. */
static inline float float_cut(float x)
{
    x = x < 0 ? 0 : x;
    return float_one_nan(x > 1 ? 1 : x);
}

static inline float float_luma(const float *rgb)
{
    return float_one_nan(0.2989f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2]);
}

struct blend { /* factor * x + rest * other */
    float factor, rest;
};

static struct blend blend_of(double factor)
{
    return (struct blend){(float)factor, (float)(1 - factor)};
}

static inline float float_blend(struct blend b, float x, float other)
{
    return float_cut(b.factor * x + b.rest * other);
}

static void float_blend_all(double factor, float other, size_t n, float *dst, const float *src)
{
    struct blend b = blend_of(factor);
    for (size_t i = 0; i < n; i++)
        dst[i] = float_blend(b, src[i], other);
}

/* Returns the mean of the luma; the sum is in double precision, pixel by pixel. */
static float float_mean(const struct cw_color_shape *s, const float *src)
{
    size_t n = (size_t)s->h * (size_t)s->w;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(s->channels == 3 ? float_luma(src + 3 * i) : src[i]);
    return (float)(sum / (double)n);
}

static void float_solarize(float threshold, size_t n, float *dst, const float *src)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = src[i] >= threshold ? 1 - src[i] : src[i];
}

static void float_autocontrast(const struct cw_color_shape *s, float *dst, const float *src)
{
    size_t step = (size_t)s->channels, n = float_values(s);
    for (size_t c = 0; c < step; c++) {
        float lo = INFINITY, hi = -INFINITY;
        for (size_t i = c; i < n; i += step) {
            lo = src[i] < lo ? src[i] : lo;
            hi = src[i] > hi ? src[i] : hi;
        }
        float scale = 1 / (hi - lo);
        if (!isfinite(scale)) {
            lo = 0;
            scale = 1;
        }
        for (size_t i = c; i < n; i += step)
            dst[i] = float_cut((src[i] - lo) * scale);
    }
}

static void float_sharpness(double factor, const struct cw_color_shape *s, float *restrict dst,
                            const float *src)
{
    const float k1 = 1.0f / 13, k5 = 5.0f / 13;
    struct blend b = blend_of(factor);
    size_t c = (size_t)s->channels, row = (size_t)s->w * c, n = float_values(s);
    if (s->w < 3 || s->h < 3) {
        memcpy(dst, src, n * sizeof(*dst));
        return;
    }
    for (size_t i = 0; i < n; i++)
        dst[i] = float_blend(b, src[i], src[i]);
    for (int64_t y = 1; y < s->h - 1; y++) {
        const float *at = src + (size_t)y * row, *up = at - row, *down = at + row;
        float *to = dst + (size_t)y * row;
        for (size_t i = c; i < row - c; i++) {
            float smooth = k1 * up[i - c] + k1 * up[i] + k1 * up[i + c] + k1 * at[i - c] + k5 * at[i] +
                           k1 * at[i + c] + k1 * down[i - c] + k1 * down[i] + k1 * down[i + c];
            to[i] = float_blend(b, at[i], smooth);
        }
    }
}

static void float_saturation(double factor, const struct cw_color_shape *s, float *dst, const float *src)
{
    struct blend b = blend_of(factor);
    for (size_t i = 0; i < float_values(s); i += 3) {
        float luma = float_luma(src + i);
        for (size_t c = 0; c < 3; c++)
            dst[i + c] = float_blend(b, src[i + c], luma);
    }
}

struct hsv {
    float h, s, v;
};

static struct hsv float_to_hsv(float r, float g, float b)
{
    float most = r > g ? r : g, least = r > g ? g : r;
    most = most > b ? most : b;
    least = least < b ? least : b;
    float range = most - least, cr = most == least ? 1 : range;
    float rc = (most - r) / cr, gc = (most - g) / cr, bc = (most - b) / cr;
    float h = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
    h = h / 6 + 1;
    return (struct hsv){h >= 1 ? h - 1 : h, range / (most == least ? 1 : most), most};
}

static void float_from_hsv(struct hsv x, float rgb[3])
{
    float turn = x.h * 6, v = x.v;
    int sector = turn >= 1 ? turn >= 2 ? turn >= 3 ? turn >= 4 ? turn >= 5 ? 5 : 4 : 3 : 2 : 1 : 0;
    float f = turn - (float)sector;
    float p = float_cut(v * (1 - x.s)), q = float_cut(v * (1 - x.s * f)),
          t = float_cut(v * (1 - x.s * (1 - f)));
    const float results[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
    memcpy(rgb, results[sector], sizeof(results[sector]));
}

static void float_hue(float shift, const struct cw_color_shape *s, float *dst, const float *src)
{
    for (size_t i = 0; i < float_values(s); i += 3) {
        struct hsv x = float_to_hsv(src[i], src[i + 1], src[i + 2]);
        x.h += shift;
        x.h = x.h >= 1 ? x.h - 1 : x.h < 0 ? x.h + 1 : x.h;
        /* -tiny + 1 rounds to 1, which is where the circle begins */
        x.h = x.h >= 1 ? 0 : x.h;
        float_from_hsv(x, dst + i);
    }
}

static void float_grayscale(int channels, const struct cw_color_shape *s, float *dst, const float *src)
{
    for (size_t i = 0; i < float_values(s); i += (size_t)s->channels) {
        float luma = s->channels == 3 ? float_luma(src + i) : src[i];
        for (int c = 0; c < channels; c++)
            *dst++ = luma;
    }
}

static void float_copy(size_t n, float *dst, const float *src)
{
    if (dst != src)
        memcpy(dst, src, n * sizeof(*dst));
}

void cw_color_apply_float(const struct cw_color_step *step, const struct cw_color_shape *s, float *dst,
                          const float *src)
{
    size_t n = float_values(s);
    switch (step->kind) {
    case CW_COLOR_INVERT:
        float_solarize(-INFINITY, n, dst, src);
        break;
    case CW_COLOR_SOLARIZE:
        float_solarize((float)step->value, n, dst, src);
        break;
    case CW_COLOR_AUTOCONTRAST:
        float_autocontrast(s, dst, src);
        break;
    case CW_COLOR_SHARPNESS:
        float_sharpness(step->value, s, dst, src);
        break;
    case CW_COLOR_BRIGHTNESS:
        float_blend_all(step->value, 0, n, dst, src);
        break;
    case CW_COLOR_CONTRAST:
        float_blend_all(step->value, float_mean(s, src), n, dst, src);
        break;
    case CW_COLOR_SATURATION:
        if (s->channels == 3)
            float_saturation(step->value, s, dst, src);
        else
            float_copy(n, dst, src);
        break;
    case CW_COLOR_HUE:
        if (s->channels == 3)
            float_hue((float)step->value, s, dst, src);
        else
            float_copy(n, dst, src);
        break;
    case CW_COLOR_GRAYSCALE:
        float_grayscale((int)step->value, s, dst, src);
        break;
    case CW_COLOR_POSTERIZE: /* uint8 only */
    case CW_COLOR_EQUALIZE:
        break;
    }
}
