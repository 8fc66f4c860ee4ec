/* Decompression of Snappy blocks (https://github.com/google/snappy, format_description.txt). */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Decompresses a block of which the decompressed size is known. Returns 0; -1: the block is damaged, or has
 * another size. */
int cw_snappy_decompress(const uint8_t *data, size_t size, uint8_t *out, size_t out_size);
