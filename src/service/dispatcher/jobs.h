/* The table of jobs, with their ranks. job_join.c decides whether a client may join a job; job_life.c starts
 * and ends jobs. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/history.h"
#include "service/dispatcher/job_scaling.h"
#include "service/dispatcher/ranks.h"
#include "service/dispatcher/types.h"

enum job_state {
    JOB_WAITING,
    JOB_RUNNING,
    JOB_DONE,
    JOB_CANCELLED,
    JOB_FAILED
}; /* numbers as in the journal */

/* The terms of a job: all of its ranks must agree on them. */
struct job_terms {
    uint8_t fingerprint[16];
    uint64_t seed, epochs;
    uint32_t world_size;
    Cachew__Order order;
    Cachew__Guarantee guarantee;
};

/* The ranks that have attached at least once, sorted by number. */
struct job_ranks {
    struct rank **items;
    size_t n, room, n_finished, n_attached;
};

/* The low-water mark of a job: the least position of its ranks. */
struct job_mark {
    uint64_t pos;
    size_t n; /* ranks at this position; 0: pos must be computed again */
};

struct job {
    struct cw_map_node node; /* by name */
    struct cw_link link, by_stream;
    char *name;
    struct stream *stream; /* NULL: over */
    uint8_t stream_id[16];
    struct job_terms terms;
    enum job_state state;
    char *why; /* why it failed or was cancelled; NULL: it did not */
    bool paused, durable, dead;
    bool lost;        /* it failed because the journal was damaged; with at-most-once it can't continue */
    bool left;        /* its last client detached; false: that client's connection was lost */
    unsigned refs;    /* the table's reference, and those of pending journal entries */
    unsigned writing; /* pending journal entries that start the job */
    struct job_ranks ranks;
    /* position at which the first rank began; ranks that have not attached yet are assumed to begin there,
     * ... */
    uint64_t first_from;
    /* ... unless the job is older than this process: then this is when the job was restored; else 0 */
    uint64_t resumed_ns;
    bool missing_over;   /* ranks that have not attached are no longer waited for */
    Cachew__Place round; /* where rounds of ranks begin: epoch, and the batch's number g in `batch` */
    bool round_known;
    bool began; /* a rank began: first_from is valid */
    struct job_mark mark;
    uint64_t since_ns; /* when its last client left, or the job ended */
    struct scaling scaling;
    struct job_history history;
};

struct job_table {
    struct cw_link list;
    struct cw_map by_name;
    size_t n, n_over, n_ranks; /* n_ranks: of all jobs */
};

/* Loops over the ranks of a job in the order of their numbers. No rank may be added or removed in the loop.
 */
#define DP_RANKS_EACH(r, j) \
    for (struct rank **r##_at = (j)->ranks.items, *r; (r = cw_dp_rank_next(j, r##_at)); r##_at++)

/* Returns *at, or NULL after the last rank of the job. */
static inline struct rank *cw_dp_rank_next(const struct job *j, struct rank *const *at)
{
    return j->ranks.n > 0 && at < j->ranks.items + j->ranks.n ? *at : NULL;
}

struct job *cw_dp_job_find(struct cw_dispatcher *d, const char *name); /* NULL: not known */
/* Drops a reference; the last one frees the job. Accepts NULL, returns NULL. */
struct job *cw_dp_job_unref(struct job *j);
bool cw_dp_job_over(const struct job *j);       /* done, cancelled or failed */
bool cw_dp_job_journalled(const struct job *j); /* the journal has the job, or its entry is pending */
/* Returns the least position of the job's ranks; UINT64_MAX: not known, or no rank needs more. */
uint64_t cw_dp_job_mark(struct job *j);
const char *cw_dp_job_state(const struct job *j); /* as `cachew jobs` shows it */
/* At-most-once: returns the number of ranges that were lost before the rank had all of its batches of them,
 * summed over the job's ranks. */
uint64_t cw_dp_job_lost(const struct job *j);
/* Updates the job's journal entry, if it has one. If memory is short, this is logged, and the earlier entry
 * stays. */
void cw_dp_job_save(struct cw_dispatcher *d, struct job *j);
