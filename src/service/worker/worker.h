/* A worker: computes the ranges that a dispatcher leases to it, and serves their batches to clients
 * (docs/service.md). It owns an event loop, whose thread has all control state. Each stream (a pipeline that
 * it runs) has a thread (stream.h) and a runner. Called by `cachew worker` and by tests, from any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cw_tls;
struct cw_trace;

struct cw_worker_options {
    const char *dispatcher; /* HOST:PORT, [IPV6]:PORT or unix:PATH */
    /* HOST:PORT for clients over TCP; port 0: any free port. NULL: clients connect over the Unix socket only
     */
    const char *listen;
    /* HOST:PORT under which clients reach the worker over TCP; none: the address of `listen` */
    const char *const *advertise;
    size_t n_advertise;
    /* path of its Unix socket; NULL: in a new private directory in $XDG_RUNTIME_DIR or /tmp */
    const char *unix_path;
    const char *name;     /* shown in lists and logs; NULL: HOST:PROCESS-ID */
    const char *pool;     /* pool of the provisioner that started it; NULL: none did */
    const char *http;     /* HOST:PORT of its HTTP pages; NULL: none */
    unsigned threads;     /* compute threads of each stream; 0: one per CPU */
    uint32_t max_streams; /* most streams at a time; 0: any number */
    size_t memory; /* bytes for batches and the data that they are computed from; the streams share it */
    const char *index_dir; /* directory for indexes of data files; NULL: the default */
    const char *cache_dir; /* directory of the cache; NULL: no cache */
    uint64_t cache_bytes;  /* limit of the cache; 0: its present size plus half of the free space */
    const char *const
        *data_roots; /* pipelines may read files only below these directories; none: everywhere */
    size_t n_data_roots;
    bool allow_python;  /* run pipelines with Python functions */
    const char *token;  /* clients must send it, and the worker sends it to the dispatcher; NULL: none */
    struct cw_tls *tls; /* for clients over TCP; NULL: no TLS. Borrowed */
    struct cw_tls *dispatcher_tls; /* for the connection to the dispatcher; NULL: no TLS. Borrowed */
    /* a dispatcher, or a client over TCP, counts as gone after this time of silence; 0:
     * cw_patience_silence_ns() */
    uint64_t timeout_ns;
    struct cw_trace *trace; /* NULL: no trace. Borrowed */
    /* Called on the loop's thread with each log line. May be NULL. */
    void (*log)(void *arg, const char *message);
    void *log_arg;
};

struct cw_worker;

/* Starts a worker: it listens, connects to the dispatcher, and reconnects without limit. *o is copied, but
 * what it points to must outlive the worker. */
int cw_worker_start(const struct cw_worker_options *o, struct cw_worker **ret,
                    struct cw_error *err) _must_check_;
/* Starts draining: the worker accepts no more leases. It finishes the leases that it has, or the dispatcher
 * revokes them. */
void cw_worker_drain(struct cw_worker *w);
/* Waits until a draining worker has no leases and no reports left, or neither dispatcher nor clients.
 * CW_E_DEADLINE after timeout_ns (0: never). */
int cw_worker_wait_drained(struct cw_worker *w, uint64_t timeout_ns, struct cw_error *err) _must_check_;
/* Stops the worker at once: closes its connections and forgets its leases. Frees it. Returns NULL. */
struct cw_worker *cw_worker_stop(struct cw_worker *w);

/* Returns HOST:PORT for clients, with the real port; NULL: no TCP. */
const char *cw_worker_address(const struct cw_worker *w);
/* Returns HOST:PORT of its HTTP pages, with the real port; NULL: none. */
const char *cw_worker_http(const struct cw_worker *w);
const char *cw_worker_unix_path(const struct cw_worker *w);

struct cw_worker_status {
    bool registered, draining;
    /* the dispatcher refused its token, version or TLS; it will refuse again with the same options */
    bool refused;
    char why[400]; /* why it is not registered; "": not known */
    uint64_t id;   /* from the dispatcher; 0: not registered yet */
    /* n_out: batches on their way to clients, or in shared memory that clients use */
    size_t n_streams, n_leases, n_clients, n_out;
    size_t n_reports;            /* finished ranges that the dispatcher has not acknowledged */
    uint64_t memory_used;        /* bytes in use, of the worker's memory budget */
    uint64_t n_batches, n_bytes; /* sent so far */
};

/* Copies the present status to *ret. Any thread. */
void cw_worker_status(struct cw_worker *w, struct cw_worker_status *ret);
