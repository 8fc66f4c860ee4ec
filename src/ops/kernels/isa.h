/*
 * Pixel kernels: inner loops over pixels, in several versions: portable C (the reference) and one for each
 * instruction set. All versions of a kernel give the same bits. The build adds the files for the target
 * processor: kernels_x86.c, kernels_avx2.c and kernels_avx512.c, or kernels_neon.c, or kernels_none.c.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cw_resize;

struct cw_pixel_isa {
    const char *name;
    bool (*supported)(void); /* whether this processor has the instruction set; NULL: always */
    /* Returns the size in bytes of the tables that the horizontal pass of r needs, and sets r->pad. 0: this
     * version can't do the pass, and the portable version runs. May set r->x_isa to another version that
     * suits r better. The caller allocates r->tables; then r->x_isa->tables fills them. */
    size_t (*table_bytes)(struct cw_resize *r);
    void (*tables)(struct cw_resize *r);
    /* Resizes one row of pixels, r->x.used inputs to r->x.out outputs. May read r->pad bytes after the row
     * and write CW_ROW_SLACK bytes after the end of dst. */
    void (*horizontal)(const struct cw_resize *r, const uint8_t *src, uint8_t *dst);
    /* The vertical pass: dst[i] = clamp((sum_k w[k] * rows[k][i] + 2^(p-1)) >> p) for n >= 1 rows. p is 22,
     * or 14; then n <= 2, and the weights sum to 2^14. Reads exactly `bytes` bytes of each row, and writes as
     * many. */
    void (*vertical)(const uint8_t *const *rows, const int32_t *w, int n, int p, uint8_t *dst, size_t bytes);
    /* dst[c][i] = (src[3 i + c] - mean[c]) / std[c] for n pixels: three planes. */
    void (*normalize_planar3)(float *const dst[3], const uint8_t *src, size_t n, const float *mean,
                              const float *std);
    /* dst[i * channels + c] = (src[i * channels + c] - mean[c]) / std[c] for n pixels; channels is 1 or 3. */
    void (*normalize_packed)(float *dst, const uint8_t *src, size_t n, int channels, const float *mean,
                             const float *std);
    /* dst[c][i] = src[3 i + c] for n pixels: three planes. */
    void (*planar3)(uint8_t *const dst[3], const uint8_t *src, size_t n);
    /* Bilinear interpolation of pixels of three channels (image/warp.c), in double precision: n pixels, from
     * places (x, y) with at least 0.5 pixels to the left edge and the top, and more than 0.5 to the right
     * edge and 1.5 to the bottom. stride: bytes of a row of src. */
    void (*bilinear3)(uint8_t *dst, const uint8_t *src, size_t stride, const double *x, const double *y,
                      size_t n);
    /* Changes of the colours of n pixels of 3 channels (docs/pixels.md, "Colours"). dst may be src. shift: 0
     * to 255. */
    void (*saturation)(uint8_t *dst, const uint8_t *src, size_t n, float factor);
    void (*hue)(uint8_t *dst, const uint8_t *src, size_t n, int shift);
};

extern const struct cw_pixel_isa cw_pixel_isa_c; /* has every function except table_bytes and tables */
/* The versions in this build, best first, then NULL; without cw_pixel_isa_c. */
extern const struct cw_pixel_isa *const cw_pixel_isa_list[];
/* Returns the version of that name ("c", "avx2", ...). NULL: there is no such version, or the processor lacks
 * the instruction set. */
const struct cw_pixel_isa *cw_pixel_isa_find(const char *name);
/* Returns the version to use: the best one that the processor supports, or the one that the environment
 * variable CACHEW_SIMD (read once) names, if the processor supports it. */
const struct cw_pixel_isa *cw_pixel_isa(void);
