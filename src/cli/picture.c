/* Arrays as pictures, for `run --save` and `show`. */
#include "cli/picture.h"

#include <math.h>
#include <stdlib.h>

#include "base/macro.h"
#include "data/convert.h"

#define PLANE_LEAST 8 /* the shortest side of floats [h, w] that are taken for an image */

static bool picture_channels(int64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

bool cli_picture_find(struct cli_picture *ret, enum cw_dtype dtype, int ndim, const int64_t *dims,
                      const void *data)
{
    *ret = (struct cli_picture){.channels = 1, .dtype = dtype, .data = data, .high = 255};
    if (dtype != CW_UINT8 && dtype != CW_UINT16 && !cw_dtype_is_float(dtype))
        return false;
    int64_t h = ndim > 1 ? dims[0] : 0, w = ndim > 1 ? dims[1] : 0;
    if (ndim == 3 && picture_channels(dims[2])) {
        ret->channels = (size_t)dims[2];
    } else if (ndim == 3 && picture_channels(dims[0])) {
        ret->chw = true;
        ret->channels = (size_t)dims[0];
        h = dims[1];
        w = dims[2];
    } else if (ndim != 2) {
        return false;
    }
    int64_t least = ndim == 2 && cw_dtype_is_float(dtype) ? PLANE_LEAST : 1;
    ret->h = (size_t)h;
    ret->w = (size_t)w;
    return h >= least && w >= least;
}

/* Value i of the data; uint16 is scaled to 0 ... 255. */
static double picture_number(const struct cli_picture *p, size_t i)
{
    double v;
    cw_convert(p->dtype, CW_FLOAT64, &v, p->data + i * cw_dtype_size(p->dtype), 1);
    return p->dtype == CW_UINT16 ? v / 257.0 : v;
}

void cli_picture_stretch(struct cli_picture *p, size_t n)
{
    if (!cw_dtype_is_float(p->dtype))
        return;
    p->low = INFINITY;
    p->high = -INFINITY;
    for (size_t i = 0; i < n * p->h * p->w * p->channels; i++) {
        p->low = fmin(p->low, picture_number(p, i));
        p->high = fmax(p->high, picture_number(p, i));
    }
}

uint8_t cli_picture_value(const struct cli_picture *p, size_t at, size_t y, size_t x, size_t channel)
{
    size_t i = p->chw ? (channel * p->h + y) * p->w + x : (y * p->w + x) * p->channels + channel;
    double v = picture_number(p, at * p->h * p->w * p->channels + i);
    v = (v - p->low) * 255 / CW_MAX(p->high - p->low, 1e-9);
    return (uint8_t)(v > 0 ? CW_MIN(v, 255) : 0); /* 0 for NaN */
}

int cli_picture_thumbnail(const struct cli_picture *p, size_t side, uint8_t **ret, size_t *ret_h,
                          size_t *ret_w, struct cw_error *err)
{
    size_t longest = CW_MAX(p->h, p->w), most = CW_MIN(side, longest);
    size_t h = CW_MAX(p->h * most / longest, 1), w = CW_MAX(p->w * most / longest, 1);
    uint8_t *rgb = calloc(h * w, 3);
    if (!rgb)
        return cw_error_nomem(err, h * w * 3, "a thumbnail");
    for (size_t i = 0; i < h * w * 3; i++) {
        size_t y = i / 3 / w, x = i / 3 % w, channel = p->channels == 1 ? 0 : i % 3, sum = 0;
        size_t top = y * p->h / h, bottom = (y + 1) * p->h / h, left = x * p->w / w,
               right = (x + 1) * p->w / w;
        for (size_t v = top; v < bottom; v++)
            for (size_t u = left; u < right; u++)
                sum += cli_picture_value(p, 0, v, u, channel);
        rgb[i] = (uint8_t)(sum / ((bottom - top) * (right - left)));
    }
    *ret = rgb;
    *ret_h = h;
    *ret_w = w;
    return 0;
}
