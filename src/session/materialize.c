/* Materialises pipelines: elements to shards. One thread, the consumer, writes; the engine's threads compute.
 */
#include "session/materialize.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/text.h"
#include "dataset/manifest.h"
#include "session/shard_dir.h"
#include "storage/file.h"

#define WRITE_BYTES ((size_t)1 << 20) /* bytes of a write, or of a batch: calls cost little from here on */
#define WAIT_NS UINT64_C(50000000)    /* interval at which a wait looks for an interruption */
#define BATCH_MOST \
    32 /* elements: enough that batches cost little; few enough that slow elements are written soon */

struct materializer {
    const struct cw_materialize_options *options;
    struct cw_local *local;
    /* the pipeline as written, and its fingerprint; new */
    json_t *pipeline;
    struct cw_hash128 fingerprint;
    struct cw_shard_schema schema;
    struct cw_shard_dir dir;
    struct cw_shard_bytes buffer; /* of the open shard: not written yet */
    struct cw_hash128 set_sum;    /* of all elements */
    uint64_t elements, bytes;     /* of all shards, the open one included */
    json_t *before; /* state before the batch whose elements are written now; NULL: the beginning */
    uint64_t skip;  /* elements of the next batch that finished shards hold */

    struct {        /* the open shard */
        int fd;     /* -1: none is open */
        char *path; /* of the temporary file */
        char name[CW_SHARD_NAME];
        uint64_t elements, bytes;
        struct cw_hash128 set_sum;
        XXH3_state_t *hash; /* of the file */
    } shard;
};

/* ---- the open shard ---- */

static int shard_fail(const struct materializer *m, struct cw_error *err)
{
    return cw_error_at_file(err, CW_E_IO, m->shard.path, errno, "%s: can't be written", m->shard.path);
}

static int shard_open(struct materializer *m, struct cw_error *err)
{
    cw_shard_name(m->shard.name, json_array_size(m->dir.shards), cw_shard_formats[m->schema.format]);
    if (asprintf(&m->shard.path, "%s/%s" CW_SHARD_TEMPORARY, m->dir.path, m->shard.name) < 0) {
        m->shard.path = NULL;
        return cw_error_nomem(err, 0, "a path");
    }
    m->shard.fd = open(m->shard.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (m->shard.fd < 0)
        return shard_fail(m, err);
    m->shard.elements = m->shard.bytes = 0;
    m->shard.set_sum = (struct cw_hash128){0, 0};
    XXH3_128bits_reset(m->shard.hash);
    return 0;
}

/* Writes the buffer to the file. */
static int shard_flush(struct materializer *m, struct cw_error *err)
{
    cw_crash_point("materialize-write");
    XXH3_128bits_update(m->shard.hash, m->buffer.data, m->buffer.size);
    if (cw_write_all(m->shard.fd, m->buffer.data, m->buffer.size) < 0)
        return shard_fail(m, err);
    m->buffer.size = 0;
    return 0;
}

/* Ends the shard. state, skip: the position after it, as the journal has it; state is taken over. */
static int shard_finish(struct materializer *m, json_t *state, uint64_t skip, struct cw_error *err)
{
    json_auto_t *own = state;
    char checksum[33], digest[33];
    size_t before = m->buffer.size;
    int r = cw_shard_write_end(&m->schema, &m->buffer, err);
    m->shard.bytes += m->buffer.size - before;
    m->bytes += m->buffer.size - before;
    if (r == 0)
        r = shard_flush(m, err);
    if (r == 0 && fsync(m->shard.fd) < 0)
        r = shard_fail(m, err);
    if (r == 0 && close(m->shard.fd) < 0)
        r = shard_fail(m, err);
    if (r < 0)
        return r;
    m->shard.fd = -1;
    XXH128_hash_t h = XXH3_128bits_digest(m->shard.hash);
    cw_hash128_print((struct cw_hash128){.lo = h.low64, .hi = h.high64}, checksum);
    cw_hash128_print(m->shard.set_sum, digest);
    json_t *shard = json_pack("{s:s, s:I, s:I, s:s, s:s}", "name", m->shard.name, "elements",
                              (json_int_t)m->shard.elements, "bytes", (json_int_t)m->shard.bytes, "checksum",
                              checksum, "set_digest", digest);
    r = cw_shard_dir_add(&m->dir, shard, json_incref(own), skip, err);
    free(CW_STEAL(m->shard.path));
    return r;
}

/* Removes the open shard, after an error: its room is needed, and the next run writes it again. */
static void shard_discard(struct materializer *m)
{
    if (m->shard.fd >= 0)
        close(m->shard.fd);
    if (m->shard.path)
        (void)unlink(m->shard.path);
    free(CW_STEAL(m->shard.path));
    m->shard.fd = -1;
}

/* ---- elements ---- */

/* The position after the batch that was received last. */
static json_t *materializer_position(const struct materializer *m)
{
    json_t *state = cw_iterator_state(m->local->iterator);
    return state ? state : json_null();
}

/* Appends an element. row: its number in the batch. */
static int materializer_add(struct materializer *m, const struct cw_batch *b, uint32_t row,
                            const struct cw_tensor *values, struct cw_error *err)
{
    struct cw_hash128 hash = cw_batch_row_hash(b, values);
    size_t before = m->buffer.size;
    int r = m->shard.fd < 0 ? shard_open(m, err) : 0;
    if (r == 0)
        r = cw_shard_write(&m->schema, m->elements, values, &m->buffer, err);
    if (r < 0)
        return r;
    size_t size = m->buffer.size - before;
    m->shard.elements++;
    m->shard.bytes += size;
    m->elements++;
    m->bytes += size;
    m->shard.set_sum = cw_hash128_add(m->shard.set_sum, hash);
    m->set_sum = cw_hash128_add(m->set_sum, hash);
    if (m->shard.bytes >= m->options->shard_bytes)
        return row + 1 == b->n
                   ? shard_finish(m, materializer_position(m), 0, err)
                   : shard_finish(m, m->before ? json_incref(m->before) : json_null(), row + 1, err);
    return m->buffer.size >= WRITE_BYTES ? shard_flush(m, err) : 0;
}

static int materializer_add_batch(void *arg, const struct cw_batch *b, struct cw_error *err)
{
    struct materializer *m = arg;
    struct cw_batch_rows rows = {.b = b};
    struct cw_tensor values[CW_MAX_COMPONENTS];
    int r = 0;
    for (uint32_t row = 0; r == 0 && cw_batch_next_row(&rows, values); row++)
        if (row >= m->skip)
            r = materializer_add(m, b, row, values, err);
    m->skip = 0;
    if (r == 0 && b->leading) { /* without batches, a shard never ends within one */
        json_decref(m->before);
        m->before = materializer_position(m);
    }
    return r;
}

/* ---- the run ---- */

/* Returns the number of elements that are requested together, as a batch, from a pipeline without a batcher:
 * 1 unless all components have a fixed size, because others may differ in shape, or be large. */
static size_t materialize_together(const struct cw_compiled *c)
{
    size_t bytes = 1;
    unsigned n;
    const struct cw_component *components = cw_delivered(c, &n);
    for (unsigned i = 0; i < n; i++) {
        size_t size = cw_type_fixed(&components[i].type) ? cw_type_bytes(&components[i].type) : WRITE_BYTES;
        bytes += CW_MIN(size, WRITE_BYTES);
    }
    return c->batcher ? 1 : CW_MAX(CW_MIN(WRITE_BYTES / bytes, (size_t)BATCH_MOST), (size_t)1);
}

/* Opens the sources of a compiled pipeline, after adding a batcher to it if that makes it faster: it changes
 * neither the elements nor their order. */
static int materialize_open(struct cw_local *l, const struct cw_materialize_options *o, struct cw_error *err)
{
    size_t n = materialize_together(l->compiled);
    int r = 0;
    if (n > 1) {
        struct cw_pipeline *p = l->pipeline;
        json_auto_t *old = l->root, *root = json_deep_copy(old);
        json_t *batch = json_pack("{s:s, s:I}", "op", "batch", "size", (json_int_t)n);
        l->compiled = cw_compiled_free(l->compiled);
        l->pipeline = NULL;
        l->root = NULL;
        r = json_array_append_new(json_object_get(root, "pipeline"), batch) < 0
                ? cw_error_nomem(err, 0, "a pipeline")
                : cw_local_compile(l, root, p->base_dir, err);
        cw_pipeline_unref(p);
    }
    return r < 0 ? r
                 : cw_local_open(l, o->index_dir, o->iterate.runner.threads, o->iterate.runner.memory, err);
}

static int materializer_read_schema(struct materializer *m, struct cw_error *err)
{
    unsigned n;
    const struct cw_component *components = cw_delivered(m->local->compiled, &n);
    m->schema.format = m->options->format;
    if (n > CW_SHARD_COMPONENTS)
        return cw_error_set(
            err, CW_E_PIPELINE,
            "elements have %u components: expected at most %d to materialise; drop or join some", n,
            CW_SHARD_COMPONENTS);
    for (; m->schema.n < n; m->schema.n++) {
        struct cw_shard_component *c = &m->schema.components[m->schema.n];
        c->type = components[m->schema.n].type;
        if (!(c->name = strdup(components[m->schema.n].name)))
            return cw_error_nomem(err, 0, "the components");
    }
    return cw_shard_schema_check(&m->schema, err);
}

static int materializer_check_end(const struct materializer *m, struct cw_error *err)
{
    const struct cw_compiled *c = m->local->compiled;
    if (m->local->sequence->n_positions < CW_ENDLESS || c->sequential || c->take != UINT64_MAX ||
        c->batch_to != UINT64_MAX)
        return 0;
    return cw_error_set(err, CW_E_PIPELINE,
                        "the pipeline has no end, so it can't be materialised: end it with take");
}

/* Returns the description of the run, new. */
static json_t *materializer_describe(const struct materializer *m)
{
    const struct cw_pipeline *p = m->local->pipeline;
    char fingerprint[33], data[17];
    _cleanup_free_ char *base = cw_absolute(p->base_dir);
    cw_hash128_print(m->fingerprint, fingerprint);
    snprintf(data, sizeof(data), "%016" PRIx64, m->local->sequence->snapshot);
    json_t *base_dir = base && cw_text_utf8(base, strlen(base)) ? json_string(base) : json_null();
    json_t *lineage = json_pack("{s:O, s:o, s:s, s:s, s:I, s:I, s:s}", "pipeline", m->pipeline, "base_dir",
                                base_dir, "fingerprint", fingerprint, "data", data, "seed",
                                (json_int_t)m->options->iterate.seed, "shard_bytes",
                                (json_int_t)m->options->shard_bytes, "cachew", CACHEW_VERSION);
    json_t *components = lineage ? cw_manifest_components(&m->schema) : NULL;
    return json_pack("{s:s, s:o, s:o}", "format", cw_shard_formats[m->schema.format], "components",
                     components, "lineage", lineage);
}

/* Adds up the finished shards. */
static void materializer_count(struct materializer *m)
{
    const json_t *shard;
    size_t i;
    json_array_foreach(m->dir.shards, i, shard)
    {
        struct cw_hash128 sum = {0, 0};
        m->elements += (uint64_t)json_integer_value(json_object_get(shard, "elements"));
        m->bytes += (uint64_t)json_integer_value(json_object_get(shard, "bytes"));
        if (cw_hash128_parse(json_string_value(json_object_get(shard, "set_digest")), &sum))
            m->set_sum = cw_hash128_add(m->set_sum, sum);
    }
    m->skip = m->dir.skip;
    m->before = json_incref(m->dir.state);
}

/* Sets *ret to the next batch; 1: there is none. While it waits it looks at l->interrupt. The deadline is for
 * each element of the batch, because materialize_open may have joined elements. */
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

/* Takes all batches: calls o->step, then `take` with each. l has its iterator. */
static int materialize_each(struct cw_local *l, const struct cw_materialize_options *o,
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

static int materializer_iterate(struct materializer *m, struct cw_error *err)
{
    const struct cw_materialize_options *o = m->options;
    struct cw_iterator_options iterate = o->iterate;
    iterate.epochs = iterate.world_size = 1;
    materializer_count(m);
    int r = cw_local_iterate(m->local, &iterate, m->dir.state, err);
    return r < 0 ? r : materialize_each(m->local, o, materializer_add_batch, m, &m->elements, &m->bytes, err);
}

static int materializer_publish(struct materializer *m, struct cw_error *err)
{
    char digest[33];
    int r = m->shard.fd >= 0 ? shard_finish(m, materializer_position(m), 0, err) : 0;
    if (r < 0)
        return r;
    cw_hash128_print(m->set_sum, digest);
    return cw_shard_dir_publish(&m->dir,
                                json_pack("{s:I, s:I, s:s}", "elements", (json_int_t)m->elements, "bytes",
                                          (json_int_t)m->bytes, "set_digest", digest),
                                err);
}

/* Returns the result of a complete data set, new; NULL: out of memory. */
static json_t *materializer_result(const json_t *manifest)
{
    return json_pack("{s:I, s:O, s:O, s:O}", "shards",
                     (json_int_t)json_array_size(json_object_get(manifest, "shards")), "elements",
                     json_object_get(manifest, "elements"), "bytes", json_object_get(manifest, "bytes"),
                     "set_digest", json_object_get(manifest, "set_digest"));
}

int cw_materialize(struct cw_local *l, const struct cw_materialize_options *o, json_t **ret,
                   struct cw_error *err)
{
    struct materializer m = {.options = o,
                             .local = l,
                             .pipeline = json_incref(l->root),
                             .fingerprint = l->pipeline->fingerprint,
                             .dir.journal = -1,
                             .shard = {.fd = -1, .hash = XXH3_createState()}};
    int r = m.shard.hash ? materializer_read_schema(&m, err) : cw_error_nomem(err, 0, "a checksum");
    if (r == 0)
        r = materialize_open(l, o, err);
    if (r == 0)
        r = materializer_check_end(&m, err);
    if (r == 0)
        r = cw_shard_dir_open(&m.dir, o->dir, materializer_describe(&m), err);
    if (r == 0 && !m.dir.manifest)
        r = materializer_iterate(&m, err);
    if (r == 0 && !m.dir.manifest)
        r = materializer_publish(&m, err);
    if (r == 0 && !(*ret = materializer_result(m.dir.manifest)))
        r = cw_error_nomem(err, 0, "the result");
    shard_discard(&m);
    cw_shard_dir_close(&m.dir);
    cw_shard_schema_deinit(&m.schema);
    XXH3_freeState(m.shard.hash);
    free(m.buffer.data);
    json_decref(m.before);
    json_decref(m.pipeline);
    return r;
}

/* ---- checking ---- */

/* Compares a file with its entry in the manifest. */
static int verify_shard(const char *dir, const struct cw_manifest_shard *s, struct cw_shard_bytes *buffer,
                        XXH3_state_t *hash, struct cw_error *err)
{
    _cleanup_free_ char *path = cw_manifest_path(dir, s->name);
    struct cw_file *file = NULL;
    struct cw_stat stat;
    char found[33], wanted[33];
    int r = path ? cw_stat(path, &stat, err) : cw_error_nomem(err, 0, "a path");
    if (r == 0 && stat.size != s->bytes)
        return cw_error_at_file(err, CW_E_DATA, path, 0, "%s has %" PRIu64 " bytes, expected %" PRIu64, path,
                                stat.size, s->bytes);
    if (r == 0)
        r = cw_file_new(path, &stat, &file, err);
    XXH3_128bits_reset(hash);
    for (uint64_t at = 0; r == 0 && at < s->bytes; at += WRITE_BYTES) {
        size_t n = (size_t)CW_MIN(s->bytes - at, (uint64_t)WRITE_BYTES);
        r = cw_file_read(file, at, buffer->data, n, false, err);
        if (r == 0)
            XXH3_128bits_update(hash, buffer->data, n);
    }
    cw_file_free(file);
    if (r < 0)
        return r;
    XXH128_hash_t h = XXH3_128bits_digest(hash);
    cw_hash128_print((struct cw_hash128){.lo = h.low64, .hi = h.high64}, found);
    cw_hash128_print(s->checksum, wanted);
    if (strcmp(found, wanted) != 0)
        return cw_error_at_file(err, CW_E_DATA, path, 0, "%s has the checksum %s, expected %s: it is damaged",
                                path, found, wanted);
    return 0;
}

/* Compares the files of a directory with its manifest. */
static int verify_files(const char *dir, const struct cw_manifest *m, struct cw_error *err)
{
    _cleanup_free_ char *other = NULL;
    struct cw_shard_bytes buffer = {.data = malloc(WRITE_BYTES)};
    XXH3_state_t *hash = XXH3_createState();
    int r = buffer.data && hash ? cw_shard_dir_stranger(dir, json_object_get(m->root, "shards"), &other, err)
                                : cw_error_nomem(err, WRITE_BYTES, "a buffer");
    if (r == 0 && other)
        r = cw_error_at_file(err, CW_E_DATA, dir, 0, "%s holds %.80s, which its manifest does not name", dir,
                             other);
    for (size_t i = 0; r == 0 && i < m->n_shards; i++)
        r = verify_shard(dir, &m->shards[i], &buffer, hash, err);
    free(buffer.data);
    XXH3_freeState(hash);
    return r;
}

struct verified { /* what was read back */
    struct cw_hash128 sum;
    uint64_t elements, bytes;
};

static int verify_batch(void *arg, const struct cw_batch *b, struct cw_error *err CW_UNUSED)
{
    struct verified *v = arg;
    v->sum = cw_hash128_add(v->sum, cw_batch_set_hash(b));
    v->elements += b->n;
    for (unsigned i = 0; i < b->n_components; i++)
        v->bytes += b->components[i].size;
    return 0;
}

/* Reads the elements back, and compares them with the manifest. */
static int verify_elements(const char *dir, struct cw_local *l, const struct cw_materialize_options *o,
                           const struct cw_manifest *m, struct cw_error *err)
{
    struct cw_iterator_options iterate = o->iterate;
    struct verified v = {0};
    char found[33];
    _cleanup_free_ char *path = cw_absolute(dir);
    json_auto_t *root = json_pack("{s:i, s:[{s:s, s:s}]}", "cachew", 1, "pipeline", "op", "materialized",
                                  "path", path ? path : "");
    int r = path && root ? cw_local_compile(l, root, ".", err) : cw_error_nomem(err, 0, "a pipeline");
    iterate.epochs = iterate.world_size = 1;
    if (r == 0)
        r = materialize_open(l, o, err);
    if (r == 0)
        r = cw_local_iterate(l, &iterate, NULL, err);
    if (r == 0)
        r = materialize_each(l, o, verify_batch, &v, &v.elements, &v.bytes, err);
    if (r < 0)
        return r;
    const char *wanted = json_string_value(json_object_get(m->root, "set_digest"));
    cw_hash128_print(v.sum, found);
    if (!wanted || strcmp(wanted, found) != 0 || m->elements != v.elements)
        return cw_error_at_file(err, CW_E_DATA, dir, 0,
                                "%s holds %" PRIu64 " elements with set_digest %s, expected %" PRIu64
                                " with %s",
                                dir, v.elements, found, m->elements, wanted ? wanted : "none");
    return 0;
}

int cw_materialize_verify(const char *dir, struct cw_local *l, const struct cw_materialize_options *o,
                          json_t **ret, struct cw_error *err)
{
    struct cw_manifest m;
    int r = cw_manifest_read(dir, &m, err);
    if (r == 0)
        r = verify_files(dir, &m, err);
    if (r == 0 && m.n_shards > 0)
        r = verify_elements(dir, l, o, &m, err);
    if (r == 0 && !(*ret = materializer_result(m.root)))
        r = cw_error_nomem(err, 0, "the result");
    cw_manifest_deinit(&m);
    return r;
}
