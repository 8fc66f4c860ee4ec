/* Changes of the colours of uint8 images. Most are tables of 256 values, applied to every value. */
#include "ops/kernels/color.h"

#include <string.h>

#include "base/macro.h"
#include "ops/kernels/color_loops.h"
#include "ops/kernels/isa.h"

struct table { /* the result of each value; by channel */
    uint8_t of[3][256];
};

struct histogram { /* how often each value occurs; by channel */
    uint64_t of[3][256];
};

static size_t color_pixels(const struct cw_color_shape *s)
{
    return (size_t)s->h * (size_t)s->w;
}

static void color_apply_table(const struct table *t, const struct cw_color_shape *s, uint8_t *dst,
                              const uint8_t *src)
{
    size_t n = color_pixels(s);
    if (s->channels == 1) {
        for (size_t i = 0; i < n; i++)
            dst[i] = t->of[0][src[i]];
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++)
            dst[3 * i + c] = t->of[c][src[3 * i + c]];
}

static void color_count(struct histogram *ret, const struct cw_color_shape *s, const uint8_t *src)
{
    size_t n = color_pixels(s);
    *ret = (struct histogram){0};
    if (s->channels == 1)
        for (size_t i = 0; i < n; i++)
            ret->of[0][src[i]]++;
    else
        for (size_t i = 0; i < n; i++)
            for (size_t c = 0; c < 3; c++)
                ret->of[c][src[3 * i + c]]++;
}

/* ---- tables that do not depend on the image ---- */

/* Makes every channel's table that of channel 0. */
static void table_repeat(struct table *t)
{
    memcpy(t->of[1], t->of[0], sizeof(t->of[0]));
    memcpy(t->of[2], t->of[0], sizeof(t->of[0]));
}

static void table_posterize(struct table *t, int bits)
{
    for (int i = 0; i < 256; i++)
        t->of[0][i] = (uint8_t)(i & (0xff00 >> bits));
    table_repeat(t);
}

/* Inverts the values from threshold on. */
static void table_solarize(struct table *t, double threshold)
{
    for (int i = 0; i < 256; i++)
        t->of[0][i] = (uint8_t)(i < threshold ? i : 255 - i);
    table_repeat(t);
}

static void table_blend(struct table *t, int with, double factor)
{
    for (int i = 0; i < 256; i++)
        t->of[0][i] = cw_loop_blend(with, i, (float)factor);
    table_repeat(t);
}

/* ---- tables made from the image's values ---- */

static int color_clamp(int v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

static void table_equalize(uint8_t t[256], const uint64_t count[256])
{
    uint64_t total = 0, last = 0;
    for (int i = 0; i < 256; i++) {
        total += count[i];
        last = count[i] ? count[i] : last;
    }
    uint64_t step = (total - last) / 255, n = step / 2;
    for (int i = 0; i < 256; i++) {
        t[i] = (uint8_t)(step ? CW_MIN(n / step, 255u) : (uint64_t)i);
        n += count[i];
    }
}

static void table_autocontrast(uint8_t t[256], const uint64_t count[256])
{
    int lo = 0, hi = 255;
    while (lo < 255 && !count[lo])
        lo++;
    while (hi > 0 && !count[hi])
        hi--;
    double scale = hi > lo ? 255.0 / (hi - lo) : 1, offset = hi > lo ? -lo * scale : 0;
    for (int i = 0; i < 256; i++)
        t[i] = (uint8_t)color_clamp((int)(i * scale + offset));
}

static void table_from_image(struct table *t, void (*make)(uint8_t *, const uint64_t *),
                             const struct cw_color_shape *s, const uint8_t *src)
{
    struct histogram count;
    color_count(&count, s, src);
    for (int c = 0; c < s->channels; c++)
        make(t->of[c], count.of[c]);
}

/* Returns the mean of the luma, rounded. */
static int color_mean(const struct cw_color_shape *s, const uint8_t *src)
{
    size_t n = color_pixels(s);
    uint64_t sum = 0;
    for (size_t i = 0; i < n;) {
        size_t end = CW_MIN(n, i + 65536); /* a sum of 65536 values fits 32 bits */
        uint32_t part = 0;
        if (s->channels == 1)
            for (; i < end; i++)
                part += src[i];
        else
            for (; i < end; i++)
                part += (uint32_t)cw_loop_luma(src + 3 * i);
        sum += part;
    }
    return (int)((double)sum / (double)n + 0.5);
}

/* ---- changes that are not tables ---- */

/* A row of `values` values, none of which is at the border: blends it with its smoothed values. */
static void sharpness_row(uint8_t *restrict dst, const uint8_t *up, const uint8_t *at, const uint8_t *down,
                          size_t values, size_t c, float factor)
{
    for (size_t i = c; i < values - c; i++) {
        unsigned sum = up[i - c] + up[i] + up[i + c] + at[i - c] + 5u * at[i] + at[i + c] + down[i - c] +
                       down[i] + down[i + c];
        dst[i] = cw_loop_blend((int)((2 * sum + 13) / 26), at[i], factor);
    }
}

static void color_sharpness(double factor, const struct cw_color_shape *s, uint8_t *dst, const uint8_t *src)
{
    size_t c = (size_t)s->channels, row = (size_t)s->w * c;
    memcpy(dst, src, row * (size_t)s->h);
    if (s->w < 3)
        return;
    for (int64_t y = 1; y < s->h - 1; y++) {
        const uint8_t *at = src + (size_t)y * row;
        sharpness_row(dst + (size_t)y * row, at - row, at, at + row, row, c, (float)factor);
    }
}

static void color_grayscale(int channels, const struct cw_color_shape *s, uint8_t *dst, const uint8_t *src)
{
    size_t n = color_pixels(s);
    for (size_t i = 0; i < n; i++) {
        uint8_t luma = s->channels == 3 ? (uint8_t)cw_loop_luma(src + 3 * i) : src[i];
        for (int c = 0; c < channels; c++)
            *dst++ = luma;
    }
}

static void color_copy(const struct cw_color_shape *s, uint8_t *dst, const uint8_t *src)
{
    if (dst != src)
        memcpy(dst, src, color_pixels(s) * (size_t)s->channels);
}

static void color_apply_bytes(const struct cw_color_step *step, const struct cw_color_shape *s, uint8_t *dst,
                              const uint8_t *src)
{
    struct table t;
    switch (step->kind) {
    case CW_COLOR_INVERT:
        table_solarize(&t, 0);
        break;
    case CW_COLOR_POSTERIZE:
        table_posterize(&t, (int)step->value);
        break;
    case CW_COLOR_SOLARIZE:
        table_solarize(&t, step->value);
        break;
    case CW_COLOR_EQUALIZE:
        table_from_image(&t, table_equalize, s, src);
        break;
    case CW_COLOR_AUTOCONTRAST:
        table_from_image(&t, table_autocontrast, s, src);
        break;
    case CW_COLOR_BRIGHTNESS:
        table_blend(&t, 0, step->value);
        break;
    case CW_COLOR_CONTRAST:
        table_blend(&t, color_mean(s, src), step->value);
        break;
    case CW_COLOR_SATURATION:
        if (s->channels == 3)
            cw_pixel_isa()->saturation(dst, src, color_pixels(s), (float)step->value);
        else
            color_copy(s, dst, src);
        return;
    case CW_COLOR_HUE:
        if (s->channels == 3)
            cw_pixel_isa()->hue(dst, src, color_pixels(s), (int)(step->value * 255) & 255);
        else
            color_copy(s, dst, src);
        return;
    case CW_COLOR_SHARPNESS:
        color_sharpness(step->value, s, dst, src);
        return;
    case CW_COLOR_GRAYSCALE:
        color_grayscale((int)step->value, s, dst, src);
        return;
    }
    color_apply_table(&t, s, dst, src);
}

void cw_color_apply(const struct cw_color_step *step, const struct cw_color_shape *shape, void *dst,
                    const void *src)
{
    if (shape->is_float)
        cw_color_apply_float(step, shape, dst, src);
    else
        color_apply_bytes(step, shape, dst, src);
}
