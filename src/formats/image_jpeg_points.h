/*
 * Entry points of a JPEG's compressed data: from each of them, decoding can begin without the codes
 * before it. A table of them is recorded while an image is decoded. With the table, decoding the same
 * image again skips MCUs (blocks of the image) that a crop does not need, without reading their codes.
 *
 * There is an entry point at each MCU whose number, from the top left, is a multiple of `step`. A table
 * covers the MCUs that were decoded without damage, from the first one on; decoding beyond it makes it
 * grow.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/image_jpeg_entropy.h"

/* A table's bytes are at most 1/CW_JPEG_POINTS_SHARE of the file's, and at most CW_JPEG_POINTS_MOST. */
#define CW_JPEG_POINTS_SHARE 50
#define CW_JPEG_POINTS_MOST ((size_t)4000)
#define CW_JPEG_POINTS_BUFFER (CW_JPEG_POINTS_MOST + 32) /* room for an entry point that is one too many */

struct cw_jpeg_points {
    uint8_t *table; /* `room` bytes, of which `size` are used: see image_jpeg_points.c */
    size_t size, room, read;
    /* MCUs between entry points; MCUs that the table covers, and that it covered at first */
    uint32_t step, known, had;
    /* numbers of MCUs: libjpeg requests `next`, in `column`; the decoder stands before `at`, and `stop`
     * is the next entry point from there on */
    uint32_t next, at, stop, column, columns, first, last;
    struct cw_jpeg_place entry;     /* entry point stop / step - 1 */
    bool full;                      /* nothing more is recorded */
    cw_jpeg_decode_mcu *decode_mcu; /* the installed decoder's */
};

/* Prepares decoding the columns [left, left + width) of an image, whose decoder
 * (cw_jpeg_entropy_install) is installed. table: CW_JPEG_POINTS_BUFFER bytes, of which the first `size`
 * are a table that belongs to the file; 0: there is none. The caller then installs a function that calls
 * cw_jpeg_points_mcu. */
void cw_jpeg_points_begin(struct cw_jpeg_points *t, struct jpeg_decompress_struct *d, size_t file_size,
                          JDIMENSION left, JDIMENSION width, uint8_t *table, size_t size);
/* Decodes the next MCU, or skips it if it is not wanted and the table covers it. False: the table is not
 * that of the image. */
bool cw_jpeg_points_mcu(struct cw_jpeg_points *t, struct jpeg_decompress_struct *d, JBLOCKROW *blocks);
/* Returns whether the table covers the first n rows of MCUs, so that they are known to be undamaged. */
bool cw_jpeg_points_cover(const struct cw_jpeg_points *t, int64_t n);
/* Completes the table, after the last MCU and without damage so far. Returns its size; 0: it has not
 * grown. */
size_t cw_jpeg_points_end(struct cw_jpeg_points *t);
