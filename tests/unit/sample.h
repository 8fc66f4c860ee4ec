/* How many random cases a unit test runs: all, or a sample (CACHEW_TEST_SIZE=sample, tools/test.py). */
#pragma once
#include <stdlib.h>
#include <string.h>

#define SAMPLE_PART 12 /* the sample has one case of this many, rounded up */

/* Returns how many of n cases to run. */
static inline size_t sample_size(size_t n)
{
    const char *size = getenv("CACHEW_TEST_SIZE");
    if (!size || strcmp(size, "sample") != 0 || n == 0)
        return n;
    return (n + SAMPLE_PART - 1) / SAMPLE_PART;
}
