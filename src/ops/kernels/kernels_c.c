/* The portable kernels: the results of all other versions must equal theirs, bit for bit. */
#include <string.h>

#include "ops/kernels/color_loops.h"
#include "ops/kernels/isa.h"
#include "ops/kernels/loops.h"
#include "ops/kernels/resize.h"

static inline uint8_t c_clamp8(int32_t v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void horizontal_c(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    const struct cw_axis *a = &r->x;
    size_t channels = (size_t)r->spec.channels;
    int32_t half = 1 << (a->p - 1);
    for (size_t i = 0; i < (size_t)a->out; i++) {
        const int32_t *w = a->w + i * (size_t)a->taps;
        const uint8_t *s = src + (size_t)a->lo[i] * channels;
        for (size_t c = 0; c < channels; c++) {
            int32_t sum = half;
            for (int32_t k = 0; k < a->n[i]; k++)
                sum += w[k] * s[(size_t)k * channels + c];
            *dst++ = c_clamp8(sum >> a->p);
        }
    }
}

static void vertical_c(const uint8_t *const *rows, const int32_t *w, int n, int p, uint8_t *dst, size_t bytes)
{
    int32_t half = 1 << (p - 1);
    for (size_t i = 0; i < bytes; i++) {
        int32_t sum = half;
        for (int k = 0; k < n; k++)
            sum += w[k] * rows[k][i];
        dst[i] = c_clamp8(sum >> p);
    }
}

const struct cw_pixel_isa cw_pixel_isa_c = {
    .name = "c",
    .horizontal = horizontal_c,
    .vertical = vertical_c,
    .normalize_planar3 = cw_loop_normalize_planar3,
    .normalize_packed = cw_loop_normalize_packed,
    .planar3 = cw_loop_planar3,
    .bilinear3 = cw_loop_bilinear3,
    .saturation = cw_loop_saturation,
    .hue = cw_loop_hue,
};
