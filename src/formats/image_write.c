/* Writes images as PNG files, for contact sheets. */
#include "formats/image_write.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <spng.h>

static int png_encode(FILE *f, size_t h, size_t w, int channels, const void *data)
{
    static const uint8_t types[] = {0, SPNG_COLOR_TYPE_GRAYSCALE, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA,
                                    SPNG_COLOR_TYPE_TRUECOLOR, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    if (!ctx)
        return SPNG_EMEM;
    struct spng_ihdr ihdr = {
        .width = (uint32_t)w, .height = (uint32_t)h, .bit_depth = 8, .color_type = types[channels]};
    int e = spng_set_png_file(ctx, f);
    if (!e)
        e = spng_set_ihdr(ctx, &ihdr);
    if (!e)
        e = spng_encode_image(ctx, data, h * w * (size_t)channels, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    spng_ctx_free(ctx);
    return e;
}

int cw_png_write(const char *path, size_t h, size_t w, int channels, const void *data, struct cw_error *err)
{
    if (channels < 1 || channels > 4 || h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX)
        return cw_error_set(err, CW_E_BUG, "%s: an image of %zu x %zu x %d can't be written as PNG", path, h,
                            w, channels);
    FILE *f = fopen(path, "wbe");
    if (!f)
        return cw_error_errno(err, CW_E_IO, errno, "%s", path);
    int e = png_encode(f, h, w, channels, data);
    int closed = fclose(f);
    if (!e && !closed)
        return 0;
    int saved = errno;
    unlink(path);
    if (e == SPNG_EMEM)
        return cw_error_nomem(err, h * w * (size_t)channels, "a PNG encoder");
    if (e && e != SPNG_IO_ERROR)
        return cw_error_set(err, CW_E_IO, "%s: %s", path, spng_strerror(e));
    return cw_error_errno(err, CW_E_IO, saved, "%s", path);
}
