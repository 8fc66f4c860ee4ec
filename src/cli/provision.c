/*
 * cachew provision: keeps as many workers as the dispatcher wants. One thread, with a loop: the fleet
 * (service/fleet/fleet.h), which starts them here, as child processes.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "cli/daemon.h"
#include "cli/scaling.h"
#include "cli/tls.h"
#include "cli/worker.h"
#include "service/fleet/fleet.h"
#include "net/address.h"
#include "net/loop.h"
#include "policy/policy.h"

struct provision {
    struct cw_fleet_options o;
    const char *token_file, *kind;
    uint64_t minimum, maximum;
    double drain;
    struct cli_tls tls_files;
    struct cli_log log;
    char *token;
    struct cw_fleet *fleet;
    struct cw_timer *deadline;
    struct cw_error refused; /* why it ends, if the dispatcher will have none of it */
    bool ending;
};

/* Workers end by themselves within their own --drain-timeout, whose default is ours: only those that do not
 * are killed. */
#define DRAIN_MORE_S 5

static const char *const kinds[] = {"local", NULL};

static void on_log(void *arg, bool warning, const char *text)
{
    const struct provision *x = arg;
    cli_log(&x->log, warning, "%s", text);
}

static void on_empty(void *loop)
{
    cw_loop_stop(loop);
}

static void end(struct provision *x, bool now)
{
    cw_fleet_end(x->fleet, now, on_empty, x->o.loop);
}

static void on_deadline(void *arg)
{
    end(arg, true);
}

static void end_in_order(struct provision *x)
{
    end(x, x->ending);
    x->ending = true;
    cw_timer_start(x->deadline, (uint64_t)(x->drain * 1e9), 0);
}

static void on_refused(void *arg, const struct cw_error *why)
{
    struct provision *x = arg;
    if (x->ending)
        return;
    x->refused = *why;
    end_in_order(x);
}

/* The first one lets workers finish, a second one does not. */
static void on_signal(void *arg, int signal)
{
    struct provision *x = arg;
    cli_log(&x->log, false, "%s: %s", signal == SIGINT ? "SIGINT" : "SIGTERM",
            x->ending ? "workers are killed" : "workers finish what they have");
    end_in_order(x);
}

static int print_ready(const struct provision *x)
{
    int code = cli_print(json_pack("{s:{s:s, s:i, s:s}}", "ready", "role", "provisioner", "pid",
                                   (int)getpid(), "id", x->o.pool));
    fflush(stdout);
    return code;
}

static int run(struct provision *x, struct cw_error *err)
{
    int r = cw_loop_signals(x->o.loop, on_signal, x, err);
    if (r >= 0)
        r = cw_timer_new(x->o.loop, on_deadline, x, &x->deadline, err);
    if (r >= 0)
        r = cw_fleet_new(&x->o, &x->fleet, err);
    if (r >= 0) {
        print_ready(x);
        cw_loop_run(x->o.loop);
        if (x->refused.status < 0)
            r = cw_error_set(err, x->refused.status, "the dispatcher at %s refuses: %.600s", x->o.dispatcher,
                             x->refused.message);
    } else
        x->o.provisioner->ops->free(x->o.provisioner);
    x->fleet = cw_fleet_free(x->fleet);
    if (x->deadline)
        cw_timer_free(x->deadline);
    return r;
}

/* What every worker would refuse is found before any is started. */
static int check_words(const char *const *argv, size_t n, struct cw_error *err)
{
    struct cw_error why = {0};
    _cleanup_free_ char **words = calloc(n + 1, sizeof(*words)); /* they are moved about */
    if (!words)
        return cw_error_nomem(err, n * sizeof(*words), "a command line");
    memcpy(words, argv, n * sizeof(*words));
    int r = cli_worker_check((int)n, words, &why);
    if (r >= 0)
        return r;
    *err = why;
    return cw_error_set(err, why.status, "workers would refuse their command line: %.800s", why.message);
}

/* words: of the workers' command line, behind what this one gives on. */
static int serve(struct provision *x, char **words, size_t n_words, struct cw_error *err)
{
    _cleanup_free_ const char **argv = calloc(n_words + 16, sizeof(*argv));
    size_t n = 0;
    if (!argv)
        return cw_error_nomem(err, 0, "a command line");
    const char *given[][2] = {{"--dispatcher", x->o.dispatcher}, {"--token-file", x->token_file},
                              {"--tls-ca", x->tls_files.ca},     {"--tls-cert", x->tls_files.cert},
                              {"--tls-key", x->tls_files.key},   {"--log-format", x->log.format}};
    argv[n++] = "cachew";
    argv[n++] = "worker";
    for (size_t i = 0; i < CW_COUNT_OF(given); i++)
        if (given[i][1]) {
            argv[n++] = given[i][0];
            argv[n++] = given[i][1];
        }
    for (size_t i = 0; i < n_words; i++)
        argv[n++] = words[i];
    int r = check_words(argv + 1, n - 1, err);
    if (r != 0)
        return r;
    r = cw_loop_new(&x->o.loop, err);
    if (r < 0)
        return r;
    struct cw_local_options local = {
        .loop = x->o.loop, .argv = argv, .n = n, .pool = x->o.pool, .cpu_share = x->o.cpu_share};
    r = cw_local_new(&local, &x->o.provisioner, err);
    if (r >= 0)
        r = run(x, err);
    cw_loop_free(x->o.loop);
    return r;
}

int cli_provision(int argc, char **argv)
{
    struct provision x = {.o = {.pool = "local",
                                .price_per_h = CLI_PRICE_WORKER,
                                .log = on_log,
                                .log_arg = &x,
                                .refused = on_refused},
                          .minimum = 1,
                          .maximum = 1,
                          .kind = "local",
                          .drain = 20,
                          .log = {.role = "provisioner"}};
    struct cw_error err = {0};
    int n_args = 0;
    const struct cli_option options[] = {
        {"dispatcher", CLI_TEXT, &x.o.dispatcher, "HOST:PORT", "whose workers they are", 0, 0, NULL, NULL},
        {"provisioner", CLI_TEXT, &x.kind, "KIND", "local (default): child processes on this machine", 0, 0,
         kinds, NULL},
        {"pool", CLI_TEXT, &x.o.pool, "NAME", "what these workers are called together (default local)", 0, 0,
         NULL, NULL},
        {"min-workers", CLI_COUNT, &x.minimum, "N", "there in any case (default 1)", 0, 10000, NULL, NULL},
        {"max-workers", CLI_COUNT, &x.maximum, "N", "never more (default 1)", 1, 10000, NULL, NULL},
        {"worker-cpus", CLI_NUMBER, &x.o.cpu_share, "N",
         "CPUs that each may use, by a control group (default: not limited)", 0, 0, NULL, NULL},
        {"price-worker", CLI_NUMBER, &x.o.price_per_h, "P",
         "of each, per hour (default 0.427; 0: the dispatcher's)", 0, 0, NULL, NULL, 0, CW_WORKER_PRICE_MOST},
        {"drain-timeout", CLI_SECONDS, &x.drain, "S",
         "at SIGTERM, for finishing what is under way (default 20; a second signal ends it at once)", 0, 0,
         NULL, NULL},
        CLI_TOKEN_OPTION(&x.token_file),
        CLI_TLS_OPTIONS(&x.tls_files),
        CLI_LOG_OPTION(&x.log),
        {0},
    };
    int r = cli_parse(cli_find("provision"), options, argc, argv, &n_args, &err);
    if (r == 1)
        return 0;
    if (r >= 0 && !x.o.dispatcher)
        r = cw_error_value(&err, CW_E_OPTION, "dispatcher", "missing", "HOST:PORT of a dispatcher",
                           "--dispatcher is missing: expected HOST:PORT of a dispatcher");
    struct cw_address address;
    if (r >= 0)
        r = cw_address_parse(x.o.dispatcher, &address, &err);
    if (r >= 0)
        r = cw_pool_name_check(x.o.pool, &err);
    if (r >= 0 && x.minimum > x.maximum)
        r = cw_error_set(&err, CW_E_OPTION,
                         "--min-workers %llu is more than --max-workers %llu: expected at most as many",
                         (unsigned long long)x.minimum, (unsigned long long)x.maximum);
    if (r >= 0)
        r = cli_token(x.token_file, &x.token, &err);
    if (r >= 0)
        r = cli_tls_connecting(&x.tls_files, &x.o.tls, &err);
    x.o.token = x.token;
    x.o.minimum = (uint32_t)x.minimum;
    x.o.maximum = (uint32_t)x.maximum;
    x.o.drain_ns = (uint64_t)((x.drain + DRAIN_MORE_S) * 1e9);
    cli_raise_limits();
    if (r >= 0)
        r = serve(&x, argv + 1, (size_t)n_args, &err);
    cw_tls_unref(x.o.tls);
    free(x.token);
    return r < 0 ? cli_log_end(&x.log, &err) : 0;
}
