/*
 * What a worker's streams have computed, summed by operator, of streams that run and streams that are over,
 * so that the sums never decrease. stream.c counts, heartbeat.c and pages.c report.
 */
#pragma once
#include "engine/profile.h"
#include "pipeline/program.h"

struct cw_work {
    struct cw_work_op {
        const char *name; /* the operator's; as long-lived as its descriptor */
        uint64_t ns, rows;
    } *ops;

    size_t n;
    uint64_t compute_ns; /* of threads: operators, planning, putting batches together, reading the cache */
    uint64_t positions;  /* of the sequence, computed or read from the cache */
    uint64_t cached_positions; /* of these, read from the cache */
    /* that these positions give; where that does not follow from the pipeline: elements that were put into
     * batches, by the batch size */
    double batches;
    uint64_t read_ns, read_bytes;
};

/* Adds what a runner of this pipeline has counted. Operators that there is no memory for are left out. */
void cw_work_add(struct cw_work *w, const struct cw_compiled *c, const struct cw_profile *profile);
void cw_work_add_all(struct cw_work *w, const struct cw_work *other);
void cw_work_deinit(struct cw_work *w);
