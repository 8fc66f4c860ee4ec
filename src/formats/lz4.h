/* Decompresses LZ4 data with liblz4, which is optional. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The library that a build without LZ4 lacks; NULL: it has it. */
extern const char *const cw_lz4_lacks;

/* Decompresses a frame, or a bare block, whose output has exactly out_size bytes. False: it is damaged. */
bool cw_lz4_frame(const uint8_t *data, size_t size, uint8_t *out, size_t out_size);
bool cw_lz4_block(const uint8_t *data, size_t size, uint8_t *out, size_t out_size);
