/* cachew jobs | workers: what a service has, and what steers it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/asked.h"
#include "cli/scaling.h"
#include "policy/share.h"

static void print_jobs(const json_t *rows)
{
    size_t i, k;
    const json_t *row, *rank;
    char name[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
    printf("%-24s %-10s %8s %8s  %s\n", "JOB", "STATE", "EPOCH", "WORKERS", "RANKS");
    json_array_foreach(rows, i, row)
    {
        printf("%s %-10s %8" PRIi64 " %8" PRIi64 " ", cli_row_padded(row, "name", 24, name),
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

static void print_workers(const json_t *rows)
{
    size_t i;
    const json_t *row;
    char address[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
    printf("%4s %8s %-28s %-10s %7s %5s\n", "ID", "PID", "ADDRESS", "STATE", "LEASES", "CPUS");
    json_array_foreach(rows, i, row) printf(
        "%4" PRIi64 " %8" PRIi64 " %s %-10s %7" PRIi64 " %5" PRIi64 "\n", cli_row_number(row, "id"),
        cli_row_number(row, "pid"), cli_row_padded(row, "address", 28, address),
        cli_row_text(row, "state", state), cli_row_number(row, "leases"), cli_row_number(row, "cpu_budget"));
}

/* Where elements are cached: what a record says under "cache". */
static const char *place(const json_t *o, char buffer[CLI_TEXT_SIZE])
{
    return json_is_string(json_object_get(o, "cache")) ? cli_row_text(o, "cache", buffer) : NULL;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void print_seen(const json_t *seen)
{
    char limit[CLI_TEXT_SIZE], cache[CLI_TEXT_SIZE];
    if (!(number(seen, "interval_s") > 0))
        return;
    printf("            seen: step %.4g s, waiting %.4g s a batch with %" PRIi64 " workers, ",
           number(seen, "step_s"), number(seen, "wait_s"), cli_row_number(seen, "workers"));
    if (number(seen, "compute_s") > 0)
        printf("which computed %.4g s for each and were %.0f %% busy; ", number(seen, "compute_s"),
               100 * number(seen, "busy"));
    else
        printf("which have not said yet what they computed; ");
    if (number(seen, "doubt") >= 0.01) /* else it can't be seen in what follows */
        printf("as few batches tell that, workers are taken to be %.0f %% slower in what follows; ",
               100 * number(seen, "doubt"));
    if (place(seen, cache))
        printf("%.0f %% of the epoch were cached after %s; ", 100 * number(seen, "cached"), cache);
    printf("the limit: %s\n", cli_row_text(seen, "limit", limit));
}

/* " (4 of near, 1 of far)", where there are several pools. */
static void print_pools(const json_t *a)
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

static void print_alternatives(const json_t *record)
{
    size_t i;
    const json_t *a;
    char cache[CLI_TEXT_SIZE];
    json_array_foreach(json_object_get(record, "alternatives"), i, a)
    {
        int64_t workers = cli_row_number(a, "workers");
        printf("            %5" PRIi64 " worker%s", workers, workers == 1 ? "" : "s");
        print_pools(a);
        printf("%s%s: %.4g s a batch, the rest of the job %.4g s for %.4g",
               place(a, cache) ? ", cached after " : "", place(a, cache) ? cache : "", number(a, "batch_s"),
               number(a, "time_s"), number(a, "cost"));
        if (number(a, "held_s") < number(a, "time_s")) /* later, with the cache full, there are others */
            printf("; as long as they stay %.4g s for %.4g", number(a, "held_s"), number(a, "held_cost"));
        printf("\n");
    }
}

/* cachew jobs explain NAME: what was decided on the way, and why. */
static void print_decisions(const json_t *rows)
{
    size_t i, n = 0;
    const json_t *row;
    char what[CLI_TEXT_SIZE], why[CLI_TEXT_SIZE];
    if (json_array_size(rows) == 0)
        printf("nothing was decided yet\n");
    json_array_foreach(rows, i, row)
    {
        const json_t *record = json_object_get(row, "record");
        printf("%8.1f s  %s: %s\n", json_number_value(json_object_get(row, "t")),
               cli_row_text(record, "what", what), cli_row_text(record, "why", why));
        print_seen(json_object_get(record, "seen"));
        print_alternatives(record);
        n += json_array_size(json_object_get(record, "alternatives"));
    }
    if (n > 0)
        printf("%12s\"for\": what the job's clients and workers cost together, in the unit of --price-client "
               "and --price-worker\n",
               "");
}

static int show(const struct cli_asked *a, const char *what, void (*print)(const json_t *rows),
                struct cw_error *err)
{
    json_t *rows;
    int r = cli_ask(a, what, &rows, err);
    if (r < 0)
        return r;
    if (a->json)
        return cli_print(rows);
    print(rows);
    json_decref(rows);
    return 0;
}

static int explain(const struct cli_asked *a, const char *name, struct cw_error *err)
{
    _cleanup_free_ char *what = NULL;
    if (asprintf(&what, "jobs/%s/decisions", name) < 0) {
        what = NULL;
        return cw_error_nomem(err, 0, "a question");
    }
    json_t *rows, *status = NULL;
    int r = cli_ask(a, what, &rows, err);
    if (r < 0)
        return r;
    if (a->json)
        return cli_print(rows);
    if (json_array_size(rows) == 0 && cli_ask(a, "status", &status, err) == 0 &&
        !json_is_string(json_object_get(status, "policy")))
        printf("nothing was decided: the dispatcher has no policy, so that all workers serve all jobs\n");
    else
        print_decisions(rows);
    json_decref(status);
    json_decref(rows);
    return 0;
}

/* An option that names a job means nothing without those that say what of it, and they nothing without it. */
static int check_pair(const char *option, const char *job, bool said, const char *others,
                      struct cw_error *err)
{
    if (!job == !said)
        return 0;
    cw_error_attribute(err, option, job ? job : "missing", others);
    return job ? cw_error_set(err, CW_E_OPTION, "--%s %s says nothing of it: expected %s beside it", option,
                              job, others)
               : cw_error_set(err, CW_E_OPTION,
                              "--%s is missing: %s means a job, expected --%s NAME beside it", option, others,
                              option);
}

int cli_jobs(int argc, char **argv)
{
    struct cli_asked a = {0};
    struct cw_error err = {0};
    const char *cancel = NULL, *pause = NULL, *resume = NULL, *share = NULL, *aim = NULL, *objective = NULL;
    double price = 0;
    bool priced = false;
    struct cw_claim_options claim = {0};
    uint64_t quota = 0, priority = 0;
    const struct cli_option options[] = {
        {"cancel", CLI_TEXT, &cancel, "NAME", "end a job for all its ranks", 0, 0, NULL, NULL},
        {"pause", CLI_TEXT, &pause, "NAME", "compute nothing more for a job", 0, 0, NULL, NULL},
        {"resume", CLI_TEXT, &resume, "NAME", "go on with a job that was paused", 0, 0, NULL, NULL},
        {"share", CLI_TEXT, &share, "NAME",
         "what a job may have of the workers, where there are too few for all: with the three below", 0, 0,
         NULL, NULL},
        {"weight", CLI_NUMBER, &claim.weight, "W",
         "of --share, among jobs of the same priority (default: as it is, at first 1)", 0, 0, NULL,
         &claim.has_weight, CW_WEIGHT_LEAST, CW_WEIGHT_MOST},
        {"priority", CLI_COUNT, &priority, "P",
         "of --share: jobs with a higher one come first (default: as it is, at first 0)", 0, 1000000, NULL,
         &claim.has_priority},
        {"quota", CLI_COUNT, &quota, "N",
         "of --share: never more workers; 0: no bound (default: as it is, at first none)", 0, 10000, NULL,
         &claim.has_quota},
        {"aim", CLI_TEXT, &aim, "NAME", "what a job's policy is to look for: with the two below", 0, 0, NULL,
         NULL},
        {"objective", CLI_TEXT, &objective, "O",
         "of --aim: time, or cost (default: as it is, at first the dispatcher's)", 0, 0, cli_objectives,
         NULL},
        {"price-client", CLI_NUMBER, &price, "P",
         "of --aim: of the job's ranks together, per hour (default: as it is, at first the dispatcher's)", 0,
         0, NULL, &priced, CW_CLIENT_PRICE_LEAST, CW_CLIENT_PRICE_MOST},
        CLI_ASKED_OPTIONS(&a),
        {0},
    };
    int r = cli_asked_parse(&a, "jobs", options, argc, argv, &err);
    const char *asked = r == 0 && a.n_args == 2 ? argv[2] : NULL;
    if (r == 0 && (a.n_args == 1 || (asked && strcmp(argv[1], "explain") != 0)))
        r = cw_error_set(&err, CW_E_OPTION, "cachew jobs %s: expected nothing, or explain NAME", argv[1]);
    if (r == 0)
        r = check_pair("share", share, claim.has_weight || claim.has_priority || claim.has_quota,
                       "--weight, --priority or --quota", &err);
    if (r == 0)
        r = check_pair("aim", aim, objective || priced, "--objective or --price-client", &err);
    if (r == 0 && cancel)
        r = cw_steer(&a.o, "cancel-job", cancel, &err);
    if (r == 0 && pause)
        r = cw_steer(&a.o, "pause-job", pause, &err);
    if (r == 0 && resume)
        r = cw_steer(&a.o, "resume-job", resume, &err);
    claim.priority = (int)priority;
    claim.quota = (unsigned)quota;
    if (r == 0 && share)
        r = cw_share_job(&a.o, share, &claim, &err);
    if (r == 0 && aim)
        r = cw_aim_job(&a.o, aim, objective, priced ? &price : NULL, &err);
    if (r == 0)
        r = asked ? explain(&a, asked, &err) : show(&a, "jobs", print_jobs, &err);
    cli_asked_deinit(&a);
    return r < 0 ? cli_fail(&err, a.json, NULL) : 0;
}

int cli_workers(int argc, char **argv)
{
    struct cli_asked a = {0};
    struct cw_error err = {0};
    const char *drain = NULL;
    const struct cli_option options[] = {
        {"drain", CLI_TEXT, &drain, "ID", "let a worker finish what it has, and give it nothing more", 0, 0,
         NULL, NULL},
        CLI_ASKED_OPTIONS(&a),
        {0},
    };
    int r = cli_asked_parse(&a, "workers", options, argc, argv, &err);
    if (r == 0 && drain)
        r = cw_steer(&a.o, "drain-worker", drain, &err);
    if (r == 0)
        r = show(&a, "workers", print_workers, &err);
    cli_asked_deinit(&a);
    return r < 0 ? cli_fail(&err, a.json, NULL) : 0;
}
