/*
 * The scheduler's state: which blocks are ready, starved or parked, what runs, and what waits. It
 * owns the runner's mutex and its two signals. compute.c decides from it what runs next; everything below
 * calls it to move blocks and to wake threads.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "exec/account.h"

struct block;
struct cw_range;
struct cw_runner;

struct compute_thread {
    struct cw_runner *r;
    pthread_t id;
    struct cw_counts counts; /* since the last block */
    uint64_t n_run;          /* blocks */
};

struct cw_sched {
    pthread_mutex_t mutex;      /* guards everything of the runner that threads share */
    pthread_cond_t work;        /* compute threads wait for it */
    pthread_cond_t done;        /* the consumer waits for it */
    struct block *ready;        /* can run now; in the order of (range, number) */
    struct block *starved;      /* the budget refused them memory; run one at a time when nothing else runs */
    struct block *spare;        /* for another use, with an empty arena */
    unsigned n_spare, n_blocks; /* spare; carved and not done */
    unsigned n_running;       /* compute threads at a block, a plan or an estimate; the consumer at a copy */
    bool planning;            /* a thread plans a piece */
    bool settled;             /* a thread found nothing to do, and nothing was done by others since */
    bool awaited;             /* the consumer waits for a batch: it releases nothing before */
    bool interrupted;         /* waits of the consumer end */
    bool stop;                /* threads end */
    _Atomic bool cancelled;   /* stop, for what may take long and does not hold the mutex */
    _Atomic unsigned n_calls; /* calls of operators on the consumer's batches that are under way */
    struct cw_error fatal;    /* ends the run; status 0: it goes on */
    struct compute_thread *threads; /* options.threads of them */
    unsigned n_threads;             /* that were started */
};

/* All with the mutex held, but for the two *_stopped. */

/* Wakes the compute threads: there may be something to do. */
void cw_sched_wake(struct cw_runner *r);
/* Wakes the consumer: there may be something for it. */
void cw_sched_notify(struct cw_runner *r);
/* Both. */
void cw_sched_changed(struct cw_runner *r);
/* Ends the run with an error, unless it ends with an earlier one. */
void cw_sched_fail(struct cw_runner *r, const struct cw_error *err);
/* The same where the system gives no memory: waiting for it would be of no use. */
void cw_sched_out_of_memory(struct cw_runner *r, const char *what);

void cw_sched_ready(struct cw_runner *r, struct block *b);
/* The budget refused the block memory: it starts over when there is some. */
void cw_sched_starve(struct cw_runner *r, struct block *b);
/* The block waits in its range for its turn at a point, or for a batch. */
void cw_sched_park(struct block *b);
/* Makes the block ready whose turn it is at a point of a range, if it is parked. */
void cw_sched_wake_next(struct cw_runner *r, struct cw_range *s, unsigned point);
/* Makes all parked blocks ready whose turn it is. */
void cw_sched_wake_parked(struct cw_runner *r);
/* A thread leaves off what `count` counts: sched.n_running, or reads.n_blocks. */
void cw_sched_leave(struct cw_runner *r, unsigned *count);
/* No thread computes, reads or plans. */
bool cw_sched_is_idle(const struct cw_runner *r);
/* No block runs or is read: the consumer that lacks memory may take it from others. */
bool cw_sched_is_calm(const struct cw_runner *r);
/* The consumer waits for something to change, at most until deadline_ns. what: for the error. */
int cw_sched_wait(struct cw_runner *r, uint64_t deadline_ns, const char *what,
                  struct cw_error *err) _must_check_;

/* For what may take long: non-zero once the run ends (arg: the runner), or the range is not wanted any more
 * (arg: the range). */
int cw_sched_stopped(void *runner);
int cw_range_stopped(void *range);
