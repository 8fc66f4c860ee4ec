/* Arrays as pictures: which arrays are images, their pixels as bytes, thumbnails. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/type.h"

/* An array that is seen as an image; borrows the data. */
struct cli_picture {
    size_t h, w, channels; /* 1, 3 or 4 channels */
    bool chw;              /* the channels come first */
    enum cw_dtype dtype;
    const uint8_t *data;
    double low, high; /* the values that become 0 and 255 */
};

/* Sees an array as an image: [h, w], [h, w, c] or [c, h, w] with 1, 3 or 4 channels. Floats of [h, w] are
 * images only if no side is short, such as spectrograms. False: it is none. */
bool cli_picture_find(struct cli_picture *ret, enum cw_dtype dtype, int ndim, const int64_t *dims,
                      const void *data);
/* Stretches floats, which may be normalised: the smallest and the largest value of n images that lie one
 * after the other become 0 and 255. Does nothing for integers. */
void cli_picture_stretch(struct cli_picture *p, size_t n);
/* Returns a pixel's channel, 0 to 255, of image `at` of those that lie one after the other. */
uint8_t cli_picture_value(const struct cli_picture *p, size_t at, size_t y, size_t x, size_t channel);
/* Makes an RGB picture of at most side x side pixels, the means of equal parts of the image. Alpha is left
 * out. The caller frees *ret. */
int cli_picture_thumbnail(const struct cli_picture *p, size_t side, uint8_t **ret, size_t *ret_h,
                          size_t *ret_w, struct cw_error *err) _must_check_;
