/* Pixel kernels of colours that the compiler vectorises: as loops.h, with which the files of the instruction
 * sets include it. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ops/kernels/loops.h"

/* Returns the luma of a pixel of three channels (ITU-R BT.601, 16 fractional bits, rounded). */
CW_LOOP int cw_loop_luma(const uint8_t *rgb)
{
    return (19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16;
}

/* Returns a + factor * (b - a), in float32, cut to [0, 255] and to an integer. */
CW_LOOP uint8_t cw_loop_blend(int a, int b, float factor)
{
    float t = (float)a + factor * (float)(b - a);
    t = t < 0 ? 0 : t;
    t = t > 255 ? 255 : t;
    return (uint8_t)(int)t;
}

#define CW_COLOR_PIXELS 64 /* pixels at a time: a multiple of the pixels of a vector */

/* n <= CW_COLOR_PIXELS pixels. Copies them first, so that src and dst may be the same. */
CW_LOOP void cw_loop_saturation_part(uint8_t *dst, const uint8_t *src, size_t n, float factor)
{
    uint8_t in[3 * CW_COLOR_PIXELS] = {0}, out[3 * CW_COLOR_PIXELS];
    memcpy(in, src, 3 * n);
    for (size_t i = 0; i < CW_COLOR_PIXELS; i++) {
        int luma = cw_loop_luma(in + 3 * i);
        out[3 * i] = cw_loop_blend(luma, in[3 * i], factor);
        out[3 * i + 1] = cw_loop_blend(luma, in[3 * i + 1], factor);
        out[3 * i + 2] = cw_loop_blend(luma, in[3 * i + 2], factor);
    }
    memcpy(dst, out, 3 * n);
}

CW_LOOP void cw_loop_saturation(uint8_t *dst, const uint8_t *src, size_t n, float factor)
{
    for (size_t i = 0; i < n; i += CW_COLOR_PIXELS)
        cw_loop_saturation_part(dst + 3 * i, src + 3 * i, n - i < CW_COLOR_PIXELS ? n - i : CW_COLOR_PIXELS,
                                factor);
}

/* Computes hue, saturation and value, each 0 to 255 (docs/pixels.md, "Colours", has the formulas and which
 * steps are in float32 and which in double). */
CW_LOOP void cw_loop_to_hsv(const int *restrict r, const int *restrict g, const int *restrict b,
                            int *restrict h, int *restrict s, int *restrict v)
{
    for (size_t i = 0; i < CW_COLOR_PIXELS; i++) {
        int most = r[i] > g[i] ? r[i] : g[i], least = r[i] > g[i] ? g[i] : r[i];
        most = most > b[i] ? most : b[i];
        least = least < b[i] ? least : b[i];
        int range = most - least;
        float cr = (float)(range ? range : 1);
        float rc = (float)(most - r[i]) / cr, gc = (float)(most - g[i]) / cr, bc = (float)(most - b[i]) / cr;
        float from_red = bc - gc, from_green = (float)(2.0 + (double)rc - (double)bc),
              from_blue = (float)(4.0 + (double)gc - (double)rc);
        float hue = r[i] == most ? from_red : g[i] == most ? from_green : from_blue;
        double turn = (double)hue / 6.0 + 1.0;
        hue = (float)(turn >= 1.0 ? turn - 1.0 : turn);
        float saturation = (float)range / (float)(most ? most : 1);
        h[i] = range ? (int)((double)hue * 255.0) : 0;
        s[i] = (int)((double)saturation * 255.0);
        v[i] = most;
    }
}

/* Returns yes if condition is 1, no if it is 0; without a branch, which would keep a loop from vectors. */
CW_LOOP int cw_loop_pick(int condition, int yes, int no)
{
    return no ^ ((yes ^ no) & -condition);
}

CW_LOOP void cw_loop_from_hsv(const int *restrict h, const int *restrict s, const int *restrict v,
                              int *restrict r, int *restrict g, int *restrict b)
{
    for (size_t i = 0; i < CW_COLOR_PIXELS; i++) {
        double turn = (double)h[i] * 6.0 / 255.0;
        int sector = (int)turn;
        float f = (float)(turn - (double)sector), fs = (float)((double)s[i] / 255.0);
        int p = (int)((double)v[i] * (1.0 - (double)fs) + 0.5);
        int q = (int)((double)v[i] * (1.0 - (double)(fs * f)) + 0.5);
        int t = (int)((double)v[i] * (1.0 - (double)fs * (1.0 - (double)f)) + 0.5);
        int first = (sector == 0) | (sector == 6);
        int red = cw_loop_pick(sector == 1, q, cw_loop_pick(sector == 4, t, p));
        int green = cw_loop_pick(sector == 3, q, cw_loop_pick(first, t, p));
        int blue = cw_loop_pick(sector == 5, q, cw_loop_pick(sector == 2, t, p));
        r[i] = cw_loop_pick(first | (sector == 5), v[i], red);
        g[i] = cw_loop_pick((sector == 1) | (sector == 2), v[i], green);
        b[i] = cw_loop_pick((sector == 3) | (sector == 4), v[i], blue);
    }
}

/* n <= CW_COLOR_PIXELS pixels; shift: 0 to 255. */
CW_LOOP void cw_loop_hue_part(uint8_t *dst, const uint8_t *src, size_t n, int shift)
{
    int r[CW_COLOR_PIXELS], g[CW_COLOR_PIXELS], b[CW_COLOR_PIXELS];
    int h[CW_COLOR_PIXELS], s[CW_COLOR_PIXELS], v[CW_COLOR_PIXELS];
    uint8_t rgb[3 * CW_COLOR_PIXELS] = {0};
    memcpy(rgb, src, 3 * n);
    for (size_t i = 0; i < CW_COLOR_PIXELS; i++) {
        r[i] = rgb[3 * i];
        g[i] = rgb[3 * i + 1];
        b[i] = rgb[3 * i + 2];
    }
    cw_loop_to_hsv(r, g, b, h, s, v);
    for (size_t i = 0; i < CW_COLOR_PIXELS; i++)
        h[i] = (h[i] + shift) & 255;
    cw_loop_from_hsv(h, s, v, r, g, b);
    for (size_t i = 0; i < CW_COLOR_PIXELS; i++) {
        rgb[3 * i] = (uint8_t)r[i];
        rgb[3 * i + 1] = (uint8_t)g[i];
        rgb[3 * i + 2] = (uint8_t)b[i];
    }
    memcpy(dst, rgb, 3 * n);
}

CW_LOOP void cw_loop_hue(uint8_t *dst, const uint8_t *src, size_t n, int shift)
{
    for (size_t i = 0; i < n; i += CW_COLOR_PIXELS)
        cw_loop_hue_part(dst + 3 * i, src + 3 * i, n - i < CW_COLOR_PIXELS ? n - i : CW_COLOR_PIXELS, shift);
}
