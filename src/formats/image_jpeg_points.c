/*
 * A table is the number of MCUs that it covers (32 bits, the machine's byte order), and the entry points
 * 1 .. (covered - 1) / step, each as differences from the one before it: the bits, then the DC
 * coefficient of each component (zigzag), in groups of 7 bits, the lowest first. Entry point 0 is the
 * beginning of the scan. The step follows from the sizes of the file and of the image.
 */
#include "formats/image_jpeg_points.h"

#include <string.h>

#define HEAD sizeof(uint32_t)
#define ENTRY_BYTES 6 /* bytes that an entry point is assumed to take; of photographs it takes 5 */

/* ---- the table ---- */

static bool points_get(struct cw_jpeg_points *t, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned shift = 0; t->read < t->size && shift < 64; shift += 7) {
        uint8_t byte = t->table[t->read++];
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *ret = v;
            return true;
        }
    }
    return false;
}

/* Reads the entry point after t->entry into t->entry. */
static bool points_read(struct cw_jpeg_points *t, int components)
{
    uint64_t v;
    if (!points_get(t, &v))
        return false;
    t->entry.bit += v;
    for (int i = 0; i < components; i++) {
        if (!points_get(t, &v))
            return false;
        t->entry.dc[i] = (int32_t)((uint32_t)t->entry.dc[i] + ((uint32_t)(v >> 1) ^ -(uint32_t)(v & 1)));
    }
    t->stop += t->step;
    return true;
}

static void points_put(struct cw_jpeg_points *t, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        t->table[t->size++] = (uint8_t)(v | 128);
    t->table[t->size++] = (uint8_t)v;
}

/* Appends an entry point. */
static void points_write(struct cw_jpeg_points *t, int components, const struct cw_jpeg_place *place)
{
    points_put(t, place->bit - t->entry.bit);
    for (int i = 0; i < components; i++) {
        uint32_t diff = (uint32_t)place->dc[i] - (uint32_t)t->entry.dc[i];
        points_put(t, (diff << 1) ^ -(diff >> 31));
    }
    t->entry = *place;
    t->read = t->size;
    t->stop += t->step;
}

/* ---- decoding ---- */

void cw_jpeg_points_begin(struct cw_jpeg_points *t, struct jpeg_decompress_struct *d, size_t file_size,
                          JDIMENSION left, JDIMENSION width, uint8_t *table, size_t size)
{
    JDIMENSION mcu = (JDIMENSION)(d->comps_in_scan == 1 ? 1 : d->max_h_samp_factor) * DCTSIZE;
    uint64_t mcus = (uint64_t)d->MCUs_per_row * d->MCU_rows_in_scan;
    *t = (struct cw_jpeg_points){.table = table,
                                 .size = CW_MAX(size, HEAD),
                                 .room = CW_MIN(file_size / CW_JPEG_POINTS_SHARE, CW_JPEG_POINTS_MOST),
                                 .read = HEAD,
                                 .columns = d->MCUs_per_row,
                                 .first = left / mcu,
                                 .last = (left + width - 1) / mcu,
                                 .decode_mcu = cw_jpeg_entropy_get(d)};
    size_t entries = CW_MAX(t->room, HEAD + ENTRY_BYTES) - HEAD;
    t->step = t->stop = (uint32_t)((mcus * ENTRY_BYTES + entries - 1) / entries);
    if (size >= HEAD)
        memcpy(&t->known, table, HEAD);
    t->known = t->had = (uint32_t)CW_MIN(t->known, mcus);
    cw_jpeg_entropy_place(d->client_data, &t->entry);
}

/* At an entry point: compares it with the table, or appends it. */
static bool points_stop(struct cw_jpeg_points *t, struct jpeg_decompress_struct *d)
{
    struct cw_jpeg_place place;
    bool placed = cw_jpeg_entropy_place(d->client_data, &place);
    if (t->at < t->known)
        return placed && points_read(t, d->comps_in_scan) && place.bit == t->entry.bit &&
               memcmp(place.dc, t->entry.dc, (size_t)d->comps_in_scan * sizeof(*place.dc)) == 0;
    if (t->read != t->size) /* the table has more entry points than it should */
        return false;
    size_t size = t->size;
    points_write(t, d->comps_in_scan, &place);
    if (placed && t->size <= t->room)
        return true;
    t->size = size;
    t->known = t->at;
    t->stop = UINT32_MAX;
    t->full = true;
    return true;
}

static bool points_decode(struct cw_jpeg_points *t, struct jpeg_decompress_struct *d, JBLOCKROW *blocks)
{
    if (CW_UNLIKELY(t->at == t->stop) && !points_stop(t, d))
        return false;
    t->at++;
    t->decode_mcu(d, blocks);
    return true;
}

/* Brings the decoder to MCU n: from the last entry point before it, if that is nearer than where it
 * stands. */
static bool points_reach(struct cw_jpeg_points *t, struct jpeg_decompress_struct *d, uint32_t n)
{
    uint32_t entry = CW_MIN(n, t->known - 1) / t->step * t->step;
    if (entry > t->at) {
        while (t->stop <= entry)
            if (!points_read(t, d->comps_in_scan))
                return false;
        t->at = entry;
        if (!cw_jpeg_entropy_seek(d->client_data, &t->entry, entry % t->columns))
            return false;
    }
    while (t->at < n)
        if (!points_decode(t, d, NULL))
            return false;
    return true;
}

bool cw_jpeg_points_mcu(struct cw_jpeg_points *t, struct jpeg_decompress_struct *d, JBLOCKROW *blocks)
{
    uint32_t n = t->next++;
    bool wanted = blocks && t->column >= t->first && t->column <= t->last;
    t->column = t->column + 1 < t->columns ? t->column + 1 : 0;
    if (n < t->known && !wanted)
        return true;
    return (t->at == n || points_reach(t, d, n)) && points_decode(t, d, blocks);
}

bool cw_jpeg_points_cover(const struct cw_jpeg_points *t, int64_t n)
{
    return n * t->columns <= t->known;
}

size_t cw_jpeg_points_end(struct cw_jpeg_points *t)
{
    uint32_t covered = t->full ? t->known : CW_MAX(t->at, t->known);
    if (covered <= t->had)
        return 0;
    memcpy(t->table, &covered, HEAD);
    return t->size;
}
