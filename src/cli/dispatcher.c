/* cachew dispatcher: runs the dispatcher of a service until a signal ends it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/credentials.h"
#include "cli/daemon.h"
#include "cli/scaling.h"
#include "cli/signals.h"
#include "cli/verb.h"
#include "service/dispatcher/dispatcher.h"
#include "net/loop.h"

struct dispatcher_run {
    const char *listen, *http, *state_dir, *name;
    bool insecure;
    struct cli_scaling scaling;
    struct cli_credentials credentials;
    struct cli_log log;
    char *token;
    struct cw_tls *tls;
    struct cw_loop *loop;
};

static void dispatcher_on_log(void *log, bool warning, const char *text)
{
    cli_log(log, warning, "%s", text);
}

static void dispatcher_on_signal(void *run, int signal)
{
    const struct dispatcher_run *x = run;
    cli_log(&x->log, false, "ended by %s", cli_signal_name(signal));
    cw_loop_stop(x->loop);
}

static int dispatcher_serve(struct dispatcher_run *x, struct cw_error *err)
{
    struct cw_dispatcher_server *server = NULL;
    int r = cw_loop_new(&x->loop, err);
    if (r < 0)
        return r;
    struct cw_dispatcher_server_options o = {
        .loop = x->loop,
        .listen = x->listen,
        .state_dir = x->state_dir,
        .token = x->token,
        .tls = x->tls,
        .http = x->http,
        .core = {.name = x->name,
                 .policy = x->scaling.policy ? &x->scaling.found : NULL,
                 .objective = x->scaling.objective && strcmp(x->scaling.objective, "cost") == 0
                                  ? CW_OBJECTIVE_COST
                                  : CW_OBJECTIVE_TIME,
                 .client_price_per_h = x->scaling.price_client,
                 .worker_price_per_h = x->scaling.price_worker,
                 .currency = x->scaling.currency},
        .log = dispatcher_on_log,
        .log_arg = &x->log};
    r = cw_loop_signals(x->loop, dispatcher_on_signal, x, err);
    if (r >= 0)
        r = cw_dispatcher_server_start(&o, &server, err);
    if (r >= 0) {
        cli_print_ready(json_pack("{s:s, s:i, s:s, s:s*, s:s}", "role", "dispatcher", "pid", (int)getpid(),
                                  "address", cw_dispatcher_server_address(server), "http",
                                  cw_dispatcher_server_http(server), "id", x->name));
        cw_loop_run(x->loop);
    }
    if (server)
        cw_dispatcher_server_free(server);
    cw_loop_free(x->loop);
    return r;
}

static int dispatcher_main(int argc, char **argv, struct cw_error *err)
{
    struct dispatcher_run x = {
        .listen = "127.0.0.1:5050",
        .name = "dispatcher",
        .log = {.role = "dispatcher"},
        .scaling = {.price_client = CLI_PRICE_CLIENT, .price_worker = CLI_PRICE_WORKER}};
    const struct cli_option options[] = {
        {"listen", CLI_TEXT, &x.listen, "HOST:PORT",
         "listen for clients and workers at this address (default 127.0.0.1:5050; port 0: any free one)"},
        {"http", CLI_TEXT, &x.http, "HOST:PORT",
         "serve the dashboard, /metrics, /healthz, /readyz and /api/v1 over HTTP at this address (port 0: "
         "any free one)"},
        {"state-dir", CLI_TEXT, &x.state_dir, "DIR",
         "keep the journal (jobs and their progress) in DIR, and make DIR if needed (default: no journal, so "
         "a restart forgets all jobs)"},
        {"name", CLI_TEXT, &x.name, "NAME",
         "show NAME for this dispatcher on the dashboard and in the status (default dispatcher)"},
        {"policy", CLI_TEXT, &x.scaling.policy, "P",
         "decide how many workers each job gets by this policy: auto (Cachew's own), cachew-atc22 (rule of "
         "the Cachew paper), cachew-atc22-code (that rule with the thresholds of the paper's code), pecan "
         "(rule of the Pecan paper), pecan-code (rule of that paper's code), hpa (by CPU utilisation) or "
         "fixed:N (N workers); default: no policy, every worker serves all jobs"},
        CLI_SCALING_OPTIONS(&x.scaling, "policy"),
        {"insecure", CLI_FLAG, &x.insecure, NULL,
         "allow --listen and --http at addresses that other hosts can reach, even without TLS and token"},
        CLI_LISTEN_OPTIONS(&x.credentials),
        CLI_LOG_OPTION(&x.log),
        {0},
    };
    int r = cli_parse(&cli_verb_dispatcher, options, argc, argv, err);
    if (r == 0)
        r = cli_scaling_find(&x.scaling, err);
    if (r == 0)
        r = cli_listen_open(&x.credentials, x.listen, x.http, x.insecure, &x.token, &x.tls, err);
    if (r == 0 && x.state_dir && mkdir(x.state_dir, 0700) < 0 && errno != EEXIST)
        r = cw_error_at_file(err, CW_E_OPTION, x.state_dir, errno, "can't make --state-dir %s", x.state_dir);
    cli_raise_limits();
    if (r == 0)
        r = dispatcher_serve(&x, err);
    cw_tls_unref(x.tls);
    free(x.token);
    return r < 0 ? cli_log_end(&x.log, err) : r;
}

const struct cli_verb cli_verb_dispatcher = {
    .name = "dispatcher",
    .arguments = "",
    .summary = "run the dispatcher of a service, which divides the work among workers",
    .run = dispatcher_main,
};
