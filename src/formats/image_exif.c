/* The orientation tag of a JPEG file's EXIF data: a TIFF reader of our own, bounded by the segment it reads.
 * Any thread; no state. */
#include <string.h>

#include "formats/image.h"

struct tiff {
    const uint8_t *data;
    size_t size;
    bool little;
};

static uint32_t exif_u16(const struct tiff *t, size_t at)
{
    const uint8_t *p = t->data + at;
    return t->little ? p[0] | (uint32_t)p[1] << 8 : p[1] | (uint32_t)p[0] << 8;
}

static uint32_t exif_u32(const struct tiff *t, size_t at)
{
    return t->little ? exif_u16(t, at) | exif_u16(t, at + 2) << 16
                     : exif_u16(t, at + 2) | exif_u16(t, at) << 16;
}

/* Tag 0x0112 of the first image file directory (TIFF 6.0 section 2: 12 bytes an entry: tag, type, count,
 * value). */
static int exif_orientation(const struct tiff *t)
{
    if (t->size < 8 || exif_u16(t, 2) != 42)
        return 1;
    size_t at = exif_u32(t, 4);
    if (at > t->size - 2)
        return 1;
    size_t n = exif_u16(t, at);
    at += 2;
    for (size_t i = 0; i < n && t->size - at >= 12; i++, at += 12) {
        if (exif_u16(t, at) != 0x0112)
            continue;
        uint32_t type = exif_u16(t, at + 2), count = exif_u32(t, at + 4);
        /* SHORT or LONG */
        uint32_t value = type == 3 ? exif_u16(t, at + 8) : type == 4 ? exif_u32(t, at + 8) : 0;
        return count == 1 && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

int cw_exif_orientation(const uint8_t *data, size_t size)
{
    size_t at = 2; /* after SOI */
    while (at + 4 <= size) {
        if (data[at] != 0xFF) { /* as libjpeg: what is no marker is skipped */
            at++;
            continue;
        }
        uint8_t marker = data[at + 1];
        if (marker == 0xFF || marker == 0x00 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
            at += marker == 0xFF ? 1 : 2; /* a fill byte; stuffing; markers without a segment */
            continue;
        }
        if (marker == 0xDA || marker == 0xD9)
            return 1;
        size_t length = (size_t)data[at + 2] << 8 | data[at + 3];
        if (length < 2 || at + 2 + length > size)
            return 1;
        const uint8_t *p = data + at + 4;
        if (marker == 0xE1 && length >= 8 && memcmp(p, "Exif\0\0", 6) == 0) {
            struct tiff t = {.data = p + 6, .size = length - 8};
            if (t.size >= 2)
                t.little = t.data[0] == 'I';
            if (t.size < 2 || t.data[0] != t.data[1] || (t.data[0] != 'I' && t.data[0] != 'M'))
                return 1;
            return exif_orientation(&t);
        }
        at += 2 + length;
    }
    return 1;
}
