/* Writes images as PNG files, for contact sheets. */
#include "formats/image_write.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <png.h>

int cw_png_write(const char *path, size_t h, size_t w, int channels, const void *data, struct cw_error *err)
{
    static const png_uint_32 formats[] = {0, PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
    if (channels < 1 || channels > 4 || h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX)
        return cw_error_set(err, CW_E_BUG,
                            "%s: an image of %zu x %zu x %d can't be written as PNG: expected at least one "
                            "pixel and 1 to 4 channels",
                            path, h, w, channels);
    FILE *f = fopen(path, "wbe");
    if (!f)
        return cw_error_errno(err, CW_E_IO, errno, "%s", path);
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)w,
                       .height = (png_uint_32)h,
                       .format = formats[channels]};
    errno = 0;
    int written = png_image_write_to_stdio(&image, f, 0, data, 0, NULL);
    if (fclose(f) == 0 && written)
        return 0;
    int saved = errno;
    unlink(path);
    if (saved == ENOMEM)
        return cw_error_nomem(err, h * w * (size_t)channels, "a PNG encoder");
    return saved ? cw_error_errno(err, CW_E_IO, saved, "%s", path)
                 : cw_error_set(err, CW_E_IO, "%s: %s", path, image.message);
}
