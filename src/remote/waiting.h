/* The consumer's waits for the service, and the notes that the user gets when a wait is long. The loop's
 * thread stores the reason why the job makes no progress, as the dispatcher says it. Part of struct remote,
 * whose mutex guards it. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "remote/range_table.h"

struct remote;

struct waiting {
    bool interrupted;  /* waits end with CW_E_INTERRUPTED */
    bool active;       /* the consumer is waiting at the moment */
    uint64_t total_ns; /* total time waited since the job began */
    uint64_t this_ns;  /* time waited for the next batch */
    uint64_t note_ns;  /* the user gets a note once this_ns reaches it; 0: NOTE_FIRST_NS */
    /* what the dispatcher said: */
    char lagging[160];   /* describes the rank that is furthest behind */
    char held[640];      /* why the job makes no progress; "": no reason */
    bool paused;         /* the reason is that the job is paused */
    uint64_t resumed_ns; /* when the last pause ended */
};

/* Waits until something changes; 0: something may have changed. at: the position that is waited for; NULL:
 * not a position. what: what is waited for, for notes and errors. The mutex must be held; it is released
 * during a note. */
int cw_waiting_wait(struct remote *r, uint64_t deadline_ns, const struct epoch_position *at, const char *what,
                    struct cw_error *err) _must_check_;
/* Waits for work of this process: the time does not count as waiting for the service, and there are no notes.
 */
int cw_waiting_wait_here(struct remote *r, uint64_t deadline_ns, const char *what,
                         struct cw_error *err) _must_check_;
/* Call when the batch that was waited for has arrived. The mutex must be held. */
void cw_waiting_done(struct waiting *w);
/* Handles Held: the dispatcher says why the job makes no progress. The mutex must be held. */
void cw_waiting_hold(struct waiting *w, const Cachew__Held *m);
/* Forgets the reason from Held, because the connection is gone, or an Attach was sent, after which the
 * dispatcher says it again if it is still true. A pause ends, too; for some seconds a deadline that passes
 * still counts as paused (cw_remote_is_paused). The mutex must be held. */
void cw_waiting_unhold(struct waiting *w);
