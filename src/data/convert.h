/*
 * Conversions between dtypes. The same rules hold for the operator `cast`, for casts in expressions and for
 * promotion:
 *
 *   float to integer    round half to even, saturate, NaN is 0
 *   integer to integer  wrap around (two's complement)
 *   anything to bool    x != 0 (NaN is true)
 *   to float            round once, to the nearest value, ties to even
 *
 * Exception: 32- and 64-bit integers become float16 or bfloat16 by way of float32, so they are rounded twice.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "data/type.h"

/* Converts n values. Neither dtype may be bytes; dst and src must not overlap. */
void cw_convert(enum cw_dtype from, enum cw_dtype to, void *dst, const void *src, size_t n);
