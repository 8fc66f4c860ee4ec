/* The options that `run`, `explain`, `bench` and `cache` share, and the pipeline that is loaded from them. */
#include "cli/pipeline.h"

#include <stdio.h>

#include "base/machine.h"
#include "ops/plugin/plugin.h"
#include "session/tuning.h"

int cli_pipeline_parse(struct cli_pipeline *c, const struct cli_verb *verb, const struct cli_option *options,
                       int argc, char **argv, struct cw_error *err)
{
    struct cw_rank_share share = cw_rank_share();
    *c = (struct cli_pipeline){.threads = share.cpus, .memory = share.memory, .wait_s = 60};
    int r = cli_parse(verb, options, argc, argv, err);
    c->file = argv[1];
    return r;
}

int cli_plugins_load(const struct cli_texts *plugins, struct cw_error *err)
{
    int r = 0;
    for (size_t i = 0; i < plugins->n && r >= 0; i++)
        r = cw_plugin_load(plugins->items[i], err);
    return r;
}

int cli_pipeline_load(struct cli_pipeline *c, struct cw_error *err)
{
    int r = cli_plugins_load(&c->plugins, err);
    if (!c->threads_given)
        cw_tuning_threads(&c->local, (unsigned)c->threads);
    if (!c->memory_given)
        cw_tuning_memory(&c->local, c->memory);
    if (r >= 0 && c->order) {
        snprintf(c->order_setting, sizeof(c->order_setting), "order=%s", c->order);
        r = cli_texts_add(&c->settings, c->order_setting, err);
    }
    c->local.as_written = c->no_optimize;
    if (r >= 0)
        r = cw_local_load(&c->local, c->file, c->settings.items, c->settings.n, err);
    if (r >= 0 && !c->seed_given && c->local.pipeline->default_seed >= 0)
        c->seed = (uint64_t)c->local.pipeline->default_seed;
    return r;
}

int cli_pipeline_open(struct cli_pipeline *c, struct cw_error *err)
{
    return cw_local_open(&c->local, c->index_dir, (unsigned)c->threads, c->memory, err);
}

struct cw_iterator_options cli_pipeline_options(const struct cli_pipeline *c)
{
    return (struct cw_iterator_options){.seed = c->seed,
                                        .epochs = 1,
                                        .world_size = 1,
                                        .runner = {.threads = (unsigned)c->threads,
                                                   .more_threads = !c->threads_given,
                                                   .memory = c->memory,
                                                   .optimize = !c->no_optimize}};
}

void cli_pipeline_deinit(struct cli_pipeline *c)
{
    cw_local_deinit(&c->local);
    cli_texts_deinit(&c->settings);
    cli_texts_deinit(&c->plugins);
}
