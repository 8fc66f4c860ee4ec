/*
 * AVX2 (x86-64). The functions have a target attribute, so that the file needs no compiler flags. They run
 * only if the processor has AVX2.
 *
 * Horizontal pass: pixels of 3 or 4 bytes become 4 lanes of 16 bits each. With at most two taps (plain
 * bilinear, p = 14) a pixel is a + ((b - a) * f rounded), which pmulhrsw computes exactly, given 2 f: ((b -
 * a) 2 f + 2^14) >> 15 = ((b - a) f + 2^13) >> 14. With more taps, weights of 22 bits are split as W = 2^11 *
 * high + low, both within 16 bits, and two pmaddwd sums are combined at the end.
 */
#include <immintrin.h>
#include <string.h>

#include "ops/kernels/color_loops.h"
#include "ops/kernels/kernels_x86.h"
#include "ops/kernels/loops.h"
#include "ops/kernels/resize.h"

#define AVX2 __attribute__((target("avx2")))
#define LOW_BITS 11
#define LOW_MASK ((1 << LOW_BITS) - 1)

/* ---- horizontal, two taps ---- */

struct pairs8 {    /* 8 outputs */
    int32_t at[8]; /* byte offsets of the left taps, in the order of the lanes */
    /* twice the weight of the right tap (below 2^15, because the left tap's weight is not 0), four times per
     * output, for registers 0 and 1 */
    int16_t f[32];
};

/* The order of the outputs of a group in the lanes of two registers: packing both registers gives them in
 * order. */
static const uint8_t lane_order[8] = {0, 1, 4, 5, 2, 3, 6, 7};

AVX2 static inline __m256i load_pairs(const uint8_t *src, const int32_t at[4])
{
    __m128i lo = _mm_loadl_epi64((const void *)(src + at[0])),
            hi = _mm_loadl_epi64((const void *)(src + at[2]));
    __m128i lo1 = _mm_loadl_epi64((const void *)(src + at[1])),
            hi1 = _mm_loadl_epi64((const void *)(src + at[3]));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi64(lo, lo1)),
                                   _mm_unpacklo_epi64(hi, hi1), 1);
}

AVX2 static inline __m256i blend_pairs(__m256i v, __m256i left, __m256i right, __m256i f)
{
    __m256i a = _mm256_shuffle_epi8(v, left), d = _mm256_sub_epi16(_mm256_shuffle_epi8(v, right), a);
    return _mm256_add_epi16(a, _mm256_mulhrs_epi16(d, f));
}

AVX2 static inline void store_pixels(uint8_t *dst, __m256i v, int channels)
{
    if (channels == 4) {
        _mm256_storeu_si256((void *)dst, v);
        return;
    }
    const __m256i squeeze = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2,
                                             4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    v = _mm256_shuffle_epi8(v, squeeze);
    _mm_storeu_si128((void *)dst, _mm256_castsi256_si128(v));
    _mm_storeu_si128((void *)(dst + 12), _mm256_extracti128_si256(v, 1));
}

AVX2 static inline void horizontal_pairs(const struct cw_resize *r, const uint8_t *src, uint8_t *dst,
                                         int channels)
{
    const struct pairs8 *t = r->tables;
    __m256i left, right;
    if (channels == 3) {
        left = _mm256_setr_epi8(0, -1, 1, -1, 2, -1, -1, -1, 8, -1, 9, -1, 10, -1, -1, -1, 0, -1, 1, -1, 2,
                                -1, -1, -1, 8, -1, 9, -1, 10, -1, -1, -1);
        right = _mm256_setr_epi8(3, -1, 4, -1, 5, -1, -1, -1, 11, -1, 12, -1, 13, -1, -1, -1, 3, -1, 4, -1, 5,
                                 -1, -1, -1, 11, -1, 12, -1, 13, -1, -1, -1);
    } else {
        left = _mm256_setr_epi8(0, -1, 1, -1, 2, -1, 3, -1, 8, -1, 9, -1, 10, -1, 11, -1, 0, -1, 1, -1, 2, -1,
                                3, -1, 8, -1, 9, -1, 10, -1, 11, -1);
        right = _mm256_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, -1, 13, -1, 14, -1, 15, -1, 4, -1, 5, -1, 6,
                                 -1, 7, -1, 12, -1, 13, -1, 14, -1, 15, -1);
    }
    for (int64_t i = 0; i < r->x.out; i += 8, t++, dst += 8 * channels) {
        __m256i v0 = blend_pairs(load_pairs(src, t->at), left, right, _mm256_loadu_si256((const void *)t->f));
        __m256i v1 = blend_pairs(load_pairs(src, t->at + 4), left, right,
                                 _mm256_loadu_si256((const void *)(t->f + 16)));
        store_pixels(dst, _mm256_packus_epi16(v0, v1), channels);
    }
}

static void avx2_tables_pairs(struct cw_resize *r)
{
    const struct cw_axis *a = &r->x;
    struct pairs8 *t = r->tables;
    for (int64_t i = 0; i < a->out; i += 8, t++) {
        for (int k = 0; k < 8; k++) {
            int64_t o = CW_MIN(i + lane_order[k], a->out - 1);
            const int32_t *w = a->w + o * a->taps;
            t->at[k] = a->lo[o] * (int32_t)r->pixel;
            int16_t f = (int16_t)(a->n[o] == 2 ? 2 * w[1] : 0);
            for (int j = 0; j < 4; j++)
                t->f[4 * k + j] = f;
        }
    }
}

/* ---- horizontal, any number of taps ---- */

/* Tables: 8 offsets per group of 8 outputs, then per four taps, register (outputs k and k + 4) and pair of
 * taps: high and low weights, 4 registers. */
#define QUAD_WORDS (4 * 2 * 2 * 16)

static size_t avx2_quads_of(const struct cw_resize *r)
{
    return ((size_t)r->x.taps + 3) / 4;
}

static size_t avx2_group_bytes(const struct cw_resize *r)
{
    return 32 + avx2_quads_of(r) * QUAD_WORDS * sizeof(int16_t);
}

static void avx2_tables_quads(struct cw_resize *r)
{
    const struct cw_axis *a = &r->x;
    uint8_t *group = r->tables;
    size_t quads = avx2_quads_of(r);
    for (int64_t i = 0; i < a->out; i += 8, group += avx2_group_bytes(r)) {
        int32_t *at = (int32_t *)(void *)group;
        int16_t *w = (int16_t *)(void *)(group + 32);
        for (int k = 0; k < 8; k++) {
            int64_t o = CW_MIN(i + k, a->out - 1);
            at[k] = a->lo[o] * (int32_t)r->pixel;
            for (size_t tap = 0; tap < 4 * quads; tap++) {
                int32_t v = (int32_t)tap < a->n[o] ? a->w[o * a->taps + (int64_t)tap] : 0;
                /* register k % 4, lane k / 4, pair (tap % 4) / 2: high weights, then low ones */
                int16_t *p = w + (tap / 4) * QUAD_WORDS + (size_t)(k % 4) * 64 + (tap % 4 / 2) * 32 +
                             (size_t)(k / 4) * 8 + tap % 2;
                for (int j = 0; j < 8; j += 2) {
                    p[j] = (int16_t)(v >> LOW_BITS);
                    p[16 + j] = (int16_t)(v & LOW_MASK);
                }
            }
        }
    }
}

AVX2 static inline __m256i join(__m256i high, __m256i low)
{
    const __m256i half = _mm256_set1_epi32(1 << 21);
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low), half),
                             22);
}

/* Outputs k and k + 4 of a group: two pixels of four 32-bit sums. */
AVX2 static inline __m256i weigh2(const uint8_t *group, const uint8_t *src, size_t k, size_t quads,
                                  int channels, __m256i first, __m256i second)
{
    const int32_t *at = (const int32_t *)(const void *)group;
    const __m256i *w = (const __m256i *)(const void *)(group + 32) + k * 4;
    const uint8_t *s0 = src + at[k], *s1 = src + at[k + 4];
    __m256i high = _mm256_setzero_si256(), low = high;
    for (size_t q = 0; q < quads; q++, w += QUAD_WORDS / 16, s0 += 4 * channels, s1 += 4 * channels) {
        __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)s0)),
                                            _mm_loadu_si128((const void *)s1), 1);
        __m256i a = _mm256_shuffle_epi8(v, first), b = _mm256_shuffle_epi8(v, second);
        high = _mm256_add_epi32(high, _mm256_add_epi32(_mm256_madd_epi16(a, _mm256_loadu_si256(w)),
                                                       _mm256_madd_epi16(b, _mm256_loadu_si256(w + 2))));
        low = _mm256_add_epi32(low, _mm256_add_epi32(_mm256_madd_epi16(a, _mm256_loadu_si256(w + 1)),
                                                     _mm256_madd_epi16(b, _mm256_loadu_si256(w + 3))));
    }
    return join(high, low);
}

/* The callers pass constants for quads and channels, so that the compiler unrolls the loops over taps. */
AVX2 static inline void horizontal_quads(const struct cw_resize *r, const uint8_t *src, uint8_t *dst,
                                         size_t quads, int channels)
{
    const uint8_t *group = r->tables;
    size_t step = 32 + quads * QUAD_WORDS * sizeof(int16_t);
    __m256i first, second; /* pairs of taps: 0 and 1, 2 and 3 */
    if (channels == 3) {
        first = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
        second = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    } else {
        first = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1));
        second = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1));
    }
    for (int64_t i = 0; i < r->x.out; i += 8, group += step, dst += 8 * channels) {
        __m256i a = weigh2(group, src, 0, quads, channels, first, second),
                b = weigh2(group, src, 1, quads, channels, first, second);
        __m256i c = weigh2(group, src, 2, quads, channels, first, second),
                d = weigh2(group, src, 3, quads, channels, first, second);
        store_pixels(dst, _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)), channels);
    }
}

/* ---- horizontal: dispatch ---- */

static bool avx2_two_taps(const struct cw_resize *r)
{
    return r->x.p == 14;
}

static size_t avx2_table_bytes(struct cw_resize *r)
{
    if ((r->spec.channels != 3 && r->spec.channels != 4) || r->x.used > INT32_MAX / 8)
        return 0;
    size_t groups = ((size_t)r->x.out + 7) / 8;
    r->pad = 16 + 4 * avx2_quads_of(r) *
                      r->pixel; /* enough even if the first tap of the last output is the last pixel */
    return groups * (avx2_two_taps(r) ? sizeof(struct pairs8) : avx2_group_bytes(r));
}

static void avx2_tables(struct cw_resize *r)
{
    if (avx2_two_taps(r))
        avx2_tables_pairs(r);
    else
        avx2_tables_quads(r);
}

AVX2 static void horizontal_avx2(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    bool rgb = r->spec.channels == 3;
    if (avx2_two_taps(r)) {
        if (rgb)
            horizontal_pairs(r, src, dst, 3);
        else
            horizontal_pairs(r, src, dst, 4);
    } else if (rgb && r->x.taps <= 4) {
        horizontal_quads(r, src, dst, 1, 3);
    } else if (rgb) {
        horizontal_quads(r, src, dst, avx2_quads_of(r), 3);
    } else {
        horizontal_quads(r, src, dst, avx2_quads_of(r), 4);
    }
}

/* ---- vertical ---- */

AVX2 static inline __m256i blend32(__m256i a, __m256i b, __m256i f)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i a0 = _mm256_unpacklo_epi8(a, zero), a1 = _mm256_unpackhi_epi8(a, zero);
    __m256i d0 = _mm256_sub_epi16(_mm256_unpacklo_epi8(b, zero), a0),
            d1 = _mm256_sub_epi16(_mm256_unpackhi_epi8(b, zero), a1);
    a0 = _mm256_add_epi16(a0, _mm256_mulhrs_epi16(d0, f));
    a1 = _mm256_add_epi16(a1, _mm256_mulhrs_epi16(d1, f));
    return _mm256_packus_epi16(a0, a1);
}

/* bytes >= 32; the last vector overlaps the one before it. */
AVX2 static void vertical_two(const uint8_t *a, const uint8_t *b, int32_t right, uint8_t *dst, size_t bytes)
{
    const __m256i f = _mm256_set1_epi16((int16_t)(2 * right));
    for (size_t i = 0;;) {
        __m256i v = blend32(_mm256_loadu_si256((const void *)(a + i)),
                            _mm256_loadu_si256((const void *)(b + i)), f);
        _mm256_storeu_si256((void *)(dst + i), v);
        if (i + 32 == bytes)
            return;
        i = CW_MIN(i + 32, bytes - 32);
    }
}

struct sums {
    __m256i high, low;
}; /* separate variables, because compilers keep arrays in memory */

AVX2 static inline void sums_add(struct sums *s, __m256i v, __m256i high, __m256i low)
{
    s->high = _mm256_add_epi32(s->high, _mm256_madd_epi16(v, high));
    s->low = _mm256_add_epi32(s->low, _mm256_madd_epi16(v, low));
}

#define MAX_ROWS 64 /* pairs of weights on the stack; with more taps the portable kernel runs */

/* 32 bytes of the weighted sum; w: high and low pairs of weights, alternating. */
AVX2 static inline __m256i weigh32(const uint8_t *const *rows, const int32_t *w, int n, size_t i)
{
    const __m256i zero = _mm256_setzero_si256();
    struct sums s0 = {zero, zero}, s1 = s0, s2 = s0, s3 = s0;
    for (int k = 0; k < n; k += 2) {
        const uint8_t *other = rows[k + 1 < n ? k + 1 : k]; /* if there is no such row, its weight is 0 */
        __m256i a = _mm256_loadu_si256((const void *)(rows[k] + i)),
                b = _mm256_loadu_si256((const void *)(other + i));
        __m256i lo = _mm256_unpacklo_epi8(a, b), hi = _mm256_unpackhi_epi8(a, b);
        __m256i high = _mm256_set1_epi32(w[k]), low = _mm256_set1_epi32(w[k + 1]);
        sums_add(&s0, _mm256_unpacklo_epi8(lo, zero), high, low);
        sums_add(&s1, _mm256_unpackhi_epi8(lo, zero), high, low);
        sums_add(&s2, _mm256_unpacklo_epi8(hi, zero), high, low);
        sums_add(&s3, _mm256_unpackhi_epi8(hi, zero), high, low);
    }
    return _mm256_packus_epi16(_mm256_packs_epi32(join(s0.high, s0.low), join(s1.high, s1.low)),
                               _mm256_packs_epi32(join(s2.high, s2.low), join(s3.high, s3.low)));
}

static int32_t avx2_both(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)(uint16_t)a | (uint32_t)(uint16_t)b << 16);
}

AVX2 static void vertical_many(const uint8_t *const *rows, const int32_t *w, int n, uint8_t *dst,
                               size_t bytes)
{
    int32_t pairs[MAX_ROWS];
    for (int k = 0; k < n; k += 2) {
        int32_t next = k + 1 < n ? w[k + 1] : 0;
        pairs[k] = avx2_both(w[k] >> LOW_BITS, next >> LOW_BITS);
        pairs[k + 1] = avx2_both(w[k] & LOW_MASK, next & LOW_MASK);
    }
    for (size_t i = 0;;) {
        _mm256_storeu_si256((void *)(dst + i), weigh32(rows, pairs, n, i));
        if (i + 32 == bytes)
            return;
        i = CW_MIN(i + 32, bytes - 32);
    }
}

static void vertical_avx2(const uint8_t *const *rows, const int32_t *w, int n, int p, uint8_t *dst,
                          size_t bytes)
{
    if (bytes < 32 || n >= MAX_ROWS || (p == 14 && n != 2))
        cw_pixel_isa_c.vertical(rows, w, n, p, dst, bytes);
    else if (p == 14)
        vertical_two(rows[0], rows[1], w[1], dst, bytes);
    else
        vertical_many(rows, w, n, dst, bytes);
}

/* ---- channels and normalisation ---- */

AVX2 static void normalize_planar3_avx2(float *const dst[3], const uint8_t *src, size_t n, const float *mean,
                                        const float *std)
{
    cw_loop_normalize_planar3(dst, src, n, mean, std);
}

AVX2 static void normalize_packed_avx2(float *dst, const uint8_t *src, size_t n, int channels,
                                       const float *mean, const float *std)
{
    cw_loop_normalize_packed(dst, src, n, channels, mean, std);
}

AVX2 static void planar3_avx2(uint8_t *const dst[3], const uint8_t *src, size_t n)
{
    cw_loop_planar3(dst, src, n);
}

/* ---- bilinear interpolation ---- */

AVX2 static inline __m256d load_doubles(const uint8_t *pixel) /* reads 4 bytes */
{
    int32_t v;
    memcpy(&v, pixel, sizeof(v));
    return _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(v)));
}

AVX2 static inline __m256d mix(__m256d a, __m256d b, __m256d f)
{
    return _mm256_add_pd(a, _mm256_mul_pd(_mm256_sub_pd(b, a), f));
}

AVX2 static void bilinear3_avx2(uint8_t *dst, const uint8_t *src, size_t stride, const double *x,
                                const double *y, size_t n)
{
    const __m128i bytes = _mm_setr_epi8(0, 4, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    for (size_t i = 0; i < n; i++, dst += 3) {
        double px = x[i] - 0.5, py = y[i] - 0.5;
        int left = (int)px, top = (int)py;
        __m256d dx = _mm256_set1_pd(px - left), dy = _mm256_set1_pd(py - top);
        const uint8_t *a = src + (size_t)top * stride + 3 * (size_t)left, *b = a + stride;
        __m256d upper = mix(load_doubles(a), load_doubles(a + 3), dx),
                lower = mix(load_doubles(b), load_doubles(b + 3), dx);
        int32_t pixel = _mm_cvtsi128_si32(
            _mm_shuffle_epi8(_mm256_cvttpd_epi32(mix(upper, lower, dy)), bytes));
        memcpy(dst, &pixel, 3);
    }
}

AVX2 static void saturation_avx2(uint8_t *dst, const uint8_t *src, size_t n, float factor)
{
    cw_loop_saturation(dst, src, n, factor);
}

AVX2 static void hue_avx2(uint8_t *dst, const uint8_t *src, size_t n, int shift)
{
    cw_loop_hue(dst, src, n, shift);
}

static bool avx2_supported(void)
{
    return __builtin_cpu_supports("avx2");
}

const struct cw_pixel_isa cw_pixel_isa_avx2 = {
    .name = "avx2",
    .supported = avx2_supported,
    .table_bytes = avx2_table_bytes,
    .tables = avx2_tables,
    .horizontal = horizontal_avx2,
    .vertical = vertical_avx2,
    .normalize_planar3 = normalize_planar3_avx2,
    .normalize_packed = normalize_packed_avx2,
    .planar3 = planar3_avx2,
    .bilinear3 = bilinear3_avx2,
    .saturation = saturation_avx2,
    .hue = hue_avx2,
};
