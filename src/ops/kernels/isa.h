/*
 * The pixel kernels that exist in several versions: portable C (the reference) and one per instruction set. All versions of a kernel
 * give the same bits. The build adds the one file with the processor's version (kernels_avx2.c, kernels_neon.c) or kernels_none.c.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cw_resize;

struct cw_pixel_isa {
    const char *name;
    /* Bytes of tables for the horizontal pass of r, and sets r->pad; 0: not supported (the portable one runs). Then `tables` fills them. */
    size_t (*table_bytes)(struct cw_resize *r);
    void (*tables)(struct cw_resize *r);
    /* One row of r->x.in pixels to r->x.out. May read r->pad bytes beyond the row and write CW_ROW_SLACK beyond dst. */
    void (*horizontal)(const struct cw_resize *r, const uint8_t *src, uint8_t *dst);
    /* dst[i] = clamp((sum_k w[k] * rows[k][i] + half) >> p), p 14 (then n <= 2, weights sum to 2^14) or 22. n >= 1. Writes exactly bytes; reads exactly bytes of each row. */
    void (*vertical)(const uint8_t *const *rows, const int32_t *w, int n, int p, uint8_t *dst, size_t bytes);
    /* dst[c][i] = (src[3 i + c] - mean[c]) / std[c] for n pixels: three planes. */
    void (*normalize_planar3)(float *const dst[3], const uint8_t *src, size_t n, const float *mean, const float *std);
    /* dst[i * channels + c] likewise, channels 1 or 3. */
    void (*normalize_packed)(float *dst, const uint8_t *src, size_t n, int channels, const float *mean, const float *std);
    /* dst[c][i] = src[3 i + c]. */
    void (*planar3)(uint8_t *const dst[3], const uint8_t *src, size_t n);
};

extern const struct cw_pixel_isa cw_pixel_isa_c; /* every member but table_bytes and tables */
/* The processor's version, or NULL where the processor lacks the instructions. */
const struct cw_pixel_isa *cw_pixel_isa_native(void);
/* What to use: the native one, unless CACHEW_SIMD (c, avx2, neon; read once) says otherwise. */
const struct cw_pixel_isa *cw_pixel_isa(void);
