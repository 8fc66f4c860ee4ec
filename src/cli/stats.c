/* cachew stats: statistics of the components of a pipeline's elements. The numbers mean the same as those of
 * `Dataset.describe` in Python. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/verb.h"
#include "data/convert.h"
#include "host/host.h"

#define STATS_CHUNK 1024 /* numbers that are converted at once */
#define PROGRESS_NS UINT64_C(200000000)

/* What is known of one component. */
struct stats {
    const char *name;
    enum cw_dtype dtype;
    uint64_t bytes;
    uint64_t n, n_nan;    /* numbers that are not NaN, and NaNs */
    double mean, squares; /* squares: the sum of squared differences from the mean */
    double min, max;
    int64_t int_min, int_max; /* of integers, which float64 may round */
    uint64_t n_strings, n_empty, longest, shortest;
};

struct stats_run {
    struct cli_pipeline common;
    uint64_t sample;
    struct stats *components;
    unsigned n_components;
    uint64_t n; /* elements so far */
    bool progress;
    uint64_t progress_ns;
};

/* Adds n numbers, at most STATS_CHUNK; see Chan, Golub and LeVeque for the sums of two sets. */
static void stats_add_chunk(struct stats *s, const uint8_t *data, size_t n)
{
    double v[STATS_CHUNK];
    int64_t whole[STATS_CHUNK];
    size_t m = 0;
    cw_convert(s->dtype, CW_FLOAT64, v, data, n);
    for (size_t i = 0; i < n; i++)
        if (v[i] == v[i])
            v[m++] = v[i];
    s->n_nan += n - m;
    if (m == 0)
        return;
    double low = v[0], high = v[0], sum = 0, squares = 0;
    for (size_t i = 0; i < m; i++) {
        low = CW_MIN(low, v[i]);
        high = CW_MAX(high, v[i]);
        sum += v[i];
    }
    double mean = sum / (double)m, step = mean - s->mean, all = (double)(s->n + m);
    for (size_t i = 0; i < m; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    s->min = s->n ? CW_MIN(s->min, low) : low;
    s->max = s->n ? CW_MAX(s->max, high) : high;
    s->squares += squares + step * step * ((double)s->n * (double)m / all);
    s->mean += step * ((double)m / all);
    if (cw_dtype_is_integer(s->dtype)) {
        cw_convert(s->dtype, CW_INT64, whole, data, n);
        s->int_min = s->n ? s->int_min : whole[0];
        s->int_max = s->n ? s->int_max : whole[0];
        for (size_t i = 0; i < n; i++) {
            s->int_min = CW_MIN(s->int_min, whole[i]);
            s->int_max = CW_MAX(s->int_max, whole[i]);
        }
    }
    s->n += m;
}

static void stats_add_numbers(struct stats *s, const uint8_t *data, size_t size)
{
    size_t item = cw_dtype_size(s->dtype), chunk = STATS_CHUNK * item;
    for (size_t at = 0; at < size; at += chunk)
        stats_add_chunk(s, data + at, CW_MIN(chunk, size - at) / item);
}

static void stats_add_strings(struct stats *s, const uint64_t *lengths, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        s->shortest = s->n_strings ? CW_MIN(s->shortest, lengths[i]) : lengths[i];
        s->longest = CW_MAX(s->longest, lengths[i]);
        s->n_empty += lengths[i] == 0;
        s->n_strings++;
    }
}

/* Adds the first n rows of a batch. */
static void stats_add_batch(struct stats_run *x, const struct cw_batch *b, uint64_t n)
{
    for (unsigned k = 0; k < b->n_components; k++) {
        const struct cw_batch_component *c = &b->components[k];
        struct stats *s = &x->components[k];
        size_t size = b->n ? c->size / b->n * n : 0;
        if (c->dtype == CW_BYTES) {
            stats_add_strings(s, c->lengths, n);
            size = 0;
            for (uint64_t i = 0; i < n; i++)
                size += c->lengths[i];
        } else {
            stats_add_numbers(s, c->data, size);
        }
        s->bytes += size;
    }
    x->n += n;
}

/* ---- the result ---- */

static json_t *stats_number(const struct stats *s, double value, int64_t whole)
{
    if (!s->n)
        return json_null();
    if (cw_dtype_is_integer(s->dtype) && s->dtype != CW_UINT64)
        return json_integer(whole);
    json_t *v = json_real(value);
    return v ? v : json_string(value > 0 ? "inf" : "-inf"); /* JSON has no infinity */
}

static json_t *stats_json(const struct stats *s)
{
    bool strings = s->dtype == CW_BYTES;
    double values = strings ? (double)s->n_strings : (double)(s->n + s->n_nan),
           missing = strings ? (double)s->n_empty : (double)s->n_nan;
    json_t *length = strings && s->n_strings
                         ? json_pack("{s:I, s:f, s:I}", "min", (json_int_t)s->shortest, "mean",
                                     (double)s->bytes / (double)s->n_strings, "max", (json_int_t)s->longest)
                         : json_null();
    json_t *mean = s->n ? json_real(s->mean) : NULL,
           *std = s->n ? json_real(sqrt(s->squares / (double)s->n)) : NULL;
    return json_pack("{s:s, s:I, s:o, s:f, s:o, s:o, s:o, s:o}", "dtype", cw_dtype_name(s->dtype), "bytes",
                     (json_int_t)s->bytes, "length", length, "missing", values > 0 ? missing / values : 0.0,
                     "min", stats_number(s, s->min, s->int_min), "max", stats_number(s, s->max, s->int_max),
                     "mean", mean ? mean : json_null(), "std", std ? std : json_null());
}

static void stats_print_number(const json_t *v)
{
    if (json_is_integer(v))
        printf(" %14" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        printf(" %14.6g", json_real_value(v));
    else
        printf(" %14s", json_is_string(v) ? json_string_value(v) : "");
}

static int stats_print(const struct stats_run *x)
{
    printf("%" PRIu64 " elements\n%-24s %-8s %14s %14s %14s %14s %8s\n", x->n, "component", "dtype", "min",
           "max", "mean", "std", "missing");
    for (unsigned k = 0; k < x->n_components; k++) {
        static const char *const numbers[] = {"min", "max", "mean", "std"};
        const struct stats *s = &x->components[k];
        json_auto_t *o = stats_json(s);
        if (!o)
            return cli_print(NULL);
        printf("%-24s %-8s", s->name, cw_dtype_name(s->dtype));
        for (size_t i = 0; i < CW_COUNT_OF(numbers); i++)
            stats_print_number(json_object_get(o, numbers[i]));
        printf(" %7.1f%%\n", json_number_value(json_object_get(o, "missing")) * 100);
        const json_t *length = json_object_get(o, "length");
        if (json_is_object(length))
            printf("%-24s %-8s %14" JSON_INTEGER_FORMAT " %14" JSON_INTEGER_FORMAT " %14.6g\n", "", "length",
                   json_integer_value(json_object_get(length, "min")),
                   json_integer_value(json_object_get(length, "max")),
                   json_real_value(json_object_get(length, "mean")));
    }
    return 0;
}

static int stats_print_json(const struct stats_run *x)
{
    json_t *components = json_object();
    for (unsigned k = 0; k < x->n_components; k++)
        json_object_set_new(components, x->components[k].name, stats_json(&x->components[k]));
    return cli_print(json_pack("{s:I, s:o}", "n", (json_int_t)x->n, "components", components));
}

/* ---- the run ---- */

static int stats_begin(struct stats_run *x, struct cw_error *err)
{
    int r = cli_pipeline_load(&x->common, err);
    if (r >= 0)
        r = cli_pipeline_open(&x->common, err);
    if (r < 0)
        return r;
    const struct cw_component *c = cw_delivered(x->common.local.compiled, &x->n_components);
    if (!(x->components = calloc(x->n_components + 1, sizeof(*x->components))))
        return cw_error_nomem(err, 0, "statistics");
    for (unsigned k = 0; k < x->n_components; k++) {
        x->components[k].name = c[k].name;
        x->components[k].dtype = c[k].type.dtype;
    }
    const struct cw_iterator_options o = cli_pipeline_options(&x->common);
    return cw_local_iterate(&x->common.local, &o, NULL, err);
}

static void stats_progress(struct stats_run *x, bool end)
{
    uint64_t now = x->progress ? cw_now_ns() : 0;
    if (!x->progress || (!end && now - x->progress_ns < PROGRESS_NS))
        return;
    x->progress_ns = now;
    fprintf(stderr, end ? "\r\033[K" : "\r\033[K%" PRIu64 " elements", x->n);
}

static int stats_execute(struct stats_run *x, struct cw_error *err)
{
    uint64_t wait_ns = (uint64_t)(x->common.wait_s * 1e9);
    int r = stats_begin(x, err);
    while (r == 0 && x->n < x->sample) {
        struct cw_batch *b;
        r = cw_local_next(&x->common.local, wait_ns, &b, err);
        if (r != 0)
            break;
        stats_add_batch(x, b, CW_MIN(b->n, x->sample - x->n));
        cw_iterator_release(x->common.local.iterator, b);
        stats_progress(x, false);
    }
    stats_progress(x, true);
    if (r >= 0 && x->n == 0)
        return cw_error_set(err, CW_E_DATA, "the pipeline gives no element: expected at least one");
    return CW_MIN(r, 0);
}

static int stats_main(int argc, char **argv, struct cw_error *err)
{
    struct stats_run x = {.sample = UINT64_MAX};
    const struct cli_option options[] = {
        {"sample", CLI_COUNT, &x.sample, "N",
         "take the first N elements only; with a shuffle in the pipeline they are a random sample", .min = 1,
         .max = INT64_MAX},
        CLI_PIPELINE_OPTIONS(&x.common, "run N compute threads"),
        {0},
    };
    int r = cli_pipeline_parse(&x.common, &cli_verb_stats, options, argc, argv, err);
    if (r > 0)
        return r;
    x.progress = isatty(STDERR_FILENO) && !x.common.json;
    if (r == 0)
        r = stats_execute(&x, err);
    int code = r < 0           ? cli_fail(err, x.common.json, NULL)
               : x.common.json ? stats_print_json(&x)
                               : stats_print(&x);
    free(x.components);
    cw_host_shutdown();
    cli_pipeline_deinit(&x.common);
    return code;
}

const struct cli_verb cli_verb_stats = {
    .name = "stats",
    .arguments = "PIPELINE ",
    .min_args = 1,
    .max_args = 1,
    .summary = "show the range, mean and standard deviation of each component of a pipeline's elements",
    .details = "Computes the elements of epoch 0. The values of a batch that are padding count, so leave\n"
               "out the batching operator for the values alone.",
    .run = stats_main,
};
