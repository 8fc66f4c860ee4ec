/* Finds the lines of a text. Any thread; only one thread at a time may use a walk. */
#include "formats/lines.h"

#include <string.h>

static int lines_feed(struct cw_walk *base, uint64_t at, const uint8_t *data, size_t size,
                      struct cw_error *err)
{
    struct cw_line_walk *w = (struct cw_line_walk *)base;
    const uint8_t *p = data + (base->wanted - at), *end = data + size;
    if (p >= end)
        return 0;
    XXH3_64bits_update(base->hash, p, (size_t)(end - p));
    for (const uint8_t *newline; p < end && (newline = memchr(p, '\n', (size_t)(end - p))); p = newline + 1) {
        uint64_t place = at + (uint64_t)(newline - data);
        uint8_t before = newline > p ? newline[-1] : place > base->start ? w->last : 0;
        uint64_t length = place - base->start - (before == '\r');
        int r = cw_record_list_add(&base->list, base->start, length, 0, err);
        if (r < 0)
            return r;
        base->start = place + 1;
    }
    w->last = end[-1];
    base->wanted = at + size;
    return 0;
}

static int lines_end_of_stream(struct cw_walk *base, uint64_t size, struct cw_error *err)
{
    return base->start < size ? cw_record_list_add(&base->list, base->start, size - base->start, 0, err) : 0;
}

int cw_line_walk_init(struct cw_line_walk *w, const char *path, uint64_t stream_size, struct cw_error *err)
{
    static const struct cw_walk_ops ops = {.feed = lines_feed, .end = lines_end_of_stream};
    w->last = 0;
    return cw_walk_init(&w->base, &ops, path, stream_size, err);
}
