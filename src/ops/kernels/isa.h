/*
 * The pixel kernels that exist in several versions: portable C (the reference) and one per instruction set.
 * All versions of a kernel give the same bits. The build adds the files of the processor: kernels_x86.c,
 * kernels_avx2.c and kernels_avx512.c, or kernels_neon.c, or kernels_none.c.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cw_resize;

struct cw_pixel_isa {
    const char *name;
    bool (*supported)(void); /* by this processor; NULL: always */
    /* Bytes of tables for the horizontal pass of r, and sets r->pad; 0: not supported (the portable one
     * runs). May set r->x_isa to another version that suits r better. Then r->x_isa->tables fills them. */
    size_t (*table_bytes)(struct cw_resize *r);
    void (*tables)(struct cw_resize *r);
    /* One row of r->x.in pixels to r->x.out. May read r->pad bytes beyond the row and write CW_ROW_SLACK
     * beyond dst. */
    void (*horizontal)(const struct cw_resize *r, const uint8_t *src, uint8_t *dst);
    /* dst[i] = clamp((sum_k w[k] * rows[k][i] + half) >> p), p 14 (then n <= 2, weights sum to 2^14) or 22. n
     * >= 1. Writes exactly bytes; reads exactly bytes of each row. */
    void (*vertical)(const uint8_t *const *rows, const int32_t *w, int n, int p, uint8_t *dst, size_t bytes);
    /* dst[c][i] = (src[3 i + c] - mean[c]) / std[c] for n pixels: three planes. */
    void (*normalize_planar3)(float *const dst[3], const uint8_t *src, size_t n, const float *mean,
                              const float *std);
    /* dst[i * channels + c] likewise, channels 1 or 3. */
    void (*normalize_packed)(float *dst, const uint8_t *src, size_t n, int channels, const float *mean,
                             const float *std);
    /* dst[c][i] = src[3 i + c]. */
    void (*planar3)(uint8_t *const dst[3], const uint8_t *src, size_t n);
};

extern const struct cw_pixel_isa cw_pixel_isa_c; /* every member but table_bytes and tables */
/* The versions built in, best first, then NULL; cw_pixel_isa_c is not among them. */
extern const struct cw_pixel_isa *const cw_pixel_isa_list[];
/* The version of that name ("c", "avx2", ...), or NULL where there is none or the processor lacks it. */
const struct cw_pixel_isa *cw_pixel_isa_find(const char *name);
/* What to use: the best one, unless the environment variable CACHEW_SIMD (read once) names another that there
 * is. */
const struct cw_pixel_isa *cw_pixel_isa(void);
