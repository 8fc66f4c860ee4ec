/* Pixel kernels that the compiler vectorises: the files of the instruction sets compile these functions with
 * their own target attributes. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define CW_LOOP static inline __attribute__((always_inline))

CW_LOOP void cw_loop_normalize_planar3(float *const dst[3], const uint8_t *src, size_t n, const float *mean,
                                       const float *std)
{
    float *restrict d0 = dst[0], *restrict d1 = dst[1], *restrict d2 = dst[2];
    const float m0 = mean[0], m1 = mean[1], m2 = mean[2], s0 = std[0], s1 = std[1], s2 = std[2];
    for (size_t i = 0; i < n; i++) {
        d0[i] = ((float)src[3 * i] - m0) / s0;
        d1[i] = ((float)src[3 * i + 1] - m1) / s1;
        d2[i] = ((float)src[3 * i + 2] - m2) / s2;
    }
}

/* mean and std are repeated over 96 values, which are a whole number of pixels of 1 or 3 channels. */
CW_LOOP void cw_loop_normalize_packed(float *restrict dst, const uint8_t *src, size_t n, int channels,
                                      const float *mean, const float *std)
{
    float m[96], s[96];
    for (int k = 0; k < 96; k++) {
        m[k] = k < channels ? mean[k] : m[k - channels];
        s[k] = k < channels ? std[k] : s[k - channels];
    }
    size_t values = n * (size_t)channels, i = 0;
    for (; i + 96 <= values; i += 96)
        for (size_t k = 0; k < 96; k++)
            dst[i + k] = ((float)src[i + k] - m[k]) / s[k];
    for (size_t k = 0; i + k < values; k++)
        dst[i + k] = ((float)src[i + k] - m[k]) / s[k];
}

CW_LOOP void cw_loop_planar3(uint8_t *const dst[3], const uint8_t *src, size_t n)
{
    uint8_t *restrict d0 = dst[0], *restrict d1 = dst[1], *restrict d2 = dst[2];
    for (size_t i = 0; i < n; i++) {
        d0[i] = src[3 * i];
        d1[i] = src[3 * i + 1];
        d2[i] = src[3 * i + 2];
    }
}

CW_LOOP void cw_loop_bilinear3(uint8_t *dst, const uint8_t *src, size_t stride, const double *x,
                               const double *y, size_t n)
{
    for (size_t i = 0; i < n; i++, dst += 3) {
        double px = x[i] - 0.5, py = y[i] - 0.5;
        int left = (int)px, top = (int)py;
        double dx = px - left, dy = py - top;
        const uint8_t *a = src + (size_t)top * stride + 3 * (size_t)left, *b = a + stride;
        for (int c = 0; c < 3; c++) {
            double upper = a[c] + (a[c + 3] - a[c]) * dx, lower = b[c] + (b[c + 3] - b[c]) * dx;
            dst[c] = (uint8_t)(int)(upper + (lower - upper) * dy);
        }
    }
}
