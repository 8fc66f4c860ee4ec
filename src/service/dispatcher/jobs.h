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

enum job_state { JOB_WAITING, JOB_RUNNING, JOB_DONE, JOB_CANCELLED, JOB_FAILED }; /* as in the journal */

/* What all ranks of a job agree on. */
struct job_terms {
    uint8_t fingerprint[16];
    uint64_t seed, epochs;
    uint32_t world_size;
    Cachew__Order order;
    Cachew__Guarantee guarantee;
};

/* The ranks that ever attached, by number. */
struct job_ranks {
    struct rank **items;
    size_t n, room, n_finished, n_attached;
};

/* The least position of a job's ranks. */
struct job_mark {
    uint64_t pos;
    size_t n; /* ranks that are there; 0: pos is to be computed again */
};

struct job {
    struct cw_map_node node; /* by name */
    struct cw_link link, by_stream;
    char *name;
    struct stream *stream; /* NULL: over */
    uint8_t stream_id[16];
    struct job_terms terms;
    enum job_state state;
    char *why; /* it failed or was cancelled */
    bool paused, durable, dead;
    bool lost;        /* failed since the journal was damaged: with at-most-once it can't go on */
    bool left;        /* its last client detached; else its connection was lost */
    unsigned refs;    /* its own, and those of journal entries under way */
    unsigned writing; /* journal entries that start it, under way */
    struct job_ranks ranks;
    uint64_t first_from; /* where the first rank began: ranks that did not attach yet begin there, ... */
    /* ... if the job is not older than this dispatcher. If it is: since when it is here; else 0 */
    uint64_t resumed_ns;
    bool missing_over;   /* ranks that did not attach are not waited for any more */
    Cachew__Place round; /* where rounds begin: epoch, and g in `batch` */
    bool round_known;
    bool began; /* first_from means something */
    struct job_mark mark;
    uint64_t since_ns; /* when its last client left, or it was over */
    struct scaling scaling;
    struct job_history history;
};

struct job_table {
    struct cw_link list;
    struct cw_map by_name;
    size_t n, n_over, n_ranks; /* n_ranks: of all jobs */
};

/* Each rank of a job, by number. The ranks must not change meanwhile. */
#define DP_RANKS_EACH(r, j) \
    for (struct rank **r##_at = (j)->ranks.items, *r; (r = cw_dp_rank_next(j, r##_at)); r##_at++)

/* Returns *at, or NULL behind the last rank of the job. */
static inline struct rank *cw_dp_rank_next(const struct job *j, struct rank *const *at)
{
    return j->ranks.n > 0 && at < j->ranks.items + j->ranks.n ? *at : NULL;
}

struct job *cw_dp_job_find(struct cw_dispatcher *d, const char *name); /* NULL: not known */
/* Drops a reference; the last one frees the job. Accepts NULL, returns NULL. */
struct job *cw_dp_job_unref(struct job *j);
bool cw_dp_job_over(const struct job *j);       /* done, cancelled or failed */
bool cw_dp_job_journalled(const struct job *j); /* the journal has it, or will */
/* The least position of its ranks; UINT64_MAX: not known, or nothing more is wanted. */
uint64_t cw_dp_job_mark(struct job *j);
const char *cw_dp_job_state(const struct job *j); /* a word for people */
/* At-most-once: ranges of which a rank did not get all that was its own, summed over ranks. */
uint64_t cw_dp_job_lost(const struct job *j);
/* Writes the job to the journal, if it is there already. Without memory it logs: a restart then finds the
 * earlier entry. */
void cw_dp_job_save(struct cw_dispatcher *d, struct job *j);
