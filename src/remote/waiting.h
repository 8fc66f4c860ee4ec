/*
 * The consumer's waits for the service: until when, for what, and the notes to the user when one takes long.
 * The loop's thread says what keeps the job from going on. Part of struct remote, whose mutex guards it.
 */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "remote/range_table.h"

struct remote;

struct waiting {
    bool interrupted;  /* waits end with CW_E_INTERRUPTED */
    bool active;       /* the consumer waits at the moment */
    uint64_t total_ns; /* waited since the job began */
    uint64_t this_ns;  /* waited for the batch that is next */
    uint64_t note_ns;  /* the user is told once this_ns reaches it; 0: NOTE_FIRST_NS */
    /* as the dispatcher said: */
    char lagging[160];   /* the rank that is farthest behind */
    char held[640];      /* what keeps the job; "": nothing */
    bool paused;         /* the job is paused: that is what keeps it */
    uint64_t resumed_ns; /* when a pause ended last */
};

/* Waits until something changes. Mutex held, but not while the user is told. 0: something may have changed.
 * at: where the range begins that is waited for; NULL: none is. what: for notes and errors. */
int cw_waiting_wait(struct remote *r, uint64_t deadline_ns, const struct epoch_position *at, const char *what,
                    struct cw_error *err) _must_check_;
/* The same for work of this process: it counts as no time of the service, and the user is not told. */
int cw_waiting_wait_here(struct remote *r, uint64_t deadline_ns, const char *what,
                         struct cw_error *err) _must_check_;
/* What was waited for is there. Mutex held. */
void cw_waiting_done(struct waiting *w);
/* The dispatcher says what keeps the job. Mutex held. */
void cw_waiting_hold(struct waiting *w, const Cachew__Held *m);
/* What the dispatcher said no longer holds: its connection is gone, or an Attach was sent, after which the
 * dispatcher says it again where it is still so. A pause ends too: a deadline that passes now is an error
 * only some seconds later. Mutex held. */
void cw_waiting_unhold(struct waiting *w);
