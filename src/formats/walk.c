/* The growing list of records of a stream, and walking a plain file. Any thread; only one thread at a time
 * may use a walk. */
#include "formats/walk.h"

#include "base/array.h"
#include "storage/ahead.h"

/* Size of the buffer through which small records are read: so large that a system call costs little compared
 * with copying the bytes. */
#define BUFFER_BYTES ((size_t)256 << 10)

const char *cw_record_format_name(enum cw_record_format format)
{
    static const char *const names[] = {"TFRecord", "text", "tar", "CSV"};
    return names[CW_MIN(format, CW_FORMAT_CSV)];
}

void cw_record_list_deinit(struct cw_record_list *l)
{
    free(l->offsets);
    free(l->lengths);
    free(l->crcs);
    *l = (struct cw_record_list){0};
}

int cw_record_list_add(struct cw_record_list *l, uint64_t offset, uint64_t length, uint32_t crc,
                       struct cw_error *err)
{
    static const char what[] = "the record offsets of a file";
    if (l->n == l->room[2] && (CW_ARRAY_ROOM(l->offsets, l->room[0], l->n + 1, what, err) < 0 ||
                               CW_ARRAY_ROOM(l->lengths, l->room[1], l->n + 1, what, err) < 0 ||
                               CW_ARRAY_ROOM(l->crcs, l->room[2], l->n + 1, what, err) < 0))
        return CW_E_MEMORY;
    l->offsets[l->n] = offset;
    l->lengths[l->n] = length;
    l->crcs[l->n++] = crc;
    return 0;
}

int cw_walk_init(struct cw_walk *w, const struct cw_walk_ops *ops, const char *path, uint64_t stream_size,
                 struct cw_error *err)
{
    *w = (struct cw_walk){.ops = ops, .path = path, .stream_size = stream_size, .hash = XXH3_createState()};
    if (!w->hash)
        return cw_error_nomem(err, sizeof(*w->hash), "a hash");
    XXH3_64bits_reset(w->hash);
    return 0;
}

void cw_walk_deinit(struct cw_walk *w)
{
    XXH3_freeState(w->hash);
    if (w->ops && w->ops->deinit)
        w->ops->deinit(w);
    cw_record_list_deinit(&w->list);
}

int cw_walk_scan(struct cw_walk *w, struct cw_file *file, int (*cancelled)(void *), void *cancel_arg,
                 struct cw_error *err)
{
    uint64_t size = cw_file_size(file);
    _cleanup_free_ uint8_t *buffer = malloc(BUFFER_BYTES);
    _cleanup_(cw_ahead_deinit) struct cw_ahead ahead = {0};
    if (!buffer)
        return cw_error_nomem(err, BUFFER_BYTES, "a read buffer");
    cw_ahead_init(&ahead, file);
    for (uint64_t reads = 0; w->wanted < size; reads++) {
        size_t stride = w->ops->stride ? w->ops->stride(w) : 0;
        uint64_t at = w->wanted;
        size_t n = (size_t)CW_MIN(size - at,
                                  (uint64_t)(stride ? CW_MIN(stride, BUFFER_BYTES) : BUFFER_BYTES));
        int r = cw_ahead_read(&ahead, at, buffer, n, err);
        if (r == 0)
            r = cw_walk_feed(w, at, buffer, n, err);
        if (r < 0)
            return r;
        if (reads % 64 == 0 && cancelled && cancelled(cancel_arg))
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    }
    return cw_walk_end(w, size, err);
}
