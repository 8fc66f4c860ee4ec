/*
 * A worker: runs ranges that a dispatcher leases to it, and serves their batches to clients
 * (docs/service.md). Its control state belongs to one thread, that of an event loop of its own; each stream
 * has a thread (stream.h) and a runner.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cw_tls;
struct cw_trace;

struct cw_worker_options {
    const char *dispatcher; /* HOST:PORT, [IPV6]:PORT or unix:PATH */
    /* HOST:PORT where clients come over TCP, port 0: any; NULL: only over the Unix socket */
    const char *listen;
    const char *const *advertise; /* HOST:PORT under which clients get here; none: what it listens at */
    size_t n_advertise;
    /* of its Unix socket; NULL: in a fresh directory of its own, below $XDG_RUNTIME_DIR or /tmp */
    const char *unix_path;
    const char *name;              /* for people; NULL: the host's and the process id */
    const char *pool;              /* of the provisioner that started it; NULL: nobody's */
    const char *http;              /* HOST:PORT of its pages, or NULL */
    unsigned threads;              /* of each stream; 0: the CPUs that there are */
    uint32_t max_streams;          /* that it is given at a time; 0: any number */
    size_t memory;                 /* bytes for batches and what they are made from, divided among streams */
    const char *index_dir;         /* where indexes are kept; NULL: the default */
    const char *cache_dir;         /* where elements are kept at cache points; NULL: nowhere */
    uint64_t cache_bytes;          /* that may lie there; 0: what is there, and half of what is free */
    const char *const *data_roots; /* directories that pipelines may read below; none: everywhere */
    size_t n_data_roots;
    bool allow_python;
    const char *token;             /* what clients must say, and what it says to the dispatcher; NULL: none */
    struct cw_tls *tls;            /* of who connects over TCP; NULL: plain. Stays the caller's */
    struct cw_tls *dispatcher_tls; /* to the dispatcher, likewise */
    /* a dispatcher, or a client over TCP, that is silent for so long is gone; 0: cw_patience_silence_ns() */
    uint64_t timeout_ns;
    struct cw_trace *trace; /* or NULL; stays the caller's */
    /* What happens, for logs; NULL: nobody wants to know. On the loop's thread. */
    void (*log)(void *arg, const char *message);
    void *log_arg;
};

struct cw_worker;

/* Listens, and begins to connect to the dispatcher, for ever. Everything in o is copied but tls,
 * dispatcher_tls and trace. */
int cw_worker_start(const struct cw_worker_options *o, struct cw_worker **ret,
                    struct cw_error *err) _must_check_;
/* Takes no more leases: what it has is finished, or taken away by the dispatcher. Any thread. */
void cw_worker_drain(struct cw_worker *w);
/* Waits until a drained worker has nothing left, or neither dispatcher nor clients. CW_E_DEADLINE after
 * timeout_ns (0: never). */
int cw_worker_wait_drained(struct cw_worker *w, uint64_t timeout_ns, struct cw_error *err) _must_check_;
/* Ends at once: connections are closed, leases forgotten. */
struct cw_worker *cw_worker_stop(struct cw_worker *w);

/* "HOST:PORT" with the real port; NULL: no TCP. */
const char *cw_worker_address(const struct cw_worker *w);
/* Where its pages are, with the real port; NULL: there are none. */
const char *cw_worker_http(const struct cw_worker *w);
const char *cw_worker_unix_path(const struct cw_worker *w);

/* How things are; any thread. */
struct cw_worker_status {
    bool registered, draining;
    /* the dispatcher does not want it, or is not who it should be: as options are, it stays so */
    bool refused;
    char why[400]; /* why it is not registered, as far as known */
    uint64_t id;   /* the dispatcher's name for it; 0: none yet */
    /* n_out: batches on their way to clients, or lent to them */
    size_t n_streams, n_leases, n_clients, n_out;
    size_t n_reports;            /* completions that the dispatcher has not acknowledged */
    uint64_t memory_used;        /* bytes of all streams' budgets */
    uint64_t n_batches, n_bytes; /* sent so far */
};

void cw_worker_status(struct cw_worker *w, struct cw_worker_status *ret);
