/* The history of each worker, for the dashboard: a series of measurements (series.h). It is in memory only,
 * and begins empty after a restart of the dispatcher. Loop thread only. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "service/dispatcher/series.h"
#include "service/dispatcher/types.h"

/* most workers with a history (72 KB each after 7 days) */
#define DP_WORKER_HISTORIES 1000
#define DP_LOG_LINES 20  /* lines of a worker's log that are kept (5 KB) */
#define DP_LOG_BYTES 256 /* of a line, with its 0; the rest is cut */

/* Columns of the series of a worker. */
enum worker_column {
    WORKER_CPUS,       /* CPUs in use: CPU seconds per second */
    WORKER_MEMORY,     /* bytes in use for batches and their computation */
    WORKER_ELEMENTS,   /* elements per second that it computed or read from caches */
    WORKER_CACHE_PART, /* share of the looked up elements that were in its cache */
    WORKER_CACHE_USED, /* bytes of the cache directory */
    WORKER_COLUMNS
};

/* The newest lines of a worker's log, and its measurements. */
struct worker_kept {
    struct series series;

    struct {
        uint64_t at_ns; /* when it came */
        char text[DP_LOG_BYTES];
    } log[DP_LOG_LINES];

    size_t n_log; /* lines so far; the last DP_LOG_LINES are kept */
};

/* The history of a worker. All zeros: none yet. */
struct worker_history {
    struct worker_kept *kept; /* NULL: no heartbeat came yet, or there are DP_WORKER_HISTORIES already */
    double n_elements;        /* that it computed or read from caches, so far */

    /* sums at the last point */
    struct {
        bool known; /* false: there is no point since it connected */
        uint64_t cpu_ns, cache_hits, cache_misses;
        double n_elements;
    } before;
};

/* Adds a point to the history of each connected worker. seconds: the time since the last call. */
void cw_dp_worker_history_tick(struct cw_dispatcher *d, double seconds);
/* Adds the lines of the worker's log. */
void cw_dp_worker_history_log(struct cw_dispatcher *d, struct worker *w, char *const *lines, size_t n);
/* Call when the worker's connection is lost: its next point is for the time since its next connection. */
void cw_dp_worker_history_pause(struct worker *w);
/* Frees the worker's history. */
void cw_dp_worker_history_free(struct cw_dispatcher *d, struct worker *w);
/* Returns the worker's history from from_ns to to_ns as JSON, one list per column; docs/metrics.md has the
 * fields. New reference; NULL: no memory. */
json_t *cw_dp_worker_history_json(const struct cw_dispatcher *d, const struct worker *w, uint64_t from_ns,
                                  uint64_t to_ns);
