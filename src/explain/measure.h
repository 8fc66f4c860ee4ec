/* Measurements: runs a pipeline for some seconds and counts. `explain` and `bench` call it. */
#pragma once
#include "session/local.h"

struct cw_measure_options {
    uint64_t seed;
    unsigned threads;
    size_t memory;
    bool optimize;
    bool detail;         /* count more (engine/profile.h) */
    int64_t cache_point; /* of the cache in l->cache, where there is one */
    double seconds;      /* measured: until the first batch after this time */
    double settle;       /* not measured: until the first batch after this time, before; 0: none */
    /* elements per second that are taken at most; 0: no limit. A batch must not take longer than `seconds`
     * then */
    double rate;
    double wait;                   /* deadline for a batch; 0: none */
    const volatile int *interrupt; /* set by another thread: it ends with CW_E_INTERRUPTED; may be NULL */
};

struct cw_measurement {
    double seconds, first_batch_s; /* the latter from the first request */
    uint64_t batches, elements, bytes;
    double noise; /* relative deviation of the rates of both halves from their mean */
    double cpu_s,
        delay_s; /* of this process, all threads; delay_s: while others had the CPU that was wanted */
    struct cw_measure_options options;
    struct cw_profile profile; /* of these seconds; of values and of what was sampled, since the run began */
};

/* Part of the time, at the beginning, that `explain` does not measure: processes start, pages come into
 * memory. */
#define CW_MEASURE_SETTLE 0.25

/* Takes batches, epoch after epoch. Frees an iterator that l has, and leaves its own there, to be queried. A
 * sequence without elements is an error. The caller deinits *ret in any case. */
int cw_measure(struct cw_local *l, const struct cw_measure_options *o, struct cw_measurement *ret,
               struct cw_error *err) _must_check_;
void cw_measurement_deinit(struct cw_measurement *m);
/* As cw_iterator_next of l's iterator, with the deadline and the interruption of o. */
int cw_measure_next(struct cw_local *l, const struct cw_measure_options *o, struct cw_batch **ret,
                    struct cw_error *err) _must_check_;

static inline double cw_measurement_rate(const struct cw_measurement *m)
{
    return m->seconds > 0 ? (double)m->elements / m->seconds : 0;
}

/* {threads, seconds, ...} (docs/cli.md). busy_s: of operators, reading, planning and copying. Shares of the
 * threads' time: idle; other, neither idle nor busy, that is scheduling. Of the consumer's: wait. Needs the
 * measurement's profile. */
json_t *cw_measurement_json(const struct cw_measurement *m);
