/* Running a pipeline for some seconds, and what is to be learned from that: for `explain` and `bench`. */
#pragma once
#include "client/local.h"

struct cw_measure_options {
    uint64_t seed;
    unsigned threads;
    size_t memory;
    bool optimize;
    double seconds;  /* until the first batch after these */
    double wait;     /* deadline for a batch; 0: none */
    const volatile int *interrupt; /* set by another thread: it ends with CW_E_INTERRUPTED; may be NULL */
};

struct cw_measurement {
    double seconds, first_batch_s; /* from the first request */
    uint64_t batches, elements, bytes;
    uint64_t read_bytes, memory_peak, memory_limit;
    double busy_s;                   /* operators, reading, planning, copying */
    double idle_share, other_share;  /* of the threads' time; other: neither idle nor busy, that is scheduling */
    double wait_share;               /* of the consumer's time */
    unsigned threads;
};

/* Takes batches, epoch after epoch. The iterator stays in l, for its profile; one that is there already is freed first. Sequences without
 * elements are an error. */
int cw_measure(struct cw_local *l, const struct cw_measure_options *o, struct cw_measurement *ret, struct cw_error *err) _must_check_;
json_t *cw_measurement_json(const struct cw_measurement *m);
/* Sentences on what limits the rate and what would help: `parts` is the operators of cw_report_profile, `facts` what explain knows of the pipeline. */
json_t *cw_advice(const struct cw_local *l, const struct cw_measurement *m, const json_t *parts, const json_t *facts);
