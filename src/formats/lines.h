/*
 * Text files: a record per line. A line ends with "\n" or "\r\n", which are not part of it; the last one may
 * end with the file. Empty lines are records; an empty file holds none. In the list, offsets and lengths are
 * those of the text without the line's end.
 */
#pragma once
#include "formats/walk.h"

struct cw_line_walk {
    struct cw_walk base; /* content: XXH3_64 of the stream */
    uint8_t last;        /* the byte before base.wanted */
};

int cw_line_walk_init(struct cw_line_walk *w, const char *path, uint64_t stream_size,
                      struct cw_error *err) _must_check_;

/* Length of a line without its end. */
static inline size_t cw_line_trim(const uint8_t *line, size_t size)
{
    if (size == 0 || line[size - 1] != '\n')
        return size;
    return size >= 2 && line[size - 2] == '\r' ? size - 2 : size - 1;
}
