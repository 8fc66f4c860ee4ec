/* What the streams of a worker have computed: sums by operator. They include streams that have ended, so that
 * the sums never decrease. stream.c counts; heartbeat.c and pages.c report. */
#pragma once
#include "engine/profile.h"
#include "pipeline/program.h"

struct cw_work {
    struct cw_work_op {
        const char *name; /* the operator's; as long-lived as its descriptor */
        uint64_t ns, rows;
    } *ops;

    size_t n;
    uint64_t compute_ns; /* time of threads: operators, planning, assembling batches, reading the cache */
    uint64_t positions;  /* positions that were computed or read from the cache */
    uint64_t cached_positions; /* those of them that were read from the cache */
    /* batches from these positions. If their number does not follow from the pipeline: elements that were put
     * into batches, divided by the batch size */
    double batches;
    uint64_t read_ns, read_bytes;
};

/* Adds the counters of a runner of this pipeline. If memory is short, operators are left out. */
void cw_work_add(struct cw_work *w, const struct cw_compiled *c, const struct cw_profile *profile);
void cw_work_add_all(struct cw_work *w, const struct cw_work *other);
void cw_work_deinit(struct cw_work *w);
