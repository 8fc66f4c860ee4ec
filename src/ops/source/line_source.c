/* Lines of files as records. The sources are immutable; any thread reads. */
#include "ops/source/line_source.h"

#include <inttypes.h>

int cw_lines_open(const struct cw_op *op, const struct cw_source_env *env,
                  int (*produce)(const struct cw_source *, const struct cw_op *, struct cw_block *,
                                 struct cw_error *),
                  struct cw_source **ret, struct cw_error *err)
{
    struct cw_record_streams_options options = {
        .format = CW_FORMAT_LINES, .produce = produce, .max_length = (uint64_t)cw_attr_int(op, "max_line")};
    return cw_record_streams_open(op, env, &options, ret, err);
}

bool cw_line_of(const struct cw_source *s, const struct cw_op *op, struct cw_block *b, size_t row,
                const uint8_t **ret, size_t *ret_size)
{
    const struct cw_record_streams *f = (const struct cw_record_streams *)s;
    if (b->raw[row].size ==
        0) { /* a line that was read is never empty: it has its line end, or text up to the file's end */
        uint64_t number, length = cw_record_streams_length(f, b->rows[row], &number);
        return cw_block_fail(b, row, op->desc->name,
                             "line %" PRIu64 " has %" PRIu64 " bytes: expected at most max_line, %" PRIu64,
                             number + 1, length, f->options.max_length);
    }
    *ret = b->raw[row].data;
    *ret_size = cw_line_trim(*ret, b->raw[row].size);
    return true;
}

uint64_t cw_line_number(const struct cw_source *s, uint64_t row)
{
    uint64_t number;
    (void)cw_record_streams_length((const struct cw_record_streams *)s, row, &number);
    return number + 1;
}
