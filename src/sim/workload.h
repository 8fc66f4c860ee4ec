/* Workload files, the input of `cachew simulate`. Checks every field by the schema in docs/simulator.md.
 * Strings point into the parsed file, which struct cw_workload owns. */
#pragma once
#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/policy.h"

#define CW_SIM_MAX_JOBS 64
#define CW_SIM_NEVER_S 1e18 /* seconds per batch without workers */
#define CW_SIM_MOST 1e15    /* largest number, so that sums stay exact enough */
#define CW_SIM_LEAST 1e-15  /* least divisor, so that quotients stay finite */
#define CW_SIM_MOST_WORKERS 100000

struct cw_sim_axis;

struct cw_sim_point {         /* of a table */
    double workers, s;        /* s: seconds per batch, if next is NULL */
    struct cw_sim_axis *next; /* the axis of the next pool; NULL: this is the last one */
};

struct cw_sim_axis {              /* of a table */
    size_t pool, n;               /* index of the pool; number of points */
    bool constant;                /* of a surface: constant below the first point, too */
    struct cw_sim_point points[]; /* ascending by workers */
};

struct cw_sim_stage {
    const char *name;
    double cpu_s, size_factor, keep;
};

struct cw_sim_change { /* the conditions from batch `at_batch` of the job on */
    double at_batch, client_step_s, worker_slowdown, source_bytes_per_s, read_bytes_per_s, write_bytes_per_s;
    double host_busy_cpus; /* CPUs of the training host that others use */
};

struct cw_sim_job {
    const char *name;
    double arrive_s, epochs, batches_per_epoch, noise; /* noise: relative deviation of a batch's time */
    /* work of this many seconds is finished and reported together, as a lump; 0: no lumps */
    double lump_s;
    double weight, priority, quota;
    enum cw_objective objective;
    double client_price_per_h;
    struct cw_sim_axis *table; /* NULL: the job has a model */
    double worker_cpu_s; /* with a table: CPU seconds of a worker per batch; 0: it computes all the time */
    double alone_s[CW_POLICY_POOLS]; /* with a surface: seconds of one worker per batch, by pool */
    double bytes_per_batch;          /* that cross the network if a worker that is not local computes it */
    /* of a model, CPUs of the training host, of which local workers use some; 0: no local workers. Part by
     * which the client's step is slower for each CPU in use that the host does not have */
    double host_cpus, contention;
    struct cw_sim_stage *stages; /* of the model */
    size_t n_stages;
    double source_batch_bytes, store_bytes;
    size_t cache_points[CW_POLICY_CACHE_POINTS]; /* index of the stage whose output may be cached */
    size_t n_cache_points;
    struct cw_sim_change *phases; /* phases[0] begins at batch 0; each change begins another phase */
    size_t n_phases;
};

struct cw_sim_pool {
    const char *name;
    double max_workers, start_delay_s, price_per_h, worker_cpus; /* max_workers 0: not given */
    double slowdown;     /* factor of its workers' computing time, which policies have to measure */
    double price_per_gb; /* of what its workers send to the client */
    bool local;          /* its workers run on the training host */
};

struct cw_workload {
    uint64_t seed;
    struct cw_sim_pool pools[CW_POLICY_POOLS];
    size_t n_pools, first_pool;  /* a job begins with a worker of first_pool */
    double stragglers, slowdown; /* part of the workers that are slower; factor of their computing time */
    double mtbf_s;               /* mean seconds until a worker fails; 0: no worker fails */
    struct cw_sim_job *jobs;
    size_t n_jobs;
    bool several;   /* the file has "jobs" */
    bool has_local; /* a pool has workers on the training host */
    json_t *text;   /* the parsed file */
};

/* table.c: parses the "table" of a job. If the file has no "pools", the only pool gets the name of the axis.
 */
int cw_sim_table_parse(const json_t *object, const char *where, struct cw_workload *w, struct cw_sim_job *job,
                       struct cw_error *err) _must_check_;
/* Whether the table of a job, an object of the workload file, is a surface. */
bool cw_sim_is_surface(const json_t *job);
/* Returns the table's seconds per batch. speed: by pool, in workers of that pool. CW_SIM_NEVER_S or more: no
 * batch is ever finished. */
double cw_sim_table_s(const struct cw_sim_axis *axis, const double *speed);
/* Whether this number of workers of each pool can run. */
bool cw_sim_table_runs(const struct cw_sim_axis *axis, const double *workers);
void cw_sim_table_free(struct cw_sim_axis *axis);

/* surface.c: parses a surface, {"local", "remote", "epoch_s"}, into job->table. The pools must be "remote"
 * and "local". divide: batches per unit of the table. */
int cw_sim_surface_parse(const json_t *surface, const char *where, double divide, struct cw_workload *w,
                         struct cw_sim_job *job, struct cw_error *err) _must_check_;

/* pools.c: parses the "pools" of a workload into w->pools, whose first entry has the default values before.
 */
int cw_sim_pools_parse(const json_t *root, struct cw_workload *w, struct cw_error *err) _must_check_;
/* Marks the pool "local" as the workers of the training host. If the file has no "pools", adds it. */
int cw_sim_pools_add_local(const json_t *root, struct cw_workload *w, struct cw_error *err) _must_check_;
/* Sets the maximum of pools that have none, and the pool in which a job begins. */
void cw_sim_pools_default(struct cw_workload *w);

/* Parses a workload file. On error err names the field, its value and what was expected. The caller calls
 * cw_workload_deinit in any case. */
int cw_workload_parse(const char *text, size_t size, struct cw_workload *ret,
                      struct cw_error *err) _must_check_;
void cw_workload_deinit(struct cw_workload *w);
