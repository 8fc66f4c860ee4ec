/* Runs a pipeline for some seconds and counts batches, elements and time. `explain` and `bench` call it. */
#include "explain/measure.h"

#include <math.h>
#include <string.h>

#include "base/cost_clock.h"
#include "base/machine.h"

/* Longest time after which an interruption is noticed. */
#define SLICE_NS UINT64_C(50000000)
/* If costs are modelled (base/cost_clock.h), at least this many batches are taken, so that batches that were
 * under way at the beginning do not matter. */
#define MODELLED_BATCHES 32

int cw_measure_next(struct cw_local *l, const struct cw_measure_options *o, struct cw_batch **ret,
                    struct cw_error *err)
{
    uint64_t wait_ns = (uint64_t)(o->wait * 1e9), end = wait_ns ? cw_now_ns() + wait_ns : UINT64_MAX;
    if (!o->interrupt)
        return cw_iterator_next(l->iterator, wait_ns, ret, err);
    for (;;) {
        struct cw_error own = {0};
        uint64_t now = cw_now_ns();
        int r = cw_iterator_next(l->iterator, CW_MAX(CW_MIN(SLICE_NS, end - CW_MIN(end, now)), 1), ret, &own);
        if (*o->interrupt) {
            if (r == 0)
                cw_iterator_release(l->iterator, *ret);
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
        }
        if (r != CW_E_DEADLINE || cw_now_ns() >= end) {
            if (r < 0 && err)
                *err = own;
            return r;
        }
    }
}

/* Sleeps until a time; CW_E_INTERRUPTED: *interrupt was set. */
static int measure_sleep_until(uint64_t until_ns, const volatile int *interrupt, struct cw_error *err)
{
    for (uint64_t now; (now = cw_now_ns()) < until_ns;) {
        struct timespec t = {.tv_nsec = (long)CW_MIN(until_ns - now, SLICE_NS)};
        nanosleep(&t, NULL);
        if (interrupt && *interrupt)
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    }
    return 0;
}

static int profile_init(const struct cw_local *l, struct cw_profile *p, struct cw_error *err)
{
    *p = (struct cw_profile){.ops = calloc(l->pipeline->n_ops + 1, sizeof(*p->ops)),
                             .values = calloc(cw_n_values(l->compiled) + 1, sizeof(*p->values)),
                             .n_ops = l->pipeline->n_ops};
    return p->ops && p->values ? 0 : cw_error_nomem(err, 0, "a profile");
}

static void profile_deinit(struct cw_profile *p)
{
    free(p->ops);
    free(p->values);
    *p = (struct cw_profile){0};
}

static uint64_t *profile_counter(const struct cw_profile *p, size_t offset)
{
    return (uint64_t *)((uintptr_t)p + offset);
}

/* Subtracts the counters of `before` from those of p. Sampled times are kept, since they are only used for
 * means, which are better with more samples. */
static void profile_subtract(struct cw_profile *p, const struct cw_profile *before)
{
#define COUNTER(name) offsetof(struct cw_profile, name)
    static const size_t counters[] = {
        COUNTER(plan_ns),      COUNTER(read_ns),   COUNTER(read_bytes), COUNTER(emit_ns),
        COUNTER(fetch_ns),     COUNTER(emit_rows), COUNTER(cold_ns),    COUNTER(cold_bytes),
        COUNTER(cold_wall_ns), COUNTER(idle_ns),   COUNTER(wait_ns),    COUNTER(run_ns),
    };

#undef COUNTER
    for (unsigned i = 0; i < p->n_ops; i++) {
        p->ops[i].ns -= before->ops[i].ns;
        p->ops[i].calls -= before->ops[i].calls;
        p->ops[i].rows -= before->ops[i].rows;
        p->ops[i].call_ns -= before->ops[i].call_ns;
        p->ops[i].cpu_ns -= before->ops[i].cpu_ns;
        p->ops[i].live_rows -= before->ops[i].live_rows;
    }
    for (size_t i = 0; i < CW_COUNT_OF(counters); i++)
        *profile_counter(p, counters[i]) -= *profile_counter(before, counters[i]);
    for (int i = 0; i < CW_N_IDLE; i++)
        p->idle_for_ns[i] -= before->idle_for_ns[i];
}

/* Returns the time in ns. If costs are modelled, it is the modelled time of the work so far, or the end of
 * the consumer's last pause if that is later. */
static uint64_t measure_now_ns(const struct cw_local *l, uint64_t paused_until_ns)
{
    return CW_MAX(cw_runner_now_ns(cw_iterator_runner(l->iterator)), paused_until_ns);
}

/* Waits until the next batch is due at the rate o->rate, after a batch of n elements, and sets *until_ns to
 * that time. It is an error if one batch takes longer than the whole measurement, which could not show such a
 * rate. */
static int measure_keep_rate(const struct cw_measure_options *o, uint64_t start,
                             const struct cw_measurement *m, unsigned n, uint64_t *until_ns,
                             struct cw_error *err)
{
    char value[32], expected[96];
    *until_ns = start + (uint64_t)((double)m->elements / o->rate * 1e9);
    if (n <= o->rate * o->seconds)
        return cw_cost_modelled() ? 0 : measure_sleep_until(*until_ns, o->interrupt, err);
    snprintf(value, sizeof(value), "%g", o->rate);
    snprintf(expected, sizeof(expected), "at least %g, so that a batch of %u fits in a run of %g s",
             n / o->seconds, n, o->seconds);
    return cw_error_value(err, CW_E_OPTION, "limit-rate", value, expected,
                          "a rate of %s elements per second: expected %s", value, expected);
}

/* Takes batches until the first one after `seconds`, and counts. */
static int measure_take(struct cw_local *l, const struct cw_measure_options *o, double seconds,
                        struct cw_measurement *m, struct cw_error *err)
{
    uint64_t start = measure_now_ns(l, 0), last = start, end = start + (uint64_t)(seconds * 1e9),
             paused_until = 0, half_elements = 0;
    double half_s = 0;
    int r = 0;
    m->batches = m->elements = m->bytes = m->padding_bytes = 0;
    m->noise = 0;
    while (r == 0 && (last < end || (cw_cost_modelled() && m->batches < MODELLED_BATCHES))) {
        struct cw_batch *b;
        r = cw_measure_next(l, o, &b, err);
        if (r != 0)
            break;
        last = measure_now_ns(l, paused_until);
        if (m->first_batch_s == 0)
            m->first_batch_s = (double)(last - start) * 1e-9;
        m->batches++;
        unsigned n = b->n;
        m->elements += n;
        for (unsigned k = 0; k < b->n_components; k++)
            m->bytes += b->components[k].size;
        m->padding_bytes += b->padding_bytes;
        cw_iterator_release(l->iterator, b);
        if (o->rate > 0) {
            r = measure_keep_rate(o, start, m, n, &paused_until, err);
            last = measure_now_ns(l, paused_until);
        }
        if (half_s == 0 && (double)(last - start) * 2e-9 >= seconds) {
            half_s = (double)(last - start) * 1e-9;
            half_elements = m->elements;
        }
    }
    m->seconds = (double)(last - start) * 1e-9;
    if (r == 1)
        return cw_error_set(err, CW_E_DATA, "the pipeline gives no batches: there is nothing to measure");
    if (half_s > 0 && m->seconds > half_s && m->elements) {
        double first = (double)half_elements / half_s,
               second = (double)(m->elements - half_elements) / (m->seconds - half_s);
        m->noise = fabs(first - second) / (first + second);
    }
    return r;
}

/*
 * If costs are modelled (base/cost_clock.h), computes the other fields of a measurement from them. A run
 * takes the time of its work, or the time that the consumer's limit gives; the consumer itself takes no time.
 * A thread without work is idle, and CPU times are those of the model. Elements count as soon as they are in
 * a batch, even if the batch was not taken.
 */
static void measurement_model(const struct cw_measure_options *o, double runner_s, struct cw_measurement *m)
{
    struct cw_profile *p = &m->profile;
    uint64_t busy_ns = p->plan_ns + p->read_ns - p->cold_ns + p->emit_ns + p->fetch_ns,
             cpu_ns = p->read_ns - p->cold_ns + p->fetch_ns;
    bool paused = o->rate > 0 && (double)m->elements > o->rate * runner_s;
    if (!paused)
        m->elements = p->emit_rows;
    m->seconds = paused ? (double)m->elements / o->rate : runner_s;
    for (unsigned i = 0; i < p->n_ops; i++) {
        busy_ns += p->ops[i].ns;
        cpu_ns += p->ops[i].cpu_ns;
    }
    p->run_ns = (uint64_t)(m->seconds * 1e9) * p->threads;
    p->idle_ns = p->run_ns - CW_MIN(busy_ns, p->run_ns);
    memset(p->idle_for_ns, 0, sizeof(p->idle_for_ns));
    p->wait_ns = paused ? 0 : (uint64_t)(m->seconds * 1e9);
    p->cold_wall_ns = p->cold_ns;
    m->cpu_s = (double)cpu_ns * 1e-9;
    m->delay_s = m->noise = 0;
}

static int measure_run(struct cw_local *l, const struct cw_measure_options *o, struct cw_measurement *m,
                       struct cw_profile *before, struct cw_error *err)
{
    double cpu_s = cw_cpu_s(false);
    uint64_t delay_ns = cw_run_delay_ns(), start;
    int r = 0;
    if (o->settle > 0) {
        r = measure_take(l, o, o->settle, m, err);
        if (r < 0)
            return r;
        cw_iterator_profile(l->iterator, before);
        cpu_s = cw_cpu_s(false);
        delay_ns = cw_run_delay_ns();
    }
    start = measure_now_ns(l, 0);
    r = measure_take(l, o, o->seconds, m, err);
    if (r < 0)
        return r;
    m->cpu_s = cw_cpu_s(false) - cpu_s;
    m->delay_s = (double)(cw_run_delay_ns() - delay_ns) * 1e-9;
    cw_iterator_profile(l->iterator, &m->profile);
    profile_subtract(&m->profile, before);
    if (cw_cost_modelled())
        measurement_model(o, (double)(measure_now_ns(l, 0) - start) * 1e-9, m);
    return 0;
}

int cw_measure(struct cw_local *l, const struct cw_measure_options *o, struct cw_measurement *ret,
               struct cw_error *err)
{
    struct cw_iterator_options io = {
        .seed = o->seed,
        .epochs = INT64_MAX,
        .world_size = 1,
        .runner = {.threads = o->threads,
                   .memory = o->memory,
                   .optimize = o->optimize,
                   .detail = o->detail,
                   .read_in = true,
                   .cache = l->cache,
                   .cache_point = o->cache_point},
    };
    struct cw_profile before = {0};
    *ret = (struct cw_measurement){.options = *o};
    l->iterator = cw_iterator_free(l->iterator);
    if (l->sequence->n_positions == 0)
        return cw_error_set(err, CW_E_DATA, "the pipeline has no elements: there is nothing to measure");
    int r = profile_init(l, &ret->profile, err);
    if (r >= 0)
        r = profile_init(l, &before, err);
    if (r >= 0)
        r = cw_iterator_new(l->sequence, &io, NULL, &l->iterator, err);
    if (r >= 0)
        r = measure_run(l, o, ret, &before, err);
    profile_deinit(&before);
    return r;
}

void cw_measurement_deinit(struct cw_measurement *m)
{
    profile_deinit(&m->profile);
}

json_t *cw_measurement_json(const struct cw_measurement *m)
{
    const struct cw_profile *p = &m->profile;
    double s = m->seconds > 0 ? m->seconds : 1e-9, run_ns = CW_MAX((double)p->run_ns, 1);
    double busy_s = (double)(p->plan_ns + p->read_ns + p->emit_ns) * 1e-9;
    for (unsigned i = 0; i < p->n_ops; i++)
        busy_s += (double)p->ops[i].ns * 1e-9;
    double idle = CW_MIN((double)p->idle_ns / run_ns, 1.0),
           busy = p->run_ns ? (busy_s * 1e9 - (double)p->cold_ns) / run_ns
                            : 1; /* cold_ns is subtracted, since cold reads run on separate read threads */
    return json_pack("{s:i, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I}",
                     "threads", (int)m->options.threads, "seconds", m->seconds, "batches",
                     (json_int_t)m->batches, "elements", (json_int_t)m->elements, "bytes",
                     (json_int_t)m->bytes, "padding_bytes", (json_int_t)m->padding_bytes, "elements_per_s",
                     (double)m->elements / s, "batches_per_s", (double)m->batches / s, "bytes_per_s",
                     (double)m->bytes / s, "first_batch_s", m->first_batch_s, "busy_s", busy_s, "idle_share",
                     idle, "other_share", CW_MAX(1 - idle - busy, 0.0), "wait_share",
                     CW_MIN((double)p->wait_ns * p->threads / run_ns, 1.0), "read_bytes",
                     (json_int_t)p->read_bytes, "memory_peak_bytes", (json_int_t)p->memory_peak);
}
