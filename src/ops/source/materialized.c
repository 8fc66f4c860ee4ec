/* materialized: the elements of a materialised data set. Its shards are read as those of tfrecord and tar;
 * the manifest, which `bind` reads, names them, and has the components. */
#include "ops/source/materialized.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "ops/source/record_streams.h"
#include "formats/tfrecord.h"
#include "pipeline/pipeline.h"
#include "storage/file.h"

static int materialized_column(const struct cw_port *port, struct cw_block *b, struct cw_error *err)
{
    return port->live ? cw_block_column(b, port->value, &port->type, err) : 0;
}

/* Makes the value of a component. */
static int materialized_put(const struct cw_port *port, struct cw_block *b, size_t row,
                            const struct cw_shard_value *v, struct cw_error *err)
{
    if (port->type.dtype == CW_BYTES) { /* not copied: the record lives as long as the block */
        b->columns[port->value].rows[row] = (struct cw_tensor){.data = (void *)(uintptr_t)v->data,
                                                               .size = v->size};
        return 0;
    }
    size_t scratch_size = cw_shard_scratch(v, port->type.dtype);
    void *scratch = scratch_size ? cw_block_alloc(b, scratch_size, err) : NULL;
    void *out = cw_block_row_out(b, port->value, &port->type, row, v->dims, v->ndim, err);
    if (!out || (scratch_size && !scratch))
        return err ? err->status : CW_E_MEMORY;
    cw_shard_copy(v, port->type.dtype, out, scratch);
    return 0;
}

int cw_materialized_decode(const struct cw_shard_schema *schema, const struct cw_op *op, struct cw_block *b,
                           struct cw_error *err)
{
    struct cw_shard_value values[CW_SHARD_COMPONENTS];
    bool framed = schema->format != CW_SHARD_TAR;
    size_t head = framed ? CW_TFRECORD_HEADER : 0, frame = framed ? CW_TFRECORD_FRAME : 0;
    char why[CW_SHARD_WHY];
    int r = 0;
    for (unsigned i = 0; r == 0 && i < op->n_out; i++)
        r = materialized_column(&op->out[i], b, err);
    CW_ROWS_OK(row, b, r == 0)
    {
        const struct cw_tensor *raw = &b->raw[row];
        if (!cw_shard_read(schema, (const uint8_t *)raw->data + head, raw->size - frame, values, why)) {
            cw_block_fail(b, row, op->desc->name,
                          "the record does not have the components of the manifest: %s", why);
            continue;
        }
        for (unsigned i = 0; r == 0 && i < op->n_out; i++)
            if (op->out[i].live)
                r = materialized_put(&op->out[i], b, row, &values[i], err);
    }
    return r;
}

static int materialized_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                                struct cw_error *err)
{
    const struct cw_materialized *x = op->state;
    const struct cw_shard_schema *schema = &x->manifest.schema;
    if (!op->live)
        return 0;
    int r = schema->format == CW_SHARD_TAR ? 0 : cw_record_streams_check_crcs(s, op, b, err);
    return r < 0 ? r : cw_materialized_decode(schema, op, b, err);
}

/* Checks that the shards, those of the manifest from number `from` on, hold as many elements as the manifest
 * says. */
static int materialized_check(const struct cw_manifest *m, size_t from, const struct cw_record_streams *s,
                              struct cw_error *err)
{
    for (size_t i = 0; i < s->index.n; i++) {
        const struct cw_manifest_shard *shard = &m->shards[from + i];
        uint64_t found = s->index.segments[i].n_records;
        const char *path = cw_file_path(s->files[i]);
        if (found != shard->elements)
            return cw_error_at_file(err, CW_E_DATA, path, 0,
                                    "%s holds %" PRIu64 " elements, but the manifest has %" PRIu64
                                    ": it is not the file that cachew materialize wrote",
                                    path, found, shard->elements);
    }
    return 0;
}

int cw_materialized_open_shards(const struct cw_op *op, const char *dir, const struct cw_manifest *m,
                                size_t from, const struct cw_source_env *env, struct cw_source **ret,
                                struct cw_error *err)
{
    const bool tar = m->schema.format == CW_SHARD_TAR;
    const struct cw_record_streams_options options = {.format = tar ? CW_FORMAT_TAR : CW_FORMAT_TFRECORD,
                                                      .produce = materialized_produce,
                                                      .partial_keys = tar};
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    struct cw_source *s = NULL;
    int r = 0;
    for (size_t i = from; r == 0 && i < m->n_shards; i++) {
        char *path = cw_manifest_path(dir, m->shards[i].name);
        r = cw_source_files_add(&files, path, path ? strlen(path) - strlen(m->shards[i].name) : 0, env, err);
    }
    if (r == 0)
        r = cw_record_streams_open_files(op, env, &options, &files, CW_CODEC_PLAIN, &s, err);
    if (r == 0)
        r = materialized_check(m, from, (const struct cw_record_streams *)s, err);
    if (r < 0) {
        cw_source_free(s);
        cw_error_op(err, op->desc->name);
        return r;
    }
    *ret = s;
    return 0;
}

static int materialized_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                             struct cw_error *err)
{
    const struct cw_materialized *x = op->state;
    json_auto_t *components = cw_manifest_components(&x->manifest.schema);
    _cleanup_free_ char *text = components ? json_dumps(components, JSON_COMPACT) : NULL;
    int r = text ? cw_materialized_open_shards(op, x->dir, &x->manifest, 0, env, ret, err)
                 : cw_error_nomem(err, 0, "the components");
    if (r == 0)
        (*ret)->context = cw_hash64(text, strlen(text));
    return r;
}

int cw_materialized_bind(struct cw_bind *b, struct cw_op *op, bool begun, struct cw_error *err)
{
    const struct cw_pipeline *p = cw_bind_pipeline(b);
    struct cw_materialized *x = op->state = calloc(1, sizeof(*x));
    if (!x)
        return cw_error_nomem(err, sizeof(*x), "a manifest");
    _cleanup_free_ char *path = NULL;
    bool complete;
    int r = cw_path_home(p->base_dir, cw_attr_string(op, "path"), false, &path, err);
    if (r == 0 && !(x->dir = *path == '/' ? strdup(path) : cw_manifest_path(p->base_dir, path)))
        r = cw_error_nomem(err, 0, "a path");
    if (r == 0)
        r = cw_path_check(x->dir, p->data_roots, p->n_data_roots, err);
    if (r == 0 && (r = begun ? cw_manifest_read_begun(x->dir, &x->manifest, &complete, err)
                             : cw_manifest_read(x->dir, &x->manifest, err)) < 0)
        r = err ? (err->status = CW_E_PIPELINE) : CW_E_PIPELINE;
    for (unsigned i = 0; r >= 0 && i < x->manifest.schema.n; i++)
        r = cw_bind_write(b, x->manifest.schema.components[i].name, &x->manifest.schema.components[i].type,
                          err);
    if (r < 0)
        cw_error_op(err, op->desc->name);
    return r < 0 ? r : 0;
}

void cw_materialized_free(void *state)
{
    struct cw_materialized *x = state;
    if (!x)
        return;
    cw_manifest_deinit(&x->manifest);
    free(x->dir);
    free(x);
}

static int materialized_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    return cw_materialized_bind(b, op, false, err);
}

static const struct cw_attr_def attrs[] = {
    {.name = "path",
     .kind = CW_ATTR_STRING,
     .path = true,
     .doc = "the directory that `cachew materialize` or `Dataset.materialize` wrote"},
    {0},
};

const struct cw_op_desc cw_op_materialized = {
    .name = "materialized",
    .summary = "the elements of a materialised data set",
    .doc =
        "Gives the elements, in their order, with the components that they had when `cachew materialize` "
        "wrote them "
        "(docs/materialize.md). The manifest of the directory names the files and the components, whatever "
        "their "
        "format. Every record can be read by itself. Records of the formats cachew and tfrecord are checked "
        "against their checksums. The pipeline's description needs the manifest: a program that only sends "
        "it to "
        "a service must be able to read it too.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = materialized_bind,
    .open = materialized_open,
    .free_state = cw_materialized_free,
};
