/* tfrecord: records of TFRecord files. A record's bytes (block->raw) are the whole frame: header, data, CRC.
 */
#include "formats/tfrecord.h"

#include "ops/source/record_streams.h"

static int tfrecord_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                            struct cw_error *err)
{
    const struct cw_port *port = &op->out[0];
    if (!port->live)
        return 0;
    int r = cw_attr_bool(op, "verify") ? cw_record_streams_check_crcs(s, op, b, err) : 0;
    if (r >= 0)
        r = cw_block_ragged(b, port->value, err);
    if (r < 0)
        return r;
    struct cw_tensor *rows = b->columns[port->value].rows;
    CW_ROWS_OK(i, b, true)
    {
        rows[i].data = (uint8_t *)b->raw[i].data + CW_TFRECORD_HEADER;
        rows[i].size = b->raw[i].size - CW_TFRECORD_FRAME;
    }
    return 0;
}

static int tfrecord_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                         struct cw_error *err)
{
    struct cw_record_streams_options options = {
        .format = CW_FORMAT_TFRECORD,
        .produce = tfrecord_produce,
        .partial_keys = !cw_attr_bool(
            op, "verify")}; /* with `verify`, the file key covers all content, through the checksums */
    return cw_record_streams_open(op, env, &options, ret, err);
}

static const struct cw_output_def outputs[] = {{"record", CW_BYTES}, {0}};

static const struct cw_attr_def attrs[] = {
    CW_RECORD_STREAM_ATTRS,
    {.name = "verify",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "true: check the CRC of each record's data, and compare it with the CRC in the index"},
    {0},
};

const struct cw_op_desc cw_op_tfrecord = {
    .name = "tfrecord",
    .summary = "records of TFRecord files",
    .doc = "Gives `record`, the bytes of each record. Files come in the order of the patterns; the files of "
           "one pattern are sorted by the bytes of their paths. Cachew's index files (*.cwx) are left out, "
           "even if a wildcard matches them. When a file is indexed, the CRC of each record's length is "
           "always checked.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .outputs = outputs,
    .open = tfrecord_open,
};
