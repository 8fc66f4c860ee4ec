/* Reads the orientation tag of a JPEG file's EXIF data with a small TIFF reader, which never reads outside
 * the segment. Any thread; no state. */
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

/* Returns tag 0x0112 of the first image file directory. An entry of the directory has 12 bytes: tag, type,
 * count, value (TIFF 6.0, section 2). */
int cw_exif_orientation(const uint8_t *data, size_t size)
{
    const struct tiff t = {.data = data, .size = size, .little = size && data[0] == 'I'};
    if (size < 8 || data[0] != data[1] || (data[0] != 'I' && data[0] != 'M') || exif_u16(&t, 2) != 42)
        return 1;
    size_t at = exif_u32(&t, 4);
    if (at > size - 2)
        return 1;
    size_t n = exif_u16(&t, at);
    at += 2;
    for (size_t i = 0; i < n && size - at >= 12; i++, at += 12) {
        if (exif_u16(&t, at) != 0x0112)
            continue;
        uint32_t type = exif_u16(&t, at + 2), count = exif_u32(&t, at + 4);
        /* SHORT or LONG */
        uint32_t value = type == 3 ? exif_u16(&t, at + 8) : type == 4 ? exif_u32(&t, at + 8) : 0;
        return count == 1 && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
