/*
 * Changes of an image's colours: loops over whole images of 1 or 3 channels, uint8 or float32 in [0, 1].
 * docs/pixels.md defines every result: for uint8 those of Pillow, bit for bit. Stateless; any thread.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum cw_color_kind {                        /* what `value` of a step is */
                     CW_COLOR_INVERT,       /* unused */
                     CW_COLOR_POSTERIZE,    /* bits to keep, 0 to 8; uint8 only */
                     CW_COLOR_SOLARIZE,     /* threshold */
                     CW_COLOR_EQUALIZE,     /* unused; uint8 only */
                     CW_COLOR_AUTOCONTRAST, /* unused */
                     CW_COLOR_SHARPNESS,    /* factor, >= 0, as of the three following kinds */
                     CW_COLOR_BRIGHTNESS,
                     CW_COLOR_CONTRAST,
                     CW_COLOR_SATURATION,
                     CW_COLOR_HUE,       /* shift, in [-0.5, 0.5] of the colour circle */
                     CW_COLOR_GRAYSCALE, /* number of channels of the result, 1 or 3 */
};

struct cw_color_step {
    enum cw_color_kind kind;
    double value;
};

struct cw_color_shape {
    int64_t h, w; /* at least 1 */
    int channels; /* 1 or 3 */
    bool is_float;
};

/* Computes one step on an image. dst may be src, except for SHARPNESS and a GRAYSCALE with another number of
 * channels. */
void cw_color_apply(const struct cw_color_step *step, const struct cw_color_shape *shape, void *dst,
                    const void *src);
/* The same for float32 images; cw_color_apply calls it. */
void cw_color_apply_float(const struct cw_color_step *step, const struct cw_color_shape *shape, float *dst,
                          const float *src);
