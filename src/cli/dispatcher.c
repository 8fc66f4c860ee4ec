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
#include "dispatcher/dispatcher.h"
#include "net/loop.h"

struct dispatcher_run {
    const char *listen, *http, *state_dir, *name, *token_file;
    bool insecure, share;
    char *token;
};

static void on_log(void *role, bool warning, const char *text)
{
    char line[1600];
    snprintf(line, sizeof(line), "%s%s", warning ? "warning: " : "", text);
    cli_daemon_log(role, line);
}

/* Waits for the signal, and ends the loop. */
static void on_signal(void *loop, int signal)
{
    fprintf(stderr, "cachew: dispatcher: ended by %s\n", signal == SIGINT ? "SIGINT" : "SIGTERM");
    cw_loop_stop(loop);
}

static int print_ready(const struct dispatcher_run *x, const char *address)
{
    int code = cli_print(json_pack("{s:{s:s, s:i, s:s, s:s*, s:s}}", "ready", "role", "dispatcher", "pid", (int)getpid(), "address", address, "http", x->http, "id",
                                   x->name));
    fflush(stdout);
    return code;
}

static int serve(const struct dispatcher_run *x, struct cw_error *err)
{
    struct cw_loop *loop;
    struct cw_dispatcher_server *server = NULL;
    int r = cw_loop_new(&loop, err);
    if (r < 0)
        return r;
    struct cw_dispatcher_server_options o = {.loop = loop, .listen = &x->listen, .n_listen = 1, .state_dir = x->state_dir, .name = x->name, .token = x->token,
                                             .share_streams = x->share, .log = on_log, .log_arg = (void *)(uintptr_t)"dispatcher"};
    r = cw_loop_signals(loop, on_signal, loop, err);
    if (r >= 0)
        r = cw_dispatcher_server_start(&o, &server, err);
    if (r >= 0) {
        print_ready(x, cw_dispatcher_server_address(server, 0));
        cw_loop_run(loop);
    }
    if (server)
        cw_dispatcher_server_free(server);
    cw_loop_free(loop);
    return r;
}

int cli_dispatcher(int argc, char **argv)
{
    struct dispatcher_run x = {.listen = "127.0.0.1:5050", .name = "dispatcher"};
    struct cw_error err = {0};
    int n_args;
    const struct cli_option options[] = {
        {"listen", CLI_TEXT, &x.listen, "HOST:PORT", "where clients and workers come (default 127.0.0.1:5050; port 0: any)", 0, 0, NULL, NULL},
        {"http", CLI_TEXT, &x.http, "HOST:PORT", "where it answers over HTTP (/metrics, /healthz, /api/v1)", 0, 0, NULL, NULL},
        {"state-dir", CLI_TEXT, &x.state_dir, "DIR", "where its journal is, made if absent (default: none, it remembers nothing)", 0, 0, NULL, NULL},
        {"name", CLI_TEXT, &x.name, "NAME", "for people", 0, 0, NULL, NULL},
        {"insecure", CLI_FLAG, &x.insecure, NULL, "listen at addresses that are not loopback, without TLS and token", 0, 0, NULL, NULL},
        CLI_TOKEN_OPTION(&x.token_file),
        {0},
    };
    int r = cli_parse(cli_find("dispatcher"), options, argc, argv, &n_args, &err);
    if (r == 1)
        return 0;
    if (r >= 0)
        r = cli_check_listen(x.listen, x.insecure, &err);
    if (r >= 0)
        r = cli_token(x.token_file, &x.token, &err);
    if (r >= 0 && x.state_dir && mkdir(x.state_dir, 0700) < 0 && errno != EEXIST) {
        cw_error_file(&err, x.state_dir);
        r = cw_error_errno(&err, CW_E_OPTION, errno, "can't make --state-dir %s", x.state_dir);
    }
    if (r >= 0)
        r = serve(&x, &err);
    free(x.token);
    return r < 0 ? cli_fail(&err, false, NULL) : 0;
}
