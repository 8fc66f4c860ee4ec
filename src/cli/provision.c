/* cachew provision: runs as many workers as the dispatcher requests. Has one thread, which runs an event
 * loop. The fleet (service/fleet/fleet.h) starts the workers as child processes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/credentials.h"
#include "cli/daemon.h"
#include "cli/scaling.h"
#include "cli/signals.h"
#include "cli/worker.h"
#include "cli/verb.h"
#include "service/fleet/fleet.h"
#include "net/address.h"
#include "net/loop.h"
#include "policy/policy.h"

struct provision {
    struct cw_fleet_options o;
    const char *kind;
    double drain_s;
    struct cli_credentials credentials;
    struct cli_log log;
    char *token;
    struct cw_fleet *fleet;
    struct cw_timer *deadline;
    struct cw_error refused; /* why the dispatcher refused this provisioner; status 0: it did not */
    bool ending;             /* draining has begun */
};

/* Seconds after --drain-timeout after which a worker that drains is killed. A worker has a --drain-timeout of
 * its own, with the same default, and should end by itself. */
#define DRAIN_MORE_S 5

static const char *const kinds[] = {"local", NULL};

static void provision_on_log(void *arg, bool warning, const char *text)
{
    const struct provision *x = arg;
    cli_log(&x->log, warning, "%s", text);
}

static void provision_on_empty(void *loop)
{
    cw_loop_stop(loop);
}

/* now: kill the workers instead of draining them. */
static void provision_end(struct provision *x, bool now)
{
    cw_fleet_end(x->fleet, now, provision_on_empty, x->o.loop);
}

static void provision_on_deadline(void *arg)
{
    provision_end(arg, true);
}

/* Drains the workers; kills them after --drain-timeout, or when it is called again. */
static void provision_drain(struct provision *x)
{
    provision_end(x, x->ending);
    x->ending = true;
    cw_timer_start(x->deadline, (uint64_t)(x->drain_s * 1e9), 0);
}

static void provision_on_refused(void *arg, const struct cw_error *why)
{
    struct provision *x = arg;
    if (x->ending)
        return;
    x->refused = *why;
    provision_drain(x);
}

/* The first signal lets workers finish, a second one kills them. */
static void provision_on_signal(void *arg, int signal)
{
    struct provision *x = arg;
    cli_log(&x->log, false, "%s: %s", cli_signal_name(signal),
            x->ending ? "this is a second signal: workers are killed"
                      : "the workers finish their current work, then they end");
    provision_drain(x);
}

static int provision_run(struct provision *x, struct cw_error *err)
{
    int r = cw_loop_signals(x->o.loop, provision_on_signal, x, err);
    if (r >= 0)
        r = cw_timer_new(x->o.loop, provision_on_deadline, x, &x->deadline, err);
    if (r >= 0)
        r = cw_fleet_new(&x->o, &x->fleet, err);
    if (r >= 0) {
        cli_print_ready(
            json_pack("{s:s, s:i, s:s}", "role", "provisioner", "pid", (int)getpid(), "id", x->o.pool));
        cw_loop_run(x->o.loop);
        if (x->refused.status < 0)
            r = cw_error_set(err, x->refused.status, "the dispatcher at %s refuses this provisioner: %.600s",
                             x->o.dispatcher, x->refused.message);
    } else
        x->o.provisioner->ops->free(x->o.provisioner);
    x->fleet = cw_fleet_free(x->fleet);
    if (x->deadline)
        cw_timer_free(x->deadline);
    return r;
}

/* Checks the workers' command line before any worker is started. */
static int provision_check_words(const char *const *argv, size_t n, struct cw_error *err)
{
    struct cw_error why = {0};
    _cleanup_free_ char **words = calloc(n + 1, sizeof(*words)); /* parsing reorders them */
    if (!words)
        return cw_error_nomem(err, n * sizeof(*words), "a command line");
    memcpy(words, argv, n * sizeof(*words));
    int r = cli_worker_check((int)n, words, &why);
    if (r >= 0)
        return r;
    *err = why;
    return cw_error_set(err, why.status, "the options after -- are wrong for cachew worker: %.800s",
                        why.message);
}

/* Runs workers. words: the options after --, fewer than `most`; the options that this process passes on to
 * its workers come before them. */
static int provision_serve(struct provision *x, int most, char **words, struct cw_error *err)
{
    _cleanup_free_ const char **argv = calloc((size_t)most + 16, sizeof(*argv));
    size_t n = 0;
    if (!argv)
        return cw_error_nomem(err, 0, "a command line");
    const char *given[][2] = {{"--dispatcher", x->o.dispatcher}, {"--token-file", x->credentials.token_file},
                              {"--tls-ca", x->credentials.ca},   {"--tls-cert", x->credentials.cert},
                              {"--tls-key", x->credentials.key}, {"--log-format", x->log.format}};
    argv[n++] = "cachew";
    argv[n++] = "worker";
    for (size_t i = 0; i < CW_COUNT_OF(given); i++)
        if (given[i][1]) {
            argv[n++] = given[i][0];
            argv[n++] = given[i][1];
        }
    while (*words)
        argv[n++] = *words++;
    int r = provision_check_words(argv + 1, n - 1, err);
    if (r != 0)
        return r;
    r = cw_loop_new(&x->o.loop, err);
    if (r < 0)
        return r;
    struct cw_local_options local = {
        .loop = x->o.loop, .argv = argv, .n = n, .pool = x->o.pool, .cpu_share = x->o.cpu_share};
    r = cw_local_new(&local, &x->o.provisioner, err);
    if (r >= 0)
        r = provision_run(x, err);
    cw_loop_free(x->o.loop);
    return r;
}

static int provision_main(int argc, char **argv, struct cw_error *err)
{
    struct provision x = {.o = {.pool = "local",
                                .minimum = 1,
                                .maximum = 1,
                                .price_per_h = CLI_PRICE_WORKER,
                                .log = provision_on_log,
                                .log_arg = &x,
                                .refused = provision_on_refused},
                          .kind = "local",
                          .drain_s = 20,
                          .log = {.role = "provisioner"}};
    const struct cli_option options[] = {
        {"dispatcher", CLI_TEXT, &x.o.dispatcher, "HOST:PORT",
         "start workers for the dispatcher at HOST:PORT (required)", .required = "HOST:PORT of a dispatcher"},
        {"provisioner", CLI_TEXT, &x.kind, "KIND",
         "start workers by this method: local (default), as child processes on this host", .choices = kinds},
        {"pool", CLI_TEXT, &x.o.pool, "NAME",
         "name the pool (the group of these workers) NAME (default local); each provisioner of a dispatcher "
         "needs another NAME"},
        {"min-workers", CLI_SMALL, &x.o.minimum, "N", "keep at least N workers (default 1)", .max = 10000},
        {"max-workers", CLI_SMALL, &x.o.maximum, "N", "start at most N workers (default 1)", .min = 1,
         .max = 10000},
        {"worker-cpus", CLI_NUMBER, &x.o.cpu_share, "N",
         "limit each worker to N CPUs, with a control group (default: no limit)"},
        {"price-worker", CLI_NUMBER, &x.o.price_per_h, "P",
         "tell the policy what a worker costs per hour, in any currency (default 0.427; 0: the dispatcher's "
         "price)",
         .most = CW_WORKER_PRICE_MOST},
        {"drain-timeout", CLI_SECONDS, &x.drain_s, "S",
         "at SIGTERM, let workers finish their work for at most S seconds (default 20); a second signal "
         "kills them at once"},
        CLI_CONNECT_OPTIONS(&x.credentials),
        CLI_LOG_OPTION(&x.log),
        {0},
    };
    int r = cli_parse(&cli_verb_provision, options, argc, argv, err);
    struct cw_address address;
    if (r == 0)
        r = cw_address_parse(x.o.dispatcher, &address, err);
    if (r == 0)
        r = cw_pool_name_check(x.o.pool, err);
    if (r == 0 && x.o.minimum > x.o.maximum)
        r = cw_error_set(
            err, CW_E_OPTION,
            "--min-workers %u is more than --max-workers %u: expected --min-workers to be at most "
            "--max-workers",
            x.o.minimum, x.o.maximum);
    if (r == 0)
        r = cli_credentials_token(&x.credentials, &x.token, err);
    if (r == 0)
        r = cli_credentials_connect(&x.credentials, &x.o.tls, err);
    x.o.token = x.token;
    x.o.drain_ns = (uint64_t)((x.drain_s + DRAIN_MORE_S) * 1e9);
    cli_raise_limits();
    if (r == 0)
        r = provision_serve(&x, argc, argv + 1, err);
    cw_tls_unref(x.o.tls);
    free(x.token);
    return r < 0 ? cli_log_end(&x.log, err) : r;
}

const struct cli_verb cli_verb_provision = {
    .name = "provision",
    .arguments = "[-- WORKER OPTIONS] ",
    .max_args = 1000,
    .summary = "start and stop workers as the scaling policy of a dispatcher requests",
    .details = "The options after -- are passed to each worker; cachew worker --help lists them.",
    .run = provision_main,
};
