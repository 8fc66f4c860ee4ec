/* Between image.c and the codecs: what a codec does, and the row conversions they share. */
#pragma once
#include "formats/image.h"

struct cw_image_codec {
    const char *name;
    bool (*matches)(const uint8_t *data, size_t size);
    /* Fills in file_*, cmyk and (JPEG) orientation from the headers. Closes by itself what it opened when it
     * fails. */
    int (*open)(struct cw_image *im, struct cw_error *err);
    /* Both rectangles in the file's coordinates and within the image; rows are delivered pixels (channels,
     * depth). */
    int (*decode)(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed, uint8_t *dst,
                  size_t stride, struct cw_arena *arena, struct cw_error *err);
    /* Likewise, row by row; NULL: only as a whole. */
    int (*decode_rows)(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed,
                       const struct cw_image_rows *rows, struct cw_arena *arena, struct cw_error *err);
    void (*close)(struct cw_image *im);
};

extern const struct cw_image_codec cw_image_jpeg, cw_image_png, cw_image_webp;

/* Fails unless the file's height and width are in 1 .. and their product is at most max_pixels. */
int cw_image_check_size(const struct cw_image *im, struct cw_error *err) _must_check_;

struct cw_convert {
    int from, to;            /* channels: 1, 2 (grey, alpha), 3, 4 */
    bool from_wide, to_wide; /* uint16 values */
    bool cmyk;               /* the 4 are CMYK and are to become something else */
};

/* A row of n pixels, from and to as in docs/pixels.md section 5. dst and src must not overlap. */
void cw_convert_row(const struct cw_convert *c, void *dst, const void *src, size_t n);
/* True when the conversion copies bytes. */
bool cw_convert_is_copy(const struct cw_convert *c);

/* Turns: dst gets the rectangle `want` (as delivered) of the image whose rectangle src (file's coordinates;
 * cw_orient_rect(want)) was decoded. */
void cw_orient_copy(int orientation, void *dst, size_t dst_stride, int64_t h, int64_t w, const void *src,
                    size_t src_stride, size_t pixel_bytes);
/* The file's rectangle under a rectangle of the image as delivered. */
struct cw_rect cw_orient_rect(int orientation, int64_t file_height, int64_t file_width,
                              const struct cw_rect *r);
