/* cachew dispatcher: says who computes what, until a signal ends it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common.h"
#include "cli/daemon.h"
#include "cli/scaling.h"
#include "cli/tls.h"
#include "service/dispatcher/dispatcher.h"
#include "net/loop.h"

struct dispatcher_run {
    const char *listen, *http, *state_dir, *name, *token_file;
    bool insecure, share;
    struct cli_scaling scaling;
    struct cli_tls tls_files;
    struct cli_log log;
    char *token;
    struct cw_tls *tls;
    struct cw_loop *loop;
};

static void on_log(void *log, bool warning, const char *text)
{
    cli_log(log, warning, "%s", text);
}

static void on_signal(void *run, int signal)
{
    const struct dispatcher_run *x = run;
    cli_log(&x->log, false, "ended by %s", signal == SIGINT ? "SIGINT" : "SIGTERM");
    cw_loop_stop(x->loop);
}

static int print_ready(const struct dispatcher_run *x, const struct cw_dispatcher_server *s)
{
    int code = cli_print(json_pack("{s:{s:s, s:i, s:s, s:s*, s:s}}", "ready", "role", "dispatcher", "pid",
                                   (int)getpid(), "address", cw_dispatcher_server_address(s, 0), "http",
                                   cw_dispatcher_server_http(s), "id", x->name));
    fflush(stdout);
    return code;
}

static int serve(struct dispatcher_run *x, struct cw_error *err)
{
    struct cw_dispatcher_server *server = NULL;
    int r = cw_loop_new(&x->loop, err);
    if (r < 0)
        return r;
    struct cw_dispatcher_server_options o = {
        .loop = x->loop,
        .listen = &x->listen,
        .n_listen = 1,
        .state_dir = x->state_dir,
        .name = x->name,
        .token = x->token,
        .tls = x->tls,
        .http = x->http,
        .share_streams = x->share,
        .policy = x->scaling.policy ? &x->scaling.found : NULL,
        .objective = x->scaling.objective && strcmp(x->scaling.objective, "cost") == 0 ? CW_OBJECTIVE_COST
                                                                                       : CW_OBJECTIVE_TIME,
        .client_price_per_h = x->scaling.price_client,
        .worker_price_per_h = x->scaling.price_worker,
        .log = on_log,
        .log_arg = &x->log};
    r = cw_loop_signals(x->loop, on_signal, x, err);
    if (r >= 0)
        r = cw_dispatcher_server_start(&o, &server, err);
    if (r >= 0) {
        print_ready(x, server);
        cw_loop_run(x->loop);
    }
    if (server)
        cw_dispatcher_server_free(server);
    cw_loop_free(x->loop);
    return r;
}

int cli_dispatcher(int argc, char **argv)
{
    struct dispatcher_run x = {
        .listen = "127.0.0.1:5050",
        .name = "dispatcher",
        .log = {.role = "dispatcher"},
        .scaling = {.price_client = CLI_PRICE_CLIENT, .price_worker = CLI_PRICE_WORKER}};
    struct cw_error err = {0};
    int n_args;
    const struct cli_option options[] = {
        {"listen", CLI_TEXT, &x.listen, "HOST:PORT",
         "where clients and workers come (default 127.0.0.1:5050; port 0: any)", 0, 0, NULL, NULL},
        {"http", CLI_TEXT, &x.http, "HOST:PORT",
         "where it answers over HTTP (the dashboard, /metrics, /healthz, /readyz, /api/v1); port 0: any", 0,
         0, NULL, NULL},
        {"state-dir", CLI_TEXT, &x.state_dir, "DIR",
         "where its journal is, made if absent (default: none, it remembers nothing)", 0, 0, NULL, NULL},
        {"name", CLI_TEXT, &x.name, "NAME", "for people", 0, 0, NULL, NULL},
        {"policy", CLI_TEXT, &x.scaling.policy, "P",
         "how many workers a job gets: auto, cachew-atc22, cachew-atc22-code, hpa, fixed:N (default: all "
         "that there are)",
         0, 0, NULL, NULL},
        CLI_SCALING_OPTIONS(&x.scaling),
        {"insecure", CLI_FLAG, &x.insecure, NULL,
         "listen at addresses that are not loopback, without TLS and token", 0, 0, NULL, NULL},
        CLI_TOKEN_OPTION(&x.token_file),
        CLI_TLS_LISTEN_OPTIONS(&x.tls_files),
        CLI_LOG_OPTION(&x.log),
        {0},
    };
    int r = cli_parse(cli_find("dispatcher"), options, argc, argv, &n_args, &err);
    if (r == 1)
        return 0;
    if (r >= 0)
        r = cli_scaling_find(&x.scaling, "policy", &err);
    if (r >= 0)
        r = cli_token(x.token_file, &x.token, &err);
    if (r >= 0)
        r = cli_tls_listening(&x.tls_files, &x.tls, &err);
    if (r >= 0)
        r = cli_check_listen(x.listen, x.tls != NULL, x.token != NULL, x.insecure, &err);
    if (r >= 0)
        r = cli_check_http(x.http, x.insecure, &err);
    if (r >= 0 && x.state_dir && mkdir(x.state_dir, 0700) < 0 && errno != EEXIST) {
        cw_error_file(&err, x.state_dir);
        r = cw_error_errno(&err, CW_E_OPTION, errno, "can't make --state-dir %s", x.state_dir);
    }
    cli_raise_limits();
    if (r >= 0)
        r = serve(&x, &err);
    cw_tls_unref(x.tls);
    free(x.token);
    return r < 0 ? cli_log_end(&x.log, &err) : 0;
}
