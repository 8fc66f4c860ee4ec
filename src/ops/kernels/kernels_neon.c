/*
 * NEON (every aarch64 processor has it). Weights of 22 bits are split as W = 2^11 * high + low, both within
 * 16 bits, and two sums of 16-bit products are combined at the end.
 */
#include <arm_neon.h>

#include "ops/kernels/color_loops.h"
#include "ops/kernels/isa.h"
#include "ops/kernels/loops.h"
#include "ops/kernels/resize.h"

#define LOW_BITS 11
#define LOW_MASK ((1 << LOW_BITS) - 1)

/* ---- horizontal ---- */

/* Tables: per output and tap a high and a low weight. */
struct weight {
    int16_t high, low;
};

/* Weights of 14 bits are made weights of 22 bits: the sum gets 8 more zero bits, and rounds to the same
 * result. */
static inline struct weight neon_split(int32_t w, int p)
{
    int32_t wide = w * (1 << (22 - p));
    return (struct weight){(int16_t)(wide >> LOW_BITS), (int16_t)(wide & LOW_MASK)};
}

static size_t neon_table_bytes(struct cw_resize *r)
{
    if (r->spec.channels != 3 && r->spec.channels != 4)
        return 0;
    r->pad = 8; /* a pixel is read as 8 bytes */
    return (size_t)r->x.out * (size_t)r->x.taps * sizeof(struct weight);
}

static void neon_tables(struct cw_resize *r)
{
    struct weight *t = r->tables;
    size_t n = (size_t)r->x.out * (size_t)r->x.taps;
    for (size_t i = 0; i < n; i++)
        t[i] = neon_split(r->x.w[i], r->x.p);
}

static inline uint8x8_t neon_narrow(int32x4_t v)
{
    return vqmovun_s16(vcombine_s16(vqmovn_s32(v), vdup_n_s16(0)));
}

static inline int32x4_t neon_join(int32x4_t high, int32x4_t low)
{
    return vrshrq_n_s32(vaddq_s32(vshlq_n_s32(high, LOW_BITS), low), 22);
}

static void horizontal_neon(const struct cw_resize *r, const uint8_t *src, uint8_t *dst)
{
    const struct cw_axis *a = &r->x;
    const struct weight *w = r->tables;
    for (int64_t i = 0; i < a->out; i++, w += a->taps, dst += r->pixel) {
        const uint8_t *s = src + (size_t)a->lo[i] * r->pixel;
        int32x4_t high = vdupq_n_s32(0), low = high;
        for (int32_t k = 0; k < a->n[i]; k++, s += r->pixel) {
            int16x4_t v = vreinterpret_s16_u16(vget_low_u16(vmovl_u8(vld1_u8(s))));
            low = vmlal_n_s16(low, v, w[k].low);
            high = vmlal_n_s16(high, v, w[k].high);
        }
        uint8x8_t o = neon_narrow(neon_join(high, low));
        /* 4 bytes: with 3 channels the next pixel overwrites the last one, or it lies in the slack after dst
         */
        vst1_lane_u32((void *)dst, vreinterpret_u32_u8(o), 0);
    }
}

/* ---- vertical ---- */

static inline void neon_weigh16(const uint8_t *const *rows, const int32_t *w, int n, int p, size_t i,
                                uint8_t *dst)
{
    int32x4_t h0 = vdupq_n_s32(0), h1 = h0, h2 = h0, h3 = h0, l0 = h0, l1 = h0, l2 = h0, l3 = h0;
    for (int k = 0; k < n; k++) {
        uint8x16_t v = vld1q_u8(rows[k] + i);
        int16x8_t a = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(v))),
                  b = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(v)));
        struct weight x = neon_split(w[k], p);
        l0 = vmlal_n_s16(l0, vget_low_s16(a), x.low);
        l1 = vmlal_n_s16(l1, vget_high_s16(a), x.low);
        l2 = vmlal_n_s16(l2, vget_low_s16(b), x.low);
        l3 = vmlal_n_s16(l3, vget_high_s16(b), x.low);
        h0 = vmlal_n_s16(h0, vget_low_s16(a), x.high);
        h1 = vmlal_n_s16(h1, vget_high_s16(a), x.high);
        h2 = vmlal_n_s16(h2, vget_low_s16(b), x.high);
        h3 = vmlal_n_s16(h3, vget_high_s16(b), x.high);
    }
    l0 = neon_join(h0, l0);
    l1 = neon_join(h1, l1);
    l2 = neon_join(h2, l2);
    l3 = neon_join(h3, l3);
    uint8x8_t a = vqmovun_s16(vcombine_s16(vqmovn_s32(l0), vqmovn_s32(l1))),
              b = vqmovun_s16(vcombine_s16(vqmovn_s32(l2), vqmovn_s32(l3)));
    vst1q_u8(dst + i, vcombine_u8(a, b));
}

static void vertical_neon(const uint8_t *const *rows, const int32_t *w, int n, int p, uint8_t *dst,
                          size_t bytes)
{
    if (bytes < 16) {
        cw_pixel_isa_c.vertical(rows, w, n, p, dst, bytes);
        return;
    }
    for (size_t i = 0;;) { /* the last vector overlaps the one before it */
        neon_weigh16(rows, w, n, p, i, dst);
        if (i + 16 == bytes)
            return;
        i = CW_MIN(i + 16, bytes - 16);
    }
}

static bool neon_supported(void)
{
    return true;
}

static const struct cw_pixel_isa neon = {
    .name = "neon",
    .supported = neon_supported,
    .table_bytes = neon_table_bytes,
    .tables = neon_tables,
    .horizontal = horizontal_neon,
    .vertical = vertical_neon,
    .normalize_planar3 = cw_loop_normalize_planar3,
    .normalize_packed = cw_loop_normalize_packed,
    .planar3 = cw_loop_planar3,
    .bilinear3 = cw_loop_bilinear3,
    .saturation = cw_loop_saturation,
    .hue = cw_loop_hue,
};

const struct cw_pixel_isa *const cw_pixel_isa_list[] = {&neon, NULL};
