/* cachew jobs, cachew workers: list the jobs and workers of a service, and change how it treats them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/admin.h"
#include "cli/print.h"
#include "cli/row.h"
#include "cli/scaling.h"
#include "cli/verb.h"
#include "policy/share.h"

static void jobs_print(const json_t *rows)
{
    size_t i, k;
    const json_t *row, *rank;
    char name[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
    printf("%-24s %-10s %8s %8s  %s\n", "JOB", "STATE", "EPOCH", "WORKERS", "RANKS");
    json_array_foreach(rows, i, row)
    {
        printf("%s %-10s %8" PRIi64 " %8" PRIi64 " ", cli_row_fit(row, "name", 24, false, name),
               cli_row_text(row, "state", state), cli_row_number(row, "epoch"),
               cli_row_number(row, "workers"));
        json_array_foreach(json_object_get(row, "ranks"), k, rank)
            printf(" %" PRIi64 ":%" PRIi64 "%s", cli_row_number(rank, "rank"), cli_row_number(rank, "g"),
                   json_is_true(json_object_get(rank, "finished"))   ? "(finished)"
                   : json_is_true(json_object_get(rank, "attached")) ? ""
                                                                     : "(gone)");
        printf("\n");
    }
}

static void workers_print(const json_t *rows)
{
    size_t i;
    const json_t *row;
    char address[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
    printf("%4s %8s %-28s %-10s %7s %5s\n", "ID", "PID", "ADDRESS", "STATE", "LEASES", "CPUS");
    json_array_foreach(rows, i, row) printf(
        "%4" PRIi64 " %8" PRIi64 " %s %-10s %7" PRIi64 " %5" PRIi64 "\n", cli_row_number(row, "id"),
        cli_row_number(row, "pid"), cli_row_fit(row, "address", 28, false, address),
        cli_row_text(row, "state", state), cli_row_number(row, "leases"), cli_row_number(row, "cpu_budget"));
}

/* The name of the cache point in use; NULL: none. */
static const char *record_cache(const json_t *o, char buffer[CLI_TEXT_SIZE])
{
    return json_is_string(json_object_get(o, "cache")) ? cli_row_text(o, "cache", buffer) : NULL;
}

static void record_print_seen(const json_t *seen)
{
    char limit[CLI_TEXT_SIZE], cache[CLI_TEXT_SIZE];
    if (!(cli_row_real(seen, "interval_s") > 0))
        return;
    printf("            measured per batch: the client's step %.4g s, its waiting for data %.4g s; workers: "
           "%" PRIi64 ", ",
           cli_row_real(seen, "step_s"), cli_row_real(seen, "wait_s"), cli_row_number(seen, "workers"));
    if (cli_row_real(seen, "compute_s") > 0)
        printf("computing time per batch %.4g s, busy for %.0f %% of the time; ",
               cli_row_real(seen, "compute_s"), 100 * cli_row_real(seen, "busy"));
    else
        printf("computing time not known yet; ");
    if (cli_row_real(seen, "doubt") >= 0.01) /* a smaller doubt does not change the printed numbers */
        printf("few batches were measured, so the figures below assume workers that are %.0f %% slower; ",
               100 * cli_row_real(seen, "doubt"));
    if (record_cache(seen, cache))
        printf("%.0f %% of the epoch were in the cache after %s; ", 100 * cli_row_real(seen, "cached"),
               cache);
    printf("limited by: %s\n", cli_row_text(seen, "limit", limit));
}

/* Prints " (4 of near, 1 of far)" if there are several pools. */
static void record_print_pools(const json_t *a)
{
    const char *between = " (";
    json_t *pools = json_object_get(a, "pools"), *n;
    const char *name;
    json_object_foreach(pools, name, n)
    {
        if (json_integer_value(n) > 0) {
            char shown[CLI_TEXT_SIZE];
            cw_text_show(shown, sizeof(shown), name);
            printf("%s%" PRIi64 " of %s", between, (int64_t)json_integer_value(n), shown);
            between = ", ";
        }
    }
    if (json_object_size(pools) > 0)
        printf(")");
}

/* currency: with a blank before it; "": not named. */
static void record_print_alternatives(const json_t *record, const char *currency)
{
    size_t i;
    const json_t *a;
    char cache[CLI_TEXT_SIZE];
    json_array_foreach(json_object_get(record, "alternatives"), i, a)
    {
        int64_t workers = cli_row_number(a, "workers");
        printf("            %5" PRIi64 " worker%s", workers, workers == 1 ? "" : "s");
        record_print_pools(a);
        printf("%s%s: %.4g s per batch; the rest of the job takes %.4g s and costs %.4g%s",
               record_cache(a, cache) ? ", cached after " : "", record_cache(a, cache) ? cache : "",
               cli_row_real(a, "batch_s"), cli_row_real(a, "time_s"), cli_row_real(a, "cost"), currency);
        if (cli_row_real(a, "held_s") <
            cli_row_real(a, "time_s")) /* the policy plans another number of workers for the time after the
                                          cache is full */
            printf("; until the next decision it takes %.4g s and costs %.4g%s", cli_row_real(a, "held_s"),
                   cli_row_real(a, "held_cost"), currency);
        printf("\n");
    }
}

/* cachew jobs explain NAME --verbose: prints the decisions about a job, and why. status: of the dispatcher.
 */
static void record_print_all(const json_t *rows, const json_t *status)
{
    size_t i, n = 0;
    const json_t *row;
    char what[CLI_TEXT_SIZE], why[CLI_TEXT_SIZE], name[CLI_TEXT_SIZE], currency[CLI_TEXT_SIZE + 1] = "";
    if (json_is_string(json_object_get(status, "currency")))
        snprintf(currency, sizeof(currency), " %s", cli_row_text(status, "currency", name));
    json_array_foreach(rows, i, row)
    {
        const json_t *record = json_object_get(row, "record");
        printf("%8.1f s  %s: %s\n", json_number_value(json_object_get(row, "t")),
               cli_row_text(record, "what", what), cli_row_text(record, "why", why));
        record_print_seen(json_object_get(record, "seen"));
        record_print_alternatives(record, currency);
        n += json_array_size(json_object_get(record, "alternatives"));
    }
    if (n > 0)
        printf("%12sCosts are of the job's clients and workers together, in the unit of --price-client and "
               "--price-worker.\n",
               "");
}

/* ---- explain ---- */

/* Prints the two lines for a job whose bottleneck is not known, from its state. */
static void explain_print_state(const json_t *job)
{
    char why[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
    bool held = *cli_row_text(job, "held", why) != 0;
    cli_row_text(job, "state", state);
    if (!held)
        cli_row_text(job, "why", why);
    printf("bottleneck: not known, the job is %s%s%s\n", state, *why ? ": " : "", why);
    printf("what to do: %s\n", held ? "see cachew workers, and the logs of the workers"
                               : strcmp(state, "running") == 0    ? "ask again after some batches"
                               : strcmp(state, "paused") == 0     ? "cachew jobs --resume NAME continues it"
                               : strcmp(state, "unattended") == 0 ? "nothing while it has no clients"
                                                                  : "nothing");
}

static void explain_print_bottleneck(const json_t *job)
{
    const json_t *b = json_object_get(job, "bottleneck");
    char says[CLI_TEXT_SIZE], remedy[CLI_TEXT_SIZE];
    if (!json_is_object(b)) {
        explain_print_state(job);
        return;
    }
    printf("bottleneck: %s; ranks waited %.0f %% of the last 2 s\n", cli_row_text(b, "says", says),
           100 * cli_row_real(b, "waited"));
    printf("what to do: %s\n", cli_row_text(b, "remedy", remedy));
}

/* Prints the rate under `key`, or that it is unknown, and then `after`. */
static void explain_print_rate(const json_t *now, const char *key, const char *after)
{
    const json_t *value = json_object_get(now, key);
    if (json_is_number(value))
        printf("%.3g%s", json_number_value(value), after);
    else
        printf("unknown%s", after);
}

static void explain_print_rates(const json_t *job)
{
    const json_t *now = json_object_get(job, "now"), *cached = json_object_get(now, "cached");
    printf("batches/s: ");
    explain_print_rate(now, "rate", " delivered, ");
    explain_print_rate(now, "demand", " if ranks never waited");
    if (json_is_number(cached))
        printf("; %.0f %% of the elements read from caches", 100 * json_number_value(cached));
    printf("\n");
}

static void explain_print_workers(const json_t *job, const json_t *status)
{
    const json_t *scaling = json_object_get(job, "scaling");
    char objective[CLI_TEXT_SIZE], policy[CLI_TEXT_SIZE];
    if (json_is_object(scaling))
        printf("workers: %" PRIi64 " of %" PRIi64 " wanted by the policy %s, objective %s\n",
               cli_row_number(scaling, "running"), cli_row_number(scaling, "wanted"),
               cli_row_text(status, "policy", policy), cli_row_text(scaling, "objective", objective));
    else
        printf("workers: %" PRIi64 ", without a policy\n", cli_row_number(job, "workers"));
}

static void explain_print_last(const json_t *rows, const json_t *status)
{
    size_t n = json_array_size(rows);
    const json_t *row = n ? json_array_get(rows, n - 1) : NULL, *record = json_object_get(row, "record");
    char what[CLI_TEXT_SIZE], why[CLI_TEXT_SIZE];
    if (row)
        printf("last decision, %.0f s ago: %s: %s\n", cli_row_real(row, "ago_s"),
               cli_row_text(record, "what", what), cli_row_text(record, "why", why));
    else if (json_is_string(json_object_get(status, "policy")))
        printf("last decision: none, the policy has not decided anything about this job yet\n");
    else
        printf("nothing was decided: the dispatcher has no policy, so all workers serve all jobs\n");
}

static int jobs_show(const struct cli_admin *a, const char *what, void (*print)(const json_t *rows),
                     struct cw_error *err)
{
    json_auto_t *rows = NULL;
    int r = cli_admin_query(a, what, &rows, err);
    if (r >= 0 && a->json)
        return cli_print(json_incref(rows));
    if (r >= 0)
        print(rows);
    return r;
}

/* cachew jobs explain NAME: five lines about the job, and with `verbose` its decisions. */
static int jobs_explain(const struct cli_admin *a, const char *name, bool verbose, struct cw_error *err)
{
    _cleanup_free_ char *what = NULL;
    if (asprintf(&what, "jobs/%s/decisions", name) < 0) {
        what = NULL;
        return cw_error_nomem(err, 0, "a query");
    }
    json_auto_t *rows = NULL, *status = NULL, *jobs = NULL;
    int r = cli_admin_query(a, what, &rows, err);
    if (r < 0 || a->json)
        return r < 0 ? r : cli_print(json_incref(rows));
    r = cli_admin_query(a, "status", &status, err);
    if (r >= 0)
        r = cli_admin_query(a, "jobs", &jobs, err);
    if (r < 0)
        return r;
    const json_t *job = cli_admin_named(jobs, name); /* NULL: it was removed just now */
    explain_print_bottleneck(job);
    explain_print_rates(job);
    explain_print_workers(job, status);
    explain_print_last(rows, status);
    if (verbose)
        record_print_all(rows, status);
    return 0;
}

/* CW_E_OPTION: `option`, which names a job, was given without any of `others`, which say what to change, or
 * the other way round. job: the value of `option`, or NULL. given: whether any of `others` was given. */
static int jobs_check_pair(const char *option, const char *job, bool given, const char *others,
                           struct cw_error *err)
{
    if (!job == !given)
        return 0;
    cw_error_attribute(err, option, job ? job : "missing", others);
    return job ? cw_error_set(err, CW_E_OPTION, "--%s %s changes nothing: expected %s with it", option, job,
                              others)
               : cw_error_set(err, CW_E_OPTION,
                              "--%s is missing: %s needs --%s NAME, the job that it changes", option, others,
                              option);
}

static int jobs_main(int argc, char **argv, struct cw_error *err)
{
    struct cli_admin a = {0};
    static const char *const requests[] = {"cancel-job", "pause-job", "resume-job"};
    const char *steered[CW_COUNT_OF(requests)] = {0}, *share = NULL, *aim = NULL, *objective = NULL;
    double price = 0;
    bool priced = false, verbose = false;
    struct cw_claim_options claim = {0};
    const struct cli_option options[] = {
        {"cancel", CLI_TEXT, &steered[0], "NAME", "end the job NAME for all its ranks"},
        {"pause", CLI_TEXT, &steered[1], "NAME", "stop computing for the job NAME until --resume"},
        {"resume", CLI_TEXT, &steered[2], "NAME", "continue the paused job NAME"},
        {"share", CLI_TEXT, &share, "NAME",
         "set how many workers the job NAME gets if there are too few for all jobs; needs --weight, "
         "--priority or --quota"},
        {"weight", CLI_NUMBER, &claim.weight, "W",
         "with --share: give jobs of equal priority workers in proportion to their weights W (default: "
         "unchanged; 1 for a new job)",
         .given = &claim.has_weight, .least = CW_WEIGHT_LEAST, .most = CW_WEIGHT_MOST},
        {"priority", CLI_SMALL, &claim.priority, "P",
         "with --share: give workers first to jobs of higher priority P (default: unchanged; 0 for a new "
         "job)",
         .max = 1000000, .given = &claim.has_priority},
        {"quota", CLI_SMALL, &claim.quota, "N",
         "with --share: give the job at most N workers; 0: no limit (default: unchanged; no limit for a new "
         "job)",
         .max = 10000, .given = &claim.has_quota},
        {"aim", CLI_TEXT, &aim, "NAME",
         "set what the scaling policy minimises for the job NAME; needs --objective or --price-client"},
        {"objective", CLI_TEXT, &objective, "O",
         "with --aim: minimise time or cost (default: unchanged; a new job has the dispatcher's objective)",
         .choices = cli_objectives},
        {"price-client", CLI_NUMBER, &price, "P",
         "with --aim: set the price per hour of all the job's ranks together (default: unchanged; a new job "
         "has the dispatcher's price)",
         .given = &priced, .least = CW_CLIENT_PRICE_LEAST, .most = CW_CLIENT_PRICE_MOST},
        {"verbose", CLI_FLAG, &verbose, NULL,
         "with explain NAME: also list all decisions, with their measurements and alternatives"},
        CLI_ADMIN_OPTIONS(&a),
        {0},
    };
    int r = cli_admin_parse(&a, &cli_verb_jobs, options, argc, argv, err);
    const char *explained = r == 0 && argv[1] ? argv[2] : NULL;
    if (r == 0 && verbose && !explained)
        r = cw_error_value(err, CW_E_OPTION, "verbose", "true", "with explain NAME",
                           "--verbose changes nothing: expected cachew jobs explain NAME --verbose");
    if (r == 0 && argv[1] && (!explained || strcmp(argv[1], "explain") != 0))
        r = cw_error_set(err, CW_E_OPTION,
                         "cachew jobs %s: expected cachew jobs, or cachew jobs explain NAME", argv[1]);
    if (r == 0)
        r = jobs_check_pair("share", share, claim.has_weight || claim.has_priority || claim.has_quota,
                            "--weight, --priority or --quota", err);
    if (r == 0)
        r = jobs_check_pair("aim", aim, objective || priced, "--objective or --price-client", err);
    for (size_t i = 0; r == 0 && i < CW_COUNT_OF(steered); i++)
        if (steered[i])
            r = cw_steer(&a.o, requests[i], steered[i], err);
    if (r == 0 && share)
        r = cw_share_job(&a.o, share, &claim, err);
    if (r == 0 && aim)
        r = cw_aim_job(&a.o, aim, objective, priced ? &price : NULL, err);
    if (r == 0)
        r = explained ? jobs_explain(&a, explained, verbose, err) : jobs_show(&a, "jobs", jobs_print, err);
    cli_admin_deinit(&a);
    return r;
}

const struct cli_verb cli_verb_jobs = {
    .name = "jobs",
    .arguments = "[explain NAME] ",
    .max_args = 2,
    .summary = "list the jobs of a service; end or pause a job; explain NAME: show its bottleneck, what "
               "to do about it, and the last decision about its workers and cache",
    .run = jobs_main,
};

static int workers_main(int argc, char **argv, struct cw_error *err)
{
    struct cli_admin a = {0};
    const char *drain = NULL;
    const struct cli_option options[] = {
        {"drain", CLI_TEXT, &drain, "ID",
         "give the worker with this ID no new work, and let it finish its current work"},
        CLI_ADMIN_OPTIONS(&a),
        {0},
    };
    int r = cli_admin_parse(&a, &cli_verb_workers, options, argc, argv, err);
    if (r == 0 && drain)
        r = cw_steer(&a.o, "drain-worker", drain, err);
    if (r == 0)
        r = jobs_show(&a, "workers", workers_print, err);
    cli_admin_deinit(&a);
    return r;
}

const struct cli_verb cli_verb_workers = {
    .name = "workers",
    .arguments = "",
    .summary = "list the workers of a service, or drain one (let it finish, and give it no new work)",
    .run = workers_main,
};
