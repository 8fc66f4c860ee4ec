/* Writing images: contact sheets, thumbnails, sets of photographs. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Writes h x w pixels of 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGBA) bytes, row after row, as a PNG file.
 * CW_E_IO, CW_E_MEMORY, CW_E_BUG; a file that could not be completed is removed. */
int cw_png_write(const char *path, size_t h, size_t w, int channels, const void *data,
                 struct cw_error *err) _must_check_;
/* The same in memory. The caller frees *ret. CW_E_MEMORY, CW_E_BUG. */
int cw_png_encode(size_t h, size_t w, int channels, const void *data, uint8_t **ret, size_t *ret_size,
                  struct cw_error *err) _must_check_;
/* Encodes h x w RGB pixels as a baseline JPEG (4:2:0, quality 1 to 100). The caller frees *ret, after an
 * error too. CW_E_MEMORY, CW_E_BUG. */
int cw_jpeg_encode(size_t h, size_t w, const uint8_t *rgb, int quality, uint8_t **ret, size_t *ret_size,
                   struct cw_error *err) _must_check_;
