/*
 * CRC-32C in three ways: with SSE4.2 instructions, with ARMv8 instructions, and with eight tables ("slicing
 * by 8"). A CRC instruction has a latency of three cycles, and one can start every cycle. So long input is
 * cut into three lanes of equal length, whose CRCs are computed side by side. To join them, the CRC of a lane
 * must be advanced over the LANE bytes after it, as if these were zeros. That is a linear function of the
 * CRC's bits, so it takes one table look-up for each of the CRC's four bytes.
 */
#include "formats/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define POLYNOMIAL 0x82F63B78u
/* Bytes of a lane. Long lanes serve records of some 10 kB and more; short lanes leave only a short rest,
 * which is computed without lanes. */
#define LANE_LONG 4096
#define LANE_SHORT 256

typedef uint32_t (*extend_function)(uint32_t state, const uint8_t *p, size_t n);

static struct {
    pthread_once_t once;
    uint32_t slices[8][256];
    uint32_t zeros_long[4][256], zeros_short[4][256];
    extend_function extend;
} crc = {.once = PTHREAD_ONCE_INIT};

static inline uint64_t crc32c_load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static uint32_t crc32c_extend_portable(uint32_t state, const uint8_t *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v = crc32c_load64(p) ^ state;
        state = 0;
        for (unsigned i = 0; i < 8; i++)
            state ^= crc.slices[7 - i][(v >> (8 * i)) & 0xff];
    }
    for (; n; p++, n--)
        state = crc.slices[0][(state ^ *p) & 0xff] ^ (state >> 8);
    return state;
}

#if defined(__x86_64__) || defined(__aarch64__)
static inline uint32_t crc32c_shift(const uint32_t table[4][256], uint32_t state)
{
    return table[0][state & 0xff] ^ table[1][(state >> 8) & 0xff] ^ table[2][(state >> 16) & 0xff] ^
           table[3][state >> 24];
}

#if defined(__x86_64__)
#define TARGET __attribute__((target("sse4.2")))
#define STEP64(state, v) ((uint32_t)__builtin_ia32_crc32di((state), (v)))
#define STEP8(state, v) __builtin_ia32_crc32qi((state), (v))
#elif defined(__clang__)
#define TARGET __attribute__((target("crc")))
#define STEP64(state, v) __builtin_arm_crc32cd((state), (v))
#define STEP8(state, v) __builtin_arm_crc32cb((state), (v))
#else
#define TARGET __attribute__((target("+crc")))
#define STEP64(state, v) __builtin_aarch64_crc32cx((state), (v))
#define STEP8(state, v) __builtin_aarch64_crc32cb((state), (v))
#endif

TARGET static inline uint32_t three_lanes(uint32_t state, const uint8_t *p, size_t lane,
                                          const uint32_t zeros[4][256])
{
    uint32_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < lane; i += 8) {
        a = STEP64(a, crc32c_load64(p + i));
        b = STEP64(b, crc32c_load64(p + lane + i));
        c = STEP64(c, crc32c_load64(p + 2 * lane + i));
    }
    return crc32c_shift(zeros, crc32c_shift(zeros, a) ^ b) ^ c;
}

TARGET static uint32_t extend_hardware(uint32_t state, const uint8_t *p, size_t n)
{
    for (; n >= 3 * LANE_LONG; p += 3 * LANE_LONG, n -= 3 * LANE_LONG)
        state = three_lanes(state, p, LANE_LONG, crc.zeros_long);
    for (; n >= 3 * LANE_SHORT; p += 3 * LANE_SHORT, n -= 3 * LANE_SHORT)
        state = three_lanes(state, p, LANE_SHORT, crc.zeros_short);
    for (; n >= 8; p += 8, n -= 8)
        state = STEP64(state, crc32c_load64(p));
    for (; n; p++, n--)
        state = STEP8(state, *p);
    return state;
}

static bool crc32c_has_hardware(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#else
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
#endif
}

static void crc32c_make_zeros(uint32_t table[4][256], size_t lane)
{
    for (unsigned bit = 0; bit < 32; bit++) {
        uint32_t state = 1u << bit;
        for (size_t i = 0; i < lane; i++)
            state = crc.slices[0][state & 0xff] ^ (state >> 8);
        for (unsigned v = 1u << (bit % 8), i = 0; i < v;
             i++) /* linear: entry v + i is entry i combined with entry v */
            table[bit / 8][v + i] = table[bit / 8][i] ^ state;
    }
}
#endif

static void crc32c_init(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t state = i;
        for (int k = 0; k < 8; k++)
            state = (state >> 1) ^ (state & 1 ? POLYNOMIAL : 0);
        crc.slices[0][i] = state;
    }
    for (unsigned s = 1; s < 8; s++)
        for (unsigned i = 0; i < 256; i++)
            crc.slices[s][i] = (crc.slices[s - 1][i] >> 8) ^ crc.slices[0][crc.slices[s - 1][i] & 0xff];
    crc.extend = crc32c_extend_portable;
#if defined(__x86_64__) || defined(__aarch64__)
    if (crc32c_has_hardware()) {
        crc32c_make_zeros(crc.zeros_long, LANE_LONG);
        crc32c_make_zeros(crc.zeros_short, LANE_SHORT);
        crc.extend = extend_hardware;
    }
#endif
}

uint32_t cw_crc32c(const void *data, size_t size)
{
    pthread_once(&crc.once, crc32c_init);
    return ~crc.extend(~0u, data, size);
}

uint32_t cw_crc32c_portable(uint32_t start, const void *data, size_t size)
{
    pthread_once(&crc.once, crc32c_init);
    return ~crc32c_extend_portable(~start, data, size);
}
