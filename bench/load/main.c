/*
 * Measures what a dispatcher takes, with simulated workers. bench/dispatcher.py starts a dispatcher for it;
 * bench/overhead.py too.
 *
 * usage: dispatcher_load completions|heartbeats|scaling HOST:PORT [options]
 *
 * Prints a line of JSON.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/credentials.h"
#include "cli/print.h"
#include "load.h"

static const struct cli_verb load_verb = {
    .name = "dispatcher_load",
    .arguments = "completions|heartbeats|scaling HOST:PORT ",
    .min_args = 2,
    .max_args = 2,
    .summary = "measure what a dispatcher takes from simulated workers",
};

/* CW_E_OPTION if this process may not have a descriptor for each connection. */
static int load_check_descriptors(uint64_t n_workers, struct cw_error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* if this fails, connecting fails */
    return limit.rlim_max >= n_workers + 64
               ? 0
               : cw_error_set(err, CW_E_OPTION,
                              "%" PRIu64
                              " connections need as many descriptors, and this process may have %" PRIu64
                              " (ulimit -n)",
                              n_workers + 64, (uint64_t)limit.rlim_max);
}

static int load_measure(const char *what, const struct load_options *o, json_t **ret, struct cw_error *err)
{
    struct load_times t = {0};
    uint64_t sent = 0;
    int r;
    if (!(o->seconds > 0))
        return cw_error_set(err, CW_E_OPTION, "--seconds %g: expected more than 0", o->seconds);
    if (strcmp(what, "completions") == 0) {
        r = load_completions(o, &t, err);
        *ret = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "completions", (json_int_t)t.n, "seconds",
                         t.seconds, "completions_per_s", (double)t.n / t.seconds, "p50_s", t.p50_s, "p99_s",
                         t.p99_s, "max_s", t.most_s);
    } else if (strcmp(what, "heartbeats") == 0) {
        r = load_heartbeats(o, &sent, &t, err);
        *ret = json_pack("{s:f, s:f, s:f, s:f}", "heartbeats_per_s", (double)sent / t.seconds,
                         "question_p50_s", t.p50_s, "question_p99_s", t.p99_s, "seconds", t.seconds);
    } else if (strcmp(what, "scaling") == 0) {
        r = load_scaling(o, &sent, &t.seconds, err);
        *ret = json_pack("{s:f, s:f}", "heartbeats_per_s", (double)sent / t.seconds, "seconds", t.seconds);
    } else {
        r = cw_error_set(err, CW_E_OPTION, "%s: expected completions, heartbeats or scaling", what);
    }
    return r;
}

int main(int argc, char **argv)
{
    struct cli_credentials credentials = {0};
    uint64_t n_workers = 128, in_flight = 8, n_ranks = 1, n_keys = 1;
    double seconds = 5, ranges_per_s = 0;
    struct cw_error err = {0};
    _cleanup_free_ char *token = NULL;
    json_t *result = NULL;
    const struct cli_option options[] = {
        {"workers", CLI_COUNT, &n_workers, "N", "simulated workers (default 128)", .min = 1, .max = 10000},
        {"in-flight", CLI_COUNT, &in_flight, "N",
         "completions of each that wait for their acknowledgement (default 8)", .min = 1, .max = 256},
        {"ranks", CLI_COUNT, &n_ranks, "N", "of the job whose ranges are completed (default 1)", .min = 1,
         .max = 65536},
        {"keys", CLI_COUNT, &n_keys, "N",
         "that its elements have; 0: batches follow from positions (default 1)", .max = 256},
        {"ranges-per-s", CLI_SECONDS, &ranges_per_s, "N",
         "that each worker completes (default 0: as many as are acknowledged)"},
        {"seconds", CLI_SECONDS, &seconds, "S", "that are measured (default 5)"},
        CLI_TOKEN_OPTION(&credentials),
        {0},
    };
    int r = cli_parse(&load_verb, options, argc, argv, &err);
    if (r == CLI_HELP)
        return 0;
    if (r >= 0)
        r = cli_credentials_token(&credentials, &token, &err);
    if (r >= 0)
        r = load_check_descriptors(n_workers + n_ranks, &err);
    if (r >= 0)
        r = load_measure(argv[1],
                         &(struct load_options){.address = argv[2],
                                                .token = token,
                                                .n_workers = n_workers,
                                                .in_flight = (unsigned)in_flight,
                                                .n_ranks = (unsigned)n_ranks,
                                                .n_keys = (unsigned)n_keys,
                                                .ranges_per_s = ranges_per_s,
                                                .seconds = seconds},
                         &result, &err);
    if (r >= 0)
        return cli_print(result);
    json_decref(result);
    return cli_fail(&err, false, NULL);
}
