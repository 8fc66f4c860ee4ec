/*
 * AVX-512 with VBMI and VNNI (Ice Lake and Zen 4 on): at least twice as fast as AVX2 in both passes. Byte
 * permutations gather the taps of several outputs from one window. Two taps (plain bilinear, p = 14) are
 * blended as in kernels_avx2.c. Passes with more taps have weights of 22 bits and use vpdpbusd, which sums
 * four products of 8 bits; so a weight is split into three signed bytes. If the taps do not fit a window, the
 * AVX2 kernel does the pass.
 */
#include <immintrin.h>

#include "ops/kernels/kernels_x86.h"
#include "ops/kernels/resize.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
#define WINDOW 64
#define HALF (1 << 21)

/* Among the first taps of outputs i .. i+n-1: the smallest one, and the distance from it to the largest. */
static int32_t avx512_window_at(const struct cw_axis *a, int64_t i, int64_t n, int32_t *ret_span)
{
    int32_t min = a->lo[i], max = min;
    for (int64_t k = i + 1; k < i + n && k < a->out; k++) {
        min = CW_MIN(min, a->lo[k]);
        max = CW_MAX(max, a->lo[k]);
    }
    *ret_span = max - min;
    return min;
}

/* Whether the taps of any n neighbouring outputs lie within `window` bytes; `taps` pixels from the first are
 * read. */
static bool avx512_windows_fit(const struct cw_resize *r, int64_t n, size_t taps, size_t window)
{
    bool fits = true;
    for (int64_t i = 0; i < r->x.out && fits; i += n) {
        int32_t span;
        avx512_window_at(&r->x, i, n, &span);
        fits = ((size_t)span + taps) * r->pixel <= window;
    }
    return fits;
}

/* ---- horizontal, two taps ---- */

#define LANES 32 /* values of 16 bits in a register: 10 pixels of 3 channels, 8 of 4 */

struct pairs { /* LANES / channels outputs */
    /* even bytes: offset of a value's left tap in the window; the right tap is one pixel further */
    uint8_t left[WINDOW];
    int16_t f[LANES];  /* twice the weight of the right tap */
    int64_t at;        /* the window, in bytes from the row's first pixel */
    int64_t unused[7]; /* keep 64-byte alignment */
};

static int64_t avx512_pairs_outputs(const struct cw_resize *r)
{
    return LANES / (int64_t)r->pixel;
}

AVX512 static void tables_pairs(struct cw_resize *r)
{
    const struct cw_axis *a = &r->x;
    struct pairs *t = r->tables;
    int64_t n = avx512_pairs_outputs(r);
    int16_t output[LANES], channel[LANES]; /* of each lane */
    for (int k = 0; k < LANES; k++) {
        output[k] = (int16_t)(k / (int)r->pixel);
        channel[k] = (int16_t)(k % (int)r->pixel);
    }
    const __m512i spread = _mm512_loadu_si512((const void *)output),
                  add = _mm512_loadu_si512((const void *)channel);
    for (int64_t i = 0; i < a->out; i += n, t++) {
        int16_t from[LANES] = {0}, f[LANES] = {0};
        int32_t span, min = avx512_window_at(a, i, n, &span);
        for (int64_t k = 0; k < n && i + k < a->out; k++) {
            from[k] = (int16_t)((a->lo[i + k] - min) * (int32_t)r->pixel);
            f[k] = (int16_t)(a->n[i + k] == 2 ? 2 * a->w[2 * (i + k) + 1] : 0);
        }
        __m512i left = _mm512_permutexvar_epi16(spread, _mm512_loadu_si512((const void *)from));
        _mm512_storeu_si512((void *)t->left, _mm512_add_epi16(left, add));
        _mm512_storeu_si512((void *)t->f,
                            _mm512_permutexvar_epi16(spread, _mm512_loadu_si512((const void *)f)));
        t->at = (int64_t)min * (int64_t)r->pixel;
    }
}

AVX512 static void horizontal_pairs(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    const __mmask64 even = 0x5555555555555555;
    const __m512i pixel = _mm512_set1_epi8((char)r->pixel);
    const struct pairs *t = r->tables;
    int64_t n = avx512_pairs_outputs(r);
    for (int64_t i = 0; i < r->x.out; i += n, t++, dst += n * (int64_t)r->pixel) {
        const __m512i window = _mm512_loadu_si512((const void *)(src + t->at));
        __m512i left = _mm512_loadu_si512((const void *)t->left), right = _mm512_add_epi8(left, pixel);
        __m512i a = _mm512_maskz_permutexvar_epi8(even, left, window),
                b = _mm512_maskz_permutexvar_epi8(even, right, window);
        __m512i d = _mm512_mulhrs_epi16(_mm512_sub_epi16(b, a), _mm512_loadu_si512((const void *)t->f));
        _mm256_storeu_si256((void *)dst, _mm512_cvtepi16_epi8(_mm512_add_epi16(a, d)));
    }
}

/* ---- horizontal, any number of taps ---- */

struct quads4 {           /* 4 outputs; 3 * 64 bytes of weights per four taps follow */
    uint8_t taps[WINDOW]; /* offset in the window of each (output, channel, tap) */
    int64_t at;
    int64_t unused[7]; /* keep 64-byte alignment */
};

static size_t avx512_quads_of(const struct cw_resize *r)
{
    return ((size_t)r->x.taps + 3) / 4;
}

static size_t avx512_quads4_bytes(const struct cw_resize *r)
{
    return sizeof(struct quads4) + avx512_quads_of(r) * 3 * 64;
}

/* Four taps' weights as bytes: w = 65536 d[2] + 256 d[1] + d[0], all signed. */
static inline void avx512_digits(const int32_t *w, int n, uint32_t d[3])
{
    d[0] = d[1] = d[2] = 0;
    for (int k = 0; k < n; k++) {
        int32_t low = (int8_t)(w[k] & 255), rest = (w[k] - low) >> 8, mid = (int8_t)(rest & 255),
                top = (rest - mid) >> 8;
        d[0] |= (uint32_t)(uint8_t)low << (8 * k);
        d[1] |= (uint32_t)(uint8_t)mid << (8 * k);
        d[2] |= (uint32_t)(uint8_t)top << (8 * k);
    }
}

AVX512 static void tables_quads(struct cw_resize *r)
{
    const struct cw_axis *a = &r->x;
    uint8_t *at = r->tables;
    size_t quads = avx512_quads_of(r);
    const __m128i lane = r->pixel == 3 ? _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 2, 5, 8, 11)
                                       : _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (int64_t i = 0; i < (a->out + 15) / 16 * 16; i += 4, at += avx512_quads4_bytes(r)) {
        struct quads4 *t = (void *)at;
        int32_t span, min = i < a->out ? avx512_window_at(a, i, 4, &span) : 0;
        t->at = (int64_t)min * (int64_t)r->pixel;
        for (int k = 0; k < 4; k++) {
            bool there = i + k < a->out;
            int32_t from = there ? (a->lo[i + k] - min) * (int32_t)r->pixel : 0;
            _mm_storeu_si128((void *)(t->taps + 16 * k), _mm_add_epi8(lane, _mm_set1_epi8((char)from)));
            for (size_t q = 0; q < quads; q++) {
                int n = there ? CW_MIN(CW_MAX(a->n[i + k] - (int)(4 * q), 0), 4) : 0;
                uint32_t d[3];
                avx512_digits(n ? a->w + (i + k) * a->taps + (int64_t)(4 * q) : NULL, n, d);
                for (size_t j = 0; j < 3; j++)
                    _mm_storeu_si128((void *)(at + sizeof(*t) + q * 192 + j * 64 + 16 * (size_t)k),
                                     _mm_set1_epi32((int)d[j]));
            }
        }
    }
}

/* Writes 16 pixels from lanes of 4 bytes to dst; `order` has the source of each byte. Writes 64 bytes. */
AVX512 static inline void store16(uint8_t *dst, __m512i v, __m512i order)
{
    _mm512_storeu_si512((void *)dst, _mm512_permutexvar_epi8(order, v));
}

/* pixel_at[i]: number of the dword of the packed register that holds pixel i. */
AVX512 static inline __m512i store_order(const uint8_t pixel_at[16], size_t channels)
{
    uint8_t order[64] = {0};
    for (size_t i = 0; i < 16; i++)
        for (size_t c = 0; c < channels; c++)
            order[i * channels + c] = (uint8_t)(4 * pixel_at[i] + c);
    return _mm512_loadu_si512((const void *)order);
}

/* one sum for each byte of the weights; separate variables, because compilers keep arrays in memory */
struct sums {
    __m512i d0, d1, d2;
};

AVX512 static inline struct sums sums_begin(void)
{
    return (struct sums){_mm512_set1_epi32(HALF), _mm512_setzero_si512(), _mm512_setzero_si512()};
}

AVX512 static inline void sums_add(struct sums *s, __m512i v, __m512i w0, __m512i w1, __m512i w2)
{
    s->d0 = _mm512_dpbusd_epi32(s->d0, v, w0);
    s->d1 = _mm512_dpbusd_epi32(s->d1, v, w1);
    s->d2 = _mm512_dpbusd_epi32(s->d2, v, w2);
}

AVX512 static inline __m512i sums_end(const struct sums *s)
{
    __m512i v = _mm512_add_epi32(_mm512_slli_epi32(s->d2, 8), s->d1);
    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(v, 8), s->d0), 22);
}

AVX512 static inline __m512i pack4(__m512i a, __m512i b, __m512i c, __m512i d)
{
    return _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}

AVX512 static inline __m512i weigh4(const uint8_t *table, const uint8_t *src, size_t quads, size_t pixel)
{
    const struct quads4 *t = (const void *)table;
    const __m512i *w = (const void *)(table + sizeof(*t));
    const __m512i taps = _mm512_loadu_si512((const void *)t->taps);
    struct sums sums = sums_begin();
    src += t->at;
    for (size_t q = 0; q < quads; q++, w += 3, src += 4 * pixel)
        sums_add(&sums, _mm512_permutexvar_epi8(taps, _mm512_loadu_si512((const void *)src)), w[0], w[1],
                 w[2]);
    return sums_end(&sums);
}

/* The callers pass constants for quads and pixel, so that the compiler unrolls the loops over taps. */
AVX512 static inline void quads_row(const struct cw_resize *r, const uint8_t *src, uint8_t *dst, size_t quads,
                                    size_t pixel)
{
    static const uint8_t packed[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const uint8_t *table = r->tables;
    const __m512i order = store_order(packed, pixel);
    size_t bytes = sizeof(struct quads4) + quads * 3 * 64;
    for (int64_t i = 0; i < r->x.out; i += 16, table += 4 * bytes, dst += 16 * pixel) {
        __m512i a = weigh4(table, src, quads, pixel), b = weigh4(table + bytes, src, quads, pixel);
        __m512i c = weigh4(table + 2 * bytes, src, quads, pixel),
                d = weigh4(table + 3 * bytes, src, quads, pixel);
        store16(dst, pack4(a, b, c, d), order);
    }
}

AVX512 static void horizontal_quads(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    size_t quads = avx512_quads_of(r);
    if (r->pixel == 3 && quads == 1)
        quads_row(r, src, dst, 1, 3);
    else if (r->pixel == 3 && quads == 2)
        quads_row(r, src, dst, 2, 3);
    else
        quads_row(r, src, dst, quads, r->pixel);
}

/* ---- horizontal: dispatch ---- */

static bool avx512_two_taps(const struct cw_resize *r)
{
    return r->x.p == 14;
}

static size_t avx512_table_bytes(struct cw_resize *r)
{
    const struct cw_axis *a = &r->x;
    if ((r->spec.channels != 3 && r->spec.channels != 4) || a->used > INT32_MAX / 8)
        return 0;
    if (avx512_two_taps(r) && avx512_windows_fit(r, avx512_pairs_outputs(r), 2, WINDOW)) {
        r->pad = WINDOW;
        return ((size_t)a->out + (size_t)avx512_pairs_outputs(r) - 1) / (size_t)avx512_pairs_outputs(r) *
               sizeof(struct pairs);
    }
    if (!avx512_two_taps(r) && avx512_windows_fit(r, 4, 4, WINDOW)) {
        r->pad = WINDOW + 4 * avx512_quads_of(r) * r->pixel;
        return ((size_t)a->out + 15) / 16 * 4 * avx512_quads4_bytes(r);
    }
    r->x_isa = &cw_pixel_isa_avx2;
    return r->x_isa->table_bytes(r);
}

static void tables_avx512(struct cw_resize *r)
{
    if (avx512_two_taps(r))
        tables_pairs(r);
    else
        tables_quads(r);
}

static void horizontal_avx512(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    if (avx512_two_taps(r))
        horizontal_pairs(r, src, dst);
    else
        horizontal_quads(r, src, dst);
}

/* ---- vertical ---- */

/* bytes >= 64; the last vector overlaps the one before it. */
AVX512 static void vertical_two(const uint8_t *a, const uint8_t *b, int32_t right, uint8_t *dst, size_t bytes)
{
    const __m512i zero = _mm512_setzero_si512(), f = _mm512_set1_epi16((int16_t)(2 * right));
    for (size_t i = 0;;) {
        __m512i va = _mm512_loadu_si512((const void *)(a + i)),
                vb = _mm512_loadu_si512((const void *)(b + i));
        __m512i a0 = _mm512_unpacklo_epi8(va, zero), a1 = _mm512_unpackhi_epi8(va, zero);
        __m512i d0 = _mm512_sub_epi16(_mm512_unpacklo_epi8(vb, zero), a0),
                d1 = _mm512_sub_epi16(_mm512_unpackhi_epi8(vb, zero), a1);
        a0 = _mm512_add_epi16(a0, _mm512_mulhrs_epi16(d0, f));
        a1 = _mm512_add_epi16(a1, _mm512_mulhrs_epi16(d1, f));
        _mm512_storeu_si512((void *)(dst + i), _mm512_packus_epi16(a0, a1));
        if (i + 64 == bytes)
            return;
        i = CW_MIN(i + 64, bytes - 64);
    }
}

#define MAX_ROWS 64

/* 64 bytes of the weighted sum of 4 * quads rows. */
AVX512 static inline __m512i weigh64(const uint8_t *const *rows, uint32_t (*w)[3], size_t quads, size_t i)
{
    struct sums s0 = sums_begin(), s1 = s0, s2 = s0, s3 = s0;
    for (size_t q = 0; q < quads; q++) {
        __m512i a = _mm512_loadu_si512((const void *)(rows[4 * q] + i)),
                b = _mm512_loadu_si512((const void *)(rows[4 * q + 1] + i));
        __m512i c = _mm512_loadu_si512((const void *)(rows[4 * q + 2] + i)),
                e = _mm512_loadu_si512((const void *)(rows[4 * q + 3] + i));
        __m512i ab0 = _mm512_unpacklo_epi8(a, b), ab1 = _mm512_unpackhi_epi8(a, b);
        __m512i ce0 = _mm512_unpacklo_epi8(c, e), ce1 = _mm512_unpackhi_epi8(c, e);
        __m512i w0 = _mm512_set1_epi32((int)w[q][0]), w1 = _mm512_set1_epi32((int)w[q][1]),
                w2 = _mm512_set1_epi32((int)w[q][2]);
        sums_add(&s0, _mm512_unpacklo_epi16(ab0, ce0), w0, w1, w2);
        sums_add(&s1, _mm512_unpackhi_epi16(ab0, ce0), w0, w1, w2);
        sums_add(&s2, _mm512_unpacklo_epi16(ab1, ce1), w0, w1, w2);
        sums_add(&s3, _mm512_unpackhi_epi16(ab1, ce1), w0, w1, w2);
    }
    return pack4(sums_end(&s0), sums_end(&s1), sums_end(&s2), sums_end(&s3));
}

AVX512 static void vertical_many(const uint8_t *const *rows, const int32_t *w, int n, uint8_t *dst,
                                 size_t bytes)
{
    const uint8_t *all[MAX_ROWS];
    uint32_t d[MAX_ROWS / 4][3];
    size_t quads = ((size_t)n + 3) / 4;
    for (int k = 0; k < (int)(4 * quads); k++)
        all[k] = rows[CW_MIN(k, n - 1)]; /* rows from n on have weight 0 */
    for (size_t q = 0; q < quads; q++)
        avx512_digits(w + 4 * q, CW_MIN(n - (int)(4 * q), 4), d[q]);
    for (size_t i = 0;;) {
        _mm512_storeu_si512((void *)(dst + i),
                            quads == 1 ? weigh64(all, d, 1, i) : weigh64(all, d, quads, i));
        if (i + 64 == bytes)
            return;
        i = CW_MIN(i + 64, bytes - 64);
    }
}

static void vertical_avx512(const uint8_t *const *rows, const int32_t *w, int n, int p, uint8_t *dst,
                            size_t bytes)
{
    if (bytes < 64 || n > MAX_ROWS || (p == 14 && n != 2))
        cw_pixel_isa_avx2.vertical(rows, w, n, p, dst, bytes);
    else if (p == 14)
        vertical_two(rows[0], rows[1], w[1], dst, bytes);
    else
        vertical_many(rows, w, n, dst, bytes);
}

/* ---- the other kernels are those of AVX2: memory or the divider limits them, not registers ---- */

static void normalize_planar3_avx512(float *const dst[3], const uint8_t *src, size_t n, const float *mean,
                                     const float *std)
{
    cw_pixel_isa_avx2.normalize_planar3(dst, src, n, mean, std);
}

static void normalize_packed_avx512(float *dst, const uint8_t *src, size_t n, int channels, const float *mean,
                                    const float *std)
{
    cw_pixel_isa_avx2.normalize_packed(dst, src, n, channels, mean, std);
}

static void planar3_avx512(uint8_t *const dst[3], const uint8_t *src, size_t n)
{
    cw_pixel_isa_avx2.planar3(dst, src, n);
}

static void bilinear3_avx512(uint8_t *dst, const uint8_t *src, size_t stride, const double *x,
                             const double *y, size_t n)
{
    cw_pixel_isa_avx2.bilinear3(dst, src, stride, x, y, n);
}

static void saturation_avx512(uint8_t *dst, const uint8_t *src, size_t n, float factor)
{
    cw_pixel_isa_avx2.saturation(dst, src, n, factor);
}

static void hue_avx512(uint8_t *dst, const uint8_t *src, size_t n, int shift)
{
    cw_pixel_isa_avx2.hue(dst, src, n, shift);
}

static bool avx512_supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
}

const struct cw_pixel_isa cw_pixel_isa_avx512 = {
    .name = "avx512",
    .supported = avx512_supported,
    .table_bytes = avx512_table_bytes,
    .tables = tables_avx512,
    .horizontal = horizontal_avx512,
    .vertical = vertical_avx512,
    .normalize_planar3 = normalize_planar3_avx512,
    .normalize_packed = normalize_packed_avx512,
    .planar3 = planar3_avx512,
    .bilinear3 = bilinear3_avx512,
    .saturation = saturation_avx512,
    .hue = hue_avx512,
};
