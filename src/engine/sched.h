/*
 * The scheduler's state: which blocks are ready, starved or parked, what runs, and what waits. It owns the
 * runner's mutex and its two conditions. compute.c uses the state to decide what runs next; the modules below
 * call the functions to move blocks and to wake threads.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "exec/account.h"
#include "host/host.h"

struct block;
struct cw_range;
struct cw_runner;

struct compute_thread {
    struct cw_runner *r;
    pthread_t id;

    enum { THREAD_NONE, THREAD_RUNS, THREAD_ENDED } state; /* ended: to be joined */
    struct cw_counts counts;                               /* counts since the last block */
    uint64_t n_run;                                        /* number of blocks that it ran */
    bool is_new;                /* it has run no block since the width changed (width.h) */
    struct cw_host_calls calls; /* its calls of functions, as far as they are counted */
    uint64_t cpu_ns;            /* its CPU time, as far as it is counted */
};

struct cw_sched {
    pthread_mutex_t mutex; /* guards all data of the runner that threads share */
    pthread_cond_t work;   /* compute threads wait for it */
    pthread_cond_t done;   /* the consumer waits for it */
    struct block *ready;   /* blocks that can run now, in the order of (range, number) */
    /* blocks that were refused memory; they run one at a time when nothing else runs */
    struct block *starved;
    struct block *spare;        /* unused structs, with empty arenas */
    unsigned n_spare, n_blocks; /* blocks in `spare`; blocks that are carved and not done */
    /* compute threads that run a block, a plan or an estimate; and the consumer while it copies */
    unsigned n_running;
    bool planning;            /* a thread plans a piece */
    bool settled;             /* a thread found nothing to do, and nothing has changed since */
    bool awaited;             /* the consumer waits for a batch, so it releases nothing until it gets one */
    bool interrupted;         /* waits of the consumer end with CW_E_INTERRUPTED */
    bool stop;                /* threads must end */
    _Atomic bool cancelled;   /* the same as `stop`, for long operations that do not hold the mutex */
    _Atomic unsigned n_calls; /* calls of operators on batches that the consumer finishes */
    struct cw_error fatal;    /* the error that ends the run; status 0: there is none */
    struct compute_thread *threads; /* n_threads of them; those before the width run (width.h) */
    unsigned n_threads;
};

/* The mutex is held in all of these, except in the two *_stopped. */

/* Wakes the compute threads, because there may be something to do. */
void cw_sched_wake(struct cw_runner *r);
/* Wakes the consumer, because there may be something for it. */
void cw_sched_notify(struct cw_runner *r);
/* Wakes the compute threads and the consumer. */
void cw_sched_changed(struct cw_runner *r);
/* Ends the run with an error, unless an earlier error ends it already. */
void cw_sched_fail(struct cw_runner *r, const struct cw_error *err);
/* Ends the run because the system gives no memory; waiting would not help. */
void cw_sched_out_of_memory(struct cw_runner *r, const char *what);

/* Adds a block to the ready ones, and wakes a compute thread. */
void cw_sched_ready(struct cw_runner *r, struct block *b);
/* Adds a block to the starved ones, because the budget refused it memory. It runs from the start when there
 * is memory. */
void cw_sched_starve(struct cw_runner *r, struct block *b);
/* Parks a block in its range, until it is its turn at a point, or a batch is free. */
void cw_sched_park(struct block *b);
/* Makes the block ready whose turn it is at this point of the range, if it is parked. */
void cw_sched_wake_next(struct cw_runner *r, struct cw_range *s, unsigned point);
/* Makes all parked blocks ready whose turn it is. */
void cw_sched_wake_parked(struct cw_runner *r);
/* A thread stops what *count counts: sched.n_running, or reads.n_blocks. */
void cw_sched_leave(struct cw_runner *r, unsigned *count);
/* Returns whether no thread computes, reads or plans. */
bool cw_sched_is_idle(const struct cw_runner *r);
/* Returns whether no block runs or is read. Then a consumer that lacks memory may take it from blocks and
 * ranges. */
bool cw_sched_is_calm(const struct cw_runner *r);
/* Waits until something changes, at most until deadline_ns. what: the subject of the error. For the
 * consumer. */
int cw_sched_wait(struct cw_runner *r, uint64_t deadline_ns, const char *what,
                  struct cw_error *err) _must_check_;

/* For long operations: return non-zero once the run ends (arg: the runner), or once the range is closed or
 * the run ends (arg: the range). */
int cw_sched_stopped(void *runner);
int cw_range_stopped(void *range);
