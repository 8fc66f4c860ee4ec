/* Finds the samples of a tar archive in its stream. Any thread; only one thread at a time may use a walk. */
#include <inttypes.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "formats/tar.h"

/* From this size on only the first block of a file's data is read: copying 32 KiB takes longer than a
 * separate read of a cached page. */
#define SPARSE_SIZE ((uint64_t)32 << 10)

/* Returns the number of the walk's buffer for the data of an extended header. */
static int tar_walk_buffer_of(enum cw_tar_kind kind)
{
    return kind == CW_TAR_LONG_NAME ? 0 : kind == CW_TAR_PAX ? 1 : 2;
}

static uint64_t tar_walk_padded(uint64_t size)
{
    return CW_ALIGN_UP(size, (uint64_t)CW_TAR_BLOCK);
}

__attribute__((format(printf, 3, 4))) static int tar_walk_damaged(const struct cw_tar_walk *w,
                                                                  struct cw_error *err, const char *fmt, ...)
{
    char why[CW_TAR_WHY];
    CW_FORMAT(why, fmt);
    return cw_error_at_file(err, CW_E_DATA, w->base.path, 0, "%s: the member at byte %" PRIu64 ": %s",
                            w->base.path, w->member, why);
}

static int tar_walk_close_sample(struct cw_tar_walk *w, struct cw_error *err)
{
    int r = w->key_size ? cw_record_list_add(&w->base.list, w->base.start, w->end - w->base.start, 0, err)
                        : 0;
    w->key_size = 0;
    return r;
}

static int tar_walk_open_sample(struct cw_tar_walk *w, const struct cw_tar_name *name, struct cw_error *err)
{
    if (CW_ARRAY_ROOM(w->key, w->key_capacity, name->key_size, "the name of a sample", err) < 0)
        return CW_E_MEMORY;
    memcpy(w->key, name->key, name->key_size);
    w->key_size = name->key_size;
    w->base.start = w->member;
    return 0;
}

/* Processes a member whose name and size are known: adds a file to a sample, or skips the member. */
static int tar_walk_take_member(struct cw_tar_walk *w, struct cw_error *err)
{
    const struct cw_tar_header *h = &w->header;
    const char *name = w->extended.path ? w->extended.path : h->name;
    size_t name_size = w->extended.path ? w->extended.path_size : h->name_size;
    struct cw_tar_name split;
    char why[CW_TAR_WHY];
    int r = 0;
    if (!cw_tar_check_name(name, name_size, why))
        return tar_walk_damaged(w, err, "%s", why);
    if (h->kind == CW_TAR_FILE && cw_tar_split(name, name_size, &split)) {
        if (w->key_size != split.key_size || memcmp(w->key, split.key, split.key_size) != 0) {
            r = tar_walk_close_sample(w, err);
            if (r == 0)
                r = tar_walk_open_sample(w, &split, err);
        }
        w->end = w->next;
    }
    w->member = w->next;
    if (w->key_size == 0)
        w->base.start = w->member;
    w->extended = (struct cw_tar_extended){0};
    w->seen[0] = w->seen[1] = false;
    w->state = w->size ? CW_TAR_AT_DATA : CW_TAR_AT_HEADER;
    return r;
}

static int tar_walk_begin_extended(struct cw_tar_walk *w, struct cw_error *err)
{
    int which = tar_walk_buffer_of(w->header.kind);
    if (w->size > CW_TAR_EXTENDED)
        return tar_walk_damaged(w, err, "an extended header has %" PRIu64 " bytes: expected at most %zu",
                                w->size, CW_TAR_EXTENDED);
    if (which < 2 && w->seen[which])
        return tar_walk_damaged(w, err, "the member has two extended headers of one kind");
    if (which < 2)
        w->seen[which] = true;
    if (CW_ARRAY_ROOM(w->buffers[which], w->capacities[which], (size_t)w->size, "an extended header", err) <
        0)
        return CW_E_MEMORY;
    w->state = w->size ? CW_TAR_AT_EXTENDED : CW_TAR_AT_HEADER;
    return 0;
}

static int tar_walk_end_extended(struct cw_tar_walk *w, struct cw_error *err)
{
    enum cw_tar_kind kind = w->header.kind;
    const uint8_t *data = w->buffers[tar_walk_buffer_of(kind)];
    char why[CW_TAR_WHY];
    XXH3_64bits_update(w->base.hash, data, (size_t)w->size);
    w->state = CW_TAR_AT_HEADER;
    return cw_tar_extend(&w->extended, kind, data, (size_t)w->size, why)
               ? 0
               : tar_walk_damaged(w, err, "%s", why);
}

/* Processes a complete header block; base.wanted is the offset after it. */
static int tar_walk_take_header(struct cw_tar_walk *w, struct cw_error *err)
{
    char why[CW_TAR_WHY];
    if (!cw_tar_parse(w->block, &w->header, why))
        return tar_walk_damaged(w, err, "%s", why);
    bool member = w->header.kind == CW_TAR_FILE || w->header.kind == CW_TAR_PASSED;
    if (w->header.kind == CW_TAR_ZERO) {
        if (w->member != w->base.wanted - CW_TAR_BLOCK)
            return tar_walk_damaged(w, err, "the archive ends after the extended header of this member");
        w->state = CW_TAR_AT_END;
        return tar_walk_close_sample(w, err);
    }
    XXH3_64bits_update(w->base.hash, w->block, CW_TAR_BLOCK);
    w->size = w->header.kind == CW_TAR_FILE && w->extended.has_size ? w->extended.size : w->header.size;
    uint64_t left = CW_MIN(w->base.stream_size, (uint64_t)INT64_MAX) - w->base.wanted;
    if (w->size > left || tar_walk_padded(w->size) > left)
        return tar_walk_damaged(w, err,
                                "its %" PRIu64 " bytes of data run past the end of the file (%" PRIu64
                                " bytes): the file is truncated, or the size in the header is wrong",
                                w->size, left + w->base.wanted);
    w->next = w->base.wanted + tar_walk_padded(w->size);
    return member ? tar_walk_take_member(w, err) : tar_walk_begin_extended(w, err);
}

/* Collects bytes into a buffer until it has `need` bytes; true: it has them. */
static bool tar_walk_collect(struct cw_tar_walk *w, uint8_t *into, size_t need, const uint8_t *p, size_t n)
{
    n = CW_MIN(n, need - w->have);
    memcpy(into + w->have, p, n);
    w->have += n;
    w->base.wanted += n;
    return w->have == need;
}

static int tar_walk_take_end(struct cw_tar_walk *w, const uint8_t *p, size_t n, struct cw_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (p[i]) {
            w->member = w->base.wanted + i;
            return tar_walk_damaged(
                w, err, "there are data after the end of the archive (several archives in one file?)");
        }
    w->base.wanted += n;
    return 0;
}

static int tar_walk_feed(struct cw_walk *base, uint64_t at, const uint8_t *data, size_t size,
                         struct cw_error *err)
{
    struct cw_tar_walk *w = (struct cw_tar_walk *)base;
    int r = 0;
    while (r == 0 && base->wanted < at + size) {
        const uint8_t *p = data + (base->wanted - at);
        size_t n = (size_t)(at + size - base->wanted);
        switch (w->state) {
        case CW_TAR_AT_HEADER:
            if (tar_walk_collect(w, w->block, CW_TAR_BLOCK, p, n)) {
                w->have = 0;
                r = tar_walk_take_header(w, err);
            }
            break;
        case CW_TAR_AT_EXTENDED:
            if (tar_walk_collect(w, w->buffers[tar_walk_buffer_of(w->header.kind)], (size_t)w->size, p, n)) {
                w->have = 0;
                base->wanted = w->next;
                r = tar_walk_end_extended(w, err);
            }
            break;
        case CW_TAR_AT_DATA:
            if (tar_walk_collect(w, w->block, CW_TAR_BLOCK, p, n)) {
                w->have = 0;
                XXH3_64bits_update(w->base.hash, w->block, CW_TAR_BLOCK);
                base->wanted = w->next;
                w->state = CW_TAR_AT_HEADER;
            }
            break;
        case CW_TAR_AT_END:
            r = tar_walk_take_end(w, p, n, err);
            break;
        }
    }
    return r;
}

static int tar_walk_end_of_stream(struct cw_walk *base, uint64_t size, struct cw_error *err)
{
    struct cw_tar_walk *w = (struct cw_tar_walk *)base;
    if (w->state == CW_TAR_AT_END)
        return 0;
    return tar_walk_damaged(
        w, err,
        base->wanted == size && w->have == 0 && w->state == CW_TAR_AT_HEADER && w->member == size
            ? "the file ends here, after %" PRIu64
              " bytes, without the mark that ends an archive: the file is truncated"
            : "the file ends inside this member, at byte %" PRIu64 ": the file is truncated",
        size);
}

static size_t tar_walk_stride(const struct cw_walk *base)
{
    const struct cw_tar_walk *w = (const struct cw_tar_walk *)base;
    bool sparse = w->size >= SPARSE_SIZE && w->state != CW_TAR_AT_EXTENDED && w->state != CW_TAR_AT_END;
    return sparse ? 2 * CW_TAR_BLOCK : 0; /* a header and the first block of its data */
}

static void tar_walk_deinit(struct cw_walk *base)
{
    struct cw_tar_walk *w = (struct cw_tar_walk *)base;
    for (size_t i = 0; i < CW_COUNT_OF(w->buffers); i++)
        free(w->buffers[i]);
    free(w->key);
}

int cw_tar_walk_init(struct cw_tar_walk *w, const char *path, uint64_t stream_size, struct cw_error *err)
{
    static const struct cw_walk_ops ops = {.feed = tar_walk_feed,
                                           .end = tar_walk_end_of_stream,
                                           .stride = tar_walk_stride,
                                           .deinit = tar_walk_deinit};
    *w = (struct cw_tar_walk){0};
    return cw_walk_init(&w->base, &ops, path, stream_size, err);
}
