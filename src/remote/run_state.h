/* The state of a job's run: its phase, its failure, and the loop with its timer. Every module of this folder
 * may wake the loop's thread, or fail the run. */
#pragma once
#include <pthread.h>

#include "net/conn.h"

struct remote;

enum remote_phase {
    REMOTE_RUNNING,
    REMOTE_LEFT,    /* nothing more is requested; connections are only kept to return shared memory */
    REMOTE_CLOSING, /* connections are being closed, and then the loop ends */
};

/* Guarded by the mutex. */
struct run_state {
    enum remote_phase phase;
    bool attached;          /* the job was attached once, and its plan is known */
    bool finished;          /* the cursor is after the last epoch */
    struct cw_error failed; /* the error that ended the run; status 0: none */
    /* why the dispatcher can't be reached at the moment; status 0: it can, or was not tried yet */
    struct cw_error service_down;
    /* snapshot (hash) of the data: from the saved state, then from the plan; 0: not known */
    uint64_t snapshot;
    uint8_t stream[16];  /* id of the stream, for requests */
    char took_over[240]; /* describes the client of this rank that was replaced; "": there was none */
};

/* The loop of the job's thread. Only that thread, unless a comment says otherwise. */
struct remote_loop {
    struct cw_loop *loop; /* immutable while the thread runs */
    pthread_t thread;     /* the consumer's thread starts and joins it */
    bool running;         /* the thread runs; the consumer's thread only */
    struct cw_post wake;  /* posted to wake the loop; any thread */
    struct cw_timer *timer;
    uint64_t timer_ns;   /* time at which the timer ends; 0: it is not set */
    uint64_t started_ns; /* immutable while the thread runs */
    uint64_t goodbye_ns; /* time at which the goodbye ends at the latest; 0: it has not begun */
    unsigned n_conns;    /* connections whose callback `closed` was not called yet */
    uint64_t last_id;    /* id of the last request, over all connections */
    const struct cw_conn_ops *link_ops; /* callbacks of connections to workers */
};

/* Wakes the loop's thread, which then does everything that is due. Any thread. */
void cw_remote_wake(struct remote *r);
/* Wakes the loop's thread at the time when_ns, or before. The loop's thread only. */
void cw_remote_wake_at(struct remote *r, uint64_t when_ns);
/* Ends the loop if the phase is REMOTE_CLOSING, and nothing is left to do or the time for the goodbye is
 * over. The loop's thread; the mutex must be held. */
void cw_remote_end_if_done(struct remote *r);
/* Fails the run: the consumer's waits end with this error, or with an earlier one. The mutex must be held. */
void cw_remote_fail(struct remote *r, const struct cw_error *why);
void cw_remote_fail_text(struct remote *r, int status, const char *fmt, ...) _printf_(3, 4);
