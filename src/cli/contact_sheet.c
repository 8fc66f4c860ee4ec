/* --save of `run`: writes the images of the first batch as one picture (a contact sheet). */
#include "cli/contact_sheet.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/convert.h"
#include "formats/image_write.h"

#define SHEETS 1       /* number of batches that are written */
#define SHEET_MAX 8192 /* largest width and height of a sheet, in pixels */

/* The first component with the shape of images, [n, h, w, c] or [n, c, h, w]; NULL: none. *ret_chw: whether
 * it is the second shape. */
static const struct cw_batch_component *sheet_find_images(const struct cw_batch *b, bool *ret_chw)
{
    for (unsigned k = 0; k < b->n_components; k++) {
        const struct cw_batch_component *c = &b->components[k];
        const int64_t *d = c->dims + b->leading;
        if (c->ndim - b->leading != 3 || c->dtype == CW_BYTES)
            continue;
        *ret_chw = !(d[2] == 1 || d[2] == 3 || d[2] == 4) && (d[0] == 1 || d[0] == 3 || d[0] == 4);
        if (*ret_chw || d[2] == 1 || d[2] == 3 || d[2] == 4)
            return c;
    }
    return NULL;
}

/* Value i of a component; uint16 is scaled to 0 ... 255. */
static double sheet_value(const struct cw_batch_component *c, size_t i)
{
    double v = 0;
    if (c->dtype == CW_UINT8 || c->dtype == CW_UINT16 || cw_dtype_is_float(c->dtype))
        cw_convert(c->dtype, CW_FLOAT64, &v, (const uint8_t *)c->data + i * cw_dtype_size(c->dtype), 1);
    return c->dtype == CW_UINT16 ? v / 257.0 : v;
}

int cli_contact_sheet_write(const char *dir, const struct cw_batch *b, uint64_t nth, struct cw_error *err)
{
    bool chw;
    if (nth >= SHEETS || b->n == 0)
        return 0;
    const struct cw_batch_component *c = sheet_find_images(b, &chw);
    if (!c)
        return cw_error_set(
            err, CW_E_OPTION,
            "--save: no component of this pipeline is an image: expected a component of shape "
            "[h, w, c] or [c, h, w] with 1, 3 or 4 channels");
    const int64_t *d = c->dims + b->leading;
    size_t h = (size_t)(chw ? d[1] : d[0]), w = (size_t)(chw ? d[2] : d[1]),
           channels = (size_t)(chw ? d[0] : d[2]), image = h * w * channels;
    size_t n = b->n, columns = CW_MAX((size_t)ceil(sqrt((double)n)), 1);
    while (columns > 1 && columns * w > SHEET_MAX)
        columns--;
    size_t rows = (n + columns - 1) / columns;
    if (h == 0 || w == 0 || w > SHEET_MAX || h > SHEET_MAX)
        return cw_error_set(err, CW_E_OPTION,
                            "--save: the images of component %s have %zu x %zu pixels: expected 1 to %d "
                            "pixels in each direction",
                            c->name, h, w, SHEET_MAX);
    rows = CW_MIN(rows, SHEET_MAX / h);
    n = CW_MIN(n, rows * columns);
    double low = 0, high = 255;
    if (cw_dtype_is_float(c->dtype)) { /* normalised values are stretched to 0 ... 255 */
        low = INFINITY;
        high = -INFINITY;
        for (size_t i = 0; i < n * image; i++) {
            low = fmin(low, sheet_value(c, i));
            high = fmax(high, sheet_value(c, i));
        }
    }
    _cleanup_free_ uint8_t *sheet = calloc(rows * h, columns * w * channels);
    if (!sheet)
        return cw_error_nomem(err, rows * h * columns * w * channels, "a contact sheet");
    for (size_t i = 0; i < n; i++)
        for (size_t y = 0; y < h; y++)
            for (size_t x = 0; x < w; x++)
                for (size_t k = 0; k < channels; k++) {
                    double v = sheet_value(c, i * image +
                                                  (chw ? (k * h + y) * w + x : (y * w + x) * channels + k));
                    sheet[(((i / columns) * h + y) * columns * w + (i % columns) * w + x) * channels + k] =
                        (uint8_t)CW_MIN(CW_MAX((v - low) * 255 / CW_MAX(high - low, 1e-9), 0), 255);
                }
    char path[4200];
    snprintf(path, sizeof(path), "%.4000s/batch-%08" PRIu64 ".png", dir, b->g);
    return cw_png_write(path, rows * h, columns * w, (int)channels, sheet, err);
}
