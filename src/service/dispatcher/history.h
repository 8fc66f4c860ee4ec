/*
 * How jobs went in the last ten minutes, for people: a point every two seconds, and what happened between
 * them. Kept here and not by the page that shows it, which is mostly opened after something went wrong. Not
 * in the journal: a restarted dispatcher begins anew. Loop thread only.
 */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "service/dispatcher/ranks.h"
#include "service/dispatcher/types.h"

#define DP_POINT_NS \
    (2 * UINT64_C(1000000000)) /* clients and workers report once a second: each point has such a report */
#define DP_POINTS 300          /* ten minutes */
#define DP_MARKS 32
#define DP_HISTORIES 2000 /* jobs that have one, 13 KB each: further ones have only the last point */

/* Since the point before. NAN: not known. */
struct point {
    uint64_t at_ns; /* 0: none yet */
    /* batches per second: that ranks were handed; that they would take if they never waited */
    float rate, demand;
    /* part of the time that ranks waited: on average, and the one that waited most */
    float waited, waited_most;
    float workers, wanted; /* that compute; that the policy wants */
    float cpus;            /* threads' time for its stream, per time */
    float cached;          /* part of its stream's elements that was read from caches */
};

/* Something that happened to a job: a worker that served it, or a client that was attached, is gone without
 * notice. */
struct mark {
    uint64_t at_ns;

    enum mark_kind { MARK_WORKER_GONE, MARK_RANK_GONE } kind;

    uint64_t which; /* the worker's id, the rank */
};

struct history {
    struct point points[DP_POINTS];
    struct mark marks[DP_MARKS];
    size_t n_points, n_marks; /* all that there were; the last ones are kept */
};

/* The history of a job. */
struct job_history {
    struct point now;     /* the last point */
    struct history *kept; /* NULL: none yet, or there are too many */
    /* the stream's compute_stats at the last point */
    double compute_s, positions, cached;
};

/* What all histories have in common. */
struct history_table {
    size_t n;
    uint64_t last_point_ns;
    double waited_most;   /* of all ranks, at the last point */
    struct cw_pace paces; /* sums over all ranks that there ever were: n, step_s, wait_s */
};

/* Adds a point to each job, if it is time for it. */
void cw_dp_history_tick(struct cw_dispatcher *d);
/* Frees the job's history. */
void cw_dp_history_free(struct cw_dispatcher *d, struct job *j);
/* Marks in the jobs that the worker serves that it is gone. */
void cw_dp_history_worker_gone(struct cw_dispatcher *d, const struct worker *w);
/* Marks in the rank's job that its client is gone. */
void cw_dp_history_rank_gone(struct cw_dispatcher *d, const struct rank *r);
/* All of it, column by column; NULL: no memory. docs/metrics.md has the fields. */
json_t *cw_dp_history_json(const struct cw_dispatcher *d, const struct job *j);
/* The last point; null: none yet, or the job is over. */
json_t *cw_dp_history_now(const struct job *j);
