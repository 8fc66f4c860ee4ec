/* cachew bench: measures the rate of a pipeline with 1, 2, 4 ... threads. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/verb.h"
#include "explain/measure.h"
#include "session/report.h"

#define MAX_STEPS 16

struct bench {
    struct cli_pipeline common;
    uint64_t best_of;
    double seconds;
};

struct step {
    struct cw_measurement best;
    uint64_t peak_rss;
    char bottleneck[64];
};

/* 1, 2, 4 ... and `most`. Returns how many these are. */
static unsigned bench_steps(unsigned most, unsigned steps[MAX_STEPS])
{
    unsigned n = 0;
    for (unsigned t = 1; t < most && n < MAX_STEPS - 1; t *= 2)
        steps[n++] = t;
    steps[n++] = most;
    return n;
}

/* Sets VmHWM to what is resident now. If the system refuses, peaks are those since the process started. */
static void bench_reset_peak_rss(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, "5", 1) != 1)
        fprintf(stderr, "cachew: peaks of memory are those since the start\n");
    close(fd);
}

static int bench_run_step(struct bench *x, unsigned threads, struct step *ret, struct cw_error *err)
{
    struct cw_measure_options o = {
        .seed = x->common.seed,
        .threads = threads,
        .memory = x->common.memory,
        .optimize = !x->common.no_optimize,
        .seconds = x->seconds,
        .wait = x->common.wait_s,
    };
    for (uint64_t i = 0; i < x->best_of; i++) {
        struct cw_measurement m;
        /* frees the slabs of the run before */
        x->common.local.iterator = cw_iterator_free(x->common.local.iterator);
        bench_reset_peak_rss();
        int r = cw_measure(&x->common.local, &o, &m, err);
        cw_measurement_deinit(&m); /* its numbers stay valid */
        if (r < 0)
            return r;
        ret->peak_rss = CW_MAX(ret->peak_rss, cw_peak_rss());
        if (i == 0 || cw_measurement_rate(&m) > cw_measurement_rate(&ret->best)) {
            ret->best = m;
            json_t *profile = cw_report_profile(&x->common.local);
            const char *name = json_string_value(json_object_get(profile, "bottleneck"));
            snprintf(ret->bottleneck, sizeof(ret->bottleneck), "%s", name ? name : "unknown");
            json_decref(profile);
        }
    }
    return 0;
}

static json_t *bench_step_json(const struct step *s, double one)
{
    json_t *o = cw_measurement_json(&s->best);
    json_object_update_new(o, json_pack("{s:f, s:I, s:s}", "speedup",
                                        one > 0 ? cw_measurement_rate(&s->best) / one : 0.0, "peak_rss_bytes",
                                        (json_int_t)s->peak_rss, "bottleneck", s->bottleneck));
    return o;
}

static int bench_run_all(struct bench *x, json_t **ret, struct cw_error *err)
{
    unsigned steps[MAX_STEPS], n = bench_steps((unsigned)x->common.threads, steps);
    json_t *list = json_array();
    double one = 0, best = 0;
    unsigned best_threads = 0;
    int r = 0;
    if (!x->common.json)
        printf("%7s %14s %12s %10s %9s %12s %10s  %s\n", "threads", "elements/s", "batches/s", "MB/s",
               "speed-up", "first batch", "peak MB", "bottleneck");
    for (unsigned i = 0; i < n && r >= 0; i++) {
        struct step s = {0};
        r = bench_run_step(x, steps[i], &s, err);
        if (r < 0)
            break;
        const struct cw_measurement *m = &s.best;
        one = i == 0 ? cw_measurement_rate(m) : one;
        if (cw_measurement_rate(m) > best) {
            best = cw_measurement_rate(m);
            best_threads = steps[i];
        }
        json_array_append_new(list, bench_step_json(&s, one));
        if (!x->common.json) {
            printf("%7u %14.0f %12.1f %10.1f %8.2fx %10.3f s %10.1f  %s\n", steps[i], cw_measurement_rate(m),
                   (double)m->batches / m->seconds, (double)m->bytes * 1e-6 / m->seconds,
                   one > 0 ? cw_measurement_rate(m) / one : 0.0, m->first_batch_s, (double)s.peak_rss * 1e-6,
                   s.bottleneck);
            fflush(stdout);
        }
    }
    *ret = json_pack("{s:o, s:f, s:I, s:I, s:f, s:i, s:o}", "pipeline", cw_report_text(x->common.file),
                     "seconds_per_run", x->seconds, "best_of", (json_int_t)x->best_of, "seed",
                     (json_int_t)x->common.seed, "elements_per_s", best, "threads", (int)best_threads, "runs",
                     list);
    return r;
}

static int bench_main(int argc, char **argv, struct cw_error *err)
{
    struct bench x = {.seconds = 3, .best_of = 2};
    json_t *result = NULL;
    const struct cli_option options[] = {
        {"seconds", CLI_SECONDS, &x.seconds, "S", "run for S seconds each time (default 3)"},
        {"best-of", CLI_COUNT, &x.best_of, "N",
         "take the best of N runs for each number of threads (default 2)", .min = 1, .max = 1000},
        CLI_PIPELINE_OPTIONS(&x.common, "measure up to N threads"),
        {0},
    };
    cli_pipeline_init(&x.common);
    int r = cli_pipeline_parse(&x.common, &cli_verb_bench, options, argc, argv, err);
    if (r == 0 && !(x.seconds > 0))
        r = cw_error_value(err, CW_E_OPTION, "seconds", "0", "more than 0",
                           "--seconds 0: expected more than 0");
    if (r == 0)
        r = cli_pipeline_load(&x.common, err);
    if (r == 0)
        r = cli_pipeline_open(&x.common, err);
    if (r == 0)
        r = bench_run_all(&x, &result, err);
    if (r < 0)
        r = cli_fail(err, x.common.json, result);
    else if (x.common.json && result)
        r = cli_print(json_incref(result));
    json_decref(result);
    cli_pipeline_deinit(&x.common);
    return r;
}

const struct cli_verb cli_verb_bench = {
    .name = "bench",
    .arguments = "PIPELINE ",
    .min_args = 1,
    .max_args = 1,
    .summary = "measure the rate of a pipeline with 1, 2, 4 ... threads",
    .run = bench_main,
};
