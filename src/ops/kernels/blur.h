/* The loops of gaussian_blur: weighted sums in float32, in the order of the weights. */
#pragma once
#include <stddef.h>

/* dst[i] = 0 + w[0] * rows[0][i] + w[1] * rows[1][i] + ..., for n values and `taps` weights. */
void cw_blur_sum(float *dst, const float *const *rows, const float *w, int taps, size_t n);
