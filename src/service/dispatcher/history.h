/*
 * How jobs went in the last ten minutes, for people: a point every two seconds, and what happened between
 * them. Kept here and not by the page that shows it, as mostly it is opened because something went wrong. Not
 * journalled: a dispatcher that was started again begins anew. Loop thread only.
 */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define DP_POINT_NS \
    (2 * UINT64_C(1000000000)) /* clients and workers tell their sums once a second: shorter, and a point \
                                  would have none or two of them */
#define DP_POINTS 300          /* ten minutes */
#define DP_MARKS 32
#define DP_HISTORIES 2000 /* jobs that have one, 13 KB each: further ones have only the present */

struct cw_dispatcher;
struct job;
struct rank;
struct worker;

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
 * having said so. */
struct mark {
    uint64_t at_ns;

    enum { MARK_WORKER_GONE, MARK_RANK_GONE } kind;

    uint64_t which; /* the worker's id, the rank */
};

struct history {
    struct point points[DP_POINTS];
    struct mark marks[DP_MARKS];
    size_t n_points, n_marks; /* all that there were; the last ones are kept */
};

void cw_dp_history_tick(struct cw_dispatcher *d);
void cw_dp_history_free(struct cw_dispatcher *d, struct job *j);
void cw_dp_history_worker_gone(struct cw_dispatcher *d, const struct worker *w);
void cw_dp_history_rank_gone(struct cw_dispatcher *d, const struct rank *r);
/* All of it, column by column; NULL: no memory. docs/metrics.md has the fields. */
json_t *cw_dp_history_json(const struct cw_dispatcher *d, const struct job *j);
/* The last point; null: none yet, or the job is over. */
json_t *cw_dp_history_now(const struct job *j);
