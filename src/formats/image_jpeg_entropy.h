/* Huffman decoding of baseline JPEG, which replaces libjpeg's: it gives the same coefficients in half of the
 * time (docs/jpeg.md). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
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
