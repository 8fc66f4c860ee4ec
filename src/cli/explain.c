/* cachew explain: shows the compiled pipeline. Then runs it, shows where the time goes and which remedies
 * would help, and with --check tries the remedies. */
#include <stdio.h>
#include <unistd.h>

#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/signals.h"
#include "cli/verb.h"
#include "explain/explain.h"

static void explain_print(void (*describe)(const json_t *, struct cw_text *), const json_t *facts)
{
    struct cw_text t = {0};
    describe(facts, &t);
    if (t.data)
        fputs(t.data, stdout);
    fflush(stdout);
    cw_text_deinit(&t);
}

/* Called on the watcher's thread. After the first signal the command first removes the files of its trials;
 * the second signal ends it at once. */
static void explain_on_signal(void *interrupt, int number, bool again)
{
    if (again)
        _exit(128 + number);
    *(volatile int *)interrupt = 1;
}

static int explain_all(struct cli_pipeline *c, struct cw_explain_options *o, double check_seconds,
                       json_t *facts, struct cw_error *err)
{
    int r = cli_pipeline_load(c, err);
    if (r >= 0)
        r = cli_pipeline_open(c, err);
    o->run.seed = c->seed;
    if (r >= 0)
        cw_local_probe_reading(&c->local, c->memory);
    if (r >= 0)
        r = cw_explain_pipeline(&c->local, o, facts, err);
    bool described = r >= 0;
    if (r >= 0 && o->run.seconds > 0)
        r = cw_explain_run(&c->local, o, facts, err);
    if (described && !c->json) /* also if the run has failed */
        explain_print(cw_explain_text, facts);
    o->run.seconds = check_seconds;
    if (r >= 0 && check_seconds > 0)
        r = cw_explain_check(&c->local, o, facts, err);
    if (json_array_size(json_object_get(facts, "checks")) && !c->json)
        explain_print(cw_explain_check_text, facts);
    return r;
}

static int explain_main(int argc, char **argv, struct cw_error *err)
{
    struct cli_pipeline c;
    double seconds = 3, check_seconds = 3, rate = 0;
    bool check = false;
    const char *cache_dir = NULL;
    const struct cli_option options[] = {
        {"run", CLI_SECONDS, &seconds, "S",
         "run the pipeline for S seconds to see where the time goes (default 3; 0: do not run it)"},
        {"check", CLI_FLAG, &check, NULL,
         "try each suggested remedy that can be tried on this machine, and compare its measured gain with "
         "the predicted one"},
        {"seconds", CLI_SECONDS, &check_seconds, "S",
         "with --check: run each trial for S seconds (default 3)"},
        {"limit-rate", CLI_NUMBER, &rate, "N",
         "take at most N elements per second, like a training job of that speed (default 0: no limit)"},
        {"cache-dir", CLI_TEXT, &cache_dir, "DIR",
         "measure how fast a cache in DIR would be, in a temporary directory below it (default: $TMPDIR, "
         "else /tmp)"},
        CLI_PIPELINE_OPTIONS(&c, "run N compute threads"),
        {0},
    };
    int r = cli_pipeline_parse(&c, &cli_verb_explain, options, argc, argv, err);
    if (r > 0)
        return r;
    if (r == 0 && check && !(seconds > 0 && check_seconds > 0))
        r = cw_error_value(err, CW_E_OPTION, seconds > 0 ? "seconds" : "run", "0", "more than 0",
                           "--%s 0: expected more than 0 with --check", seconds > 0 ? "seconds" : "run");
    volatile int interrupt = 0;
    struct cli_signal_watch watch = {0};
    json_auto_t *facts = json_object();
    struct cw_explain_options o = {
        .name = c.file,
        .run = {.threads = (unsigned)c.threads,
                .memory = c.memory,
                .optimize = !c.no_optimize,
                .seconds = seconds,
                .rate = rate,
                .wait = c.wait_s,
                .interrupt = &interrupt},
        .index_dir = c.index_dir,
        .cache_dir = cache_dir,
    };
    c.local.interrupt = &interrupt;
    if (r >= 0) {
        cli_signal_watch_start(&watch, explain_on_signal, (void *)(uintptr_t)&interrupt);
        r = explain_all(&c, &o, check ? check_seconds : 0, facts, err);
        cli_signal_watch_stop(&watch);
    }
    int ended_by = atomic_load(&watch.seen);
    if (ended_by && r == CW_E_INTERRUPTED) {
        fprintf(stderr, "cachew: ended by %s\n", cli_signal_name(ended_by));
        r = 128 + ended_by;
        if (c.json)
            cli_print(json_incref(facts));
    } else if (r < 0) {
        r = cli_fail(err, c.json, facts);
    } else if (c.json) {
        r = cli_print(json_incref(facts));
    }
    cli_pipeline_deinit(&c);
    return r;
}

const struct cli_verb cli_verb_explain = {
    .name = "explain",
    .arguments = "PIPELINE ",
    .min_args = 1,
    .max_args = 1,
    .summary = "show the compiled pipeline (types, fused operators); run it, and say where the time goes and "
               "what limits the rate",
    .run = explain_main,
};
