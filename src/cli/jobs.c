/* cachew jobs | workers: what a service has, and what steers it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "client/observer.h"

struct asked {
    const char *service, *token_file;
    double wait;
    bool json;
    char *token;
    struct cw_observer_options o;
};

#define ASKED_OPTIONS(a) \
    {"service", CLI_TEXT, &(a).service, "HOST:PORT", "the dispatcher", 0, 0, NULL, NULL}, \
    CLI_TOKEN_OPTION(&(a).token_file), \
    {"wait", CLI_SECONDS, &(a).wait, "S", "deadline for the answer (default 5)", 0, 0, NULL, NULL}, \
    {"json", CLI_FLAG, &(a).json, NULL, "print one JSON value", 0, 0, NULL, NULL}

static int asked_parse(struct asked *a, const char *verb, const struct cli_option *options, int argc, char **argv, struct cw_error *err)
{
    int n_args;
    for (int i = 1; i < argc; i++)
        a->json |= strcmp(argv[i], "--json") == 0;
    a->wait = 5;
    int r = cli_parse(cli_find(verb), options, argc, argv, &n_args, err);
    if (r == 0 && !a->service) {
        cw_error_attribute(err, "service", "missing", "HOST:PORT of a dispatcher");
        r = cw_error_set(err, CW_E_OPTION, "--service is missing: expected HOST:PORT of a dispatcher");
    }
    if (r == 0)
        r = cli_token(a->token_file, &a->token, err);
    a->o = (struct cw_observer_options){.service = a->service, .token = a->token, .timeout_ns = (uint64_t)(a->wait * 1e9)};
    return r;
}

static const char *text(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)) ? json_string_value(json_object_get(row, key)) : ""; }
static int64_t number(const json_t *row, const char *key) { return (int64_t)json_integer_value(json_object_get(row, key)); }

static void print_jobs(const json_t *rows)
{
    size_t i, k;
    const json_t *row, *rank;
    printf("%-24s %-10s %8s %8s  %s\n", "JOB", "STATE", "EPOCH", "WORKERS", "RANKS");
    json_array_foreach(rows, i, row) {
        printf("%-24s %-10s %8" PRIi64 " %8" PRIi64 " ", text(row, "name"), text(row, "state"), number(row, "epoch"), number(row, "workers"));
        json_array_foreach(json_object_get(row, "ranks"), k, rank)
            printf(" %" PRIi64 ":%" PRIi64 "%s", number(rank, "rank"), number(rank, "g"), json_is_true(json_object_get(rank, "attached")) ? "" : "(gone)");
        printf("\n");
    }
}

static void print_workers(const json_t *rows)
{
    size_t i;
    const json_t *row;
    printf("%4s %8s %-28s %-10s %7s %5s\n", "ID", "PID", "ADDRESS", "STATE", "LEASES", "CPUS");
    json_array_foreach(rows, i, row)
        printf("%4" PRIi64 " %8" PRIi64 " %-28s %-10s %7" PRIi64 " %5" PRIi64 "\n", number(row, "id"), number(row, "pid"), text(row, "address"), text(row, "state"),
               number(row, "leases"), number(row, "cpu_budget"));
}

static int show(struct asked *a, const char *what, void (*print)(const json_t *rows), struct cw_error *err)
{
    _cleanup_free_ char *answer = NULL;
    int r = cw_observe(&a->o, what, &answer, err);
    if (r < 0)
        return r;
    json_t *rows = json_loads(answer, 0, NULL);
    if (!json_is_array(rows))
        r = cw_error_set(err, CW_E_SERVICE, "the dispatcher at %s answered something else", a->service);
    else if (a->json)
        return cli_print(rows);
    else
        print(rows);
    json_decref(rows);
    return r;
}

int cli_jobs(int argc, char **argv)
{
    struct asked a = {0};
    struct cw_error err = {0};
    const char *cancel = NULL, *pause = NULL, *resume = NULL;
    const struct cli_option options[] = {
        {"cancel", CLI_TEXT, &cancel, "NAME", "end a job for all its ranks", 0, 0, NULL, NULL},
        {"pause", CLI_TEXT, &pause, "NAME", "compute nothing more for a job", 0, 0, NULL, NULL},
        {"resume", CLI_TEXT, &resume, "NAME", "go on with a job that was paused", 0, 0, NULL, NULL},
        ASKED_OPTIONS(a),
        {0},
    };
    int r = asked_parse(&a, "jobs", options, argc, argv, &err);
    if (r == 0 && cancel)
        r = cw_steer(&a.o, "cancel-job", cancel, &err);
    if (r == 0 && pause)
        r = cw_steer(&a.o, "pause-job", pause, &err);
    if (r == 0 && resume)
        r = cw_steer(&a.o, "resume-job", resume, &err);
    if (r == 0)
        r = show(&a, "jobs", print_jobs, &err);
    free(a.token);
    return r < 0 ? cli_fail(&err, a.json, NULL) : 0;
}

int cli_workers(int argc, char **argv)
{
    struct asked a = {0};
    struct cw_error err = {0};
    const char *drain = NULL;
    const struct cli_option options[] = {
        {"drain", CLI_TEXT, &drain, "ID", "let a worker finish what it has, and give it nothing more", 0, 0, NULL, NULL},
        ASKED_OPTIONS(a),
        {0},
    };
    int r = asked_parse(&a, "workers", options, argc, argv, &err);
    if (r == 0 && drain)
        r = cw_steer(&a.o, "drain-worker", drain, &err);
    if (r == 0)
        r = show(&a, "workers", print_workers, &err);
    free(a.token);
    return r < 0 ? cli_fail(&err, a.json, NULL) : 0;
}
