/* Pseudo-random permutations of n positions that are evaluated at any position in constant memory
 * (docs/randomness.md, "Permutations"). */
#include "base/permutation.h"

#include "base/philox.h"

/* The loops over lanes are written for compilers that turn them into vector instructions; gcc does that at
 * -O3 only. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Positions that go through the network together: enough that the CPU overlaps their multiplications. */
#define LANES 16

void cw_permutation_init(struct cw_permutation *ret, uint64_t key, uint64_t n)
{
    uint64_t root = 1;
    /* the largest root with root * root < n, plus 1: ceil(sqrt(n)) */
    for (uint64_t step = UINT64_C(1) << 31; step; step >>= 1)
        if ((root + step) * (root + step) < n)
            root += step;
    root += root * root < n;
    *ret = (struct cw_permutation){.n = n, .rows = root, .columns = (n + root - 1) / root};
    for (uint32_t block = 0; block < 2 * CW_PERMUTATION_ROUNDS / 4; block++)
        cw_philox(key, (const uint32_t[4]){block, 0, 0, 2}, &ret->keys[4 * block]);
}

/* The round function: a hash of 32 bits, keyed by two words. The multipliers and shifts are those of
 * "lowbias32" (C. Wellons, "Prospecting for hash functions", 2018). */
static inline uint32_t network_hash(uint32_t v, uint32_t key0, uint32_t key1)
{
    v ^= key0;
    v ^= v >> 16;
    v *= UINT32_C(0x7feb352d);
    v ^= v >> 15;
    v += key1;
    v *= UINT32_C(0x846ca68b);
    return v ^ v >> 16;
}

/* a + hash scaled to [0, n), modulo n; a < n <= 2^31. */
static inline uint32_t network_add_scaled(uint32_t a, uint32_t hash, uint32_t n)
{
    uint32_t sum = a + (uint32_t)((uint64_t)hash * n >> 32);
    return sum >= n ? sum - n : sum;
}

__attribute__((always_inline)) static inline void network_rounds(const struct cw_permutation *p,
                                                                 uint32_t *row, uint32_t *column)
{
    uint32_t rows = (uint32_t)p->rows, columns = (uint32_t)p->columns;
    for (int k = 0; k < CW_PERMUTATION_ROUNDS; k += 2) {
        const uint32_t *keys = &p->keys[2 * k];
        for (int l = 0; l < LANES; l++)
            row[l] = network_add_scaled(row[l], network_hash(column[l], keys[0], keys[1]), rows);
        for (int l = 0; l < LANES; l++)
            column[l] = network_add_scaled(column[l], network_hash(row[l], keys[2], keys[3]), columns);
    }
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void rounds_avx2(const struct cw_permutation *p, uint32_t *row,
                                                        uint32_t *column)
{
    network_rounds(p, row, column);
}
#endif

/* Moves LANES positions, given as rows and columns, through the network. Gives the same integers with any
 * instruction set. */
static void network_run(const struct cw_permutation *p, uint32_t *row, uint32_t *column)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        rounds_avx2(p, row, column);
        return;
    }
#endif
    network_rounds(p, row, column);
}

/* Sets ret to the permuted positions of LANES positions, given as rows and columns. */
static void network_walk(const struct cw_permutation *p, uint32_t *row, uint32_t *column, uint64_t *ret)
{
    network_run(p, row, column);
    for (int l = 0; l < LANES; l++)
        ret[l] = row[l] * p->columns + column[l];
    for (int l = 0; l < LANES; l++) {
        /* cycle walking: fewer than one position in rows leaves the n positions */
        while (ret[l] >= p->n) {
            uint32_t again_row[LANES] = {(uint32_t)(ret[l] / p->columns)},
                     again_column[LANES] = {(uint32_t)(ret[l] % p->columns)};
            network_run(p, again_row, again_column);
            ret[l] = again_row[0] * p->columns + again_column[0];
        }
    }
}

void cw_permutation_run(const struct cw_permutation *p, uint64_t begin, size_t count, uint64_t *ret)
{
    for (size_t i = 0; i < count; i++)
        ret[i] = begin + i;
    cw_permutation_map(p, ret, count);
}

void cw_permutation_map(const struct cw_permutation *p, uint64_t *positions, size_t count)
{
    uint64_t out[LANES];
    for (size_t i = 0; i < count; i += LANES) {
        /* Lanes beyond count compute position 0: a position beyond n might walk a cycle that never gets below
         * n. */
        uint32_t rows[LANES] = {0}, columns[LANES] = {0};
        for (size_t l = 0; l < LANES && i + l < count; l++) {
            rows[l] = (uint32_t)(positions[i + l] / p->columns);
            columns[l] = (uint32_t)(positions[i + l] % p->columns);
        }
        network_walk(p, rows, columns, out);
        for (size_t l = 0; l < LANES && i + l < count; l++)
            positions[i + l] = out[l];
    }
}
