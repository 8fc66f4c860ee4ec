/* How much a unit test runs: all, or a sample (CACHEW_TEST_SIZE=sample, tools/test.py). */
#pragma once
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_PART 12 /* the sample has one case of this many, rounded up */

static inline bool is_sample(void)
{
    const char *size = getenv("CACHEW_TEST_SIZE");
    return size && strcmp(size, "sample") == 0;
}

/* Returns how many of n cases to run. */
static inline size_t sample_size(size_t n)
{
    return is_sample() ? (n + SAMPLE_PART - 1) / SAMPLE_PART : n;
}

/* At the start of a test that takes long and tries what others try, with other numbers: the sample leaves it
 * out. */
#define LEAVE_OUT_OF_SAMPLE() \
    do { \
        if (is_sample()) \
            skip(); \
    } while (0)
