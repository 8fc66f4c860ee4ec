/* The loops of mixup. Compiled with the options of the kernels. */
#include "ops/kernels/mix.h"

#define ROUND \
    0x1.8p23f /* a float32 of this size has no bits after the point: adding it rounds half to even */

void cw_mix_floats(float *restrict dst, const float *a, const float *b, float fa, float fb, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = fa * a[i] + fb * b[i];
}

void cw_mix_bytes(uint8_t *restrict dst, const uint8_t *a, const uint8_t *b, float fa, float fb, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(int)(((fa * (float)a[i] + fb * (float)b[i]) + ROUND) - ROUND);
}
