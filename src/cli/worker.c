/* cachew worker: runs ranges for a dispatcher until a signal drains it. */
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/patience.h"
#include "base/trace.h"
#include "cli/common.h"
#include "cli/daemon.h"
#include "cli/tls.h"
#include "cli/worker.h"
#include "host/host.h"
#include "net/address.h"
#include "service/worker/worker.h"

struct worker_run {
    struct cw_worker_options o;
    struct cli_texts advertise, data_roots, plugins;
    const char *token_file, *trace;
    uint64_t threads, memory, max_streams;
    double drain;
    bool insecure;
    struct cli_tls tls_files;
    struct cli_log log;
    char *token;
};

#define MAX_STREAMS 64              /* each has threads of its own, and a part of the memory */
#define LOOK_NS UINT64_C(100000000) /* for a second signal while draining */

static void on_log(void *log, const char *text)
{
    cli_log(log, false, "%s", text);
}

/* The dispatcher's name for it is known once it answered; without a dispatcher there is nothing to serve. */
static int wait_registered(struct cw_worker *w, const struct worker_run *x, const sigset_t *signals,
                           int *ret_signal, struct cw_error *err)
{
    struct cw_worker_status s = {0};
    uint64_t ready_ns = cw_patience_start_ns(), until = cw_now_ns() + ready_ns;
    *ret_signal = 0;
    for (;;) {
        struct timespec wait = {.tv_nsec = 2000000};
        cw_worker_status(w, &s);
        if (s.registered)
            return 0;
        if (s.refused)
            return cw_error_set(err, CW_E_SERVICE, "the dispatcher at %s refuses: %s", x->o.dispatcher,
                                s.why);
        if (cw_now_ns() >= until)
            return cw_error_set(err, CW_E_SERVICE, "the dispatcher at %s did not answer within %g s%s%s",
                                x->o.dispatcher, (double)ready_ns / 1e9, *s.why ? ": " : "", s.why);
        int got = sigtimedwait(signals, NULL, &wait);
        if (got == SIGINT || got == SIGTERM) {
            *ret_signal = got;
            return 0;
        }
    }
}

static int print_ready(struct cw_worker *w, const struct worker_run *x)
{
    struct cw_worker_status s;
    cw_worker_status(w, &s);
    int code = cli_print(json_pack("{s:{s:s, s:i, s:s*, s:s*, s:s*, s:I}}", "ready", "role", "worker", "pid",
                                   (int)getpid(), "address", cw_worker_address(w), "unix",
                                   cw_worker_unix_path(w), "http", cw_worker_http(w), "id",
                                   (json_int_t)s.id));
    fflush(stdout);
    return code;
}

/* Until all is done, the time is up, or a second signal says that nobody wants to wait. */
static void drain(struct cw_worker *w, const struct worker_run *x, const sigset_t *signals)
{
    uint64_t now = cw_now_ns(), deadline_ns = now + (uint64_t)(x->drain * 1e9);
    struct cw_error late = {0};
    cw_worker_drain(w);
    for (; now < deadline_ns; now = cw_now_ns()) {
        if (cw_worker_wait_drained(w, CW_MIN(deadline_ns - now, LOOK_NS), &late) >= 0)
            return;
        if (sigtimedwait(signals, NULL, &(struct timespec){0}) > 0) {
            cli_log(&x->log, true, "a second signal: %s", late.message);
            return;
        }
    }
    if (late.status)
        cli_log(&x->log, true, "%s", late.message);
}

static int serve(struct worker_run *x, const sigset_t *signals, struct cw_error *err)
{
    struct cw_worker *w;
    int s, r = cw_worker_start(&x->o, &w, err);
    if (r < 0)
        return r;
    r = wait_registered(w, x, signals, &s, err);
    if (r >= 0 && !s) {
        print_ready(w, x);
        s = cli_wait_signal(signals);
        cli_log(&x->log, false, "%s: finishing what it has", s == SIGINT ? "SIGINT" : "SIGTERM");
        drain(w, x, signals);
    }
    cw_worker_stop(w);
    return r;
}

static int parse(struct worker_run *x, int argc, char **argv, struct cw_error *err)
{
    int n_args;
    const struct cli_option options[] = {
        {"dispatcher", CLI_TEXT, &x->o.dispatcher, "HOST:PORT", "whose worker it is", 0, 0, NULL, NULL},
        {"listen", CLI_TEXT, &x->o.listen, "HOST:PORT",
         "where clients come over TCP (default 127.0.0.1:0; port 0: any)", 0, 0, NULL, NULL},
        {"advertise", CLI_TEXTS, &x->advertise, "HOST:PORT",
         "under which clients get there, if it is not where it listens; several times", 0, 0, NULL, NULL},
        {"unix-socket", CLI_TEXT, &x->o.unix_path, "PATH",
         "where clients of this machine come (default: in a directory of its own)", 0, 0, NULL, NULL},
        {"http", CLI_TEXT, &x->o.http, "HOST:PORT",
         "where it answers over HTTP (/metrics, /healthz, /readyz, /api/v1/status, /api/v1/tuning); port 0: "
         "any",
         0, 0, NULL, NULL},
        {"name", CLI_TEXT, &x->o.name, "NAME", "for people", 0, 0, NULL, NULL},
        {"pool", CLI_TEXT, &x->o.pool, "NAME",
         "of the provisioner that starts it, and may end it (default: none)", 0, 0, NULL, NULL},
        {"threads", CLI_COUNT, &x->threads, "N",
         "compute threads of each stream (default: the CPUs this process may use)", 1, 1024, NULL, NULL},
        {"memory", CLI_BYTES, &x->memory, "BYTES",
         "memory for batches and what they are made from (default: half of what there is)", 0, 0, NULL, NULL},
        {"max-streams", CLI_COUNT, &x->max_streams, "N",
         "pipelines that it has at a time, of all jobs (default 64); more wait for their turn", 1, 10000,
         NULL, NULL},
        {"data-root", CLI_TEXTS, &x->data_roots, "DIR",
         "pipelines may read below it only; several times (default: everywhere)", 0, 0, NULL, NULL},
        {"allow-python", CLI_FLAG, &x->o.allow_python, NULL,
         "run the Python functions of pipelines: their authors' code, with this process's rights", 0, 0, NULL,
         NULL},
        {"index-dir", CLI_TEXT, &x->o.index_dir, "DIR",
         "where indexes are kept (default ~/.cache/cachew/index)", 0, 0, NULL, NULL},
        {"cache-dir", CLI_TEXT, &x->o.cache_dir, "DIR",
         "keep elements there where pipelines have autocache or cache; workers may share it", 0, 0, NULL,
         NULL},
        {"cache-bytes", CLI_BYTES, &x->o.cache_bytes, "BYTES",
         "what may lie in the directory (default: what is there, and half of what is free)", 1, 0, NULL,
         NULL},
        {"drain-timeout", CLI_SECONDS, &x->drain, "S",
         "at SIGTERM, for finishing what is under way (default 20; a second signal ends it at once)", 0, 0,
         NULL, NULL},
        {"insecure", CLI_FLAG, &x->insecure, NULL,
         "listen at addresses that are not loopback, without TLS and token", 0, 0, NULL, NULL},
        CLI_TOKEN_OPTION(&x->token_file),
        CLI_TLS_LISTEN_OPTIONS(&x->tls_files),
        CLI_LOG_OPTION(&x->log),
        {"trace", CLI_TEXT, &x->trace, "FILE",
         "write when ranges were leased and computed, batches asked for and sent (Chrome's trace format)", 0,
         0, NULL, NULL},
        CLI_PLUGIN_OPTION(&x->plugins),
        {0},
    };
    return cli_parse(cli_find("worker"), options, argc, argv, &n_args, err);
}

/* All that may be wrong with the command line is found here, but for plug-ins; 1: help was printed. */
static int prepare(struct worker_run *x, int argc, char **argv, struct cw_error *err)
{
    struct cw_address address;
    *x = (struct worker_run){.o = {.listen = "127.0.0.1:0", .log = on_log, .log_arg = &x->log},
                             .log = {.role = "worker"},
                             .threads = cw_cpu_budget(),
                             .memory = cw_memory_total() / 2,
                             .max_streams = MAX_STREAMS,
                             .drain = 20};
    int r = parse(x, argc, argv, err);
    x->log.name = x->o.name;
    if (r != 0)
        return r;
    if (!x->o.dispatcher)
        return cw_error_value(err, CW_E_OPTION, "dispatcher", "missing", "HOST:PORT of a dispatcher",
                              "--dispatcher is missing: expected HOST:PORT of a dispatcher");
    r = cw_address_parse(x->o.dispatcher, &address, err);
    if (r >= 0)
        r = cli_token(x->token_file, &x->token, err);
    if (r >= 0)
        r = cli_tls_listening(&x->tls_files, &x->o.tls, err);
    if (r >= 0)
        r = cli_tls_connecting(&x->tls_files, &x->o.dispatcher_tls, err);
    if (r >= 0)
        r = cli_check_listen(x->o.listen, x->o.tls != NULL, x->token != NULL, x->insecure, err);
    if (r >= 0)
        r = cli_check_roots(&x->data_roots, err);
    if (r >= 0)
        r = cli_check_http(x->o.http, x->insecure, err);
    x->o.threads = (unsigned)x->threads;
    x->o.memory = x->memory;
    x->o.max_streams = (uint32_t)x->max_streams;
    x->o.token = x->token;
    x->o.advertise = x->advertise.items;
    x->o.n_advertise = x->advertise.n;
    x->o.data_roots = x->data_roots.items;
    x->o.n_data_roots = x->data_roots.n;
    return r;
}

static void deinit(struct worker_run *x)
{
    cw_tls_unref(x->o.tls);
    cw_tls_unref(x->o.dispatcher_tls);
    free(x->token);
    cli_texts_deinit(&x->advertise);
    cli_texts_deinit(&x->data_roots);
    cli_texts_deinit(&x->plugins);
}

int cli_worker_check(int argc, char **argv, struct cw_error *err)
{
    struct worker_run x;
    int r = prepare(&x, argc, argv, err);
    deinit(&x);
    return r;
}

int cli_worker(int argc, char **argv)
{
    struct worker_run x;
    struct cw_error err = {0}, late = {0};
    int r = prepare(&x, argc, argv, &err);
    if (r == 0)
        r = cli_load_plugins(&x.plugins, &err);
    if (r == 0 && x.trace)
        r = cw_trace_open(x.trace, "cachew worker", CW_TRACE_BYTES, &x.o.trace, &err);
    sigset_t signals;
    cli_raise_limits();
    cli_block_signals(&signals);
    /* else it learns from large blocks to keep up to 64 MB in each of its many arenas, on top of --memory */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    if (r == 0)
        r = serve(&x, &signals, &err);
    cw_host_shutdown();
    if (cw_trace_close(x.o.trace, &late) < 0)
        cli_log(&x.log, true, "%s", late.message);
    deinit(&x);
    return r < 0 ? cli_log_end(&x.log, &err) : 0;
}
