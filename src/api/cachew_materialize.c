/* Materialising pipelines, for the C interface. */
#include "api/cachew_impl.h"

#include <string.h>

#include "base/machine.h"
#include "session/materialize.h"
#include "session/tuning.h"

struct progress {
    void (*call)(void *arg, uint64_t elements, uint64_t bytes);
    void *arg;
};

/* cw_materialize_options.step */
static int materialize_progress(void *arg, struct cw_local *l CW_UNUSED, uint64_t elements, uint64_t bytes)
{
    const struct progress *p = arg;
    if (p->call)
        p->call(p->arg, elements, bytes);
    return 0;
}

/* cw_materialize_options.connect */
static int materialize_connect(void *arg, struct cw_local *l, const char *run, const json_t *state,
                               struct cw_error *err)
{
    struct cachew_options o = *(const struct cachew_options *)arg;
    const struct cw_iterator_options iterate = {.seed = (uint64_t)o.seed, .epochs = 1, .world_size = 1};
    _cleanup_free_ char *job = cw_materialize_job(o.job, run);
    if (!job)
        return cw_error_nomem(err, 0, "a name");
    o.job = job;
    o.rank = 0;
    o.world_size = 1;
    o.cut = NULL;
    return cw_api_open_service(&o, &iterate, state, l, err);
}

static int materialize_format(const char *name, enum cw_shard_format *ret, struct cw_error *err)
{
    for (*ret = 0; *ret < CW_N_SHARD_FORMATS; ++*ret)
        if (!name || strcmp(name, cw_shard_formats[*ret]) == 0)
            return 0;
    return cw_error_value(err, CW_E_OPTION, "format", name, "\"cachew\", \"tfrecord\" or \"tar\"",
                          "format is \"%.40s\": expected \"cachew\", \"tfrecord\" or \"tar\"", name);
}

int cachew_pipeline_materialize(const struct cachew_pipeline *p, const struct cachew_options *options,
                                const char *path, const char *format, uint64_t shard_bytes,
                                void (*progress)(void *arg, uint64_t elements, uint64_t bytes),
                                void *progress_arg, char **ret, struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_local l = {0};
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct progress call = {progress, progress_arg};
    struct cw_materialize_options m = {.dir = path,
                                       .shard_bytes = shard_bytes ? shard_bytes : CW_SHARD_BYTES,
                                       .step = materialize_progress,
                                       .step_arg = &call};
    json_auto_t *result = NULL;
    int r = cw_api_read_options(options, &o, &e);
    if (r >= 0)
        r = materialize_format(format, &m.format, &e);
    l.as_written = !o.optimize;
    if (r >= 0)
        r = cw_api_compile(p, &l, &e);
    if (r >= 0) {
        const struct cw_rank_share share = cw_rank_share();
        l.interrupt = o.interrupt;
        m.index_dir = o.index_dir;
        m.iterate.seed = (uint64_t)(o.seed >= 0 ? o.seed : CW_MAX(l.pipeline->default_seed, 0));
        m.iterate.runner = (struct cw_runner_options){.threads = o.threads ? o.threads : share.cpus,
                                                      .more_threads = !o.threads,
                                                      .memory = o.memory ? o.memory : share.memory,
                                                      .optimize = o.optimize != 0};
        m.connect = o.service ? materialize_connect : NULL;
        o.seed = (int64_t)m.iterate.seed;
        m.connect_arg = &o;
        r = cw_materialize(&l, &m, &result, &e);
    }
    if (r >= 0 && !(*ret = json_dumps(result, JSON_COMPACT)))
        r = cw_error_nomem(&e, 0, "the result");
    cw_local_deinit(&l);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}
