/*
 * A job of a service as its client sees it: struct remote, which the modules of this folder share.
 *
 * Two threads use it. The consumer's thread opens it, takes batches and waits (remote.c, open.c, sequencer.c,
 * assembly.c, waiting.c, pace.c). Only the loop's thread uses connections (loop.c, dispatcher.c, link.c,
 * arrivals.c, requests.c). The mutex guards every field whose comment does not say otherwise. Callbacks of
 * connections take the mutex. The consumer's thread may wait for `changed` with the mutex, and for nothing
 * else while it holds it.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "engine/tail.h"
#include "order/iterator.h"
#include "remote/batch.h"
#include "remote/course.h"
#include "remote/dispatcher.h"
#include "remote/fetch.h"
#include "remote/link.h"
#include "remote/pace.h"
#include "remote/range_table.h"
#include "remote/remote.h"
#include "remote/run_state.h"
#include "remote/waiting.h"
#include "remote/window.h"

/* The job as it was opened. Immutable. */
struct remote_job {
    /* what workers run: the pipeline as written, or its part up to `cut` */
    const struct cw_compiled *compiled;
    struct cw_cut_point *cut;         /* owned; NULL: workers run all operators */
    struct cw_remote_options options; /* its texts are copies, which the job owns */
    /* number of keys of a placed pipeline; 0: batches are requested by number (counted or sequential) */
    unsigned n_keys;
    bool own_ranges; /* at-most-once: this rank's batches are made of ranges that no other rank uses */
    /* batches are handed out as soon as they are ready; false also if the pipeline allows only one order */
    bool unordered;
    unsigned n_cpus; /* CPUs that this process may use */
    char host[80];
    char name[CW_PROCESS_NAME];
    uint8_t incarnation[16];
    Cachew__Hello hello;     /* the first message on each connection; points to the fields above */
    struct cw_layout layout; /* layout of batches of workers that are joined in this process */
};

/* A producer of this job: the iterator's main one, or one that repeats batches to pad the last round of an
 * epoch. */
struct view {
    struct cw_producer base; /* first */
    struct remote *remote;
    uint64_t rank, world_size;
    uint64_t rounds_epoch, rounds_from; /* in the epoch rounds_epoch, rounds begin at batch rounds_from */
    bool main;
};

struct remote {
    struct view view; /* the main producer, of the pipeline as written. Its plan is set once, before the
                         consumer's thread reads it */
    struct remote_job job;
    struct cw_tail tail;     /* operators on elements after job.cut; zeros: there are none */
    struct cw_budget budget; /* without limit: the window limits the memory instead */
    struct cw_slab_pool slabs;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* the consumer's thread waits for it */
    struct run_state run;

    /* The plan: the batches that are wanted, and what is known of their ranges. */
    struct cw_cursor from;          /* the iterator's cursor */
    struct cw_cursor attached_from; /* the cursor at the last Attach; a range begins there */
    struct range_table ranges;
    struct fetch_list fetches;
    struct cw_link courses; /* struct course, in the order in which they were opened */
    struct window window;
    uint64_t n_lost; /* ranges that were lost before this rank got all of its batches of them */

    /* The consumer. */
    struct waiting waiting;
    struct pace pace;
    /* [position of the operator, as written] counters of operators that run in this process */
    struct cw_op_profile *ops;
    atomic_uint_fast64_t
        n_batches; /* batches that were handed out; the consumer's thread counts, without the mutex */
    struct shm_loan *released; /* loans to be returned to workers */
    struct cw_hash128 digest;  /* of the batches that the consumer has hashed */

    /* Connections. Only the loop's thread. */
    struct remote_loop loop;
    struct dispatcher dispatcher;
    struct cw_link links; /* struct link */
};
