/* Workload files: what `cachew simulate` plays. Checks every field by the schema in docs/simulator.md.
 * Owns the parsed file. */
#pragma once
#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/policy.h"

#define CW_SIM_MAX_JOBS 64
#define CW_SIM_NEVER_S 1e18 /* time of a batch without workers */
#define CW_SIM_MOST 1e15    /* largest number, so that sums stay exact enough */
#define CW_SIM_LEAST 1e-15  /* least divisor, so that quotients stay finite */
#define CW_SIM_MOST_WORKERS 100000

struct cw_sim_axis;

/* s: per batch. next: in its place, the axis of the next pool */
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

struct cw_sim_change { /* from batch `at_batch` on. Values that are not given stay as they were */
    double at_batch, client_step_s, worker_slowdown, source_bytes_per_s, read_bytes_per_s, write_bytes_per_s;
};

struct cw_sim_job { /* strings live as long as the workload */
    const char *name;
    double arrive_s, epochs, batches_per_epoch, noise;
    /* seconds of work that are finished and reported together; 0: no lumps */
    double lump_s;
    double weight, priority, quota;
    enum cw_objective objective;
    double client_price_per_h;
    struct cw_sim_axis *table; /* NULL: there is a model */
    double worker_cpu_s;       /* with a table: what a worker computes per batch; 0: all its time */
    struct cw_sim_stage *stages;
    size_t n_stages;
    double source_batch_bytes, store_bytes;
    size_t cache_points[CW_POLICY_CACHE_POINTS]; /* number of the stage whose output may be cached */
    size_t n_cache_points;
    struct cw_sim_change *phases; /* the first one is the beginning, at batch 0, with all values */
    size_t n_phases;
};

struct cw_sim_pool {
    const char *name;
    double max_workers, start_delay_s, price_per_h, worker_cpus; /* max_workers 0: not given */
    double slowdown; /* of its workers, which policies have to measure */
};

struct cw_workload {
    uint64_t seed;
    struct cw_sim_pool pools[CW_POLICY_POOLS];
    size_t n_pools;
    double stragglers, slowdown; /* part of the workers that are slower, and by how much */
    double mtbf_s;               /* mean time until a worker fails; 0: none does */
    struct cw_sim_job *jobs;
    size_t n_jobs;
    bool several; /* the file has "jobs" */
    json_t *text;
};

/* table.c: parses the "table" of a job, and computes seconds per batch from it. speed: by pool, in
 * workers. CW_SIM_NEVER_S and more: never. Without "pools" the axis names the only pool. */
int cw_sim_table_parse(const json_t *object, const char *where, struct cw_workload *w, struct cw_sim_job *job,
                       struct cw_error *err) _must_check_;
double cw_sim_table_s(const struct cw_sim_axis *axis, const double *speed);
void cw_sim_table_free(struct cw_sim_axis *axis);

/* pools.c: parses the "pools" of a workload. Their defaults are in w->pools[0]. */
int cw_sim_pools_parse(const json_t *root, struct cw_workload *w, struct cw_error *err) _must_check_;

/* On error err names the field, its value and what was expected. Release with cw_workload_deinit in any
 * case. */
int cw_workload_parse(const char *text, size_t size, struct cw_workload *ret,
                      struct cw_error *err) _must_check_;
void cw_workload_deinit(struct cw_workload *w);
