/* Materialises a pipeline by a service: its workers write the shards (shard_source.c), and this process,
 * which gets only the lists of them, publishes them in their order. */
#include "session/materialize_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "session/shard_source.h"
#include "storage/file.h"

/* Returns whether the pipeline ends with a batcher that changes neither the elements nor their order. */
static bool serve_can_strip(const struct cw_compiled *c)
{
    const struct cw_chain *chain = &c->pipeline->chain;
    const struct cw_op_desc *last = chain->nodes[chain->n - 1].desc;
    return last == c->batcher && last->kind == CW_OP_BATCHER && !last->takes_batches &&
           !last->batcher->rows && !c->keyed && !c->padding && !c->grouping.full_only && c->n_limits == 0 &&
           !c->sequential && c->take == UINT64_MAX && c->batch_to == UINT64_MAX;
}

/* Returns the pipeline that the workers run, new; NULL: out of memory. It gives the same elements. Where
 * batches follow from positions, ranges consist of whole batches; else without a batcher a range can begin
 * anywhere. */
static json_t *serve_pipeline(const struct cw_materializer *m)
{
    const struct cw_compiled *c = m->local->compiled;
    size_t n = c->counted ? cw_materialize_together(c) : 1;
    if (n > 1)
        return cw_materialize_batched(m->pipeline, n);
    json_t *copy = json_deep_copy(m->pipeline), *ops = json_object_get(copy, "pipeline");
    if (copy && !c->counted && serve_can_strip(c))
        json_array_remove(ops, json_array_size(ops) - 1);
    return copy;
}

/* Draws the name of a run. */
static void serve_name(char run[CW_SHARD_RUN])
{
    struct cw_hash128 random = {0, 0};
    (void)!getrandom(&random, sizeof(random), 0);
    cw_hash128_print(random, run);
}

char *cw_materialize_job(const char *name, const char *run)
{
    char *job;
    return asprintf(&job, "%s-%.12s", name ? name : "materialize", run) < 0 ? NULL : job;
}

/* Compiles the pipeline of the job. */
static int serve_compile(struct cw_materializer *m, struct cw_error *err)
{
    const struct cw_materialize_options *o = m->options;
    json_auto_t *written = serve_pipeline(m);
    _cleanup_free_ char *dir = cw_absolute(o->dir);
    if (!written || !dir)
        return cw_error_nomem(err, 0, "a pipeline");
    int r = cw_shard_source_register(err);
    if (r == 0) /* for its fingerprint */
        r = cw_materialize_replace(m->local, json_incref(written), err);
    const struct cw_shard_job job = {.pipeline = written,
                                     .fingerprint = r == 0 ? m->local->pipeline->fingerprint : m->fingerprint,
                                     .seed = o->iterate.seed,
                                     .shard_bytes = o->shard_bytes,
                                     .dir = dir,
                                     .format = o->format,
                                     .run = cw_shard_dir_run(&m->dir)};
    return r < 0 ? r : cw_materialize_replace(m->local, cw_shard_source_pipeline(&job), err);
}

/* Publishes a shard. last: of its range. */
static int serve_take_shard(struct cw_materializer *m, json_t *shard, size_t i, bool last,
                            struct cw_error *err)
{
    const char *name = json_string_value(json_object_get(shard, "temporary"));
    _cleanup_free_ char *temporary = name ? strdup(name) : NULL;
    if (!temporary)
        return cw_error_set(err, CW_E_SERVICE, "a worker sent a malformed list of shards" CW_OTHER_VERSION);
    json_object_del(shard, "temporary");
    cw_materializer_count(m, shard);
    return cw_shard_dir_add(&m->dir, temporary, json_incref(shard),
                            last        ? cw_materializer_position(m)
                            : m->before ? json_incref(m->before)
                                        : json_null(),
                            last ? 0 : i + 1, err);
}

/* Publishes the shards of a range, the elements of a batch of one. */
static int serve_take(void *arg, const struct cw_batch *b, struct cw_error *err)
{
    struct cw_materializer *m = arg;
    struct cw_batch_rows rows = {.b = b};
    struct cw_tensor values[CW_MAX_COMPONENTS];
    json_t *shard;
    size_t i;
    int r = 0;
    if (!cw_batch_next_row(&rows, values))
        return 0;
    json_auto_t *range = json_loadb(values[0].data, values[0].size, 0, NULL);
    json_t *data = json_object_get(range, "data"), *shards = json_object_get(range, "shards");
    if (!json_is_string(data) || !json_is_array(shards))
        return cw_error_set(err, CW_E_SERVICE, "a worker sent a malformed list of shards" CW_OTHER_VERSION);
    if (json_object_set(json_object_get(m->dir.run, "lineage"), "data", data) < 0)
        return cw_error_nomem(err, 0, "the manifest");
    json_array_foreach(shards, i, shard) if (r == 0 && i >= m->skip)
        r = serve_take_shard(m, shard, i, i + 1 == json_array_size(shards), err);
    m->skip = 0;
    json_decref(m->before);
    m->before = cw_materializer_position(m);
    return r;
}

int cw_materializer_serve(struct cw_materializer *m, struct cw_error *err)
{
    const struct cw_materialize_options *o = m->options;
    char run[CW_SHARD_RUN];
    serve_name(run);
    int r = cw_shard_dir_open(&m->dir, o->dir, cw_materializer_describe(m, NULL, run), err);
    if (r < 0 || m->dir.manifest)
        return r;
    cw_materializer_resume(m);
    r = serve_compile(m, err);
    if (r == 0)
        r = o->connect(o->connect_arg, m->local, cw_shard_dir_run(&m->dir), m->dir.state, err);
    if (r == 0)
        r = cw_materialize_each(m->local, o, serve_take, m, &m->elements, &m->bytes, err);
    return r < 0 ? r : cw_materializer_publish(m, err);
}
