/* Stands for lz4.c in a build without liblz4: nothing can be decompressed. */
#include "base/macro.h"
#include "formats/lz4.h"

const char *const cw_lz4_lacks = "liblz4";

bool cw_lz4_frame(const uint8_t *data CW_UNUSED, size_t size CW_UNUSED, uint8_t *out CW_UNUSED,
                  size_t out_size CW_UNUSED)
{
    return false;
}

bool cw_lz4_block(const uint8_t *data CW_UNUSED, size_t size CW_UNUSED, uint8_t *out CW_UNUSED,
                  size_t out_size CW_UNUSED)
{
    return false;
}
