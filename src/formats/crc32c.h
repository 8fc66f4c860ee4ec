/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as TFRecord uses it. Uses the CPU's CRC instruction
 * if it has one, which is found out at run time. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of size bytes. */
uint32_t cw_crc32c(const void *data, size_t size);
/* Continues a CRC: returns the CRC of the earlier bytes, whose CRC is `crc` (0: none), followed by size
 * bytes. Uses no CRC instruction: a reference for tests. */
uint32_t cw_crc32c_portable(uint32_t crc, const void *data, size_t size);

/* Returns the masked form of a CRC that TFRecord stores. A CRC of data that contains unmasked CRCs of
 * themselves would detect errors badly. */
static inline uint32_t cw_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}
