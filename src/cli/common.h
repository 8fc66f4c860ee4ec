/* What `run`, `explain` and `bench` have in common: their options, and the pipeline that these lead to. */
#pragma once
#include "cli/options.h"
#include "session/local.h"
#include "remote/remote.h"

struct cli_common {
    const char *file, *index_dir;
    uint64_t seed, threads, memory;
    bool seed_given, threads_given, memory_given, json, no_optimize;
    double wait;
    struct cli_texts settings, plugins;
    struct cw_local local;
};

#define CLI_PLUGIN_OPTION(plugins) \
    {"plugin", CLI_TEXTS, plugins, "PATH", "load operators from a shared object first; several times", \
     0,        0,         NULL,    NULL}

#define CLI_TOKEN_OPTION(file) \
    { \
        "token-file", \
        CLI_TEXT, \
        file, \
        "FILE", \
        "the service's token (default: $CACHEW_TOKEN, if it is set)", \
        0, \
        0, \
        NULL, \
        NULL}

/* clang-format off */
/* Rows for a verb's table of options. */
#define CLI_COMMON_OPTIONS(c, threads_help) \
    {"seed", CLI_COUNT, &(c)->seed, "S", "seed of all randomness (default: the pipeline's, else 0)", 0, \
     INT64_MAX, NULL, &(c)->seed_given}, \
    {"threads", CLI_COUNT, &(c)->threads, "N", \
     threads_help " (default: the CPUs this process may use)", 1, 1024, NULL, &(c)->threads_given}, \
    {"memory", CLI_BYTES, &(c)->memory, "BYTES", "memory budget (default: half of what there is)", 0, \
     0, NULL, &(c)->memory_given}, \
    {"set", CLI_TEXTS, &(c)->settings, "PATH=VALUE", \
     "change the pipeline: 2.size=64 sets size of operator 2", 0, 0, NULL, NULL}, \
    CLI_PLUGIN_OPTION(&(c)->plugins), \
    {"index-dir", CLI_TEXT, &(c)->index_dir, "DIR", \
     "where indexes are kept (default ~/.cache/cachew/index)", 0, 0, NULL, NULL}, \
    {"wait", CLI_SECONDS, &(c)->wait, "S", "deadline for a batch (default 60; 0: none)", 0, 0, NULL, NULL}, \
    {"no-optimize", CLI_FLAG, &(c)->no_optimize, NULL, "run the operators as written", 0, 0, NULL, NULL}, \
    {"json", CLI_FLAG, &(c)->json, NULL, "print one JSON object", 0, 0, NULL, NULL}
/* clang-format on */

/* Defaults. */
void cli_common_init(struct cli_common *c);
/* cli_parse for the verb of this name; --json counts even where another option is wrong. */
int cli_common_parse(struct cli_common *c, const char *verb, const struct cli_option *options, int argc,
                     char **argv, struct cw_error *err) _must_check_;
/* Loads the plug-ins, then the pipeline file into c->local; a seed that was not given is the pipeline's.
 * Touches no data. */
int cli_common_load(struct cli_common *c, struct cw_error *err) _must_check_;
/* Opens its sources. */
int cli_common_open(struct cli_common *c, struct cw_error *err) _must_check_;
void cli_common_deinit(struct cli_common *c);

int cli_load_plugins(const struct cli_texts *plugins, struct cw_error *err) _must_check_;

extern const char *const cli_transports[];         /* for --transport */
enum cw_transport cli_transport(const char *name); /* NULL: auto */
/* The token in a file (its first line), or in the environment; *ret is new, or NULL where there is neither. A
 * token never stands on a command line, where `ps` shows it. */
int cli_token(const char *file, char **ret, struct cw_error *err) _must_check_;
