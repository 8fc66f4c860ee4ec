/* The verb `cachew simulate`: simulates the jobs that a workload file models under a scaling policy, and
 * prints times, costs and decisions. The table of verbs calls it. */
#include <stdio.h>
#include <string.h>

#include "cli/print.h"
#include "cli/scaling.h"
#include "cli/verb.h"
#include "session/local.h"
#include "sim/sim.h"
#include "storage/file.h"

#define MAX_FILE (64 << 20) /* bytes; the largest useful workload file is far smaller */

struct simulate {
    const char *policy, *plot;
    bool json;
    struct cw_workload w;
    struct cw_policy chosen; /* the policy named by the field `policy`; unused if `policy` is "oracle" */
    struct cw_sim_plan plans[CW_SIM_MAX_JOBS];
    struct cw_sim_outcome outcomes[CW_SIM_MAX_JOBS], oracles[CW_SIM_MAX_JOBS];
};

static int simulate_load(const char *path, struct cw_workload *w, struct cw_error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t size = 0;
    int r = cw_read_file(path, MAX_FILE, &text, &size, err);
    if (r == 0)
        r = cw_workload_parse(text, size, w, err);
    if (r < 0)
        cw_error_file(err, path);
    return r;
}

/* Simulates the workload under the policy. Before that, computes the oracle's plan for each job, whatever the
 * policy: the oracle knows how fast each number of workers is, and chooses the best one. The regret of a
 * policy is its distance from the oracle. */
static int simulate_play(const char *path, struct simulate *s, struct cw_error *err)
{
    bool oracle = strcmp(s->policy, "oracle") == 0;
    int r = s->plot ? cw_put_check(s->plot, err) : 0;
    for (size_t i = 0; r == 0 && i < s->w.n_jobs; i++)
        r = cw_sim_oracle(&s->w, (int)i, &s->plans[i], &s->oracles[i], err);
    uint64_t steps = 0;
    struct cw_sim_options o = {.policy = oracle ? NULL : &s->chosen,
                               .plans = oracle ? s->plans : NULL,
                               .alone = -1,
                               .steps = &steps};
    if (r == 0)
        r = cw_sim_run(&s->w, &o, s->outcomes, err);
    /* cw_sim_run gives CW_E_PIPELINE if the simulation of the workload takes too many steps */
    if (r == CW_E_PIPELINE)
        cw_error_file(err, path);
    return r == 0 && s->plot ? cw_sim_plot(s->plot, &s->w, s->policy, s->outcomes, err) : r;
}

static void simulate_print(const struct simulate *s, const json_t *result)
{
    size_t i;
    const json_t *d, *regret = json_object_get(result, "regret");
    printf("%-18s %12s %12s\n", "", s->policy, "oracle");
    printf("%-18s %12.6g %12.6g  %+.1f %%\n", "time, s", json_number_value(json_object_get(result, "time_s")),
           json_number_value(json_object_get(result, "oracle_time_s")),
           100 * json_number_value(json_object_get(regret, "time")));
    printf("%-18s %12.6g %12.6g  %+.1f %%\n", "cost", json_number_value(json_object_get(result, "cost")),
           json_number_value(json_object_get(result, "oracle_cost")),
           100 * json_number_value(json_object_get(regret, "cost")));
    printf("%-18s %11.1f %%\n%-18s %12.6g\n\ndecisions:\n", "waiting",
           100 * json_number_value(json_object_get(result, "waiting")), "last change, s",
           json_number_value(json_object_get(result, "settled_at_s")));
    json_array_foreach(json_object_get(result, "decisions"), i, d)
    {
        const char *job = json_string_value(json_object_get(d, "job")),
                   *what = json_string_value(json_object_get(json_object_get(d, "record"), "what"));
        printf("  %10.4g s  %s%s%s: %s\n", json_number_value(json_object_get(d, "t")), job ? job : "",
               job ? ": " : "", what, json_string_value(json_object_get(d, "why")));
    }
}

static int simulate_main(int argc, char **argv, struct cw_error *err)
{
    _cleanup_free_ struct simulate *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a simulation");
    s->policy = "auto";
    const struct cli_option options[] = {
        {"policy", CLI_TEXT, &s->policy, "P",
         "simulate this policy: auto (default, Cachew's own), cachew-atc22 (rule of the Cachew paper), "
         "cachew-atc22-code (that rule with the thresholds of the paper's code), pecan (rule of the Pecan "
         "paper), pecan-code (rule of that paper's code), hpa (by CPU utilisation), "
         "fixed:N (N workers) or oracle (the best plan for the workload)"},
        {"plot", CLI_TEXT, &s->plot, "FILE",
         "write an SVG picture to FILE: workers over time, and how long the training job waited"},
        {"json", CLI_FLAG, &s->json, NULL, "print the result as one JSON object"},
        {0},
    };
    int r = cli_parse(&cli_verb_simulate, options, argc, argv, err);
    if (r == 0 && strcmp(s->policy, "oracle") != 0 && !cw_policy_find(s->policy, &s->chosen))
        r = cli_policy_unknown(s->policy, "oracle", err);
    if (r == 0)
        r = simulate_load(argv[1], &s->w, err);
    if (r == 0)
        r = simulate_play(argv[1], s, err);
    json_auto_t *result = r == 0 ? cw_sim_result(&s->w, s->policy, s->outcomes, s->oracles) : NULL;
    if (r == 0 && s->json)
        r = cli_print(json_incref(result));
    else if (r == 0)
        simulate_print(s, result);
    for (size_t i = 0; i < CW_SIM_MAX_JOBS; i++) {
        cw_sim_outcome_deinit(&s->outcomes[i]);
        free(s->plans[i].phases);
    }
    cw_workload_deinit(&s->w);
    return r;
}

const struct cli_verb cli_verb_simulate = {
    .name = "simulate",
    .arguments = "WORKLOAD ",
    .min_args = 1,
    .max_args = 1,
    .summary = "simulate how a scaling policy runs a workload: workers, cache, time and cost",
    .details = "WORKLOAD is a JSON file. docs/simulator.md describes its format.",
    .run = simulate_main,
};
