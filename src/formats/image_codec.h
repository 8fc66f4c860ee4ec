/* The interface between image.c and the codecs, and the conversions of rows that the codecs share. */
#pragma once
#include "formats/image.h"

struct cw_convert {
    int from, to;            /* numbers of channels: 1, 2 (grey, alpha), 3, 4 */
    bool from_wide, to_wide; /* true: uint16 values; false: uint8 */
    bool cmyk;               /* the four channels `from` are CMYK and must be converted */
};

/* One decoding of an image. Rectangles are in the file's coordinates (before rotation) and within the image.
 */
struct cw_image_job {
    struct cw_rect want, needed;
    const struct cw_image_rows *rows; /* receives the rows in the order of the file; y counts from want.y */
    /* Filled in by the codec's plan: */
    struct cw_convert convert; /* to and to_wide are set by the caller */
    size_t library_bytes;      /* bytes that the library allocates at most */
    size_t scratch_bytes;      /* bytes of scratch memory that decode needs */
    /* Memory for the codec's decode: */
    uint8_t *scratch;   /* scratch_bytes bytes, aligned to 64 */
    uint8_t *converted; /* room for a converted row and the rows->slack bytes after it */
};

struct cw_image_codec {
    const char *name;
    /* Returns whether the data begin like a file of this format. */
    bool (*matches)(const uint8_t *data, size_t size);
    /* Fills in file_*, cmyk and (JPEG) orientation from the headers. After a failure nothing stays allocated.
     */
    int (*open)(struct cw_image *im, struct cw_error *err);
    /* From now on, the image is decoded at 1/by (2, 4 or 8) of its size. NULL: the format can't. */
    void (*reduce)(struct cw_image *im, int by);
    void (*plan)(struct cw_image *im, struct cw_image_job *job);
    /* Passes the wanted rows to cw_image_put. */
    int (*decode)(struct cw_image *im, const struct cw_image_job *job, struct cw_error *err);
    void (*close)(struct cw_image *im);
};

extern const struct cw_image_codec cw_image_jpeg, cw_image_png, cw_image_webp;

/* CW_E_RECORD unless the file's height and width are at least 1 and their product is at most max_pixels. */
int cw_image_check_size(const struct cw_image *im, struct cw_error *err) _must_check_;

/* Converts a row of n pixels as docs/pixels.md, section 5, defines. dst and src must not overlap. */
void cw_convert_row(const struct cw_convert *c, void *dst, const void *src, size_t n);
/* Returns whether the conversion leaves all bytes unchanged. */
bool cw_convert_is_copy(const struct cw_convert *c);
/* Converts row y of the file and passes it to job->rows. `pixels`: the first wanted pixel of the row; after
 * the wanted pixels rows->slack more bytes must be readable. */
void cw_image_put(const struct cw_image_job *job, int64_t y, uint8_t *pixels);
