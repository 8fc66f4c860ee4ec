/* The pixels of warps: nearest, bilinear and bicubic, with Pillow's arithmetic (its Geometry.c). Compiled
 * with the options of the kernels. */
#include "ops/image/warp.h"

#include <math.h>
#include <string.h>

#include "base/macro.h"
#include "ops/kernels/isa.h"
#include "ops/kernels/loops.h"

#define WARP_CHUNK 128 /* pixels whose places are computed at a time: 2 KiB on the stack */

static size_t warp_pixel_bytes(const struct cw_warp *p)
{
    return (size_t)p->channels * cw_dtype_size(p->dtype);
}

/* The places of n <= WARP_CHUNK pixels from (x, y) on. */
static void warp_places(const struct cw_warp *p, int64_t x, int64_t y, size_t n, double *restrict px,
                        double *restrict py)
{
    const double *m = p->m, first = (double)x + 0.5, down = (double)y + 0.5;
    for (int i = 0; i < (int)n; i++) {
        double across = (double)i + first;
        px[i] = m[0] * across + m[1] * down + m[2];
        py[i] = m[3] * across + m[4] * down + m[5];
    }
    for (int i = 0; i < (int)n && p->perspective; i++) {
        double d = m[6] * ((double)i + first) + m[7] * down + 1;
        px[i] = px[i] / d;
        py[i] = py[i] / d;
    }
}

/* ---- nearest ---- */

CW_LOOP void warp_copy(uint8_t *dst, const struct cw_warp *p, const uint8_t *src, bool inside, int64_t x,
                       int64_t y, size_t bytes)
{
    memcpy(dst, inside ? src + (size_t)(y * p->w + x) * bytes : p->fill, bytes);
}

CW_LOOP void warp_nearest_places(const struct cw_warp *p, uint8_t *dst, const uint8_t *src, size_t bytes)
{
    double px[WARP_CHUNK], py[WARP_CHUNK];
    for (int64_t y = 0; y < p->out_h; y++)
        for (int64_t x = 0; x < p->out_w; x += WARP_CHUNK) {
            size_t n = (size_t)CW_MIN(p->out_w - x, WARP_CHUNK);
            warp_places(p, x, y, n, px, py);
            for (size_t i = 0; i < n; i++, dst += bytes) {
                bool inside = px[i] >= 0 && px[i] < (double)p->w && py[i] >= 0 && py[i] < (double)p->h;
                warp_copy(dst, p, src, inside, inside ? (int64_t)px[i] : 0, inside ? (int64_t)py[i] : 0,
                          bytes);
            }
        }
}

/* Places with 16 fractional bits, from pixel to pixel by addition. */
CW_LOOP void warp_nearest_fixed(const struct cw_warp *p, uint8_t *dst, const uint8_t *src, size_t bytes)
{
    int64_t m[6];
    const double *a = p->m, v[6] = {a[0], a[1], a[2] + a[0] * 0.5 + a[1] * 0.5,
                                    a[3], a[4], a[5] + a[3] * 0.5 + a[4] * 0.5};
    for (int k = 0; k < 6; k++)
        m[k] = (int64_t)floor(v[k] * 65536.0 + 0.5);
    for (int64_t y = 0; y < p->out_h; y++) {
        int64_t px = m[2] + y * m[1], py = m[5] + y * m[4];
        for (int64_t x = 0; x < p->out_w; x++, dst += bytes) {
            int64_t ix = px >> 16, iy = py >> 16;
            warp_copy(dst, p, src, ix >= 0 && ix < p->w && iy >= 0 && iy < p->h, ix, iy, bytes);
            px += m[0];
            py += m[3];
        }
    }
}

/* Places in double precision, from pixel to pixel by addition. */
CW_LOOP void warp_nearest_steps(const struct cw_warp *p, uint8_t *dst, const uint8_t *src, size_t bytes)
{
    const double *m = p->m;
    double left_x = m[2] + m[1] * 0.5 + m[0] * 0.5, left_y = m[5] + m[4] * 0.5 + m[3] * 0.5;
    for (int64_t y = 0; y < p->out_h; y++) {
        double px = left_x, py = left_y;
        for (int64_t x = 0; x < p->out_w; x++, dst += bytes) {
            bool inside = px >= 0 && px < (double)p->w && py >= 0 && py < (double)p->h;
            warp_copy(dst, p, src, inside, inside ? (int64_t)px : 0, inside ? (int64_t)py : 0, bytes);
            px += m[0];
            py += m[3];
        }
        left_x += m[1];
        left_y += m[4];
    }
}

static bool warp_fits_fixed(const struct cw_warp *p)
{
    const double *m = p->m;
    for (int k = 0; k < 4; k++) {
        double x = k & 1 ? (double)p->out_w : 0, y = k & 2 ? (double)p->out_h : 0;
        if (!(fabs(x * m[0] + y * m[1] + m[2]) < 32768.0 && fabs(x * m[3] + y * m[4] + m[5]) < 32768.0))
            return false;
    }
    return true;
}

CW_LOOP void warp_nearest_of(const struct cw_warp *p, uint8_t *dst, const uint8_t *src, size_t bytes)
{
    if (p->perspective)
        warp_nearest_places(p, dst, src, bytes);
    else if ((p->m[1] == 0 && p->m[3] == 0) || !warp_fits_fixed(p))
        warp_nearest_steps(p, dst, src, bytes);
    else
        warp_nearest_fixed(p, dst, src, bytes);
}

static void warp_nearest(const struct cw_warp *p, uint8_t *dst, const uint8_t *src)
{
    size_t bytes = warp_pixel_bytes(p); /* the usual sizes are constants for the compiler */
    if (bytes == 3)
        warp_nearest_of(p, dst, src, 3);
    else if (bytes == 1)
        warp_nearest_of(p, dst, src, 1);
    else
        warp_nearest_of(p, dst, src, bytes);
}

/* ---- bilinear and bicubic ---- */

CW_LOOP double warp_value(const void *row, int64_t i, bool floats)
{
    return floats ? (double)((const float *)row)[i] : (double)((const uint8_t *)row)[i];
}

/* The sums of an image's own values are in its dtype: those of uint8 values are exact. */
CW_LOOP double warp_round(double v, bool floats)
{
    return floats ? (double)(float)v : v;
}

CW_LOOP double warp_linear(double a, double b, double d, bool floats)
{
    return a + warp_round(b - a, floats) * d;
}

CW_LOOP double warp_cubic(const double v[4], double d, bool floats)
{
    double p2 = warp_round(v[2] - v[0], floats),
           p3 = warp_round(warp_round(2 * warp_round(v[0] - v[1], floats) + v[2], floats) - v[3], floats),
           p4 = warp_round(warp_round(warp_round(v[1] - v[0], floats) - v[2], floats) + v[3], floats);
    return v[1] + d * (p2 + d * (p3 + d * p4));
}

CW_LOOP void warp_store(void *dst, int c, double v, bool floats)
{
    if (floats)
        ((float *)dst)[c] = (float)v;
    else
        ((uint8_t *)dst)[c] = (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v);
}

/* One pixel, whose place (px, py) is in the image. n: 2 x 2 or 4 x 4 pixels. */
CW_LOOP void warp_pixel(const struct cw_warp *p, void *dst, const uint8_t *src, double px, double py, int n,
                        bool floats)
{
    double left = floor(px - 0.5), top = floor(py - 0.5), dx = (px - 0.5) - left, dy = (py - 0.5) - top;
    int64_t at[4], y = (int64_t)top - (n / 2 - 1);
    size_t stride = (size_t)p->w * warp_pixel_bytes(p);
    for (int k = 0; k < n; k++)
        at[k] = CW_MIN(CW_MAX((int64_t)left - (n / 2 - 1) + k, 0), p->w - 1) * p->channels;
    for (int c = 0; c < p->channels; c++) {
        double column[4], v[4];
        for (int j = 0; j < n; j++) {
            if (j && (y + j < 0 || y + j >= p->h)) { /* Pillow repeats the row before, not the nearest one */
                column[j] = column[j - 1];
                continue;
            }
            const uint8_t *row = src + (size_t)CW_MIN(CW_MAX(y + j, 0), p->h - 1) * stride;
            for (int k = 0; k < n; k++)
                v[k] = warp_value(row, at[k] + c, floats);
            column[j] = n == 2 ? warp_linear(v[0], v[1], dx, floats) : warp_cubic(v, dx, floats);
        }
        warp_store(dst, c,
                   n == 2 ? warp_linear(column[0], column[1], dy, false) : warp_cubic(column, dy, false),
                   floats);
    }
}

CW_LOOP void warp_smooth_of(const struct cw_warp *p, uint8_t *dst, const uint8_t *src, int n, bool floats)
{
    double px[WARP_CHUNK], py[WARP_CHUNK];
    size_t bytes = warp_pixel_bytes(p);
    for (int64_t y = 0; y < p->out_h; y++)
        for (int64_t x = 0; x < p->out_w; x += WARP_CHUNK) {
            size_t count = (size_t)CW_MIN(p->out_w - x, WARP_CHUNK);
            warp_places(p, x, y, count, px, py);
            for (size_t i = 0; i < count; i++, dst += bytes)
                if (px[i] >= 0 && px[i] < (double)p->w && py[i] >= 0 && py[i] < (double)p->h)
                    warp_pixel(p, dst, src, px[i], py[i], n, floats);
                else
                    memcpy(dst, p->fill, bytes);
        }
}

/* Bilinear on uint8 images with three channels: pixels whose 2 x 2 pixels are in the image, and not in its
 * last row, are computed by a kernel, which reads a byte too many. */
static void warp_bilinear3(const struct cw_warp *p, uint8_t *dst, const uint8_t *src)
{
    const struct cw_pixel_isa *isa = cw_pixel_isa();
    double px[WARP_CHUNK], py[WARP_CHUNK], right = (double)p->w - 0.5, bottom = (double)p->h - 1.5;
    for (int64_t y = 0; y < p->out_h; y++)
        for (int64_t x = 0; x < p->out_w; x += WARP_CHUNK) {
            size_t n = (size_t)CW_MIN(p->out_w - x, WARP_CHUNK);
            warp_places(p, x, y, n, px, py);
            for (size_t i = 0, run; i < n; i += run) {
                for (run = 0; i + run < n && px[i + run] >= 0.5 && px[i + run] < right &&
                              py[i + run] >= 0.5 && py[i + run] < bottom;)
                    run++;
                isa->bilinear3(dst, src, (size_t)p->w * 3, px + i, py + i, run);
                dst += 3 * run;
                if (i + run == n)
                    break;
                if (px[i + run] >= 0 && px[i + run] < (double)p->w && py[i + run] >= 0 &&
                    py[i + run] < (double)p->h)
                    warp_pixel(p, dst, src, px[i + run], py[i + run], 2, false);
                else
                    memcpy(dst, p->fill, 3);
                dst += 3;
                run++;
            }
        }
}

void cw_warp_image(const struct cw_warp *p, void *dst, const void *src)
{
    bool floats = p->dtype == CW_FLOAT32;
    if (p->interp == CW_NEAREST)
        warp_nearest(p, dst, src);
    else if (p->interp == CW_BILINEAR && !floats && p->channels == 3)
        warp_bilinear3(p, dst, src);
    else if (p->interp == CW_BILINEAR && floats)
        warp_smooth_of(p, dst, src, 2, true);
    else if (p->interp == CW_BILINEAR)
        warp_smooth_of(p, dst, src, 2, false);
    else if (floats)
        warp_smooth_of(p, dst, src, 4, true);
    else
        warp_smooth_of(p, dst, src, 4, false);
}
