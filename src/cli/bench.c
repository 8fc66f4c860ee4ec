/* cachew bench: the rate of a pipeline with 1, 2, 4 ... all threads. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "cli/measure.h"
#include "cli/options.h"
#include "client/report.h"

#define MAX_STEPS 16

struct bench {
    const char *file, *index_dir;
    uint64_t seed, threads, memory, best_of;
    bool json, no_optimize, seed_given;
    double seconds, wait;
    struct cli_texts settings;
    struct cw_local local;
};

struct step {
    struct cli_measurement best;
    uint64_t peak_rss;
    char bottleneck[64];
};

/* 1, 2, 4 ... and the number asked for. */
static unsigned steps_of(unsigned most, unsigned steps[MAX_STEPS])
{
    unsigned n = 0;
    for (unsigned t = 1; t < most && n < MAX_STEPS - 1; t *= 2)
        steps[n++] = t;
    steps[n++] = most;
    return n;
}

/* VmHWM starts again from what is resident now. Where the system refuses, peaks are those since the start. */
static void reset_peak_rss(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, "5", 1) != 1)
        fprintf(stderr, "cachew: peaks of memory are those since the start\n");
    close(fd);
}

static double rate(const struct cli_measurement *m) { return m->seconds > 0 ? (double)m->elements / m->seconds : 0; }

static int run_step(struct bench *x, unsigned threads, struct step *ret, struct cw_error *err)
{
    struct cli_measure_options o = {
        .seed = x->seed,
        .threads = threads,
        .memory = x->memory,
        .optimize = !x->no_optimize,
        .seconds = x->seconds,
        .wait = x->wait,
    };
    for (uint64_t i = 0; i < x->best_of; i++) {
        struct cli_measurement m;
        x->local.iterator = cw_iterator_free(x->local.iterator); /* its slabs are not this run's */
        reset_peak_rss();
        int r = cli_measure(&x->local, &o, &m, err);
        if (r < 0)
            return r;
        ret->peak_rss = CW_MAX(ret->peak_rss, cw_peak_rss());
        if (i == 0 || rate(&m) > rate(&ret->best)) {
            ret->best = m;
            json_t *profile = cw_report_profile(&x->local);
            const char *name = json_string_value(json_object_get(profile, "bottleneck"));
            snprintf(ret->bottleneck, sizeof(ret->bottleneck), "%s", name ? name : "unknown");
            json_decref(profile);
        }
    }
    return 0;
}

static json_t *step_json(const struct step *s, double one)
{
    json_t *o = cli_measurement_json(&s->best);
    json_object_update_new(o, json_pack("{s:f, s:I, s:s}", "speedup", one > 0 ? rate(&s->best) / one : 0.0, "peak_rss_bytes", (json_int_t)s->peak_rss,
                                        "bottleneck", s->bottleneck));
    return o;
}

static int run_all(struct bench *x, json_t **ret, struct cw_error *err)
{
    unsigned steps[MAX_STEPS], n = steps_of((unsigned)x->threads, steps);
    json_t *list = json_array();
    double one = 0, best = 0;
    unsigned best_threads = 0;
    int r = 0;
    if (!x->json)
        printf("%7s %14s %12s %10s %9s %12s %10s  %s\n", "threads", "elements/s", "batches/s", "MB/s", "speed-up", "first batch", "peak MB", "bottleneck");
    for (unsigned i = 0; i < n && r >= 0; i++) {
        struct step s = {0};
        r = run_step(x, steps[i], &s, err);
        if (r < 0)
            break;
        const struct cli_measurement *m = &s.best;
        one = i == 0 ? rate(m) : one;
        if (rate(m) > best) {
            best = rate(m);
            best_threads = steps[i];
        }
        json_array_append_new(list, step_json(&s, one));
        if (!x->json) {
            printf("%7u %14.0f %12.1f %10.1f %8.2fx %10.3f s %10.1f  %s\n", steps[i], rate(m), (double)m->batches / m->seconds,
                   (double)m->bytes * 1e-6 / m->seconds, one > 0 ? rate(m) / one : 0.0, m->first_batch_s, (double)s.peak_rss * 1e-6, s.bottleneck);
            fflush(stdout);
        }
    }
    *ret = json_pack("{s:s, s:f, s:I, s:I, s:f, s:i, s:o}", "pipeline", x->file, "seconds_per_run", x->seconds, "best_of", (json_int_t)x->best_of, "seed",
                     (json_int_t)x->seed, "elements_per_s", best, "threads", (int)best_threads, "runs", list);
    return r;
}

int cli_bench(int argc, char **argv)
{
    struct bench x = {.seconds = 3, .wait = 60, .best_of = 2, .threads = cw_cpu_budget(), .memory = cw_memory_total() / 2};
    struct cw_error err = {0};
    int n_args, code = 0;
    json_t *result = NULL;
    const struct cli_option options[] = {
        {"seconds", CLI_SECONDS, &x.seconds, "S", "of each run (default 3)", 0, 0, NULL, NULL},
        {"best-of", CLI_COUNT, &x.best_of, "N", "runs for each number of threads, of which the best counts (default 2)", 1, 1000, NULL, NULL},
        {"seed", CLI_COUNT, &x.seed, "S", "seed of all randomness (default: the pipeline's, else 0)", 0, INT64_MAX, NULL, &x.seed_given},
        {"threads", CLI_COUNT, &x.threads, "N", "go up to N threads (default: the CPUs this process may use)", 1, 1024, NULL, NULL},
        {"memory", CLI_BYTES, &x.memory, "BYTES", "memory budget (default: half of what there is)", 0, 0, NULL, NULL},
        {"set", CLI_TEXTS, &x.settings, "PATH=VALUE", "change the pipeline: 2.size=64 sets size of operator 2", 0, 0, NULL, NULL},
        {"index-dir", CLI_TEXT, &x.index_dir, "DIR", "where indexes are kept (default ~/.cache/cachew/index)", 0, 0, NULL, NULL},
        {"wait", CLI_SECONDS, &x.wait, "S", "deadline for a batch (default 60; 0: none)", 0, 0, NULL, NULL},
        {"no-optimize", CLI_FLAG, &x.no_optimize, NULL, "run the operators as written", 0, 0, NULL, NULL},
        {"json", CLI_FLAG, &x.json, NULL, "print one JSON object", 0, 0, NULL, NULL},
        {0},
    };
    for (int i = 1; i < argc; i++)
        x.json |= strcmp(argv[i], "--json") == 0;
    int r = cli_parse(cli_find("bench"), options, argc, argv, &n_args, &err);
    if (r == 1)
        return 0;
    if (r >= 0) {
        x.file = argv[1];
        r = cw_local_load(&x.local, x.file, x.settings.items, x.settings.n, &err);
    }
    if (r >= 0 && !x.seed_given && x.local.pipeline->default_seed >= 0)
        x.seed = (uint64_t)x.local.pipeline->default_seed;
    if (r >= 0)
        r = cw_local_open(&x.local, x.index_dir, (unsigned)x.threads, &err);
    if (r >= 0)
        r = run_all(&x, &result, &err);
    if (r < 0)
        code = cli_fail(&err, x.json, result);
    else if (x.json)
        code = cli_print(json_incref(result));
    json_decref(result);
    cw_local_deinit(&x.local);
    cli_texts_deinit(&x.settings);
    return code;
}
