/* cachew explain: what the compiler made of a pipeline, and, after running it for some seconds, where the time goes. */
#include <stdio.h>

#include "cli/common.h"
#include "client/explain.h"

static void print(void (*describe)(const json_t *, struct cw_text *), const json_t *facts)
{
    struct cw_text t = {0};
    describe(facts, &t);
    if (t.data)
        fputs(t.data, stdout);
    fflush(stdout);
    cw_text_deinit(&t);
}

int cli_explain(int argc, char **argv)
{
    struct cli_common c;
    double seconds = 3;
    struct cw_error err = {0};
    const struct cli_option options[] = {
        {"run", CLI_SECONDS, &seconds, "S", "run it for S seconds to see where the time goes (default 3; 0: don't)", 0, 0, NULL, NULL},
        CLI_COMMON_OPTIONS(&c, "compute threads"),
        {0},
    };
    cli_common_init(&c);
    int r = cli_common_parse(&c, "explain", options, argc, argv, &err), code = 0;
    if (r == 1)
        return 0;
    json_t *facts = json_object();
    if (r >= 0)
        r = cli_common_load(&c, &err);
    if (r >= 0)
        r = cli_common_open(&c, &err);
    struct cw_explain_options o = {
        .name = c.file,
        .seed = c.seed,
        .threads = (unsigned)c.threads,
        .memory = c.memory,
        .optimize = !c.no_optimize,
        .seconds = seconds,
        .wait = c.wait,
    };
    if (r >= 0)
        r = cw_explain_pipeline(&c.local, &o, facts, &err);
    if (r >= 0 && !c.json)
        print(cw_explain_pipeline_text, facts);
    if (r >= 0 && seconds > 0)
        r = cw_explain_run(&c.local, &o, facts, &err);
    if (r < 0)
        code = cli_fail(&err, c.json, facts);
    else if (c.json)
        code = cli_print(json_incref(facts));
    else if (seconds > 0)
        print(cw_explain_run_text, json_object_get(facts, "run"));
    json_decref(facts);
    cli_common_deinit(&c);
    return code;
}
