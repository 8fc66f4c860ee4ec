/* Conversions of channels and depth, pixel by pixel: docs/pixels.md section 5. Any thread; no state. */
#include <string.h>

#include "formats/image_codec.h"

bool cw_convert_is_copy(const struct cw_convert *c)
{
    return c->from == c->to && c->from_wide == c->to_wide && !c->cmyk;
}

static inline uint32_t image_cmyk_mix(uint32_t ink, uint32_t nk)
{
    uint32_t t = ink * nk + 128;
    return (uint32_t)(uint8_t)(nk - ((t + (t >> 8)) >> 8));
}

static inline uint32_t image_grey(uint32_t r, uint32_t g, uint32_t b)
{
    return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16;
}

/* Converts one pixel of `from` channels to `to` channels. opaque: the largest value, 255 or 65535. */
static inline void convert_pixel(const uint32_t *s, int from, bool cmyk, uint32_t *d, int to, uint32_t opaque)
{
    const bool grey = from <= 2 && !cmyk;
    uint32_t rgba[4] = {s[0], s[grey ? 0 : 1], s[grey ? 0 : 2], opaque};
    if (cmyk)
        for (int k = 0; k < 3; k++)
            rgba[k] = image_cmyk_mix(s[k], 255 - s[3]);
    else if (from % 2 == 0) /* with alpha */
        rgba[3] = s[from - 1];
    if (to <= 2) {
        d[0] = grey ? s[0] : image_grey(rgba[0], rgba[1], rgba[2]);
        d[1] = rgba[3];
    } else {
        memcpy(d, rgba, sizeof(rgba));
    }
}

static void image_rgb_to_grey(uint8_t *d, const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n; i++, s += 3)
        d[i] = (uint8_t)image_grey(s[0], s[1], s[2]);
}

void cw_convert_row(const struct cw_convert *c, void *dst, const void *src, size_t n)
{
    bool same_channels = c->from == c->to && !c->cmyk;
    if (cw_convert_is_copy(c)) {
        memcpy(dst, src, n * (size_t)c->from * (c->from_wide ? 2 : 1));
        return;
    }
    if (c->from == 3 && c->to == 1 && !c->from_wide && !c->to_wide) {
        image_rgb_to_grey(dst, src, n);
        return;
    }
    const uint8_t *s8 = src;
    const uint16_t *s16 = src;
    uint8_t *d8 = dst;
    uint16_t *d16 = dst;
    bool wide = c->from_wide && c->to_wide; /* the depth of the conversion */
    for (size_t i = 0; i < n; i++) {
        uint32_t s[4] = {0}, d[4] = {0};
        for (int k = 0; k < c->from; k++)
            s[k] = !c->from_wide ? *s8++ : wide ? *s16++ : (uint32_t)(*s16++ >> 8);
        if (same_channels)
            memcpy(d, s, sizeof(d));
        else
            convert_pixel(s, c->from, c->cmyk, d, c->to, wide ? 65535 : 255);
        for (int k = 0; k < c->to; k++) {
            if (c->to_wide)
                *d16++ = (uint16_t)(wide ? d[k] : d[k] * 257);
            else
                *d8++ = (uint8_t)d[k];
        }
    }
}
