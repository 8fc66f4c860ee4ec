/* Workload files: what `cachew simulate` plays. docs/simulator.md has the schema; here it is checked. */
#pragma once
#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/policy.h"

#define CW_SIM_MAX_JOBS 64

struct cw_sim_point { double workers, s; }; /* s per batch */
struct cw_sim_stage { const char *name; double cpu_s, size_factor, keep; };
struct cw_sim_change { /* from batch `at_batch` on; what was not said stays as it was */
    double at_batch, client_step_s, worker_slowdown, source_bytes_per_s, read_bytes_per_s, write_bytes_per_s;
};

struct cw_sim_job { /* as written; strings live as long as the workload */
    const char *name;
    double arrive_s, epochs, batches_per_epoch, noise;
    double weight, priority, quota;
    enum cw_objective objective;
    double client_price_per_h;
    struct cw_sim_point *table; /* by workers, ascending; NULL: the model counts */
    size_t n_table;
    double worker_cpu_s;        /* with a table: what a worker computes per batch; 0: all its time */
    struct cw_sim_stage *stages;
    size_t n_stages;
    double source_batch_bytes, store_price_per_gb_h, store_bytes;
    size_t markers[CW_POLICY_MARKERS]; /* stage whose output may be cached */
    size_t n_markers;
    struct cw_sim_change *phases; /* the first at batch 0 is the beginning; all values filled in */
    size_t n_phases;
};

struct cw_workload {
    uint64_t seed;
    const char *pool;
    double max_workers, start_delay_s, worker_price_per_h, worker_cpus;
    double stragglers, slowdown; /* part of the workers, and how much slower these are */
    double mtbf_s;               /* of a worker; 0: none fails */
    struct cw_sim_job *jobs;
    size_t n_jobs;
    bool several; /* written as "jobs" */
    json_t *text;
};

/* Checks all fields. On error err names the field, its value and what was expected. Release with cw_workload_deinit in any case. */
int cw_workload_parse(const char *text, size_t size, struct cw_workload *ret, struct cw_error *err) _must_check_;
void cw_workload_deinit(struct cw_workload *w);
