/* Converts numbers from text and JSON to values of any numeric dtype. A number that the dtype can't hold is
 * refused: it is never rounded to an integer, wrapped or saturated. */
#pragma once
#include <stdbool.h>

#include "data/type.h"

#define CW_NUMBER_MAX 1000 /* characters of one number; the longest exact decimal of a float64 is shorter */

enum cw_number {
    CW_NUMBER_OK = 0,
    CW_NUMBER_SYNTAX,   /* not a number, or more than CW_NUMBER_MAX characters */
    CW_NUMBER_RANGE,    /* outside the range of the dtype */
    CW_NUMBER_FRACTION, /* not an integer, but the dtype is an integer type */
};

/* Returns "is no number", "is out of range" or "is not an integer", to follow the text of the number in a
 * message. */
const char *cw_number_why(enum cw_number n);

/* Parses [+-]digits[.digits][e[+-]digits], or NaN, Infinity, nan, inf with an optional sign, and stores one
 * value of the dtype in out. bool accepts 0 and 1. Integers are exact over the whole range of the dtype; an
 * integer that is written with a point or an exponent ("3.0") must be below 2^53. For a floating dtype the
 * text is rounded to the nearest float64, then to the dtype (nearest, ties to even); a finite number that
 * would become infinite is out of range. */
enum cw_number cw_number_parse(const char *text, size_t size, enum cw_dtype dtype, void *out);
/* Convert a number by the same rules. */
enum cw_number cw_number_from_int(int64_t v, enum cw_dtype dtype, void *out);
enum cw_number cw_number_from_double(double v, enum cw_dtype dtype, void *out);
