/* text: lines of files. */
#include "ops/source/line_source.h"

static int text_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                        struct cw_error *err)
{
    const struct cw_port *port = &op->out[0];
    if (!port->live)
        return 0;
    int r = cw_block_ragged(b, port->value, err);
    CW_ROWS_OK(i, b, r == 0)
    {
        const uint8_t *line;
        size_t size;
        if (cw_line_of(s, op, b, i, &line, &size))
            b->columns[port->value].rows[i] = (struct cw_tensor){.data = (void *)line, .size = size};
    }
    return r;
}

static int text_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                     struct cw_error *err)
{
    return cw_lines_open(op, env, text_produce, ret, err);
}

static const struct cw_output_def outputs[] = {{"text", CW_BYTES}, {0}};

static const struct cw_attr_def attrs[] = {CW_LINE_ATTRS, {0}};

const struct cw_op_desc cw_op_text = {
    .name = "text",
    .summary = "lines of text files",
    .doc = "Gives `text`, the bytes of each line without its end (\"\\n\" or \"\\r\\n\"). The last line of a "
           "file may lack a line end; empty lines are records. Files come in the order of the patterns; the "
           "files of one pattern are sorted by the bytes of their paths. Cachew's index files (*.cwx) are "
           "left out, even if a wildcard matches them. `compression` \"auto\" detects all but zlib, because "
           "a text may begin with the same bytes as zlib data.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .outputs = outputs,
    .open = text_open,
};
