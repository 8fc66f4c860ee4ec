/* Huffman decoding of baseline JPEG, which replaces libjpeg's: it gives the same coefficients in half of the
 * time (docs/jpeg.md). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "base/macro.h"

/* Returns whether this decoder can decode an image, after jpeg_read_header: Huffman, sequential, one scan, 8
 * bits. */
bool cw_jpeg_entropy_fits(const struct jpeg_decompress_struct *d) _pure_;

/* Returns the bytes of the decoder's state, which the caller keeps until the image is decoded. */
size_t cw_jpeg_entropy_bytes(void) _pure_;

/*
 * Replaces libjpeg's decoder. Call this after jpeg_start_decompress and jpeg_crop_scanline, before the first
 * row is read. It uses d->client_data. Coefficients are stored only for the columns [left, left + width) of
 * the image, which must include the columns that jpeg_crop_scanline kept; in other columns they are only
 * skipped over. Damage is reported with libjpeg's warnings and errors, in skipped MCUs (blocks of the image)
 * as well.
 */
void cw_jpeg_entropy_install(struct jpeg_decompress_struct *d, void *state, JDIMENSION left,
                             JDIMENSION width);

/* The function that decodes an MCU, which libjpeg calls. */
typedef boolean cw_jpeg_decode_mcu(j_decompress_ptr d, JBLOCKROW *blocks);
cw_jpeg_decode_mcu *cw_jpeg_entropy_get(const struct jpeg_decompress_struct *d) _pure_;
void cw_jpeg_entropy_set(struct jpeg_decompress_struct *d, cw_jpeg_decode_mcu *function);

/* A place between two MCUs of the compressed data, from which decoding can go on. */
struct cw_jpeg_place {
    uint64_t bit; /* where the next MCU begins: bits of the file from the scan's first byte */
    int32_t dc[MAX_COMPS_IN_SCAN]; /* by component: the DC coefficient of the last block */
};

/* Sets *ret to the place of the next MCU. False: it is not known, because the data ended before it, or
 * because bytes were left out that are no data. state: the decoder's, which is installed. */
bool cw_jpeg_entropy_place(void *state, struct cw_jpeg_place *ret);
/* Goes on at a place, which begins an MCU in a column of MCUs. Any place is memory-safe; a wrong one gives
 * wrong coefficients or warnings. False: it is not within the data; nothing has changed. */
bool cw_jpeg_entropy_seek(void *state, const struct cw_jpeg_place *place, JDIMENSION column);
