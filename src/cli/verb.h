/* The descriptors of all verbs. Each verb has its own file, which ends with its descriptor. main.c lists
 * them. */
#pragma once
#include "cli/options.h"

extern const struct cli_verb cli_verb_run, cli_verb_materialize, cli_verb_explain, cli_verb_ops,
    cli_verb_index, cli_verb_ls, cli_verb_bench, cli_verb_cache, cli_verb_up, cli_verb_worker,
    cli_verb_dispatcher, cli_verb_provision, cli_verb_jobs, cli_verb_workers, cli_verb_top, cli_verb_trace,
    cli_verb_simulate, cli_verb_keys, cli_verb_doctor, cli_verb_demo, cli_verb_photos, cli_verb_stats,
    cli_verb_show;
