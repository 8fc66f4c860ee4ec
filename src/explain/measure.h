/* Runs a pipeline for some seconds and counts batches, elements and time. `explain` and `bench` call it. */
#pragma once
#include "session/local.h"

struct cw_measure_options {
    uint64_t seed;
    unsigned threads;
    size_t memory;
    bool optimize;
    bool detail;         /* fill in all counters of the profile (engine/profile.h) */
    int64_t cache_point; /* number of the cache point to use, if l->cache is set */
    double seconds;      /* the measurement ends with the first batch after this time */
    double settle;       /* seconds before the measurement starts, up to the next batch; 0: none */
    /* most elements per second that are taken; 0: no limit. At this rate, a batch must not take longer than
     * `seconds` */
    double rate;
    double wait;                   /* seconds to wait for a batch at most; 0: no limit */
    const volatile int *interrupt; /* another thread sets *interrupt: CW_E_INTERRUPTED; may be NULL */
};

struct cw_measurement {
    double seconds, first_batch_s; /* first_batch_s: from the first request to the first batch */
    uint64_t batches, elements, bytes;
    uint64_t padding_bytes; /* part of `bytes` */
    double noise;           /* relative deviation of the rates of both halves from their mean */
    /* sums over all threads of this process: on a CPU; waiting for a CPU that was busy with something else */
    double cpu_s, delay_s;
    struct cw_measure_options options;
    /* of these seconds, except for sizes of values and for sampled times, which are counted since the run
     * began */
    struct cw_profile profile;
};

/* Part of the time, at the beginning, that `explain` does not measure, while processes start and pages are
 * loaded into memory. */
#define CW_MEASURE_SETTLE 0.25

/* Runs the pipeline of l, epoch after epoch. Frees l->iterator, and leaves the iterator of this run there, to
 * be queried. A sequence without elements is an error. The caller calls cw_measurement_deinit in any case. */
int cw_measure(struct cw_local *l, const struct cw_measure_options *o, struct cw_measurement *ret,
               struct cw_error *err) _must_check_;
void cw_measurement_deinit(struct cw_measurement *m);
/* Calls cw_iterator_next of l->iterator with the deadline o->wait. Ends early if *o->interrupt is set. */
int cw_measure_next(struct cw_local *l, const struct cw_measure_options *o, struct cw_batch **ret,
                    struct cw_error *err) _must_check_;

static inline double cw_measurement_rate(const struct cw_measurement *m)
{
    return m->seconds > 0 ? (double)m->elements / m->seconds : 0;
}

/* Returns {threads, seconds, ...} (docs/cli.md); new reference. busy_s is the time of operators, reading,
 * planning and copying. idle_share and other_share are parts of the threads' time; "other" is neither idle
 * nor busy, that is scheduling. wait_share is a part of the consumer's time. */
json_t *cw_measurement_json(const struct cw_measurement *m);
