/*
 * Decodes still images (JPEG, PNG and WebP) from memory into the caller's memory, all of an image or a
 * rectangle of it. docs/pixels.md defines the resulting pixels, bit by bit, and what counts as damaged. Only
 * one thread at a time may use a struct cw_image, which usually lies on the caller's stack.
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
    int channels;        /* 0: as stored; else 1, 3 or 4 */
    bool wide;           /* true: uint16 values; false: uint8 */
    bool orientation;    /* rotate and mirror the image as its EXIF tag says */
    uint64_t max_pixels; /* an image with more pixels is an error */
};

struct cw_image_codec;
struct cw_memo; /* storage/memo.h */

struct cw_image {
    const struct cw_image_codec *codec; /* NULL: closed */
    const char *format;                 /* "JPEG", "PNG", "WebP" */
    int64_t height, width;              /* as delivered: after the orientation */
    int channels;                       /* as delivered */
    int64_t file_height, file_width;    /* as stored, but for reduced_by */
    int file_channels;                  /* as stored: 4 is RGBA, or CMYK where cmyk is set */
    bool file_wide, cmyk;
    int reduced_by;  /* 2, 4 or 8: decoded at that part of the size, in height and width; else 1 */
    int orientation; /* the EXIF orientation that is applied, 1..8; 1: none, or not requested */
    struct cw_image_options options;
    const uint8_t *data;
    size_t size;
    /* Set by the caller after cw_image_open: where the entry points of JPEGs are kept (image_jpeg_points.h).
     * NULL: nowhere. memo_wrong: what it holds for this image is wrong, and is to be replaced */
    struct cw_memo *memo;
    bool memo_wrong;
    _Alignas(16) uint8_t state[2048]; /* the codec's */
};

/* Reads the headers of an image; data must stay valid until cw_image_close. CW_E_RECORD: not an image,
 * damaged, too large, or of a kind that is not supported. After a failure *im is closed. */
int cw_image_open(struct cw_image *im, const void *data, size_t size, const struct cw_image_options *options,
                  struct cw_error *err) _must_check_;

/* Reduces the height and the width to 1/by (2, 4 or 8), rounded up: the decoder computes fewer pixels. May be
 * called once, directly after cw_image_open. Does nothing in a format that can't (all but JPEG). */
void cw_image_reduce(struct cw_image *im, int by);

/* Decodes the rectangle `want` (NULL: all) into dst: rows of want->w * channels values, stride bytes apart.
 * May be called once after cw_image_open. `needed` (NULL: all) is the part of the image in which damage is an
 * error; it need not contain `want`. Both rectangles are in the coordinates of the image as delivered.
 * Scratch memory comes from the arena and is released again; memory that the libraries allocate is charged to
 * the arena during the call. CW_E_RECORD, CW_E_MEMORY, CW_E_BUDGET: the content of dst is undefined. 1: so it
 * is too, because im->memo gave wrong entry points; the caller decodes once more, with memo_wrong set. */
int cw_image_decode(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed, void *dst,
                    size_t stride, struct cw_arena *arena, struct cw_error *err) _must_check_;

struct cw_image_rows {
    /* Receives row y of `want`, from 0 on in ascending order. pixels is valid during the call only. */
    void (*put)(void *arg, int64_t y, const uint8_t *pixels);
    void *arg;
    size_t slack; /* bytes after a row's pixels that put may read, too */
};

/* Like cw_image_decode, but passes each row to rows->put as soon as it is decoded, while it is in the CPU's
 * cache. After a failure, or the result 1, put is not called any more. */
int cw_image_decode_rows(struct cw_image *im, const struct cw_rect *want, const struct cw_rect *needed,
                         const struct cw_image_rows *rows, struct cw_arena *arena,
                         struct cw_error *err) _must_check_;

/* Frees the codec's memory. Does nothing if the image is closed. */
void cw_image_close(struct cw_image *im);

/* Returns the orientation (1..8) that the TIFF data of a JPEG file's EXIF segment state; 1 if they state none
 * or are damaged. */
int cw_exif_orientation(const uint8_t *data, size_t size);
