/* The loops of gaussian_blur. Compiled with the options of the kernels. */
#include "ops/kernels/blur.h"

#include <stdint.h>
#include <string.h>

#include "base/macro.h"

#define BLUR_CHUNK 256 /* values whose sums stay in the first-level cache */

void cw_blur_sum(float *dst, const float *const *rows, const float *w, int taps, size_t n)
{
    for (size_t at = 0; at < n; at += BLUR_CHUNK) {
        float sum[BLUR_CHUNK] = {0};
        size_t m = CW_MIN(n - at, BLUR_CHUNK);
        for (int k = 0; k < taps; k++) {
            const float *row = rows[k] + at, f = w[k];
            for (size_t i = 0; i < m; i++)
                sum[i] += f * row[i];
        }
        memcpy(dst + at, sum, m * sizeof(*sum));
    }
}
