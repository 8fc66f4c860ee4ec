/*
 * Text files: each line is a record. A line ends with "\n" or "\r\n", which do not belong to the record; the
 * last line may end with the file. Empty lines are records; an empty file holds no record. The offsets and
 * lengths in the list are those of the lines without their ends.
 */
#pragma once
#include "formats/walk.h"

struct cw_line_walk {
    struct cw_walk base; /* its content is the XXH3_64 of the stream */
    uint8_t last;        /* the byte of the stream before base.wanted */
};

int cw_line_walk_init(struct cw_line_walk *w, const char *path, uint64_t stream_size,
                      struct cw_error *err) _must_check_;

/* Returns the length of a line without its end. size: bytes of the line with its end. */
static inline size_t cw_line_trim(const uint8_t *line, size_t size)
{
    if (size == 0 || line[size - 1] != '\n')
        return size;
    return size >= 2 && line[size - 2] == '\r' ? size - 2 : size - 1;
}
