/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as TFRecord uses it. Hardware where the CPU has it,
 * found at run time. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* CRC of size bytes. */
uint32_t cw_crc32c(const void *data, size_t size);
/* CRC of what gave crc (0: nothing) followed by size bytes, without hardware: reference for tests. */
uint32_t cw_crc32c_portable(uint32_t crc, const void *data, size_t size);

/* The masked form that TFRecord stores, so that a CRC of data that holds CRCs stays good. */
static inline uint32_t cw_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}
