/*
 * Pseudo-random permutations of n positions that are evaluated at any position in constant memory
 * (docs/randomness.md, "Permutations"). `shuffle` uses them where n is too large for a table. Immutable after
 * cw_permutation_init.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Up to this many positions are permuted by a table (cw_permute): a Feistel network on few positions misses
 * most of their permutations. */
#define CW_PERMUTATION_TABLE 65536
/* Positions at most: both halves of the network must fit in 32 bits. */
#define CW_PERMUTATION_MOST (UINT64_C(1) << 62)
#define CW_PERMUTATION_ROUNDS 8

struct cw_permutation {
    uint64_t n;       /* positions, 2 .. CW_PERMUTATION_MOST */
    uint64_t rows;    /* ceil(sqrt(n)) */
    uint64_t columns; /* ceil(n / rows); rows * columns >= n */
    uint32_t keys[2 * CW_PERMUTATION_ROUNDS];
};

/* key: 64 bits, as for cw_permute. */
void cw_permutation_init(struct cw_permutation *ret, uint64_t key, uint64_t n);
/* Sets ret[i] to the element at position begin + i of the permuted sequence, for i < count. */
void cw_permutation_run(const struct cw_permutation *p, uint64_t begin, size_t count, uint64_t *ret);
/* Replaces each of `count` positions by the element at that position of the permuted sequence. */
void cw_permutation_map(const struct cw_permutation *p, uint64_t *positions, size_t count);
