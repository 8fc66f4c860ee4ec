/* tfrecord: records of TFRecord files. A record's bytes (block->raw) are the whole frame: header, data, CRC. */
#include "formats/tfrecord.h"

#include "ops/record_streams.h"

struct tfrecord {
    struct cw_record_streams streams;
    bool verify;
};

static void tfrecord_free(struct cw_source *s)
{
    cw_record_streams_deinit((struct cw_record_streams *)s);
    free(s);
}

static int tfrecord_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct tfrecord *t = (const struct tfrecord *)s;
    const struct cw_port *port = &op->out[0];
    char why[160];
    if (!port->live)
        return 0;
    for (size_t i = 0; t->verify && i < b->n; i++)
        if (b->status[i] == CW_ROW_OK && cw_tfrecord_check(b->raw[i].data, b->raw[i].size, why))
            cw_block_fail(b, i, op->desc->name, "%s", why);
    int r = cw_block_ragged(b, port->value, err);
    if (r < 0)
        return r;
    struct cw_tensor *rows = b->columns[port->value].rows;
    for (size_t i = 0; i < b->n; i++)
        if (b->status[i] == CW_ROW_OK) {
            rows[i].data = (uint8_t *)b->raw[i].data + CW_TFRECORD_HEADER;
            rows[i].size = b->raw[i].size - CW_TFRECORD_FRAME;
        }
    return 0;
}

static int tfrecord_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret, struct cw_error *err)
{
    struct tfrecord *t = calloc(1, sizeof(*t));
    if (!t)
        return cw_error_nomem(err, sizeof(*t), "a source");
    t->streams.ops.free = tfrecord_free;
    t->streams.ops.produce = tfrecord_produce;
    t->verify = cw_attr_bool(op, "verify");
    int r = cw_record_streams_init(&t->streams, op, CW_FORMAT_TFRECORD, env, err);
    if (r < 0) {
        tfrecord_free(&t->streams.base);
        return r;
    }
    *ret = &t->streams.base;
    return 0;
}

static int tfrecord_bind(struct cw_bind *b, struct cw_op *op CW_UNUSED, struct cw_error *err)
{
    struct cw_type type = cw_type_scalar(CW_BYTES);
    int r = cw_bind_write(b, "record", &type, err);
    return r < 0 ? r : 0;
}

static const struct cw_attr_def attrs[] = {
    CW_RECORD_STREAM_ATTRS,
    {.name = "verify", .kind = CW_ATTR_BOOL, .def = "true", .doc = "check the CRC of each record's data"},
    {0},
};

const struct cw_op_desc cw_op_tfrecord = {
    .name = "tfrecord",
    .summary = "records of TFRecord files",
    .doc = "Gives `record`, the bytes of each record. Files are taken pattern by pattern, those of a pattern sorted by bytes; index files (*.cwx) "
           "that a wildcard matches are left out. The CRC of a record's length is always checked, when a file is indexed.",
    .kind = CW_OP_SOURCE,
    .attrs = attrs,
    .bind = tfrecord_bind,
    .open = tfrecord_open,
};
