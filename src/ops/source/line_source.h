/* Sources whose records are lines of files (text and jsonl), with a limit on the length of a line. */
#pragma once
#include "formats/lines.h"
#include "ops/source/record_streams.h"

#define CW_LINE_ATTRS \
    CW_RECORD_STREAM_ATTRS, \
        {.name = "max_line", \
         .kind = CW_ATTR_INT, \
         .def = "67108864", \
         .min = 1, \
         .max = 1 << 30, \
         .doc = "longest line, in bytes; a longer line is not read, and its record fails"}

/* Opens a source whose records are the lines of files. produce: cw_source_ops.produce of the operator. */
int cw_lines_open(const struct cw_op *op, const struct cw_source_env *env,
                  int (*produce)(const struct cw_source *, const struct cw_op *, struct cw_block *,
                                 struct cw_error *),
                  struct cw_source **ret, struct cw_error *err) _must_check_;
/* Sets *ret to the text of a row, without the line's end. False: the line is longer than max_line, and the
 * row has been marked as failed. */
bool cw_line_of(const struct cw_source *s, const struct cw_op *op, struct cw_block *b, size_t row,
                const uint8_t **ret, size_t *ret_size);
/* Number of the row's line in its file, from 1. */
uint64_t cw_line_number(const struct cw_source *s, uint64_t row);
