/* Between image.c and the codecs: what a codec does, and the row conversions they share. */
#pragma once
#include "formats/image.h"

struct cw_convert {
    int from, to;            /* channels: 1, 2 (grey, alpha), 3, 4 */
    bool from_wide, to_wide; /* uint16 values */
    bool cmyk;               /* the 4 are CMYK and are to become something else */
};

/* One decoding. Rectangles are in the file's coordinates and within the image. */
struct cw_image_job {
    struct cw_rect want, needed;
    const struct cw_image_rows *rows; /* where rows go, in the order of the file; y counts from want.y */
    /* The codec's plan: */
    struct cw_convert convert; /* to and to_wide are those of the caller */
    size_t library_bytes;      /* that the library allocates at most */
    size_t scratch_bytes;
    /* Memory for decode: */
    uint8_t *scratch;   /* scratch_bytes, aligned to 64 */
    uint8_t *converted; /* a row after the conversion, with rows->slack behind it */
};

struct cw_image_codec {
    const char *name;
    bool (*matches)(const uint8_t *data, size_t size);
    /* Fills in file_*, cmyk and (JPEG) orientation from the headers. Closes by itself what it opened when it
     * fails. */
    int (*open)(struct cw_image *im, struct cw_error *err);
    void (*plan)(struct cw_image *im, struct cw_image_job *job);
    /* Delivers the wanted rows by cw_image_put. */
    int (*decode)(struct cw_image *im, const struct cw_image_job *job, struct cw_error *err);
    void (*close)(struct cw_image *im);
};

extern const struct cw_image_codec cw_image_jpeg, cw_image_png, cw_image_webp;

/* Fails unless the file's height and width are in 1 .. and their product is at most max_pixels. */
int cw_image_check_size(const struct cw_image *im, struct cw_error *err) _must_check_;

/* A row of n pixels, from and to as in docs/pixels.md section 5. dst and src must not overlap. */
void cw_convert_row(const struct cw_convert *c, void *dst, const void *src, size_t n);
/* True when the conversion copies bytes. */
bool cw_convert_is_copy(const struct cw_convert *c);
/* Converts row y of the file, whose first wanted pixel is at `pixels`, with rows->slack readable bytes behind
 * the wanted ones, and hands it on. */
void cw_image_put(const struct cw_image_job *job, int64_t y, uint8_t *pixels);
