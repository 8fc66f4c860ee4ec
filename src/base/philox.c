/* Random numbers computed from a key and a counter (Philox4x32-10), as docs/randomness.md defines them. Pure
 * functions. */
#include "base/philox.h"

#include <string.h>

/* Counters that go through the rounds together: enough for compilers to use vector registers. */
#define LANES 8

/* Takes counters through the rounds: word w of counter l is c[w * lanes + l]. */
__attribute__((always_inline)) static inline void philox_rounds(uint64_t key, uint32_t *c, size_t lanes)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        for (size_t l = 0; l < lanes; l++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[l];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2 * lanes + l];
            c[l] = (uint32_t)(p1 >> 32) ^ c[lanes + l] ^ k0;
            c[2 * lanes + l] = (uint32_t)(p0 >> 32) ^ c[3 * lanes + l] ^ k1;
            c[lanes + l] = (uint32_t)p1;
            c[3 * lanes + l] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

void cw_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4])
{
    uint32_t c[4];
    memcpy(c, counter, sizeof(c));
    philox_rounds(key, c, 1);
    memcpy(out, c, sizeof(c));
}

/* Exchanges items i and j. */
__attribute__((always_inline)) static inline void items_swap(uint8_t *items, size_t i, size_t j, size_t size)
{
    uint8_t t[16];
    memcpy(t, items + i * size, size);
    memcpy(items + i * size, items + j * size, size);
    memcpy(items + j * size, t, size);
}

void cw_permute(uint64_t key, void *items, size_t n, size_t size)
{
    uint32_t c[4 * LANES];
    size_t at = 4 * LANES;
    uint32_t block = 0;

    for (size_t i = n; i-- > 1; at++) {
        if (at == 4 * LANES) {
            for (uint32_t l = 0; l < LANES; l++) {
                c[l] = block++;
                c[LANES + l] = c[2 * LANES + l] = 0;
                c[3 * LANES + l] = 1;
            }
            philox_rounds(key, c, LANES);
            at = 0;
        }
        size_t j = cw_integer(c[at % 4 * LANES + at / 4], i + 1);
        if (size == 4)
            items_swap(items, i, j, 4);
        else if (size == 8)
            items_swap(items, i, j, 8);
        else
            items_swap(items, i, j, 16);
    }
}
