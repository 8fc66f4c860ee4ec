/*
 * Conversions between dtypes, one rule for the operator `cast`, for casts in expressions and for promotion:
 *
 *   float to integer   round half to even, saturate, NaN is 0
 *   integer to integer wrap around (two's complement)
 *   anything to bool   x != 0 (NaN is true)
 *   to float           nearest, ties to even, one rounding; 64- and 32-bit integers to a half precision pass
 * through float32
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "data/type.h"

/* n values, neither dtype bytes; dst and src do not overlap. */
void cw_convert(enum cw_dtype from, enum cw_dtype to, void *dst, const void *src, size_t n);
