/* Numbers in text and from JSON, into values of any numeric dtype: nothing is rounded to an integer, wrapped
 * or saturated. */
#pragma once
#include <stdbool.h>

#include "data/type.h"

#define CW_NUMBER_MAX 1000 /* characters of one number; the longest exact decimal of a float64 has less */

enum cw_number {
    CW_NUMBER_OK = 0,
    CW_NUMBER_SYNTAX,   /* no number, or more than CW_NUMBER_MAX characters */
    CW_NUMBER_RANGE,    /* the dtype does not reach so far */
    CW_NUMBER_FRACTION, /* not an integer, for a dtype of integers */
};

/* "is no number", "is out of range", "is not an integer": goes on after the text of the number. */
const char *cw_number_why(enum cw_number n);

/* [+-]digits[.digits][e[+-]digits], or NaN, Infinity, nan, inf with a sign. Into out, one value of the dtype;
 * bool takes 0 and 1. Integers are exact over the whole range of the dtype; one written with a point or
 * exponent ("3.0") must be below 2^53. Floating dtypes get the nearest float64, rounded to nearest even; what
 * is finite in the text must stay so. */
enum cw_number cw_number_parse(const char *text, size_t size, enum cw_dtype dtype, void *out);
/* The same from numbers. */
enum cw_number cw_number_from_int(int64_t v, enum cw_dtype dtype, void *out);
enum cw_number cw_number_from_double(double v, enum cw_dtype dtype, void *out);
