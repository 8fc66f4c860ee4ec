/* TFRecord framing: walking streams, checking records. Owns the columns it builds; any thread, one walk per thread. */
#include "formats/tfrecord.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/crc32c.h"
#include "storage/file.h"

/* Small records are read through a buffer of this size: large enough that a system call is nothing beside copying it. */
#define BUFFER_BYTES ((size_t)256 << 10)
/* From this length on it is cheaper to read 16 bytes per record than everything: copying 32 KiB takes longer than a read of a cached page. */
#define SPARSE_LENGTH ((uint64_t)32 << 10)

static uint32_t load32(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24; }
static uint64_t load64(const uint8_t *p) { return load32(p) | (uint64_t)load32(p + 4) << 32; }

void cw_tfrecord_list_deinit(struct cw_tfrecord_list *l)
{
    free(l->offsets);
    free(l->lengths);
    free(l->crcs);
    *l = (struct cw_tfrecord_list){0};
}

void cw_tfrecord_walk_init(struct cw_tfrecord_walk *w, const char *path, uint64_t stream_size)
{
    *w = (struct cw_tfrecord_walk){.path = path, .stream_size = stream_size};
}

static int grow(void **column, size_t capacity, size_t size)
{
    void *p = realloc(*column, capacity * size);
    if (!p)
        return -1;
    *column = p;
    return 0;
}

static int append(struct cw_tfrecord_list *l, uint64_t offset, uint64_t length, uint32_t crc, struct cw_error *err)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? l->capacity * 2 : 1024;
        if (grow((void **)&l->offsets, capacity, sizeof(*l->offsets)) < 0 || grow((void **)&l->lengths, capacity, sizeof(*l->lengths)) < 0 ||
            grow((void **)&l->crcs, capacity, sizeof(*l->crcs)) < 0)
            return cw_error_nomem(err, capacity * 20, "the record offsets of a file");
        l->capacity = capacity;
    }
    l->offsets[l->n] = offset;
    l->lengths[l->n] = length;
    l->crcs[l->n++] = crc;
    return 0;
}

/* Facts of a damaged record: its number in the file stands for its id, which is not known before the file is. */
static int damaged(const struct cw_tfrecord_walk *w, struct cw_error *err, const char *what)
{
    char number[24];
    snprintf(number, sizeof(number), "%zu", w->list.n);
    cw_error_file(err, w->path);
    cw_error_record(err, number);
    return cw_error_set(err, CW_E_DATA, "%s: record %zu at byte %" PRIu64 "%s", w->path, w->list.n, w->start, what);
}

static int header(struct cw_tfrecord_walk *w, struct cw_error *err)
{
    char what[200];
    uint64_t length = load64(w->stash);
    uint32_t stored = load32(w->stash + 8), computed = cw_crc32c_mask(cw_crc32c(w->stash, 8));
    if (stored != computed) {
        snprintf(what, sizeof(what), ": the checksum of its length does not match (stored %08x, computed %08x): damaged, or no TFRecord file",
                 stored, computed);
        return damaged(w, err, what);
    }
    if (length > (uint64_t)INT64_MAX - CW_TFRECORD_FRAME || w->start > (uint64_t)INT64_MAX - CW_TFRECORD_FRAME - length) {
        snprintf(what, sizeof(what), ": a length of %" PRIu64 " bytes is impossible", length);
        return damaged(w, err, what);
    }
    uint64_t end = w->start + CW_TFRECORD_FRAME + length;
    if (end > w->stream_size) {
        snprintf(what, sizeof(what), ": %" PRIu64 " bytes of data run past the end of the file (%" PRIu64 " bytes): truncated?", length,
                 w->stream_size);
        return damaged(w, err, what);
    }
    w->length = length;
    w->wanted = end - 4;
    w->in_tail = true;
    w->have = 0;
    return 0;
}

static int tail(struct cw_tfrecord_walk *w, struct cw_error *err)
{
    int r = append(&w->list, w->start, w->length, load32(w->stash), err);
    w->start = w->wanted;
    w->in_tail = false;
    w->have = 0;
    return r;
}

int cw_tfrecord_feed(struct cw_tfrecord_walk *w, uint64_t at, const uint8_t *data, size_t size, struct cw_error *err)
{
    uint64_t end = at + size;
    while (w->wanted < end) {
        unsigned need = w->in_tail ? 4 : CW_TFRECORD_HEADER;
        unsigned n = (unsigned)CW_MIN((uint64_t)(need - w->have), end - w->wanted);
        memcpy(w->stash + w->have, data + (w->wanted - at), n);
        w->have += n;
        w->wanted += n;
        if (w->have < need)
            break;
        int r = w->in_tail ? tail(w, err) : header(w, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int cw_tfrecord_end(const struct cw_tfrecord_walk *w, uint64_t size, struct cw_error *err)
{
    if (w->start == size)
        return 0;
    char what[160];
    snprintf(what, sizeof(what), ": the data end inside it, at byte %" PRIu64 ": truncated", size);
    return damaged(w, err, what);
}

int cw_tfrecord_scan(struct cw_tfrecord_walk *w, struct cw_file *file, int (*cancelled)(void *), void *cancel_arg, struct cw_error *err)
{
    uint64_t size = cw_file_size(file);
    _cleanup_free_ uint8_t *buffer = malloc(BUFFER_BYTES);
    if (!buffer)
        return cw_error_nomem(err, BUFFER_BYTES, "a read buffer");
    for (uint64_t reads = 0; w->wanted < size; reads++) {
        bool sparse = w->in_tail && w->length >= SPARSE_LENGTH;
        uint64_t at = w->wanted;
        size_t n = (size_t)CW_MIN(size - at, (uint64_t)(sparse ? 4 + CW_TFRECORD_HEADER : BUFFER_BYTES));
        int r = cw_file_read(file, at, buffer, n, false, err);
        if (r == 0)
            r = cw_tfrecord_feed(w, at, buffer, n, err);
        if (r < 0)
            return r;
        if (reads % 64 == 0 && cancelled && cancelled(cancel_arg))
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    }
    return cw_tfrecord_end(w, size, err);
}

bool cw_tfrecord_is_header(const uint8_t *data, size_t size)
{
    return size >= CW_TFRECORD_HEADER && load32(data + 8) == cw_crc32c_mask(cw_crc32c(data, 8));
}

uint32_t cw_tfrecord_length_crc(uint64_t length)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(length >> (8 * i));
    return cw_crc32c_mask(cw_crc32c(bytes, 8));
}

const char *cw_tfrecord_check(const uint8_t *record, size_t size, char buf[160])
{
    if (size < CW_TFRECORD_FRAME || load64(record) != size - CW_TFRECORD_FRAME) {
        snprintf(buf, 160, "its length is %" PRIu64 ", the index says %zu: the file changed", size >= 8 ? load64(record) : 0,
                 size >= CW_TFRECORD_FRAME ? size - CW_TFRECORD_FRAME : 0);
        return buf;
    }
    uint32_t stored = load32(record + size - 4), computed = cw_crc32c_mask(cw_crc32c(record + CW_TFRECORD_HEADER, size - CW_TFRECORD_FRAME));
    if (stored != computed) {
        snprintf(buf, 160, "the checksum of its data does not match (stored %08x, computed %08x)", stored, computed);
        return buf;
    }
    return NULL;
}
