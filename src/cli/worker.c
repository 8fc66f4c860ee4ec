/* cachew worker: computes ranges (runs of positions of an epoch) for a dispatcher, until a signal drains it.
 */
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
#include "cli/credentials.h"
#include "cli/daemon.h"
#include "cli/pipeline.h"
#include "cli/signals.h"
#include "cli/worker.h"
#include "cli/verb.h"
#include "host/host.h"
#include "net/address.h"
#include "service/worker/worker.h"

struct worker_run {
    struct cw_worker_options o;
    struct cli_texts advertise, data_roots, plugins;
    const char *trace;
    double drain_s;
    bool insecure;
    struct cli_credentials credentials;
    struct cli_log log;
    char *token;
};

#define MAX_STREAMS 64               /* each stream has its own threads; all share the memory */
#define PROBE_NS UINT64_C(100000000) /* while draining: interval of checks for a second signal */

static void worker_on_log(void *log, const char *text)
{
    cli_log(log, false, "%s", text);
}

/* Waits until the dispatcher has answered with the worker's id, or until SIGINT or SIGTERM. *ret_signal is
 * the signal, else 0. */
static int worker_wait_registered(struct cw_worker *w, const struct worker_run *x, const sigset_t *signals,
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
            return cw_error_set(err, CW_E_SERVICE, "the dispatcher at %s refuses this worker: %s",
                                x->o.dispatcher, s.why);
        if (cw_now_ns() >= until)
            return cw_error_set(err, CW_E_SERVICE,
                                "the dispatcher at %s did not register this worker within %g s%s%s",
                                x->o.dispatcher, (double)ready_ns / 1e9, *s.why ? ": " : "", s.why);
        int got = sigtimedwait(signals, NULL, &wait);
        if (got == SIGINT || got == SIGTERM) {
            *ret_signal = got;
            return 0;
        }
    }
}

static void worker_print_ready(struct cw_worker *w)
{
    struct cw_worker_status s;
    cw_worker_status(w, &s);
    cli_print_ready(json_pack("{s:s, s:i, s:s*, s:s*, s:s*, s:I}", "role", "worker", "pid", (int)getpid(),
                              "address", cw_worker_address(w), "unix", cw_worker_unix_path(w), "http",
                              cw_worker_http(w), "id", (json_int_t)s.id));
}

/* Waits until all work is finished, at most --drain-timeout, or until a second signal. */
static void worker_drain(struct cw_worker *w, const struct worker_run *x, const sigset_t *signals)
{
    uint64_t now = cw_now_ns(), deadline_ns = now + (uint64_t)(x->drain_s * 1e9);
    struct cw_error late = {0};
    cw_worker_drain(w);
    for (; now < deadline_ns; now = cw_now_ns()) {
        if (cw_worker_wait_drained(w, CW_MIN(deadline_ns - now, PROBE_NS), &late) >= 0)
            return;
        if (sigtimedwait(signals, NULL, &(struct timespec){0}) > 0) {
            cli_log(&x->log, true, "ended by a second signal: %s", late.message);
            return;
        }
    }
    if (late.status)
        cli_log(&x->log, true, "%s", late.message);
}

static int worker_serve(struct worker_run *x, const sigset_t *signals, struct cw_error *err)
{
    struct cw_worker *w;
    int s, r = cw_worker_start(&x->o, &w, err);
    if (r < 0)
        return r;
    r = worker_wait_registered(w, x, signals, &s, err);
    if (r >= 0 && !s) {
        worker_print_ready(w);
        while (sigwait(signals, &s) != 0)
            ;
        cli_log(&x->log, false, "%s: this worker finishes its current work, then it ends",
                cli_signal_name(s));
        worker_drain(w, x, signals);
    }
    cw_worker_stop(w);
    return r;
}

static int worker_parse(struct worker_run *x, int argc, char **argv, struct cw_error *err)
{
    const struct cli_option options[] = {
        {"dispatcher", CLI_TEXT, &x->o.dispatcher, "HOST:PORT",
         "work for the dispatcher at HOST:PORT (required)", .required = "HOST:PORT of a dispatcher"},
        {"listen", CLI_TEXT, &x->o.listen, "HOST:PORT",
         "listen for clients over TCP at this address (default 127.0.0.1:0; port 0: any free one)"},
        {"advertise", CLI_TEXTS, &x->advertise, "HOST:PORT",
         "tell clients to connect to this address instead of that of --listen; may be given several times"},
        {"unix-socket", CLI_TEXT, &x->o.unix_path, "PATH",
         "listen for clients on this host at this Unix socket (default: in a private temporary directory)"},
        {"http", CLI_TEXT, &x->o.http, "HOST:PORT",
         "serve /metrics, /healthz, /readyz, /api/v1/status and /api/v1/tuning over HTTP at this address "
         "(port 0: any free one)"},
        {"name", CLI_TEXT, &x->o.name, "NAME",
         "show NAME for this worker in logs and lists (default: HOST:PROCESS-ID)"},
        {"pool", CLI_TEXT, &x->o.pool, "NAME",
         "belong to the pool NAME of a provisioner, which starts and ends this worker (default: no pool)"},
        {"threads", CLI_SMALL, &x->o.threads, "N",
         "run N compute threads for each pipeline, and more while Python functions wait (default: one for "
         "each "
         "CPU that this process may use)",
         .min = 1, .max = 1024},
        {"memory", CLI_BYTES, &x->o.memory, "BYTES",
         "use at most BYTES of memory for batches and their computation (default: half of the cgroup's or "
         "machine's memory)"},
        {"max-streams", CLI_SMALL, &x->o.max_streams, "N",
         "run at most N pipelines at a time, for all jobs together; further pipelines wait (default 64)",
         .min = 1, .max = 10000},
        {"data-root", CLI_TEXTS, &x->data_roots, "DIR",
         "let pipelines read only files below DIR, which may be an address; may be given several times "
         "(default: "
         "all files)"},
        {"allow-python", CLI_FLAG, &x->o.allow_python, NULL,
         "run Python functions of pipelines, which is code of the pipelines' authors, with the rights of "
         "this process"},
        CLI_INDEX_DIR_OPTION(&x->o.index_dir),
        {"cache-dir", CLI_TEXT, &x->o.cache_dir, "DIR",
         "cache computed elements in DIR, for pipelines with an operator autocache or cache; workers may "
         "share DIR"},
        CLI_CACHE_BYTES_OPTION(&x->o.cache_bytes, ""),
        {"drain-timeout", CLI_SECONDS, &x->drain_s, "S",
         "at SIGTERM, finish running work for at most S seconds (default 20); a second signal ends the "
         "worker at once"},
        {"insecure", CLI_FLAG, &x->insecure, NULL,
         "allow --listen and --http at addresses that other hosts can reach, even without TLS and token"},
        CLI_LISTEN_OPTIONS(&x->credentials),
        CLI_LOG_OPTION(&x->log),
        {"trace", CLI_TEXT, &x->trace, "FILE",
         "write to FILE at what times ranges of the data were leased to this worker and computed, and "
         "batches requested and sent (Chrome trace format)"},
        CLI_PLUGIN_OPTION(&x->plugins),
        {0},
    };
    return cli_parse(&cli_verb_worker, options, argc, argv, err);
}

/* Parses and checks the command line, but does not load its plug-ins. Returns what cli_parse returns. The
 * caller calls worker_deinit, also after an error. */
static int worker_prepare(struct worker_run *x, int argc, char **argv, struct cw_error *err)
{
    struct cw_address address;
    struct cw_rank_share share = cw_rank_share();
    *x = (struct worker_run){.o = {.listen = "127.0.0.1:0",
                                   .threads = share.cpus,
                                   .memory = share.memory,
                                   .max_streams = MAX_STREAMS,
                                   .log = worker_on_log,
                                   .log_arg = &x->log},
                             .log = {.role = "worker"},
                             .drain_s = 20};
    int r = worker_parse(x, argc, argv, err);
    x->log.name = x->o.name;
    if (r != 0)
        return r;
    r = cw_address_parse(x->o.dispatcher, &address, err);
    if (r >= 0)
        r = cli_listen_open(&x->credentials, x->o.listen, x->o.http, x->insecure, &x->token, &x->o.tls, err);
    if (r >= 0)
        r = cli_credentials_connect(&x->credentials, &x->o.dispatcher_tls, err);
    if (r >= 0)
        r = cli_check_roots(&x->data_roots, err);
    x->o.token = x->token;
    x->o.advertise = x->advertise.items;
    x->o.n_advertise = x->advertise.n;
    x->o.data_roots = x->data_roots.items;
    x->o.n_data_roots = x->data_roots.n;
    return r;
}

static void worker_deinit(struct worker_run *x)
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
    int r = worker_prepare(&x, argc, argv, err);
    worker_deinit(&x);
    return r;
}

static int worker_main(int argc, char **argv, struct cw_error *err)
{
    struct worker_run x;
    struct cw_error late = {0};
    int r = worker_prepare(&x, argc, argv, err);
    if (r == 0)
        r = cli_plugins_load(&x.plugins, err);
    if (r == 0 && x.trace)
        r = cw_trace_open(x.trace, "cachew worker", CW_TRACE_BYTES, &x.o.trace, err);
    sigset_t signals;
    cli_raise_limits();
    cli_signals_block(&signals);
    /* Without this, glibc raises its threshold when large blocks are freed, and then keeps up to 64 MB in
     * each arena, beyond --memory. */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    if (r == 0)
        r = worker_serve(&x, &signals, err);
    cw_host_shutdown();
    if (cw_trace_close(x.o.trace, &late) < 0)
        cli_log(&x.log, true, "%s", late.message);
    worker_deinit(&x);
    return r < 0 ? cli_log_end(&x.log, err) : r;
}

const struct cli_verb cli_verb_worker = {
    .name = "worker",
    .arguments = "",
    .summary = "run a worker of a service, which computes batches",
    .run = worker_main,
};
