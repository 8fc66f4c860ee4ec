/* TFRecord framing: walking streams and checking records. Any thread; only one thread at a time may use a
 * walk. */
#include "formats/tfrecord.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "formats/crc32c.h"

/* From this length of data on, the data are skipped: the walk reads only the CRC after the data and the
 * header of the next record, 16 bytes. That is cheaper, because copying 32 KiB takes longer than a separate
 * read of a cached page. */
#define SPARSE_LENGTH ((uint64_t)32 << 10)

static uint32_t tfrecord_load32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t tfrecord_load64(const uint8_t *p)
{
    return tfrecord_load32(p) | (uint64_t)tfrecord_load32(p + 4) << 32;
}

/* Sets the error of a damaged record. The message names the record by its number in the file. Its id can't be
 * given: the id contains a hash of the whole file, which is not read to its end yet. */
__attribute__((format(printf, 3, 4))) static int tfrecord_damaged(const struct cw_tfrecord_walk *w,
                                                                  struct cw_error *err, const char *fmt, ...)
{
    char number[24], what[200];
    snprintf(number, sizeof(number), "%zu", w->base.list.n);
    CW_FORMAT(what, fmt);
    cw_error_record(err, number);
    return cw_error_at_file(err, CW_E_DATA, w->base.path, 0, "%s: record %s at byte %" PRIu64 "%s",
                            w->base.path, number, w->base.start, what);
}

static int tfrecord_header(struct cw_tfrecord_walk *w, struct cw_error *err)
{
    uint64_t length = tfrecord_load64(w->stash);
    uint32_t stored = tfrecord_load32(w->stash + 8), computed = cw_tfrecord_length_crc(length);
    if (stored != computed)
        return tfrecord_damaged(w, err,
                                ": the checksum of its length does not match (stored %08x, computed %08x): "
                                "the file is damaged, or is not a TFRecord file",
                                stored, computed);
    if (length > (uint64_t)INT64_MAX - CW_TFRECORD_FRAME ||
        w->base.start > (uint64_t)INT64_MAX - CW_TFRECORD_FRAME - length)
        return tfrecord_damaged(w, err, " has an impossible length, %" PRIu64 " bytes: the file is damaged",
                                length);
    uint64_t end = w->base.start + CW_TFRECORD_FRAME + length;
    if (end > w->base.stream_size)
        return tfrecord_damaged(w, err,
                                ": its %" PRIu64 " bytes of data run past the end of the file (%" PRIu64
                                " bytes): is the file truncated?",
                                length, w->base.stream_size);
    w->length = length;
    w->base.wanted = end - 4;
    w->in_tail = true;
    w->have = 0;
    return 0;
}

static int tfrecord_tail(struct cw_tfrecord_walk *w, struct cw_error *err)
{
    int r = cw_record_list_add(&w->base.list, w->base.start, w->length, tfrecord_load32(w->stash), err);
    w->base.start = w->base.wanted;
    w->in_tail = false;
    w->have = 0;
    return r;
}

static int tfrecord_feed(struct cw_walk *base, uint64_t at, const uint8_t *data, size_t size,
                         struct cw_error *err)
{
    struct cw_tfrecord_walk *w = (struct cw_tfrecord_walk *)base;
    uint64_t end = at + size;
    while (base->wanted < end) {
        unsigned need = w->in_tail ? 4 : CW_TFRECORD_HEADER;
        unsigned n = (unsigned)CW_MIN((uint64_t)(need - w->have), end - base->wanted);
        memcpy(w->stash + w->have, data + (base->wanted - at), n);
        w->have += n;
        base->wanted += n;
        if (w->have < need)
            break;
        int r = w->in_tail ? tfrecord_tail(w, err) : tfrecord_header(w, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int tfrecord_end_of_stream(struct cw_walk *base, uint64_t size, struct cw_error *err)
{
    if (base->start == size)
        return 0;
    return tfrecord_damaged((struct cw_tfrecord_walk *)base, err,
                            ": the file ends inside this record, at byte %" PRIu64 ": the file is truncated",
                            size);
}

/* Returns how many bytes to read next (walk.h). After the header of a large record that is 16: the CRC after
 * the data, and the next header; the data are skipped. 0: fill the buffer. */
static size_t tfrecord_stride(const struct cw_walk *base)
{
    const struct cw_tfrecord_walk *w = (const struct cw_tfrecord_walk *)base;
    return w->in_tail && w->length >= SPARSE_LENGTH ? 4 + CW_TFRECORD_HEADER : 0;
}

void cw_tfrecord_walk_init(struct cw_tfrecord_walk *w, const char *path, uint64_t stream_size)
{
    static const struct cw_walk_ops ops = {
        .feed = tfrecord_feed, .end = tfrecord_end_of_stream, .stride = tfrecord_stride};
    *w = (struct cw_tfrecord_walk){.base = {.ops = &ops, .path = path, .stream_size = stream_size}};
}

bool cw_tfrecord_is_header(const uint8_t *data, size_t size)
{
    return size >= CW_TFRECORD_HEADER && tfrecord_load32(data + 8) == cw_crc32c_mask(cw_crc32c(data, 8));
}

uint32_t cw_tfrecord_length_crc(uint64_t length)
{
    length = htole64(length);
    return cw_crc32c_mask(cw_crc32c(&length, 8));
}

const char *cw_tfrecord_check(const uint8_t *record, size_t size, char buf[160])
{
    if (size < CW_TFRECORD_FRAME || tfrecord_load64(record) != size - CW_TFRECORD_FRAME) {
        snprintf(buf, 160,
                 "its length is %" PRIu64
                 " bytes, but the index says %zu bytes: the file has changed since it was indexed",
                 size >= 8 ? tfrecord_load64(record) : 0,
                 size >= CW_TFRECORD_FRAME ? size - CW_TFRECORD_FRAME : 0);
        return buf;
    }
    uint32_t stored = tfrecord_load32(record + size - 4),
             computed = cw_crc32c_mask(cw_crc32c(record + CW_TFRECORD_HEADER, size - CW_TFRECORD_FRAME));
    if (stored != computed) {
        snprintf(buf, 160, "the checksum of its data does not match (stored %08x, computed %08x)", stored,
                 computed);
        return buf;
    }
    return NULL;
}

static void tfrecord_store32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof(v));
}

size_t cw_tfrecord_frame(uint8_t *record, size_t length)
{
    tfrecord_store32(record, (uint32_t)length);
    tfrecord_store32(record + 4, (uint32_t)((uint64_t)length >> 32));
    tfrecord_store32(record + 8, cw_tfrecord_length_crc(length));
    tfrecord_store32(record + CW_TFRECORD_HEADER + length,
                     cw_crc32c_mask(cw_crc32c(record + CW_TFRECORD_HEADER, length)));
    return length + CW_TFRECORD_FRAME;
}
