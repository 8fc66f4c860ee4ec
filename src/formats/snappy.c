/* A block begins with its decompressed size (a varint), followed by literals and copies of earlier output. */
#include "formats/snappy.h"

#include <string.h>

/* Copies `length` bytes from `offset` bytes before `to`. The two may overlap; then the bytes repeat. */
static void snappy_copy(uint8_t *to, size_t offset, size_t length, size_t room)
{
    const uint8_t *from = to - offset;
    if (offset >= 8 && room >= length + 8) { /* up to 7 bytes after the copy are overwritten later */
        for (size_t i = 0; i < length; i += 8)
            memcpy(to + i, from + i, 8);
        return;
    }
    for (size_t i = 0; i < length; i++)
        to[i] = from[i];
}

/* Reads the length of a literal (tag) at *p. */
static size_t snappy_literal(const uint8_t **p, const uint8_t *end, uint8_t tag)
{
    size_t length = tag >> 2, bytes = length < 60 ? 0 : length - 59;
    if (bytes == 0)
        return length + 1;
    if ((size_t)(end - *p) < bytes)
        return 0;
    length = 0;
    memcpy(&length, *p, bytes);
    *p += bytes;
    return length + 1;
}

int cw_snappy_decompress(const uint8_t *p, size_t size, uint8_t *out, size_t out_size)
{
    const uint8_t *end = p + size;
    uint64_t stated = 0;
    size_t at = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (p == end || shift > 28)
            return -1;
        stated |= (uint64_t)(*p & 127) << shift;
        if (!(*p++ & 128))
            break;
    }
    if (stated != out_size)
        return -1;
    while (p < end) {
        uint8_t tag = *p++;
        size_t length, offset = 0, left = (size_t)(end - p);
        if ((tag & 3) == 0) {
            length = snappy_literal(&p, end, tag);
            if (length == 0 || length > (size_t)(end - p) || length > out_size - at)
                return -1;
            memcpy(out + at, p, length);
            p += length;
            at += length;
            continue;
        }
        size_t bytes = (tag & 3) == 3 ? 4 : (tag & 3);
        if (left < bytes)
            return -1;
        memcpy(&offset, p, bytes); /* little-endian */
        p += bytes;
        length = (size_t)(tag >> 2) + 1;
        if ((tag & 3) == 1) {
            length = (size_t)(tag >> 2 & 7) + 4;
            offset |= (size_t)(tag >> 5) << 8;
        }
        if (offset == 0 || offset > at || length > out_size - at)
            return -1;
        snappy_copy(out + at, offset, length, out_size - at);
        at += length;
    }
    return at == out_size ? 0 : -1;
}
