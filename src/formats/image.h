/*
 * Still images: JPEG, PNG and WebP from memory into the caller's memory, all of it or a rectangle. What comes
 * out, to the bit, and what counts as damaged is docs/pixels.md. A reader belongs to one thread at a time and
 * lives on the caller's stack.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/arena.h"

struct cw_rect {
    int64_t y, x, h, w;
}; /* rows y .. y+h-1, columns x .. x+w-1 */

struct cw_image_options {
    int channels;        /* 0: as stored; 1, 3, 4 */
    bool wide;           /* uint16 values, else uint8 */
    bool orientation;    /* turn as the EXIF tag says */
    uint64_t max_pixels; /* more is an error */
};

struct cw_image_codec;

struct cw_image {
    const struct cw_image_codec *codec; /* NULL: closed */
    const char *format;                 /* "JPEG", "PNG", "WebP" */
    int64_t height, width;              /* as delivered: after the orientation */
    int channels;                       /* as delivered */
    int64_t file_height, file_width;    /* as stored */
    int file_channels;                  /* as stored: 4 is RGBA, or CMYK where cmyk is set */
    bool file_wide, cmyk;
    int orientation; /* 1..8; 1 where it is not wanted */
    struct cw_image_options options;
    const uint8_t *data;
    size_t size;
    _Alignas(16) uint8_t state[2048]; /* the codec's */
};

/* Reads the headers of the image in data (which must stay until close). CW_E_RECORD: not an image, damaged,
 * too large, or of a kind that is not supported; CW_E_MEMORY. On failure nothing is left open. */
int cw_image_open(struct cw_image *im, const void *data, size_t size, const struct cw_image_options *options,
                  struct cw_error *err) _must_check_;

/* Decodes the rectangle `want` (of the image as delivered; NULL: all) into dst: rows of want->w * channels
 * values, stride bytes apart. Once per open. `needed` (as delivered; NULL: all) is the part whose damage
 * counts; it need not hold `want`. Scratch comes from the arena (released again), memory that the libraries
 * allocate is charged to it meanwhile. CW_E_RECORD, CW_E_MEMORY, CW_E_BUDGET; then dst holds nothing useful.
 */
int cw_image_decode(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed, void *dst,
                    size_t stride, struct cw_arena *arena, struct cw_error *err) _must_check_;

/* The same row by row, for callers that use each row while it lies in the cache: put gets row y of `want`
 * (counting from 0, in order); pixels are its own during the call, with `slack` readable bytes behind them.
 * After a failure no more rows come. */
struct cw_image_rows {
    void (*put)(void *arg, int64_t y, const uint8_t *pixels);
    void *arg;
    size_t slack;
};

int cw_image_decode_rows(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed,
                         const struct cw_image_rows *rows, struct cw_arena *arena,
                         struct cw_error *err) _must_check_;

/* Does nothing to a closed one. */
void cw_image_close(struct cw_image *im);

/* The orientation (1..8) in the TIFF data of a JPEG file's EXIF segment; 1 where there is none or the data
 * are damaged. */
int cw_exif_orientation(const uint8_t *data, size_t size);
