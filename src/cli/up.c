/* cachew up: runs a service on this machine. Starts a dispatcher and workers as child processes, restarts
 * those that die, and drains them at the end. The main thread waits for signals; with --end-with-stdin a
 * second thread waits for the end of stdin. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/text.h"
#include "cli/child.h"
#include "cli/daemon.h"
#include "cli/pipeline.h"
#include "cli/pool_watch.h"
#include "cli/scaling.h"
#include "cli/verb.h"
#include "net/address.h"

#define MAX_WORKERS 256
#define POOL "local" /* name of the provisioner's pool */
/* A process is restarted at the earliest this long after its last start. */
#define AGE_NS UINT64_C(1000000000)
/* A message explains a drain that takes longer than this. */
#define EXPLAIN_NS UINT64_C(1000000000)

struct daemon {
    pid_t pid; /* 0: not running */
    uint64_t started_ns;
    json_t *ready; /* the object that the daemon printed when it was ready: address, id ... */
};

struct up {
    /* options */
    /* the dispatcher that the workers join; NULL: one is started */
    const char *dispatcher;
    const char *workers; /* NULL: not given */
    uint64_t nice;
    const char *listen, *http, *state_dir, *index_dir, *cache_dir;
    uint64_t cache_bytes;
    uint64_t n_workers, threads, memory;
    double drain_s, worker_cpus;
    uint64_t minimum; /* --min-workers. With a policy n_workers is the maximum, and a provisioner runs the
                         workers */
    struct cli_scaling scaling;
    bool autoscale, no_python, no_restart, end_with_stdin;
    struct cli_texts data_roots, plugins;
    struct cli_credentials credentials;
    struct cli_log log;
    /* while it runs */
    /* [0]: the dispatcher, unless the workers join another one; then the workers, or with a policy only the
       provisioner */
    size_t n_daemons;
    struct daemon daemons[1 + MAX_WORKERS];
    struct cli_pool_watch watch;  /* watches the provisioner */
    char *address, *http_address; /* of the dispatcher; NULL before it has started */
};

/* ---- processes ---- */

/* most --data-root and --plugin options together; each takes two words of a worker's command */
#define MAX_GIVEN_ON 128

struct command {
    const char *argv[64 + 2 * MAX_GIVEN_ON];
    size_t n, n_numbers;
    char numbers[8][32]; /* the texts of those words of argv that command_number printed */
};

/* Formats a number into memory of the command. Returns the text, to be given to command_add. */
static const char *command_number(struct command *c, const char *format, ...) _printf_(2, 3);

static const char *command_number(struct command *c, const char *format, ...)
{
    char (*text)[sizeof(c->numbers[0])] = &c->numbers[c->n_numbers++];
    CW_FORMAT(*text, format);
    return *text;
}

/* Adds options, given as pairs of a name and a value, until the name is NULL. Leaves out an option whose
 * value is NULL. */
static void command_add(struct command *c, ...) __attribute__((sentinel));

static void command_add(struct command *c, ...)
{
    const char *name;
    va_list ap;
    va_start(ap, c);
    while ((name = va_arg(ap, const char *))) {
        const char *value = va_arg(ap, const char *);
        if (!value)
            continue;
        c->argv[c->n++] = name;
        c->argv[c->n++] = value;
    }
    va_end(ap);
}

/* Adds the options that all processes get. */
static void command_add_common(struct command *c, const struct up *u)
{
    command_add(c, "--token-file", u->credentials.token_file, "--tls-cert", u->credentials.cert, "--tls-key",
                u->credentials.key, "--tls-ca", u->credentials.ca, "--log-format", u->log.format, NULL);
    if (u->credentials.mutual)
        c->argv[c->n++] = "--tls-mutual";
}

static int daemon_start(const struct up *u, struct daemon *d, const struct command *c, struct cw_error *err)
{
    json_t *ready;
    int r = cli_child_start(c->argv, &u->log, &d->pid, &ready, err);
    if (r < 0)
        return r;
    d->started_ns = cw_now_ns();
    json_decref(d->ready);
    d->ready = ready;
    return 0;
}

static int up_start_dispatcher(struct up *u, struct cw_error *err)
{
    struct command c = {.argv = {"cachew", "dispatcher"}, .n = 2};
    command_add(&c, "--listen", u->address ? u->address : u->listen, "--http",
                u->http_address ? u->http_address : u->http, "--state-dir", u->state_dir, NULL);
    if (u->scaling.policy)
        command_add(&c, "--policy", u->scaling.policy, "--objective", u->scaling.objective, "--price-client",
                    command_number(&c, "%g", u->scaling.price_client), "--price-worker",
                    command_number(&c, "%g", u->scaling.price_worker), "--currency", u->scaling.currency,
                    NULL);
    command_add_common(&c, u);
    int r = daemon_start(u, &u->daemons[0], &c, err);
    if (r < 0)
        return r;
    const char *address = json_string_value(json_object_get(u->daemons[0].ready, "address")),
               *http = json_string_value(json_object_get(u->daemons[0].ready, "http"));
    if ((!u->address && !(u->address = strdup(address ? address : ""))) ||
        (http && !u->http_address && !(u->http_address = strdup(http))))
        return cw_error_nomem(err, 0, "an address");
    return 0;
}

/* Adds the options of a worker. It gets 1/n_workers of the threads and of the memory; all workers share the
 * cache directory. */
static void command_add_worker(struct command *c, const struct up *u)
{
    uint64_t share = u->threads || !(u->worker_cpus > 0)
                         ? (u->threads ? u->threads : cw_rank_share().cpus) / u->n_workers
                         : (uint64_t)(u->worker_cpus + 0.5);
    uint64_t memory = (u->memory ? u->memory : cw_rank_share().memory) / u->n_workers;
    command_add(c, "--threads", command_number(c, "%" PRIu64, CW_MAX(share, 1)), "--memory",
                command_number(c, "%" PRIu64, memory), "--http", u->http ? "127.0.0.1:0" : NULL,
                "--index-dir", u->index_dir, "--cache-dir", u->cache_dir, "--cache-bytes",
                u->cache_bytes ? command_number(c, "%" PRIu64, u->cache_bytes) : NULL, NULL);
    for (size_t k = 0; k < u->data_roots.n; k++)
        command_add(c, "--data-root", u->data_roots.items[k], NULL);
    for (size_t k = 0; k < u->plugins.n; k++)
        command_add(c, "--plugin", u->plugins.items[k], NULL);
    if (!u->no_python)
        c->argv[c->n++] = "--allow-python";
}

static int up_start_provisioner(struct up *u, struct cw_error *err)
{
    struct command c = {.argv = {"cachew", "provision"}, .n = 2};
    command_add(&c, "--dispatcher", u->address, "--pool", POOL, "--min-workers",
                command_number(&c, "%" PRIu64, u->minimum), "--max-workers",
                command_number(&c, "%" PRIu64, u->n_workers), "--worker-cpus",
                command_number(&c, "%g", u->worker_cpus), "--price-worker",
                command_number(&c, "%g", u->scaling.price_worker), "--drain-timeout",
                command_number(&c, "%g", u->drain_s), "--token-file", u->credentials.token_file, "--tls-cert",
                u->credentials.cert, "--tls-key", u->credentials.key, "--tls-ca", u->credentials.ca,
                "--log-format", u->log.format, NULL);
    c.argv[c.n++] = "--";
    if (u->credentials.mutual)
        c.argv[c.n++] = "--tls-mutual";
    command_add_worker(&c, u);
    cli_pool_watch_restart(&u->watch);
    return daemon_start(u, &u->daemons[1], &c, err);
}

/* Starts daemons[i]. */
static int up_start(struct up *u, size_t i, struct cw_error *err)
{
    struct command c = {.argv = {"cachew", "worker"}, .n = 2};
    if (i == 0)
        return up_start_dispatcher(u, err);
    if (u->scaling.policy)
        return up_start_provisioner(u, err);
    /* the default name of a worker is unique among all hosts */
    const char *name = u->dispatcher ? NULL : command_number(&c, "worker-%zu", i - 1);
    command_add(&c, "--dispatcher", u->address, "--listen", u->dispatcher ? u->listen : NULL, "--name", name,
                NULL);
    command_add_common(&c, u);
    command_add_worker(&c, u);
    return daemon_start(u, &u->daemons[i], &c, err);
}

/* ---- while it runs ---- */

static void up_print_ready(const struct up *u)
{
    json_t *ready = u->dispatcher ? json_pack("{s:s, s:s}", "role", "workers", "address", u->dispatcher)
                                  : json_copy(u->daemons[0].ready),
           *workers = json_array();
    for (size_t i = 1; i < u->n_daemons; i++) {
        const json_t *w = u->daemons[i].ready;
        json_array_append_new(workers,
                              json_pack("{s:O*, s:O*, s:O*, s:O*}", "id", json_object_get(w, "id"), "pid",
                                        json_object_get(w, "pid"), "address", json_object_get(w, "address"),
                                        "http", json_object_get(w, "http")));
    }
    json_object_set_new(ready, "workers", workers);
    json_object_set_new(ready, "up", json_integer(getpid()));
    cli_print_ready(ready);
    if (cli_log_is_json(&u->log) ||
        u->dispatcher) { /* a program reads the log, so instructions for people are left out */
        cli_log(&u->log, false, "%s%" PRIu64 " workers serve at %s", u->scaling.policy ? "up to " : "",
                u->n_workers, u->address);
        return;
    }
    const char *ca = u->credentials.ca ? u->credentials.ca : "";
    fprintf(stderr,
            "cachew: %s%" PRIu64 " workers serve at %s. A training job gets its batches with\n"
            "    cachew run PIPELINE.json --service %s --job NAME%s%s\n"
            "    dataset.distribute(\"%s\", job=\"NAME\")\n"
            "and Ctrl-C ends the service.\n",
            u->scaling.policy ? "up to " : "", u->n_workers, u->address, u->address, *ca ? " --tls-ca " : "",
            ca, u->address);
    if (u->http_address)
        fprintf(stderr, "The dashboard at http://%s/ shows what the service does.\n", u->http_address);
}

static void up_log_end(const struct up *u, size_t i, pid_t pid, int status)
{
    const char *what = i == 0 ? "the dispatcher" : u->scaling.policy ? "the provisioner" : "a worker";
    const char *then = u->no_restart ? "" : "; it is started again";
    if (WIFSIGNALED(status))
        cli_log(&u->log, true, "%s (pid %d) was ended by signal %d (%s)%s", what, (int)pid, WTERMSIG(status),
                strsignal(WTERMSIG(status)), then);
    else
        cli_log(&u->log, true, "%s (pid %d) ended with exit code %d%s", what, (int)pid, WEXITSTATUS(status),
                then);
}

/* Reaps children that ended, and sets their pid to 0. log: also log how they ended. */
static void up_reap(struct up *u, bool log)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t i = 0; i < u->n_daemons; i++)
            if (pid == u->daemons[i].pid) {
                u->daemons[i].pid = 0;
                if (log)
                    up_log_end(u, i, pid, status);
            }
    }
}

/* Restarts processes that ended. Returns the number of ms after which to call this function again; 0: all
 * processes run. */
static uint64_t up_restart(struct up *u)
{
    struct cw_error err = {0};
    uint64_t now = cw_now_ns(), next = 0;
    for (size_t i = 0; i < u->n_daemons; i++) {
        struct daemon *d = &u->daemons[i];
        if (d->pid || (i == 0 && u->dispatcher))
            continue;
        if (now - d->started_ns < AGE_NS) {
            next = 100;
            continue;
        }
        d->started_ns = now;
        if (up_start(u, i, &err) < 0) {
            if (err.status == CW_E_INTERRUPTED)
                return next;
            cli_log(&u->log, true, "%s; the next attempt to start it follows", err.message);
            next = 100;
        }
    }
    return next;
}

/* Kills a provisioner that hangs. Returns the number of ms after which to call this function again; 0: there
 * is no provisioner to watch. */
static uint64_t up_watch_provisioner(struct up *u)
{
    pid_t pid = u->daemons[1].pid;
    if (!u->scaling.policy || u->no_restart)
        return 0;
    if (pid && cli_pool_watch_missing(&u->watch)) {
        cli_log(&u->log, true,
                "the provisioner (pid %d) sent nothing to the dispatcher for %" PRIu64
                " s; the provisioner is killed, and its workers end with it",
                (int)pid, cli_pool_watch_missing_s());
        cli_pool_watch_restart(&u->watch);
        kill(pid, SIGKILL);
    }
    return CLI_POOL_PROBE_NS / 1000000;
}

/* Sends a signal (0: none) to the dispatcher, or else to all other daemons. Returns whether any of the
 * addressed daemons runs. */
static bool up_signal(const struct up *u, bool dispatcher, int signal)
{
    bool any = false;
    for (size_t i = !dispatcher; i < (dispatcher ? 1 : u->n_daemons); i++) {
        const struct daemon *d = &u->daemons[i];
        if (d->pid && signal)
            kill(d->pid, signal);
        any |= d->pid != 0;
    }
    return any;
}

/* Drains the workers first, then the dispatcher, because clients need the dispatcher until the workers have
 * finished. Kills the daemons that do not end within --drain-timeout, and all daemons at a second signal. */
static void up_drain(struct up *u, const sigset_t *signals)
{
    bool hurry = false;
    for (int dispatcher = 0; dispatcher <= 1; dispatcher++) {
        uint64_t begin = cw_now_ns(), until = begin + (uint64_t)(u->drain_s * 1e9);
        bool explained = false;
        up_signal(u, dispatcher, hurry ? SIGKILL : SIGTERM);
        while (up_signal(u, dispatcher, 0)) {
            struct timespec wait = {.tv_nsec = 100000000};
            int s = sigtimedwait(signals, NULL, &wait);
            up_reap(u, false);
            if (s == SIGINT || s == SIGTERM || cw_now_ns() >= until) {
                hurry = true;
                up_signal(u, dispatcher, SIGKILL);
            } else if (!explained && cw_now_ns() - begin >= EXPLAIN_NS) {
                explained = true;
                cli_log(&u->log, false, "waiting until %s; a second Ctrl-C ends all processes at once",
                        dispatcher ? "the dispatcher has ended"
                                   : "clients have fetched the batches that workers still hold");
            }
        }
    }
}

/* The thread of --end-with-stdin: sends SIGTERM to this process when the other end of stdin is closed, also
 * when kill -9 ended the process there. */
static void *up_watch_stdin(void *unused CW_UNUSED)
{
    char ignored[256];
    ssize_t n;
    while ((n = read(0, ignored, sizeof(ignored))) > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)))
        if (n < 0 && errno == EAGAIN) { /* another process that shares stdin made it nonblocking */
            struct pollfd p = {.fd = 0, .events = POLLIN};
            (void)poll(&p, 1, -1);
        }
    kill(getpid(), SIGTERM);
    return NULL;
}

static int up_serve(struct up *u, const sigset_t *signals, struct cw_error *err)
{
    pthread_t watcher;
    int r = 0, e = u->end_with_stdin ? pthread_create(&watcher, NULL, up_watch_stdin, NULL) : 0;
    if (e)
        return cw_error_errno(err, CW_E_MEMORY, e, "can't start a thread");
    u->n_daemons = 1 + (u->scaling.policy ? 1 : u->n_workers);
    if (!u->dispatcher)
        r = up_start(u, 0, err);
    else if (!(u->address = strdup(u->dispatcher)))
        r = cw_error_nomem(err, 0, "an address");
    if (r >= 0 && u->scaling.policy)
        r = cli_pool_watch_init(&u->watch, u->address, POOL, &u->credentials, err);
    for (size_t i = 1; i < u->n_daemons && r >= 0; i++)
        r = up_start(u, i, err);
    if (r >= 0)
        up_print_ready(u);
    uint64_t again_ms = 0;
    while (r >= 0) {
        struct timespec wait = {.tv_sec = again_ms ? (time_t)(again_ms / 1000) : 3600,
                                .tv_nsec = (long)(again_ms % 1000) * 1000000};
        int s = sigtimedwait(signals, NULL, &wait);
        if (s == SIGINT || s == SIGTERM)
            break;
        up_reap(u, true);
        uint64_t watch_ms = up_watch_provisioner(u);
        again_ms = u->no_restart ? 0 : up_restart(u);
        again_ms = again_ms ? again_ms : watch_ms;
    }
    up_drain(u, signals);
    cli_admin_deinit(&u->watch.admin);
    return r;
}

/* Finds the policy of --autoscale, and checks it and the limits of the number of workers. */
static int up_check_scaling(struct up *u, struct cw_error *err)
{
    if (u->autoscale && !u->scaling.policy)
        u->scaling.policy = "auto";
    int r = cli_scaling_find(&u->scaling, err);
    if (r < 0 || !u->autoscale)
        return r;
    if (u->minimum > u->n_workers)
        return cw_error_set(err, CW_E_OPTION,
                            "--min-workers %" PRIu64 " is more than --workers %" PRIu64
                            ": expected --min-workers to be at most --workers",
                            u->minimum, u->n_workers);
    if (strchr(u->scaling.policy, ':') && u->scaling.found.parameter > (double)u->n_workers)
        return cw_error_set(err, CW_E_OPTION,
                            "--policy %s is more than --workers %" PRIu64
                            ": expected N of fixed:N to be at most --workers",
                            u->scaling.policy, u->n_workers);
    return 0;
}

/* Checks --dispatcher and the options that can't be given with it, and sets the default of --listen. */
static int up_check_dispatcher(struct up *u, struct cw_error *err)
{
    struct cw_address address;
    bool here;
    const char *odd = u->autoscale ? "autoscale" : u->http ? "http" : u->state_dir ? "state-dir" : NULL;
    if (!u->dispatcher) {
        u->listen = u->listen ? u->listen : "127.0.0.1:5050";
        return 0;
    }
    if (odd)
        return cw_error_set(
            err, CW_E_OPTION,
            "--%s is an option of a dispatcher: it can't be given with --dispatcher, for whose "
            "dispatcher only workers are started",
            odd);
    int r = cw_address_parse(u->dispatcher, &address, err);
    if (r >= 0 && !u->listen) {
        r = cw_address_is_loopback(&address, &here, err);
        u->listen = r >= 0 && here ? "127.0.0.1:0" : "0.0.0.0:0";
    }
    return r;
}

/* Sets the number of workers from --workers. */
static int up_set_workers(struct up *u, struct cw_error *err)
{
    char *end;
    if (strcmp(u->workers, "auto") == 0) {
        unsigned idle = cw_idle_cpus();
        u->n_workers = CW_MIN(CW_MAX(idle, 1U), (unsigned)MAX_WORKERS);
        u->threads = u->threads ? u->threads : u->n_workers;
        return 0;
    }
    u->n_workers = strtoull(u->workers, &end, 10);
    if (*u->workers >= '0' && *u->workers <= '9' && !*end && u->n_workers >= 1 && u->n_workers <= MAX_WORKERS)
        return 0;
    return cw_error_value(err, CW_E_OPTION, "workers", u->workers, "an integer from 1 to 256, or auto",
                          "--workers %.40s: expected an integer from 1 to %d, or auto", u->workers,
                          MAX_WORKERS);
}

static int up_main(int argc, char **argv, struct cw_error *err)
{
    struct up u = {.n_workers = 1,
                   .drain_s = 30,
                   .minimum = 1,
                   .log = {.role = "up"},
                   .scaling = {.price_client = CLI_PRICE_CLIENT, .price_worker = CLI_PRICE_WORKER}};
    const struct cli_option options[] = {
        {"workers", CLI_TEXT, &u.workers, "N",
         "run N workers, which share this machine's CPUs (default 1); auto: one, with one compute thread, "
         "for "
         "each CPU that is idle now"},
        {"dispatcher", CLI_TEXT, &u.dispatcher, "HOST:PORT",
         "run only workers, for the dispatcher at HOST:PORT"},
        {"nice", CLI_COUNT, &u.nice, "N",
         "run with niceness N: other processes get CPUs first (default 0; at most 19)", .max = 19},
        {"autoscale", CLI_FLAG, &u.autoscale, NULL,
         "run as many workers as the jobs need, from --min-workers to --workers (then by default one for "
         "each CPU)"},
        {"min-workers", CLI_COUNT, &u.minimum, "N", "with --autoscale: keep at least N workers (default 1)",
         .max = MAX_WORKERS, .needs = "autoscale"},
        {"policy", CLI_TEXT, &u.scaling.policy, "P",
         "with --autoscale: decide the number of workers by this policy: auto (default, Cachew's own), "
         "cachew-atc22 (rule of the Cachew paper), cachew-atc22-code (that rule with the thresholds of the "
         "paper's code), pecan (rule of the Pecan paper), pecan-code (rule of that paper's code), hpa (by "
         "CPU utilisation) or fixed:N (N workers)",
         .needs = "autoscale"},
        CLI_SCALING_OPTIONS(&u.scaling, "autoscale"),
        {"worker-cpus", CLI_NUMBER, &u.worker_cpus, "N",
         "with --autoscale: limit each worker to N CPUs, with a control group (default: no limit)",
         .needs = "autoscale"},
        {"listen", CLI_TEXT, &u.listen, "HOST:PORT",
         "have the dispatcher listen at this address (default 127.0.0.1:5050; port 0: any free one); with "
         "--dispatcher, the workers (default 127.0.0.1:0 if only this host can reach the dispatcher, else "
         "0.0.0.0:0)"},
        {"http", CLI_TEXT, &u.http, "HOST:PORT",
         "serve the dashboard, /metrics, /healthz, /readyz and /api/v1 over HTTP at this address; each "
         "worker serves its own pages at a free port"},
        {"state-dir", CLI_TEXT, &u.state_dir, "DIR",
         "keep the dispatcher's journal (jobs and their progress) in DIR (default: no journal, so a restart "
         "forgets all jobs)"},
        {"threads", CLI_COUNT, &u.threads, "N",
         "run N compute threads in all workers together (default: one for each CPU that this process may "
         "use)",
         .min = 1, .max = 1024},
        {"memory", CLI_BYTES, &u.memory, "BYTES",
         "use at most BYTES of memory in all workers together (default: half of the cgroup's or machine's "
         "memory)"},
        {"data-root", CLI_TEXTS, &u.data_roots, "DIR",
         "let pipelines read only files below DIR, which may be an address; may be given several times "
         "(default: "
         "all files)"},
        {"no-python", CLI_FLAG, &u.no_python, NULL, "refuse pipelines that have Python functions"},
        {"end-with-stdin", CLI_FLAG, &u.end_with_stdin, NULL,
         "end as after SIGTERM when standard input is closed, for example because the parent process ended"},
        {"no-restart", CLI_FLAG, &u.no_restart, NULL,
         "do not restart a dispatcher, worker or provisioner that dies"},
        {"drain-timeout", CLI_SECONDS, &u.drain_s, "S",
         "at SIGTERM or Ctrl-C, wait at most S seconds for running work to finish (default 30)"},
        CLI_INDEX_DIR_OPTION(&u.index_dir),
        {"cache-dir", CLI_TEXT, &u.cache_dir, "DIR",
         "cache computed elements in DIR, for pipelines with an operator autocache or cache"},
        CLI_CACHE_BYTES_OPTION(&u.cache_bytes, ""),
        CLI_LISTEN_OPTIONS(&u.credentials),
        CLI_LOG_OPTION(&u.log),
        CLI_PLUGIN_OPTION(&u.plugins),
        {0},
    };
    int r = cli_parse(&cli_verb_up, options, argc, argv, err);
    if (r == 0 && u.data_roots.n + u.plugins.n > MAX_GIVEN_ON)
        r = cw_error_set(err, CW_E_OPTION,
                         "--data-root and --plugin are given %zu times together: expected at most %d times",
                         u.data_roots.n + u.plugins.n, MAX_GIVEN_ON);
    if (r == 0)
        r = up_check_dispatcher(&u, err);
    if (r == 0 && u.workers)
        r = up_set_workers(&u, err);
    if (r == 0 && u.nice && setpriority(PRIO_PROCESS, 0, (int)u.nice) < 0)
        r = cw_error_errno(err, CW_E_OPTION, errno, "can't set the niceness");
    if (u.autoscale && !u.workers)
        u.n_workers = CW_MIN(cw_cpu_budget(), (unsigned)MAX_WORKERS);
    if (r == 0)
        r = up_check_scaling(&u, err);
    if (r == 0)
        r = cli_check_roots(&u.data_roots, err);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (r == 0)
        r = up_serve(&u, &signals, err);
    for (size_t i = 0; i < u.n_daemons; i++)
        json_decref(u.daemons[i].ready);
    free(u.address);
    free(u.http_address);
    cli_texts_deinit(&u.data_roots);
    cli_texts_deinit(&u.plugins);
    return r < 0 ? cli_log_end(&u.log, err) : r;
}

const struct cli_verb cli_verb_up = {
    .name = "up",
    .arguments = "",
    .summary = "run a service on this machine: a dispatcher and workers",
    .run = up_main,
};
