/* Huffman decoding of baseline JPEG in place of libjpeg's: the same coefficients in two thirds to three
 * quarters of the time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

#include "base/macro.h"

/* Whether the image at hand (jpeg_read_header was called) is one for it: Huffman, sequential, one scan, 8
 * bits, no restart markers. */
bool cw_jpeg_entropy_fits(const struct jpeg_decompress_struct *d) _pure_;

size_t cw_jpeg_entropy_bytes(void) _pure_; /* of its state, to be kept until the image is done */

/*
 * Call after jpeg_start_decompress and jpeg_crop_scanline, before any row is read; takes d->client_data.
 * Coefficients are made for the columns [left, left + width) of the image, which must cover what
 * jpeg_crop_scanline left; others are passed over. Damage is reported as by libjpeg, by its warnings and
 * errors, and in every MCU alike, passed over or not.
 */
void cw_jpeg_entropy_install(struct jpeg_decompress_struct *d, void *state, JDIMENSION left,
                             JDIMENSION width);
