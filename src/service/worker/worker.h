/*
 * A worker: runs ranges that a dispatcher leases to it, and serves their batches to clients
 * (docs/service.md). It owns an event loop, whose thread has all control state; each stream has a thread
 * (stream.h) and a runner. Called by `cachew worker` and by tests; any thread.
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
    /* HOST:PORT for clients over TCP, port 0: any; NULL: clients connect over the Unix socket only */
    const char *listen;
    const char *const *advertise; /* HOST:PORT under which clients reach the worker; none: `listen` */
    size_t n_advertise;
    /* of its Unix socket; NULL: in a new private directory below $XDG_RUNTIME_DIR or /tmp */
    const char *unix_path;
    const char *name;              /* for people; NULL: HOST:PROCESS-ID */
    const char *pool;              /* of the provisioner that started it; NULL: none did */
    const char *http;              /* HOST:PORT of its pages, or NULL */
    unsigned threads;              /* of each stream; 0: one per CPU */
    uint32_t max_streams;          /* most streams at a time; 0: any number */
    size_t memory;                 /* bytes for batches and what they are made from, shared by the streams */
    const char *index_dir;         /* where indexes are kept; NULL: the default */
    const char *cache_dir;         /* of the cache; NULL: no cache */
    uint64_t cache_bytes;          /* its limit; 0: what it holds, and half of the free space */
    const char *const *data_roots; /* directories that pipelines may read below; none: everywhere */
    size_t n_data_roots;
    bool allow_python;
    const char *token;  /* that clients must send, and the worker sends to the dispatcher; NULL: none */
    struct cw_tls *tls; /* for clients over TCP; NULL: plain. Stays the caller's */
    struct cw_tls *dispatcher_tls; /* to the dispatcher, likewise */
    /* a dispatcher, or a client over TCP, that is silent for this long is gone; 0: cw_patience_silence_ns()
     */
    uint64_t timeout_ns;
    struct cw_trace *trace; /* or NULL; stays the caller's */
    /* Called on the loop's thread with each line for a log. May be NULL. */
    void (*log)(void *arg, const char *message);
    void *log_arg;
};

struct cw_worker;

/* Starts a worker: it listens, and connects to the dispatcher, again for ever. o is copied; what it points to
 * must outlive the worker. */
int cw_worker_start(const struct cw_worker_options *o, struct cw_worker **ret,
                    struct cw_error *err) _must_check_;
/* Takes no more leases: those that it has are finished, or revoked by the dispatcher. */
void cw_worker_drain(struct cw_worker *w);
/* Waits until a draining worker has no leases and no reports left, or neither dispatcher nor clients.
 * CW_E_DEADLINE after timeout_ns (0: never). */
int cw_worker_wait_drained(struct cw_worker *w, uint64_t timeout_ns, struct cw_error *err) _must_check_;
/* Ends at once: connections are closed, leases forgotten. Frees the worker, and returns NULL. */
struct cw_worker *cw_worker_stop(struct cw_worker *w);

/* "HOST:PORT" with the real port; NULL: no TCP. */
const char *cw_worker_address(const struct cw_worker *w);
/* HOST:PORT of its pages, with the real port; NULL: none. */
const char *cw_worker_http(const struct cw_worker *w);
const char *cw_worker_unix_path(const struct cw_worker *w);

struct cw_worker_status {
    bool registered, draining;
    /* by its token, version or TLS; with these options it stays refused */
    bool refused;
    char why[400]; /* why it is not registered, as far as known */
    uint64_t id;   /* the dispatcher's name for it; 0: none yet */
    /* n_out: batches on their way to clients, or shm_loans */
    size_t n_streams, n_leases, n_clients, n_out;
    size_t n_reports;            /* completions that the dispatcher has not acknowledged */
    uint64_t memory_used;        /* bytes of all streams' budgets */
    uint64_t n_batches, n_bytes; /* sent so far */
};

void cw_worker_status(struct cw_worker *w, struct cw_worker_status *ret);
