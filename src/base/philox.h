/* Counter-based random numbers, as docs/randomness.md defines them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* One Philox4x32-10 call: four words from a 64-bit key and a 128-bit counter (four words). */
void cw_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]);

/* Returns a number in [0, 1) with 24 random bits. */
static inline double cw_uniform(uint32_t word)
{
    return (double)(word >> 8) * 0x1p-24;
}

/* Returns an integer in [0, n); n < 2^32. */
static inline uint32_t cw_integer(uint32_t word, uint64_t n)
{
    return (uint32_t)(((uint64_t)word * n) >> 32);
}

/* Permutes n items in place by the permutation of docs/randomness.md. n < 2^32; size of an item: 4, 8 or 16
 * bytes. */
void cw_permute(uint64_t key, void *items, size_t n, size_t size);
