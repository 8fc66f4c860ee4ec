/* cachew bench dispatcher: what a dispatcher takes, with simulated workers. Starts one, on a CPU of its own, or goes to one that is there. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/common.h"
#include "cli/load.h"

struct bench {
    const char *service, *state_dir, *token_file, *policy;
    uint64_t connections, in_flight, heartbeats, scaling;
    double seconds;
    bool json;
    char *token, *address;
    pid_t dispatcher; /* 0: not ours */
};

/* ---- the dispatcher ---- */

/* Two CPUs of those that we may use: *ret for the dispatcher, and this process stays on the others. -1: there is only one. */
static int pin(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < 2)
        return -1;
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &set))
        cpu++;
    return cpu;
}

static void leave_cpu(int cpu)
{
    cpu_set_t set;
    if (cpu < 0 || sched_getaffinity(0, sizeof(set), &set) < 0)
        return;
    CPU_CLR((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        fprintf(stderr, "cachew: can't leave CPU %d to the dispatcher: %s\n", cpu, strerror(errno));
}

static int start_dispatcher(struct bench *b, struct cw_error *err)
{
    const char *argv[12] = {"cachew", "dispatcher", "--listen", "127.0.0.1:0"};
    char log[4096] = "/dev/null";
    json_t *ready;
    size_t n = 4;
    int cpu = pin();
    if (b->state_dir) {
        if (mkdir(b->state_dir, 0700) < 0 && errno != EEXIST) {
            cw_error_file(err, b->state_dir);
            return cw_error_errno(err, CW_E_OPTION, errno, "can't make --state-dir %s", b->state_dir);
        }
        argv[n++] = "--state-dir";
        argv[n++] = b->state_dir;
        snprintf(log, sizeof(log), "%s/dispatcher.log", b->state_dir);
    }
    if (b->token_file) {
        argv[n++] = "--token-file";
        argv[n++] = b->token_file;
    }
    if (b->scaling) {
        argv[n++] = "--policy";
        argv[n++] = b->policy;
    }
    int r = cli_child_start(&(struct cli_child_options){.argv = argv, .log = log, .cpu = cpu}, &b->dispatcher, &ready, err);
    if (r < 0)
        return r;
    leave_cpu(cpu);
    const char *address = json_string_value(json_object_get(ready, "address"));
    b->address = strdup(address ? address : "");
    json_decref(ready);
    return b->address ? 0 : cw_error_nomem(err, 0, "an address");
}

static void end_dispatcher(struct bench *b)
{
    if (!b->dispatcher)
        return;
    kill(b->dispatcher, SIGTERM);
    waitpid(b->dispatcher, NULL, 0);
}

/* CPU time that our dispatcher has used; 0: it is not ours. */
static double dispatcher_cpu(const struct bench *b)
{
    char path[64];
    unsigned long user = 0, system = 0;
    if (!b->dispatcher)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)b->dispatcher);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        user = system = 0;
    if (f)
        fclose(f);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* ---- what is measured ---- */

/* As many descriptors as we may have: a connection takes one. */
static int check_descriptors(const struct bench *b, struct cw_error *err)
{
    struct rlimit limit;
    uint64_t most = CW_MAX(CW_MAX(b->connections, b->heartbeats), b->scaling) + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* where it fails, connecting says so */
    return limit.rlim_max >= most ? 0 : cw_error_set(err, CW_E_OPTION, "%" PRIu64 " connections need as many descriptors, and this process may have %" PRIu64 " (ulimit -n)", most,
                                                     (uint64_t)limit.rlim_max);
}

static int completions(struct bench *b, json_t *ret, struct cw_error *err)
{
    struct cli_load_options o = {.address = b->address, .token = b->token, .n_workers = b->connections, .in_flight = (unsigned)b->in_flight, .seconds = b->seconds};
    struct cli_load_times t;
    int r = cli_load_completions(&o, &t, err);
    if (r < 0)
        return r;
    json_object_update_new(ret, json_pack("{s:I, s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:f}", "connections", (json_int_t)b->connections, "in_flight", (json_int_t)b->in_flight,
                                          "completions", (json_int_t)t.n, "durable", b->state_dir != NULL, "seconds", t.seconds, "completions_per_s",
                                          (double)t.n / t.seconds, "p50_s", t.p50_s, "p99_s", t.p99_s, "max_s", t.most_s));
    if (!b->json)
        printf("%.0f %s/s (%.1f s, %" PRIu64 " connections, %" PRIu64 " under way on each); acknowledged after %.1f ms (median), %.1f ms (99 %%), %.1f ms (most)\n",
               (double)t.n / t.seconds, b->state_dir ? "durable completions" : b->service ? "completions" : "completions, not durable", t.seconds, b->connections,
               b->in_flight, t.p50_s * 1e3, t.p99_s * 1e3, t.most_s * 1e3);
    return 0;
}

static int heartbeats(struct bench *b, json_t *ret, struct cw_error *err)
{
    struct cli_load_options o = {.address = b->address, .token = b->token, .n_workers = b->heartbeats, .seconds = b->seconds};
    struct cli_load_times t;
    uint64_t sent;
    double cpu = dispatcher_cpu(b);
    int r = cli_load_heartbeats(&o, &sent, &t, err);
    if (r < 0)
        return r;
    cpu = dispatcher_cpu(b) - cpu;
    json_object_update_new(ret, json_pack("{s:I, s:f, s:f, s:f, s:f}", "workers", (json_int_t)b->heartbeats, "heartbeats_per_s", (double)sent / t.seconds,
                                          "question_p50_s", t.p50_s, "question_p99_s", t.p99_s, "workers_cpu_s", cpu));
    if (!b->json)
        printf("%.0f heartbeats/s of %" PRIu64 " workers (%.1f s); questions meanwhile answered after %.1f ms (median), %.1f ms (99 %%)\n", (double)sent / t.seconds,
               b->heartbeats, t.seconds, t.p50_s * 1e3, t.p99_s * 1e3);
    return 0;
}

/* The dispatcher's CPU, of which heartbeats, policy, crews and what it counts are all there is. */
static int scaling(struct bench *b, json_t *ret, struct cw_error *err)
{
    struct cli_load_options o = {.address = b->address, .token = b->token, .n_workers = b->scaling, .seconds = b->seconds};
    uint64_t sent;
    double seconds, cpu = dispatcher_cpu(b);
    int r = cli_load_scaling(&o, &sent, &seconds, err);
    if (r < 0)
        return r;
    cpu = dispatcher_cpu(b) - cpu;
    json_object_update_new(ret, json_pack("{s:I, s:f}", "scaling_workers", (json_int_t)b->scaling, "scaling_heartbeats_per_s", (double)sent / seconds));
    if (b->dispatcher) /* of another one neither is known */
        json_object_update_new(ret, json_pack("{s:s, s:f}", "policy", b->policy, "scaling_cpu", cpu / seconds));
    if (!b->json)
        printf("%.0f heartbeats/s of %" PRIu64 " workers of a job that say what they computed", (double)sent / seconds, b->scaling);
    if (!b->json && b->dispatcher)
        printf(", with policy %s: %.1f %% of a core", b->policy, 100 * cpu / seconds);
    if (!b->json)
        printf("\n");
    return 0;
}

int cli_bench_dispatcher(int argc, char **argv)
{
    static const struct cli_verb verb = {"bench dispatcher", "", 0, 0, "measures what a dispatcher takes: durable completions, and heartbeats", NULL, cli_bench_dispatcher};
    struct bench b = {.connections = 128, .in_flight = 8, .heartbeats = 10000, .seconds = 5, .policy = "auto"};
    struct cw_error err = {0};
    int n_args, code = 0;
    const struct cli_option options[] = {
        {"service", CLI_TEXT, &b.service, "HOST:PORT", "a dispatcher that is there (default: one is started, on a CPU of its own)", 0, 0, NULL, NULL},
        {"state-dir", CLI_TEXT, &b.state_dir, "DIR", "of the one that is started, made if absent, kept (default: none, nothing is durable)", 0, 0, NULL, NULL},
        {"connections", CLI_COUNT, &b.connections, "N", "workers that complete ranges (default 128)", 1, 10000, NULL, NULL},
        {"in-flight", CLI_COUNT, &b.in_flight, "N", "completions of each that wait for their acknowledgement (default 8)", 1, 256, NULL, NULL},
        {"heartbeats", CLI_COUNT, &b.heartbeats, "N", "workers that say once a second that they are alive (default 10000; 0: none)", 0, 10000, NULL, NULL},
        {"scaling", CLI_COUNT, &b.scaling, "N", "instead: workers of a job that say each second what they computed, and a policy that decides", 1, 10000, NULL, NULL},
        {"policy", CLI_TEXT, &b.policy, "P", "with --scaling, of the dispatcher that is started (default auto; fixed:N: all serve the job)", 0, 0, NULL, NULL},
        {"seconds", CLI_SECONDS, &b.seconds, "S", "of each measurement (default 5)", 0, 0, NULL, NULL},
        CLI_TOKEN_OPTION(&b.token_file),
        {"json", CLI_FLAG, &b.json, NULL, "print one JSON object", 0, 0, NULL, NULL},
        {0},
    };
    int r = cli_parse(&verb, options, argc, argv, &n_args, &err);
    if (r == 1)
        return 0;
    json_t *result = json_object();
    if (r >= 0 && (!(b.seconds > 0) || b.seconds > 3600)) {
        cw_error_attribute(&err, "seconds", "0", "more than 0, at most 3600");
        r = cw_error_set(&err, CW_E_OPTION, "--seconds: expected more than 0, at most 3600");
    }
    if (r >= 0 && b.service && b.state_dir)
        r = cw_error_set(&err, CW_E_OPTION, "--state-dir is for a dispatcher that is started, and --service names another: expected one of them");
    if (r >= 0)
        r = cli_token(b.token_file, &b.token, &err);
    if (r >= 0)
        r = check_descriptors(&b, &err);
    if (r >= 0 && b.service)
        r = (b.address = strdup(b.service)) ? 0 : cw_error_nomem(&err, 0, "an address");
    else if (r >= 0)
        r = start_dispatcher(&b, &err);
    if (r >= 0 && b.scaling)
        r = scaling(&b, result, &err);
    if (r >= 0 && !b.scaling)
        r = completions(&b, result, &err);
    if (r >= 0 && !b.scaling && b.dispatcher)
        json_object_set_new(result, "completions_cpu_s", json_real(dispatcher_cpu(&b)));
    if (r >= 0 && !b.scaling && b.heartbeats)
        r = heartbeats(&b, result, &err);
    end_dispatcher(&b);
    if (r < 0)
        code = cli_fail(&err, b.json, NULL);
    else if (b.json)
        code = cli_print(json_incref(result));
    json_decref(result);
    free(b.token);
    free(b.address);
    return code;
}
