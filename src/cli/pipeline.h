/* The options that `run`, `explain`, `bench` and `cache` share, and the pipeline that is loaded from them. */
#pragma once
#include "cli/options.h"
#include "session/local.h"

struct cli_pipeline {
    const char *file, *index_dir, *order;
    char order_setting[32]; /* --operator-order, as a setting of the pipeline file */
    uint64_t seed, threads, memory;
    bool seed_given, threads_given, memory_given, wait_given, json, no_optimize;
    double wait_s; /* deadline for a batch; 0: none */
    struct cli_texts settings, plugins;
    struct cw_local local;
};

/* Rows for a verb's table of options. */
#define CLI_PLUGIN_OPTION(plugins) \
    {"plugin", CLI_TEXTS, plugins, "PATH", \
     "load the operators of a plug-in, the shared object (.so) PATH; may be given several times"}
#define CLI_INDEX_DIR_OPTION(dir) \
    {"index-dir", CLI_TEXT, dir, "DIR", \
     "keep the indexes of data files (where each record begins) in DIR (default ~/.cache/cachew/index)"}
#define CLI_CACHE_BYTES_OPTION(bytes, verb) \
    {"cache-bytes", CLI_BYTES, bytes, "BYTES", \
     verb "let the cache directory hold at most BYTES (default: its present size plus half of the disk's " \
          "free space)"}
#define CLI_PIPELINE_OPTIONS(c, threads_help) \
    {"seed", \
     CLI_COUNT, \
     &(c)->seed, \
     "S", \
     "use S as the seed of all random numbers (default: the seed in the pipeline file, else 0)", \
     .max = INT64_MAX, \
     .given = &(c)->seed_given}, \
        {"threads", \
         CLI_COUNT, \
         &(c)->threads, \
         "N", \
         threads_help " (default: one for each CPU that this process may use)", \
         .min = 1, \
         .max = 1024, \
         .given = &(c)->threads_given}, \
        {"memory", \
         CLI_BYTES, \
         &(c)->memory, \
         "BYTES", \
         "use at most BYTES of memory for batches and their computation (default: half of the cgroup's or " \
         "machine's memory)", \
         .given = &(c)->memory_given}, \
        {"set", CLI_TEXTS, &(c)->settings, "PATH=VALUE", \
         "change the pipeline before it is checked: 2.size=64 sets the attribute size of operator 2, " \
         "counted from 0; may be given several times"}, \
        CLI_PLUGIN_OPTION(&(c)->plugins), CLI_INDEX_DIR_OPTION(&(c)->index_dir), \
        {"wait", \
         CLI_SECONDS, \
         &(c)->wait_s, \
         "S", \
         "fail if a batch does not arrive within S seconds (default 60; 0: no deadline)", \
         .given = &(c)->wait_given}, \
        {"operator-order", \
         CLI_TEXT, \
         &(c)->order, \
         "ORDER", \
         "let operators run in another order where that is faster: strict (only where the results are the " \
         "same, bit by bit), relaxed (also past augmentations, which changes results) or written (never) " \
         "(default: the order in the pipeline file, else strict)", \
         .choices = cw_operator_order_names}, \
        {"no-optimize", CLI_FLAG, &(c)->no_optimize, NULL, \
         "run each operator as a separate step, in the order as written (slower; the results are the " \
         "same)"}, \
        {"json", CLI_FLAG, &(c)->json, NULL, "print the result as one JSON object"}

/* Sets the defaults of *c, then parses the command line into it. The first argument is the pipeline file.
 * Returns what cli_parse returns. */
int cli_pipeline_parse(struct cli_pipeline *c, const struct cli_verb *verb, const struct cli_option *options,
                       int argc, char **argv, struct cw_error *err) _must_check_;
/* Loads the plug-ins, then the pipeline file into c->local. Without --seed, c->seed becomes the seed of the
 * pipeline file, if it has one. Touches no data. */
int cli_pipeline_load(struct cli_pipeline *c, struct cw_error *err) _must_check_;
/* Opens the sources of a loaded pipeline. */
int cli_pipeline_open(struct cli_pipeline *c, struct cw_error *err) _must_check_;
/* The options of an iterator over epoch 0, for the only rank. */
struct cw_iterator_options cli_pipeline_options(const struct cli_pipeline *c);
void cli_pipeline_deinit(struct cli_pipeline *c);
/* Loads plug-ins. Their operators stay loaded until the process ends. */
int cli_plugins_load(const struct cli_texts *plugins, struct cw_error *err) _must_check_;
