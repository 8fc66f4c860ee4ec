/* cachew jobs | workers: what a service has, and what steers it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/asked.h"

static void print_jobs(const json_t *rows)
{
    size_t i, k;
    const json_t *row, *rank;
    char name[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
    printf("%-24s %-10s %8s %8s  %s\n", "JOB", "STATE", "EPOCH", "WORKERS", "RANKS");
    json_array_foreach(rows, i, row) {
        printf("%-24s %-10s %8" PRIi64 " %8" PRIi64 " ", cli_row_text(row, "name", name), cli_row_text(row, "state", state), cli_row_number(row, "epoch"),
               cli_row_number(row, "workers"));
        json_array_foreach(json_object_get(row, "ranks"), k, rank)
            printf(" %" PRIi64 ":%" PRIi64 "%s", cli_row_number(rank, "rank"), cli_row_number(rank, "g"),
                   json_is_true(json_object_get(rank, "finished")) ? "(finished)" : json_is_true(json_object_get(rank, "attached")) ? "" : "(gone)");
        printf("\n");
    }
}

static void print_workers(const json_t *rows)
{
    size_t i;
    const json_t *row;
    char address[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
    printf("%4s %8s %-28s %-10s %7s %5s\n", "ID", "PID", "ADDRESS", "STATE", "LEASES", "CPUS");
    json_array_foreach(rows, i, row)
        printf("%4" PRIi64 " %8" PRIi64 " %-28s %-10s %7" PRIi64 " %5" PRIi64 "\n", cli_row_number(row, "id"), cli_row_number(row, "pid"),
               cli_row_text(row, "address", address), cli_row_text(row, "state", state), cli_row_number(row, "leases"), cli_row_number(row, "cpu_budget"));
}

static int show(const struct cli_asked *a, const char *what, void (*print)(const json_t *rows), struct cw_error *err)
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

int cli_jobs(int argc, char **argv)
{
    struct cli_asked a = {0};
    struct cw_error err = {0};
    const char *cancel = NULL, *pause = NULL, *resume = NULL;
    const struct cli_option options[] = {
        {"cancel", CLI_TEXT, &cancel, "NAME", "end a job for all its ranks", 0, 0, NULL, NULL},
        {"pause", CLI_TEXT, &pause, "NAME", "compute nothing more for a job", 0, 0, NULL, NULL},
        {"resume", CLI_TEXT, &resume, "NAME", "go on with a job that was paused", 0, 0, NULL, NULL},
        CLI_ASKED_OPTIONS(&a),
        {0},
    };
    int r = cli_asked_parse(&a, "jobs", options, argc, argv, &err);
    if (r == 0 && cancel)
        r = cw_steer(&a.o, "cancel-job", cancel, &err);
    if (r == 0 && pause)
        r = cw_steer(&a.o, "pause-job", pause, &err);
    if (r == 0 && resume)
        r = cw_steer(&a.o, "resume-job", resume, &err);
    if (r == 0)
        r = show(&a, "jobs", print_jobs, &err);
    cli_asked_deinit(&a);
    return r < 0 ? cli_fail(&err, a.json, NULL) : 0;
}

int cli_workers(int argc, char **argv)
{
    struct cli_asked a = {0};
    struct cw_error err = {0};
    const char *drain = NULL;
    const struct cli_option options[] = {
        {"drain", CLI_TEXT, &drain, "ID", "let a worker finish what it has, and give it nothing more", 0, 0, NULL, NULL},
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
