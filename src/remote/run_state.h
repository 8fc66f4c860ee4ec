/*
 * How the run of a job stands, and what its loop's thread has to do next: the phase, the failure, the timer.
 * Every module of this folder may wake the loop, or fail the run.
 */
#pragma once
#include <pthread.h>

#include "net/conn.h"

struct remote;

enum remote_phase {
    REMOTE_RUNNING,
    REMOTE_LEFT,    /* nothing is requested any more; connections are there to return shared memory */
    REMOTE_CLOSING, /* connections close, and the loop ends */
};

/* Guarded by the mutex. */
struct run_state {
    enum remote_phase phase;
    bool attached;                /* the plan is known */
    bool finished;                /* the cursor is behind the last epoch */
    struct cw_error failed;       /* for good; status 0: it goes on */
    struct cw_error service_down; /* why there is no dispatcher at the moment; status 0: there is one */
    uint64_t snapshot;            /* of the data: that of the state, then that of the plan; 0: any */
    uint8_t stream[16];           /* id, for requests */
    char took_over[240];          /* the client that was this rank before; "": there was none */
};

/* The loop's thread only, unless a comment says otherwise. */
struct remote_loop {
    struct cw_loop *loop; /* immutable while the thread runs */
    pthread_t thread;     /* the consumer's thread starts and joins it */
    bool running;         /* the consumer's */
    struct cw_post wake;  /* any thread */
    struct cw_timer *timer;
    uint64_t timer_ns;                  /* when it is set to; 0: it is not set */
    uint64_t started_ns;                /* immutable while the thread runs */
    uint64_t goodbye_ns;                /* until then the goodbye may take; 0: it did not begin */
    unsigned n_conns;                   /* connections whose `closed` is still to come */
    uint64_t last_id;                   /* of requests, over all connections */
    const struct cw_conn_ops *link_ops; /* of connections to workers */
};

/* The loop's thread is to look at everything. Any thread. */
void cw_remote_wake(struct remote *r);
/* The same at that time, or before. The loop's thread. */
void cw_remote_wake_at(struct remote *r, uint64_t when_ns);
/* Ends the loop, if it is to end and nothing is left to do. The loop's thread; mutex held. */
void cw_remote_end_if_done(struct remote *r);
/* The run is over: waits of the consumer end with this error, unless there was one before. Mutex held. */
void cw_remote_fail(struct remote *r, const struct cw_error *why);
void cw_remote_fail_text(struct remote *r, int status, const char *fmt, ...) _printf_(3, 4);
