/* --save of `run`: writes the images of the first batch as one picture (a contact sheet). */
#include "cli/contact_sheet.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/picture.h"
#include "formats/image_write.h"

#define SHEETS 1       /* number of batches that are written */
#define SHEET_MAX 8192 /* largest width and height of a sheet, in pixels */

/* Finds the first component whose elements are images with channels. Returns its name; NULL: none. */
static const char *sheet_find_images(const struct cw_batch *b, struct cli_picture *ret)
{
    for (unsigned k = 0; k < b->n_components; k++) {
        const struct cw_batch_component *c = &b->components[k];
        if (c->ndim - b->leading == 3 && cli_picture_find(ret, c->dtype, 3, c->dims + b->leading, c->data))
            return c->name;
    }
    return NULL;
}

int cli_contact_sheet_write(const char *dir, const struct cw_batch *b, uint64_t nth, struct cw_error *err)
{
    struct cli_picture p;
    if (nth >= SHEETS || b->n == 0)
        return 0;
    const char *name = sheet_find_images(b, &p);
    if (!name)
        return cw_error_set(
            err, CW_E_OPTION,
            "--save: no component of this pipeline is an image: expected a component of shape "
            "[h, w, c] or [c, h, w] with 1, 3 or 4 channels");
    size_t n = b->n, columns = CW_MAX((size_t)ceil(sqrt((double)n)), 1);
    while (columns > 1 && columns * p.w > SHEET_MAX)
        columns--;
    size_t rows = (n + columns - 1) / columns;
    if (p.w > SHEET_MAX || p.h > SHEET_MAX)
        return cw_error_set(err, CW_E_OPTION,
                            "--save: the images of component %s have %zu x %zu pixels: expected 1 to %d "
                            "pixels in each direction",
                            name, p.h, p.w, SHEET_MAX);
    rows = CW_MIN(rows, SHEET_MAX / p.h);
    n = CW_MIN(n, rows * columns);
    cli_picture_stretch(&p, n);
    size_t line = columns * p.w * p.channels; /* bytes */
    _cleanup_free_ uint8_t *sheet = calloc(rows * p.h, line);
    if (!sheet)
        return cw_error_nomem(err, rows * p.h * line, "a contact sheet");
    for (size_t i = 0; i < n; i++)
        for (size_t y = 0; y < p.h; y++)
            for (size_t x = 0; x < p.w * p.channels; x++)
                sheet[(i / columns * p.h + y) * line + i % columns * p.w * p.channels + x] =
                    cli_picture_value(&p, i, y, x / p.channels, x % p.channels);
    char path[4200];
    snprintf(path, sizeof(path), "%.4000s/batch-%08" PRIu64 ".png", dir, b->g);
    return cw_png_write(path, rows * p.h, columns * p.w, (int)p.channels, sheet, err);
}
