/* Batches from a service (docs/service.md): a producer that requests an iterator's batches from workers. Its
 * own thread communicates with the dispatcher and the workers; the iterator's thread waits for batches.
 * session/ and api/ open it. */
#pragma once
#include "base/trace.h"
#include "net/tls.h"
#include "session/local.h"

enum cw_transport { CW_TRANSPORT_AUTO, CW_TRANSPORT_SHM, CW_TRANSPORT_UNIX, CW_TRANSPORT_TCP };

#define CW_MAX_CREDITS 4096 /* most unanswered requests that a worker accepts from a client */

struct cw_remote_options {
    const char *service; /* address of the dispatcher */
    const char *job;     /* its name */
    unsigned rank, world_size;
    uint64_t seed, epochs, first_epoch;
    bool unordered; /* order "any": batches are handed out as soon as they are ready */
    bool at_most_once;
    enum cw_transport transport;
    unsigned credits;   /* most outstanding batches; 0: chosen by their size */
    const char *token;  /* may be NULL */
    struct cw_tls *tls; /* for TCP connections to dispatcher and workers; NULL: no TLS. Takes a reference */
    struct cw_trace *trace; /* NULL: no trace. Must outlive the producer */
    /* where the pipeline is cut: workers run the operators up to there, this process those after it.
     * "worker", "client", "auto", or an operator's index in the chain, or its name; NULL: "worker" */
    const char *cut;
    const char *pipeline; /* the pipeline of the workers, as JSON */
    /* absolute path of the directory to which the pipeline's relative paths refer, on the workers */
    const char *base_dir;
    /* time limit for opening, until a worker has opened the data; 0: none. Until then a dispatcher that can't
     * be reached is tried again */
    uint64_t timeout_ns;
    uint64_t absent_ns; /* a shorter limit if the dispatcher was never reached; 0: timeout_ns */
    /* Called after waits of 5 s, 10 s, 20 s ... with a text for the user that says why. NULL: no notes.
     * Called on the waiting thread, with no lock held. */
    void (*note)(void *arg, const char *text);
    void *note_arg;
    /* if another thread sets it, opening ends with CW_E_INTERRUPTED; may be NULL */
    const volatile int *interrupt;
};

/* Opens an iterator as l->iterator: attaches to the job that o describes, and waits until the plan is known.
 * The pipeline of l must be loaded, not opened; o->pipeline and o->base_dir are ignored, and taken from it.
 * state: the saved state to continue from, or NULL. CW_E_SERVICE: an error of the service. Errors of the
 * pipeline or the data that a worker found keep their status. */
int cw_local_remote(struct cw_local *l, const struct cw_remote_options *o, const json_t *state,
                    struct cw_error *err) _must_check_;

/* Whether an error is a deadline that passed while the job was paused, or just after. Then the caller should
 * wait again. */
bool cw_remote_is_paused(const struct cw_error *err);
/* Returns the number of ranges that were lost before this rank had all of its batches in them (at-most-once).
 * Any thread. */
uint64_t cw_remote_lost(const struct cw_producer *p);
/* Returns the workers from which batches came, if their links still exist: [{"worker", "transport",
 * "batches", "bytes", "wire_bytes", "note"?}, ...]. bytes: of payloads; wire_bytes: of these as sent over the
 * connection, fewer if compressed, and 0 for batches in shared memory; note: why this process can't map
 * shared memory. New reference. Any thread. */
json_t *cw_remote_links(const struct cw_producer *p);
/* Returns the index, in the pipeline's chain, of the last operator that workers run (cut_point.h). */
unsigned cw_remote_cut(const struct cw_producer *p);
/* Returns "auto", "shm", "unix" or "tcp". */
const char *cw_transport_name(enum cw_transport t);
