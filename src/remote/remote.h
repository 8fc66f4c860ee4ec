/*
 * Batches from the service (docs/service.md): a producer that requests what an iterator wants from workers. A
 * thread of its own talks to dispatcher and workers; the iterator's thread waits for what arrives. session/
 * and api/ open it.
 */
#pragma once
#include "base/trace.h"
#include "net/tls.h"
#include "session/local.h"

enum cw_transport { CW_TRANSPORT_AUTO, CW_TRANSPORT_SHM, CW_TRANSPORT_UNIX, CW_TRANSPORT_TCP };

#define CW_MAX_CREDITS 4096 /* requests that a worker takes from a client at a time */

struct cw_remote_options {
    const char *service; /* address of the dispatcher */
    const char *job;     /* its name */
    unsigned rank, world_size;
    uint64_t seed, epochs, first_epoch;
    bool unordered; /* batches are handed out as they are ready (order any) */
    bool at_most_once;
    enum cw_transport transport;
    unsigned credits;       /* batches that may be outstanding; 0: it follows from their size */
    const char *token;      /* may be NULL */
    struct cw_tls *tls;     /* to dispatcher and workers, over TCP; NULL: plain. Counted */
    struct cw_trace *trace; /* or NULL; outlives the producer */
    const char *pipeline;   /* as JSON: what `compiled` was made from */
    const char *base_dir;   /* absolute: where the pipeline's relative paths begin on the workers */
    /* for opening: until a worker has seen the data; 0: without limit. A dispatcher that can't be reached is
     * tried again until then */
    uint64_t timeout_ns;
    uint64_t absent_ns; /* the same for a dispatcher that was never reached, if that is less; 0: timeout_ns */
    /* Tells the user what is waited for, after 5 s, 10 s, 20 s ...; NULL: not wanted. On the thread that
     * waits, with nothing locked. */
    void (*note)(void *arg, const char *text);
    void *note_arg;
    /* set by another thread: opening ends with CW_E_INTERRUPTED; may be NULL */
    const volatile int *interrupt;
};

/* Opens an iterator of the job of o, over the pipeline of l (which must be loaded, not opened), as
 * l->iterator: attaches to the job, and waits until the plan is known. Fills in o->pipeline and o->base_dir
 * itself. state: where to go on, or NULL. Errors of the service are CW_E_SERVICE; those of the pipeline or
 * the data, as a worker met them, keep their status. */
int cw_local_remote(struct cw_local *l, const struct cw_remote_options *o, const json_t *state,
                    struct cw_error *err) _must_check_;

/* Whether an error is a deadline that passed while the job was paused, or right after: the caller is to wait
 * on. */
bool cw_remote_is_paused(const struct cw_error *err);
/* Returns the number of ranges that were lost before this rank had all of its batches in them (at-most-once).
 * Any thread. */
uint64_t cw_remote_lost(const struct cw_producer *p);
/* Returns the workers that batches came from over links that are there: [{"worker", "transport", "batches",
 * "bytes", "wire_bytes", "note"?}, ...]. bytes counts payloads; wire_bytes what went over the connection: 0
 * of shm_loans, less where payloads were compressed. note says why this process could not map shared memory.
 * New reference. Any thread. */
json_t *cw_remote_links(const struct cw_producer *p);
/* "auto", "shm", "unix", "tcp". */
const char *cw_transport_name(enum cw_transport t);
