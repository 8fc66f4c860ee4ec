/* cachew bench: measures the rate of a pipeline with 1, 2, 4 ... threads. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/row.h"
#include "cli/verb.h"
#include "explain/measure.h"
#include "session/report.h"

struct bench {
    struct cli_pipeline common;
    uint64_t best_of;
    double seconds;
};

/* Resets the peak of resident memory (VmHWM) to the present value. If the system refuses, reported peaks
 * count from the start of the process. */
static void bench_reset_peak_rss(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, "5", 1) != 1)
        fprintf(stderr, "cachew: the system can't reset the peak memory of this process, so peak_rss_bytes "
                        "of a run is the highest of all runs so far\n");
    close(fd);
}

/* Runs the pipeline best_of times with this number of threads. *ret is the report of the fastest run; the
 * caller owns it, also after an error. */
static int bench_run_step(struct bench *x, unsigned threads, json_t **ret, struct cw_error *err)
{
    struct cw_measure_options o = {
        .seed = x->common.seed,
        .threads = threads,
        .memory = x->common.memory,
        .optimize = !x->common.no_optimize,
        .seconds = x->seconds,
        .wait = x->common.wait_s,
    };
    uint64_t peak_rss = 0;
    int r = 0;
    for (uint64_t i = 0; i < x->best_of && r >= 0; i++) {
        struct cw_measurement m;
        /* frees the slabs of the previous run */
        x->common.local.iterator = cw_iterator_free(x->common.local.iterator);
        bench_reset_peak_rss();
        r = cw_measure(&x->common.local, &o, &m, err);
        peak_rss = CW_MAX(peak_rss, cw_peak_rss());
        if (r >= 0 && (i == 0 || cw_measurement_rate(&m) > cli_row_real(*ret, "elements_per_s"))) {
            json_auto_t *profile = cw_report_profile(&x->common.local);
            json_decref(*ret);
            *ret = cw_measurement_json(&m);
            json_object_set(*ret, "bottleneck", json_object_get(profile, "bottleneck"));
        }
        cw_measurement_deinit(&m);
    }
    json_object_set_new(*ret, "peak_rss_bytes", json_integer((json_int_t)peak_rss));
    return r;
}

static void bench_print(const json_t *run)
{
    char bottleneck[CLI_TEXT_SIZE];
    printf("%7.0f %14.0f %12.1f %10.1f %8.2fx %10.3f s %10.1f  %s\n", cli_row_real(run, "threads"),
           cli_row_real(run, "elements_per_s"), cli_row_real(run, "batches_per_s"),
           cli_row_real(run, "bytes_per_s") * 1e-6, cli_row_real(run, "speedup"),
           cli_row_real(run, "first_batch_s"), cli_row_real(run, "peak_rss_bytes") * 1e-6,
           cli_row_text(run, "bottleneck", bottleneck));
    fflush(stdout);
}

static int bench_run_all(struct bench *x, json_t **ret, struct cw_error *err)
{
    unsigned most = (unsigned)x->common.threads, best_threads = 0;
    json_t *list = json_array();
    double one = 0, best = 0;
    int r = 0;
    if (!x->common.json)
        printf("%7s %14s %12s %10s %9s %12s %10s  %s\n", "threads", "elements/s", "batches/s", "MB/s",
               "speed-up", "first batch", "peak MB", "bottleneck");
    for (unsigned threads = 1; threads <= most && r >= 0;
         threads = threads < most ? CW_MIN(2 * threads, most) : most + 1) {
        json_auto_t *run = NULL;
        r = bench_run_step(x, threads, &run, err);
        if (r < 0)
            break;
        double rate = cli_row_real(run, "elements_per_s");
        one = threads == 1 ? rate : one;
        if (rate > best) {
            best = rate;
            best_threads = threads;
        }
        json_object_set_new(run, "speedup", json_real(one > 0 ? rate / one : 0));
        json_array_append(list, run);
        if (!x->common.json)
            bench_print(run);
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
    json_auto_t *result = NULL;
    const struct cli_option options[] = {
        {"seconds", CLI_SECONDS, &x.seconds, "S", "measure each run for S seconds (default 3)"},
        {"best-of", CLI_COUNT, &x.best_of, "N",
         "make N runs for each number of threads, and keep the fastest (default 2)", .min = 1, .max = 1000},
        CLI_PIPELINE_OPTIONS(&x.common, "measure with 1, 2, 4 ... up to N threads"),
        {0},
    };
    int r = cli_pipeline_parse(&x.common, &cli_verb_bench, options, argc, argv, err);
    if (r == 0 && !(x.seconds > 0))
        r = cw_error_value(err, CW_E_OPTION, "seconds", "0", "more than 0",
                           "--seconds 0: expected more than 0 seconds");
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
    cli_pipeline_deinit(&x.common);
    return r;
}

const struct cli_verb cli_verb_bench = {
    .name = "bench",
    .arguments = "PIPELINE ",
    .min_args = 1,
    .max_args = 1,
    .summary = "measure how many elements per second a pipeline computes with 1, 2, 4 ... threads",
    .run = bench_main,
};
