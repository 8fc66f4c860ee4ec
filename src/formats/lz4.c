/* Pure functions. */
#include "formats/lz4.h"

#include <limits.h>
#include <lz4.h>
#include <lz4frame.h>

const char *const cw_lz4_lacks = NULL;

bool cw_lz4_frame(const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
    LZ4F_dctx *d = NULL;
    size_t made = 0, at = 0, more = 1;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&d, LZ4F_VERSION)))
        return false;
    while (more != 0 && at < size) { /* 0: the frame has ended */
        size_t to = out_size - made, from = size - at;
        more = LZ4F_decompress(d, out + made, &to, data + at, &from, NULL);
        if (LZ4F_isError(more) || (to == 0 && from == 0))
            break;
        made += to;
        at += from;
    }
    LZ4F_freeDecompressionContext(d);
    return more == 0 && made == out_size;
}

bool cw_lz4_block(const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
    return size <= INT_MAX && out_size <= INT_MAX &&
           LZ4_decompress_safe((const char *)data, (char *)out, (int)size, (int)out_size) == (int)out_size;
}
