/* Materialises pipelines: elements to shards. One thread, the consumer, writes; the engine's threads compute.
 */
#include "session/materialize_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "dataset/manifest.h"
#include "storage/file.h"

#define WAIT_NS UINT64_C(50000000) /* interval at which a wait looks for an interruption */
/* A batch has at most so many bytes and elements: enough that batches cost little; few enough that slow
 * elements are written soon. */
#define BATCH_BYTES ((size_t)1 << 20)
#define BATCH_MOST 32

/* ---- the open shard ---- */

static void shard_temporary(const struct cw_materializer *m,
                            char out[CW_SHARD_NAME + sizeof(CW_SHARD_TEMPORARY)])
{
    snprintf(out, CW_SHARD_NAME + sizeof(CW_SHARD_TEMPORARY), "%s" CW_SHARD_TEMPORARY, m->name);
}

static int shard_open(struct cw_materializer *m, struct cw_error *err)
{
    char temporary[CW_SHARD_NAME + sizeof(CW_SHARD_TEMPORARY)];
    cw_shard_name(m->name, json_array_size(m->dir.shards), cw_shard_formats[m->schema.format]);
    shard_temporary(m, temporary);
    return cw_shard_writer_begin(&m->writer, cw_manifest_path(m->dir.path, temporary), err);
}

/* Ends the shard. state, skip: the position after it, as the journal has it; state is taken over. */
static int shard_finish(struct cw_materializer *m, json_t *state, uint64_t skip, struct cw_error *err)
{
    json_auto_t *own = state;
    char temporary[CW_SHARD_NAME + sizeof(CW_SHARD_TEMPORARY)];
    uint64_t before = m->writer.bytes;
    json_t *shard;
    int r = cw_shard_writer_end(&m->writer, m->name, &shard, err);
    if (r < 0)
        return r;
    m->bytes += m->writer.bytes - before;
    m->set_sum = cw_hash128_add(m->set_sum, m->writer.set_sum);
    shard_temporary(m, temporary);
    return cw_shard_dir_add(&m->dir, temporary, shard, json_incref(own), skip, err);
}

/* ---- elements ---- */

json_t *cw_materializer_position(const struct cw_materializer *m)
{
    json_t *state = cw_iterator_state(m->local->iterator);
    return state ? state : json_null();
}

/* Appends an element. row: its number in the batch. */
static int materializer_add(struct cw_materializer *m, const struct cw_batch *b, uint32_t row,
                            const struct cw_tensor *values, struct cw_error *err)
{
    int r = m->writer.fd < 0 ? shard_open(m, err) : 0;
    uint64_t before = m->writer.bytes;
    if (r == 0)
        r = cw_shard_writer_add(&m->writer, b, values, m->elements, err);
    if (r < 0)
        return r;
    m->elements++;
    m->bytes += m->writer.bytes - before;
    if (m->writer.bytes < m->options->shard_bytes)
        return 0;
    return row + 1 == b->n ? shard_finish(m, cw_materializer_position(m), 0, err)
                           : shard_finish(m, m->before ? json_incref(m->before) : json_null(), row + 1, err);
}

static int materializer_add_batch(void *arg, const struct cw_batch *b, struct cw_error *err)
{
    struct cw_materializer *m = arg;
    struct cw_batch_rows rows = {.b = b};
    struct cw_tensor values[CW_MAX_COMPONENTS];
    int r = 0;
    for (uint32_t row = 0; r == 0 && cw_batch_next_row(&rows, values); row++)
        if (row >= m->skip)
            r = materializer_add(m, b, row, values, err);
    m->skip = 0;
    if (r == 0 && b->leading) { /* without batches, a shard never ends within one */
        json_decref(m->before);
        m->before = cw_materializer_position(m);
    }
    return r;
}

/* ---- the pipeline ---- */

size_t cw_materialize_together(const struct cw_compiled *c)
{
    size_t bytes = 1;
    unsigned n;
    const struct cw_component *components = cw_delivered(c, &n);
    for (unsigned i = 0; i < n; i++) {
        size_t size = cw_type_fixed(&components[i].type) ? cw_type_bytes(&components[i].type) : BATCH_BYTES;
        bytes += CW_MIN(size, BATCH_BYTES);
    }
    return c->batcher ? 1 : CW_MAX(CW_MIN(BATCH_BYTES / bytes, (size_t)BATCH_MOST), (size_t)1);
}

json_t *cw_materialize_batched(const json_t *root, size_t n)
{
    json_t *copy = json_deep_copy(root);
    json_t *batch = json_pack("{s:s, s:I}", "op", "batch", "size", (json_int_t)n);
    if (json_array_append_new(json_object_get(copy, "pipeline"), batch) == 0)
        return copy;
    json_decref(copy);
    return NULL;
}

int cw_materialize_replace(struct cw_local *l, json_t *root, struct cw_error *err)
{
    json_auto_t *own = root;
    json_t *old = l->root;
    struct cw_pipeline *p = l->pipeline;
    l->compiled = cw_compiled_free(l->compiled);
    l->pipeline = NULL;
    l->root = NULL;
    int r = own ? cw_local_compile(l, own, p->base_dir, err) : cw_error_nomem(err, 0, "a pipeline");
    cw_pipeline_unref(p);
    json_decref(old);
    return r;
}

int cw_materialize_open(struct cw_local *l, const struct cw_materialize_options *o, struct cw_error *err)
{
    size_t n = cw_materialize_together(l->compiled);
    int r = n > 1 ? cw_materialize_replace(l, cw_materialize_batched(l->root, n), err) : 0;
    return r < 0 ? r
                 : cw_local_open(l, o->index_dir, o->iterate.runner.threads, o->iterate.runner.memory, err);
}

/* ---- the run ---- */

json_t *cw_materializer_describe(const struct cw_materializer *m, const char *data, const char *run)
{
    const struct cw_pipeline *p = m->local->pipeline;
    char fingerprint[33];
    _cleanup_free_ char *base = cw_absolute(p->base_dir);
    cw_hash128_print(m->fingerprint, fingerprint);
    json_t *base_dir = base && cw_text_utf8(base, strlen(base)) ? json_string(base) : json_null();
    json_t *lineage = json_pack("{s:O, s:o, s:s, s:s?, s:I, s:I, s:s, s:s*}", "pipeline", m->pipeline,
                                "base_dir", base_dir, "fingerprint", fingerprint, "data", data, "seed",
                                (json_int_t)m->options->iterate.seed, "shard_bytes",
                                (json_int_t)m->options->shard_bytes, "cachew", CACHEW_VERSION, "run", run);
    json_t *components = lineage ? cw_manifest_components(&m->schema) : NULL;
    return json_pack("{s:s, s:o, s:o}", "format", cw_shard_formats[m->schema.format], "components",
                     components, "lineage", lineage);
}

void cw_materializer_count(struct cw_materializer *m, const json_t *shard)
{
    struct cw_hash128 sum = {0, 0};
    m->elements += (uint64_t)json_integer_value(json_object_get(shard, "elements"));
    m->bytes += (uint64_t)json_integer_value(json_object_get(shard, "bytes"));
    if (cw_hash128_parse(json_string_value(json_object_get(shard, "set_digest")), &sum))
        m->set_sum = cw_hash128_add(m->set_sum, sum);
}

void cw_materializer_resume(struct cw_materializer *m)
{
    const json_t *shard;
    size_t i;
    json_array_foreach(m->dir.shards, i, shard) cw_materializer_count(m, shard);
    m->skip = m->dir.skip;
    m->before = json_incref(m->dir.state);
}

/* Sets *ret to the next batch; 1: there is none. While it waits it looks at l->interrupt. The deadline is for
 * each element of the batch, because cw_materialize_open may have joined elements. */
static int materialize_next(struct cw_local *l, const struct cw_materialize_options *o, struct cw_batch **ret,
                            struct cw_error *err)
{
    uint64_t wait_ns = o->wait_ns * l->compiled->batch_size;
    uint64_t end_ns = wait_ns ? cw_now_ns() + wait_ns : UINT64_MAX, now;
    while ((now = cw_now_ns()) < end_ns && !(l->interrupt && *l->interrupt)) {
        *err = (struct cw_error){0};
        int r = cw_local_next(l, CW_MIN(WAIT_NS, end_ns - now), ret, err);
        if (r != CW_E_DEADLINE)
            return r;
    }
    return now < end_ns ? cw_error_set(err, CW_E_INTERRUPTED, "interrupted") : CW_E_DEADLINE;
}

int cw_materialize_each(struct cw_local *l, const struct cw_materialize_options *o,
                        int (*take)(void *arg, const struct cw_batch *b, struct cw_error *err), void *arg,
                        const uint64_t *elements, const uint64_t *bytes, struct cw_error *err)
{
    struct cw_batch *b;
    int r = 0;
    while (r == 0) {
        if (o->step && o->step(o->step_arg, l, *elements, *bytes) != 0)
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
        if ((r = materialize_next(l, o, &b, err)) != 0)
            return r == 1 ? 0 : r;
        r = take(arg, b, err);
        cw_iterator_release(l->iterator, b);
    }
    return r;
}

int cw_materializer_publish(struct cw_materializer *m, struct cw_error *err)
{
    char digest[33];
    cw_hash128_print(m->set_sum, digest);
    return cw_shard_dir_publish(&m->dir,
                                json_pack("{s:I, s:I, s:s}", "elements", (json_int_t)m->elements, "bytes",
                                          (json_int_t)m->bytes, "set_digest", digest),
                                err);
}

static int materializer_check_end(const struct cw_materializer *m, struct cw_error *err)
{
    const struct cw_compiled *c = m->local->compiled;
    if (m->local->sequence->n_positions < CW_ENDLESS || c->sequential || c->take != UINT64_MAX ||
        c->batch_to != UINT64_MAX)
        return 0;
    return cw_error_set(err, CW_E_PIPELINE,
                        "the pipeline has no end, so it can't be materialised: end it with take");
}

static int materializer_iterate(struct cw_materializer *m, struct cw_error *err)
{
    const struct cw_materialize_options *o = m->options;
    struct cw_iterator_options iterate = o->iterate;
    iterate.epochs = iterate.world_size = 1;
    cw_materializer_resume(m);
    int r = cw_local_iterate(m->local, &iterate, m->dir.state, err);
    if (r == 0)
        r = cw_materialize_each(m->local, o, materializer_add_batch, m, &m->elements, &m->bytes, err);
    if (r == 0 && m->writer.fd >= 0)
        r = shard_finish(m, cw_materializer_position(m), 0, err);
    return r < 0 ? r : cw_materializer_publish(m, err);
}

/* Computes and writes the elements in this process. */
static int materializer_write(struct cw_materializer *m, struct cw_error *err)
{
    char data[17];
    int r = cw_materialize_open(m->local, m->options, err);
    if (r == 0)
        r = materializer_check_end(m, err);
    if (r < 0)
        return r;
    snprintf(data, sizeof(data), "%016" PRIx64, m->local->sequence->snapshot);
    r = cw_shard_dir_open(&m->dir, m->options->dir, cw_materializer_describe(m, data, NULL), err);
    return r < 0 || m->dir.manifest ? r : materializer_iterate(m, err);
}

json_t *cw_materialize_result(const json_t *manifest)
{
    return json_pack("{s:I, s:O, s:O, s:O}", "shards",
                     (json_int_t)json_array_size(json_object_get(manifest, "shards")), "elements",
                     json_object_get(manifest, "elements"), "bytes", json_object_get(manifest, "bytes"),
                     "set_digest", json_object_get(manifest, "set_digest"));
}

int cw_materialize(struct cw_local *l, const struct cw_materialize_options *o, json_t **ret,
                   struct cw_error *err)
{
    struct cw_materializer m = {.options = o,
                                .local = l,
                                .pipeline = json_incref(l->root),
                                .fingerprint = l->pipeline->fingerprint,
                                .dir.journal = -1};
    int r = cw_shard_writer_init(&m.writer, &m.schema, err);
    if (r == 0)
        r = cw_shard_schema_read(l->compiled, o->format, &m.schema, err);
    if (r == 0)
        r = o->connect ? cw_materializer_serve(&m, err) : materializer_write(&m, err);
    if (r == 0 && !(*ret = cw_materialize_result(m.dir.manifest)))
        r = cw_error_nomem(err, 0, "the result");
    cw_shard_writer_deinit(&m.writer);
    cw_shard_dir_close(&m.dir);
    cw_shard_schema_deinit(&m.schema);
    json_decref(m.before);
    json_decref(m.pipeline);
    return r;
}
