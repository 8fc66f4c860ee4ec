/* The history of each job, for the dashboard: a series of measurements (series.h), and marks for events. The
 * dispatcher keeps it, because the dashboard is mostly opened after something went wrong. It is not in the
 * journal: after a restart it begins empty. Loop thread only. */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "service/dispatcher/ranks.h"
#include "service/dispatcher/series.h"
#include "service/dispatcher/types.h"

#define DP_MARKS 32
/* most jobs with a history (72 KB each after 7 days); further jobs have only their last point */
#define DP_HISTORIES 1000

/* Columns of the series of a job. */
enum job_column {
    /* batches per second: delivered to all ranks; that all ranks would take if they never waited */
    JOB_RATE,
    JOB_DEMAND,
    /* share of the time that ranks waited: on average; of the rank that waited most */
    JOB_WAITED,
    JOB_WAITED_MOST,
    /* number of workers: that compute; that the policy wants */
    JOB_WORKERS,
    JOB_WANTED,
    JOB_CPUS,   /* CPUs that workers used for the job's stream: thread seconds per second */
    JOB_CACHED, /* share of the stream's elements that was read from caches */
    JOB_COLUMNS
};

/* An event of a job: a worker that served it, or an attached client, was lost without having announced it. */
struct mark {
    uint64_t at_ns;

    enum mark_kind { MARK_WORKER_GONE, MARK_RANK_GONE } kind;

    uint64_t which; /* the worker's id, or the rank */
};

struct history {
    struct series series; /* columns: enum job_column */
    struct mark marks[DP_MARKS];
    size_t n_marks; /* all so far; the last DP_MARKS are kept */
};

/* The history of a job. */
struct job_history {
    struct series_point now; /* the last point */
    struct history *kept;    /* NULL: none yet, or there are DP_HISTORIES already */
    /* the stream's compute_stats at the last point */
    double compute_s, positions, cached;
};

/* The dispatcher's data about all histories. */
struct history_table {
    size_t n, n_workers; /* of jobs; of workers */
    uint64_t last_point_ns;
    double waited_most;   /* largest `waited` of all ranks, at the last point */
    struct cw_pace paces; /* sums over all ranks so far: n, step_s, wait_s */
};

/* Adds a point to each job and worker, if SERIES_INTERVAL_NS have passed since the last one. */
void cw_dp_history_tick(struct cw_dispatcher *d);
/* Frees the job's history. */
void cw_dp_history_free(struct cw_dispatcher *d, struct job *j);
/* Adds a mark to each job that the worker served: the worker is gone. */
void cw_dp_history_worker_gone(struct cw_dispatcher *d, const struct worker *w);
/* Adds a mark to the rank's job: the rank's client is gone. */
void cw_dp_history_rank_gone(struct cw_dispatcher *d, const struct rank *r);
/* Returns the job's history from from_ns to to_ns as JSON, one list per column; docs/metrics.md has the
 * fields. New reference; NULL: no memory. */
json_t *cw_dp_history_json(const struct cw_dispatcher *d, const struct job *j, uint64_t from_ns,
                           uint64_t to_ns);
/* Returns the job's last point as JSON; null: there is none yet, or the job is over. New reference. */
json_t *cw_dp_history_now(const struct job *j);
