#include "cli/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "session/tuning.h"
#include "ops/plugin/plugin.h"

void cli_common_init(struct cli_common *c)
{
    *c = (struct cli_common){.threads = cw_cpu_budget(), .memory = cw_memory_total() / 2, .wait = 60};
}

int cli_common_parse(struct cli_common *c, const char *verb, const struct cli_option *options, int argc,
                     char **argv, struct cw_error *err)
{
    int n_args;
    c->json = cli_wants_json(argc, argv);
    int r = cli_parse(cli_find(verb), options, argc, argv, &n_args, err);
    if (r == 0)
        c->file = argv[1];
    return r;
}

int cli_load_plugins(const struct cli_texts *plugins, struct cw_error *err)
{
    int r = 0;
    for (size_t i = 0; i < plugins->n && r >= 0; i++)
        r = cw_plugin_load(plugins->items[i], err);
    return r;
}

int cli_common_load(struct cli_common *c, struct cw_error *err)
{
    int r = cli_load_plugins(&c->plugins, err);
    if (!c->threads_given)
        cw_tuning_threads(&c->local, (unsigned)c->threads);
    if (!c->memory_given)
        cw_tuning_memory(&c->local, c->memory);
    if (r >= 0)
        r = cw_local_load(&c->local, c->file, c->settings.items, c->settings.n, err);
    if (r >= 0 && !c->seed_given && c->local.pipeline->default_seed >= 0)
        c->seed = (uint64_t)c->local.pipeline->default_seed;
    return r;
}

int cli_common_open(struct cli_common *c, struct cw_error *err)
{
    return cw_local_open(&c->local, c->index_dir, (unsigned)c->threads, err);
}

void cli_common_deinit(struct cli_common *c)
{
    cw_local_deinit(&c->local);
    cli_texts_deinit(&c->settings);
    cli_texts_deinit(&c->plugins);
}

const char *const cli_transports[] = {"auto", "shm", "unix", "tcp", NULL};

enum cw_transport cli_transport(const char *name)
{
    enum cw_transport t = CW_TRANSPORT_AUTO;
    for (enum cw_transport i = CW_TRANSPORT_AUTO; name && i <= CW_TRANSPORT_TCP; i++)
        if (strcmp(name, cw_transport_name(i)) == 0)
            t = i;
    return t;
}

int cli_token(const char *file, char **ret, struct cw_error *err)
{
    size_t size;
    const char *own = getenv("CACHEW_TOKEN");
    *ret = NULL;
    if (!file) {
        if (own && *own && !(*ret = strdup(own)))
            return cw_error_nomem(err, 0, "a token");
        return 0;
    }
    int r = cw_read_file(file, 4096, ret, &size, err);
    if (r < 0)
        return r;
    (*ret)[strcspn(*ret, "\r\n")] = '\0';
    if (**ret)
        return 0;
    free(*ret);
    *ret = NULL;
    return cw_error_value(err, CW_E_OPTION, "token-file", file, "a file with a token in its first line",
                          "--token-file %s has no token in its first line", file);
}
