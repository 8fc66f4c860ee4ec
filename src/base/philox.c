#include "base/philox.h"

#include <string.h>

void cw_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Eight counters that follow one another, word by word in arrays, so that compilers use vector registers. */
#define LANES 8

static void philox_run(uint64_t key, uint32_t first, uint32_t out[4 * LANES])
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int l = 0; l < LANES; l++) {
        c0[l] = first + (uint32_t)l;
        c1[l] = 0;
        c2[l] = 0;
        c3[l] = 1;
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < LANES; l++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[l];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l] = (uint32_t)(p1 >> 32) ^ c1[l] ^ k0;
            c2[l] = (uint32_t)(p0 >> 32) ^ c3[l] ^ k1;
            c1[l] = (uint32_t)p1;
            c3[l] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < LANES; l++) {
        out[4 * l + 0] = c0[l];
        out[4 * l + 1] = c1[l];
        out[4 * l + 2] = c2[l];
        out[4 * l + 3] = c3[l];
    }
}

void cw_permute(uint64_t key, void *items, size_t n, size_t size)
{
    uint32_t words[4 * LANES];
    size_t at = 4 * LANES;
    uint32_t block = 0;

    for (size_t i = n; i-- > 1;) {
        if (at == 4 * LANES) {
            philox_run(key, block, words);
            block += LANES;
            at = 0;
        }
        size_t j = cw_integer(words[at++], i + 1);
        if (size == 4) {
            uint32_t *a = items, t = a[i];
            a[i] = a[j];
            a[j] = t;
        } else if (size == 8) {
            uint64_t *a = items, t = a[i];
            a[i] = a[j];
            a[j] = t;
        } else {
            uint8_t *a = items, t[16];
            memcpy(t, a + i * size, size);
            memcpy(a + i * size, a + j * size, size);
            memcpy(a + j * size, t, size);
        }
    }
}
