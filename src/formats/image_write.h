/* Writing images: contact sheets and `--save`. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Writes h x w pixels of 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGBA) bytes, row after row, as a PNG file.
 * CW_E_IO, CW_E_MEMORY, CW_E_BUG; a file that could not be completed is removed. */
int cw_png_write(const char *path, size_t h, size_t w, int channels, const void *data,
                 struct cw_error *err) _must_check_;
