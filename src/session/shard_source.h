/* The source of the jobs of `cachew materialize --service`: element number i is range i of a pipeline, whose
 * elements the worker writes to shards, and its value lists them. So a service leases, computes and delivers
 * ranges of shards as it does other elements, and the data stay where they are written. materialize_service.c
 * makes its pipelines; workers run them. */
#pragma once
#include <jansson.h>

#include "dataset/sequence.h"
#include "formats/shard.h"

#define CW_SHARD_RUN 33 /* bytes of the name of a run: 32 hexadecimal digits and a NUL */

/* Adds the source to the table of operators. Any thread; calls after the first one do nothing. */
int cw_shard_source_register(struct cw_error *err) _must_check_;

struct cw_shard_job {
    const json_t *pipeline; /* whose elements are written */
    struct cw_hash128 fingerprint;
    uint64_t seed, shard_bytes;
    const char *dir; /* absolute */
    enum cw_shard_format format;
    const char *run; /* its name, which is in the directory's journal too */
};

/* Returns the pipeline of a job, new; NULL: out of memory. */
json_t *cw_shard_source_pipeline(const struct cw_shard_job *j);
/* Sets *ret to the pipeline whose elements p writes; NULL: p has another source. The caller frees it with
 * cw_pipeline_unref. */
int cw_shard_source_written(const struct cw_pipeline *p, struct cw_pipeline **ret,
                            struct cw_error *err) _must_check_;
/* Returns whether each range of positions gives its elements whatever the other ranges give. Then the job has
 * many ranges; else one, which is the whole epoch. */
bool cw_shard_source_divides(const struct cw_compiled *c);
