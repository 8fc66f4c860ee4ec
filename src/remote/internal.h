/*
 * A job of a service as its client sees it: struct remote, which the modules of this folder share.
 *
 * Two threads use it. The consumer's thread opens it, takes batches and waits (remote.c, open.c, sequencer.c,
 * assembly.c, waiting.c, pace.c). The loop's thread alone touches connections (loop.c, dispatcher.c, link.c,
 * arrivals.c, requests.c). The mutex guards everything that does not say otherwise. Callbacks of connections
 * take it; the consumer never waits for anything but `changed` while it holds it.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

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
    const struct cw_compiled *compiled;
    struct cw_remote_options options; /* its texts are copies, and owned */
    unsigned n_keys;                  /* 0: batches follow from positions, or an epoch is one range */
    bool own_ranges; /* at-most-once: this rank's batches are made of ranges that no other rank uses */
    /* batches are handed out as soon as they are ready; the pipeline has more than one order */
    bool unordered;
    unsigned n_cpus; /* that this process may use */
    char host[80];
    uint8_t incarnation[16];
    Cachew__Hello hello;     /* what connections say first; it points to the above */
    struct cw_layout layout; /* of batches that are joined here */
};

/* The producer that an iterator has: the main one, or one that repeats batches for padding. */
struct view {
    struct cw_producer base; /* first */
    struct remote *remote;
    uint64_t rank, world_size;
    uint64_t rounds_epoch, rounds_from; /* in this epoch rounds begin at this batch */
    bool main;
};

struct remote {
    struct view view; /* the main one. Its plan is set once, before the consumer's thread reads it */
    struct remote_job job;
    struct cw_budget budget; /* without limit: the window is what bounds memory */
    struct cw_slab_pool slabs;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* the consumer's thread may go on */
    struct run_state run;

    /* The plan: what is wanted, and what is known of it. */
    struct cw_cursor from;          /* as the iterator passed it last */
    struct cw_cursor attached_from; /* as it was when Attach was sent last: ranges begin there */
    struct range_table ranges;
    struct fetch_list fetches;
    struct cw_link courses; /* struct course, in the order of opening */
    struct window window;
    uint64_t n_lost; /* ranges that were lost before this rank had all of its batches in them */

    /* The consumer. */
    struct waiting waiting;
    struct pace pace;
    struct cw_op_profile *ops;      /* by position: of operators on batches that are joined here */
    atomic_uint_fast64_t n_batches; /* handed out; the consumer's thread adds to it, without the mutex */
    struct shm_loan *released;      /* to be returned to workers */
    struct cw_hash128 digest;       /* of the batches that the consumer has hashed */

    /* Connections. The loop's thread. */
    struct remote_loop loop;
    struct dispatcher dispatcher;
    struct cw_link links; /* struct link */
};
