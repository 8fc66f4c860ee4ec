/* Writes images as PNG files, for contact sheets, and encodes JPEGs, for sets of photographs. */
#include "formats/image_write.h"

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include <jpeglib.h>
#include <png.h>

static int png_describe(const char *name, size_t h, size_t w, int channels, png_image *ret,
                        struct cw_error *err)
{
    static const png_uint_32 formats[] = {0, PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
    if (channels < 1 || channels > 4 || h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX)
        return cw_error_set(err, CW_E_BUG,
                            "%s: an image of %zu x %zu x %d can't be written as PNG: expected at least one "
                            "pixel and 1 to 4 channels",
                            name, h, w, channels);
    *ret = (png_image){.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)w,
                       .height = (png_uint_32)h,
                       .format = formats[channels]};
    return 0;
}

int cw_png_write(const char *path, size_t h, size_t w, int channels, const void *data, struct cw_error *err)
{
    png_image image;
    int r = png_describe(path, h, w, channels, &image, err);
    if (r < 0)
        return r;
    FILE *f = fopen(path, "wbe");
    if (!f)
        return cw_error_errno(err, CW_E_IO, errno, "%s", path);
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

int cw_png_encode(size_t h, size_t w, int channels, const void *data, uint8_t **ret, size_t *ret_size,
                  struct cw_error *err)
{
    png_image image;
    int r = png_describe("a picture", h, w, channels, &image, err);
    if (r < 0)
        return r;
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    uint8_t *png = malloc(size);
    if (!png || !png_image_write_to_memory(&image, png, &size, 0, data, 0, NULL)) {
        free(png);
        return cw_error_nomem(err, size, "a PNG encoder");
    }
    *ret = png;
    *ret_size = size;
    return 0;
}

struct jpeg_writer {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    jmp_buf jump;
    char text[JMSG_LENGTH_MAX]; /* of the error */
    unsigned char *data;        /* libjpeg's to grow */
    unsigned long size;
};

static void jpeg_writer_fail(j_common_ptr c)
{
    struct jpeg_writer *w = c->client_data;
    c->err->format_message(c, w->text);
    longjmp(w->jump, 1);
}

/* Returns false if libjpeg reports an error, which jumps here: nothing in this frame changes after setjmp. */
static bool jpeg_encode_guarded(struct jpeg_writer *w, const uint8_t *rgb, size_t height, size_t width,
                                int quality)
{
    if (setjmp(w->jump))
        return false;
    jpeg_create_compress(&w->c); /* keeps err and client_data */
    jpeg_mem_dest(&w->c, &w->data, &w->size);
    w->c.image_height = (JDIMENSION)height;
    w->c.image_width = (JDIMENSION)width;
    w->c.input_components = 3;
    w->c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&w->c); /* 4:2:0 */
    jpeg_set_quality(&w->c, quality, TRUE);
    jpeg_start_compress(&w->c, TRUE);
    while (w->c.next_scanline < w->c.image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (size_t)w->c.next_scanline * w->c.image_width * 3);
        jpeg_write_scanlines(&w->c, &row, 1);
    }
    jpeg_finish_compress(&w->c);
    return true;
}

int cw_jpeg_encode(size_t h, size_t w, const uint8_t *rgb, int quality, uint8_t **ret, size_t *ret_size,
                   struct cw_error *err)
{
    struct jpeg_writer writer = {0};
    writer.c.err = jpeg_std_error(&writer.errors);
    writer.errors.error_exit = jpeg_writer_fail;
    writer.c.client_data = &writer;
    bool good = jpeg_encode_guarded(&writer, rgb, h, w, quality);
    jpeg_destroy_compress(&writer.c);
    *ret = writer.data;
    *ret_size = writer.size;
    return good ? 0 : cw_error_set(err, CW_E_BUG, "can't encode a JPEG: %s", writer.text);
}
