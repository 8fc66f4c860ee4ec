/* The loops of mixup. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* dst[i] = fa * a[i] + fb * b[i] for n values, in float32. */
void cw_mix_floats(float *dst, const float *a, const float *b, float fa, float fb, size_t n);
/* The same for uint8 values; results are rounded half to even. fa + fb must be 1. */
void cw_mix_bytes(uint8_t *dst, const uint8_t *a, const uint8_t *b, float fa, float fb, size_t n);
