/* Workload files: what `cachew simulate` plays. docs/simulator.md has the schema; here it is checked. */
#pragma once
#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/policy.h"

#define CW_SIM_MAX_JOBS 64
#define CW_SIM_NEVER_S 1e18 /* a batch where there is no worker */
#define CW_SIM_MOST 1e15    /* of any number: sums of such stay exact enough */
#define CW_SIM_LEAST 1e-15  /* of what is divided by: what comes of that stays finite */
#define CW_SIM_MOST_WORKERS 100000

struct cw_sim_axis;

/* s per batch; or, where there is another pool, its axis */
struct cw_sim_point {
    double workers, s;
    struct cw_sim_axis *next;
};

struct cw_sim_axis {
    size_t pool, n;
    struct cw_sim_point points[];
}; /* ascending by workers */

struct cw_sim_stage {
    const char *name;
    double cpu_s, size_factor, keep;
};

struct cw_sim_change { /* from batch `at_batch` on; what was not said stays as it was */
    double at_batch, client_step_s, worker_slowdown, source_bytes_per_s, read_bytes_per_s, write_bytes_per_s;
};

struct cw_sim_job { /* as written; strings live as long as the workload */
    const char *name;
    double arrive_s, epochs, batches_per_epoch, noise;
    /* work is finished, handed over and reported together, every so many seconds; 0: at once */
    double lump_s;
    double weight, priority, quota;
    enum cw_objective objective;
    double client_price_per_h;
    struct cw_sim_axis *table; /* NULL: the model counts */
    double worker_cpu_s;       /* with a table: what a worker computes per batch; 0: all its time */
    struct cw_sim_stage *stages;
    size_t n_stages;
    double source_batch_bytes, store_bytes;
    size_t cache_points[CW_POLICY_CACHE_POINTS]; /* stage whose output may be cached */
    size_t n_cache_points;
    struct cw_sim_change *phases; /* the first at batch 0 is the beginning; all values filled in */
    size_t n_phases;
};

struct cw_sim_pool {
    const char *name;
    double max_workers, start_delay_s, price_per_h, worker_cpus; /* max_workers 0: not said */
    double slowdown;                                             /* of its workers, that nobody is told */
};

struct cw_workload {
    uint64_t seed;
    struct cw_sim_pool pools[CW_POLICY_POOLS];
    size_t n_pools;
    double stragglers, slowdown; /* part of the workers, and how much slower these are */
    double mtbf_s;               /* of a worker; 0: none fails */
    struct cw_sim_job *jobs;
    size_t n_jobs;
    bool several; /* written as "jobs" */
    json_t *text;
};

/* table.c: "table" of a job; pools are known, or its axis names the only one. And what it says: speed by pool
 * is in workers; 1e18 and more: never. */
int cw_sim_table_parse(const json_t *object, const char *where, struct cw_workload *w, struct cw_sim_job *job,
                       struct cw_error *err) _must_check_;
double cw_sim_table_s(const struct cw_sim_axis *axis, const double *speed);
void cw_sim_table_free(struct cw_sim_axis *axis);

/* pools.c: "pools" of a workload; what they don't say is as w->pools[0] has it, which comes from the file
 * itself. */
int cw_sim_pools_parse(const json_t *root, struct cw_workload *w, struct cw_error *err) _must_check_;

/* Checks all fields. On error err names the field, its value and what was expected. Release with
 * cw_workload_deinit in any case. */
int cw_workload_parse(const char *text, size_t size, struct cw_workload *ret,
                      struct cw_error *err) _must_check_;
void cw_workload_deinit(struct cw_workload *w);
