/*
 * Batches from the service (docs/service.md): a producer that asks workers for what an iterator wants. A
 * thread of its own, with an event loop, talks to dispatcher and workers; the iterator's thread waits for
 * what comes.
 */
#pragma once
#include "base/trace.h"
#include "session/local.h"
#include "net/tls.h"

enum cw_transport { CW_TRANSPORT_AUTO, CW_TRANSPORT_SHM, CW_TRANSPORT_UNIX, CW_TRANSPORT_TCP };

#define CW_MAX_CREDITS 4096 /* requests that a worker takes from a client at a time */

struct cw_remote_options {
    const char *service; /* address of the dispatcher */
    const char *job;     /* its name */
    unsigned rank, world_size;
    uint64_t seed, epochs, first_epoch;
    bool any_order, at_most_once;
    enum cw_transport transport;
    unsigned credits;       /* batches asked for and not yet taken, at most; 0: by their size */
    const char *token;      /* may be NULL */
    struct cw_tls *tls;     /* to dispatcher and workers, over TCP; NULL: plain. Counted */
    struct cw_trace *trace; /* or NULL; outlives the source */
    const char *pipeline;   /* as JSON: what compiled was made from */
    const char *base_dir;   /* absolute: where the pipeline's relative paths begin on the workers */
    /* for opening: until a worker has seen the data; a dispatcher that is not there yet is tried again until
     * then */
    uint64_t timeout_ns;
    uint64_t absent_ns; /* for a dispatcher that was never there, if that is less; 0: timeout_ns */
    /* What is waited for, when that takes longer than usual: after 5 s, 10 s, 20 s ...; NULL: nobody wants to
     * know. On the thread that waits, with nothing locked. */
    void (*note)(void *arg, const char *text);
    void *note_arg;
    /* set by another thread: opening ends with CW_E_INTERRUPTED; may be NULL */
    const volatile int *interrupt;
};

/* Attaches to the job, and waits until the plan is known. state: where to go on, or NULL. compiled must
 * outlive it. Errors of the service are CW_E_SERVICE; those of the pipeline or the data, as a worker met
 * them, are what they are. */
int cw_producer_remote(const struct cw_compiled *compiled, const struct cw_remote_options *o,
                       const json_t *state, struct cw_producer **ret, struct cw_error *err) _must_check_;

/* Whether an error is a deadline that passed while the job was paused, or right after: who waits is to wait
 * on. */
bool cw_remote_is_paused(const struct cw_error *err);
/* Ranges that were lost before this rank had all that is its of them (at-most-once). Any thread. */
uint64_t cw_remote_lost(const struct cw_producer *p);
/* Workers that batches came from over connections that are there: [{"worker", "transport", "batches",
 * "bytes", "wire_bytes", "note"?}, ...]. bytes are those of payloads, wire_bytes what they were on their way:
 * 0 where they were lent, fewer where they were compressed; note says why they were not lent. Any thread;
 * new. */
json_t *cw_remote_links(const struct cw_producer *p);
/* "auto", "shm", "unix", "tcp". */
const char *cw_transport_name(enum cw_transport t);
/* An iterator of the job of o, over the pipeline of l (which must be loaded, not opened), into l->iterator.
 * o->pipeline and base_dir are filled in here. */
int cw_local_remote(struct cw_local *l, const struct cw_remote_options *o, const json_t *state,
                    struct cw_error *err) _must_check_;
