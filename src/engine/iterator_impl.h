/* What the files of the iterator share. The consumer's thread, but where it says otherwise. */
#pragma once
#include <pthread.h>

#include "engine/iterator.h"

#define AHEAD_MAX 256 /* splits opened ahead */

/* Remnants of one key: the elements from split `from` on, but for the first `skip` of that split, are in no batch yet. */
struct unused {
    uint64_t from, skip;
};

enum phase { PHASE_BATCHES, PHASE_JOIN, PHASE_FLUSH };

struct open_split {
    struct cw_split *split;
    uint64_t index;
};

struct cw_iterator {
    struct cw_splits *splits;
    const struct cw_compiled *compiled;
    struct cw_plan plan;
    struct cw_iterator_options options;
    unsigned n_keys;                  /* of remnants: buckets; 0: they are never joined */

    struct open_split open[AHEAD_MAX]; /* ring of splits opened, oldest first */
    unsigned n_open, first_open, ahead;
    uint64_t open_epoch, open_split;  /* the next one to open */

    struct cw_cursor at;               /* the next batch, whatever its rank */
    uint64_t rounds_from;             /* g at which this epoch's rounds of ranks begin: 0, or where a state goes on */
    struct unused *unused;            /* by key */
    enum phase phase;                 /* of the oldest split */
    uint64_t discard;                 /* batches of split at.split that come again but were handed out before */
    uint64_t seen;                    /* batches of this epoch before take and skip of batches */
    unsigned key;                     /* whose remnants are joined or flushed now */
    struct cw_assembly **joining;     /* by key: elements that wait for a batch */
    bool in_remnant;                  /* that of `key` is joined, up to: */
    uint64_t remnant_at;

    struct cw_cursor round;               /* the state: the round after the one handed out last */
    struct unused *round_unused;
    struct cw_batch *mine;            /* of the present round */
    struct cw_assembly *pending;      /* pulled, but a wait ended before it was finished, or it failed: the next call meets it again */

    pthread_mutex_t mutex;
    struct cw_iterator *again;        /* over the epoch that is over, for padding; its pointer is guarded by mutex, like the next */
    bool interrupted;

    struct cw_quarantined *quarantined, **quarantined_tail;
    uint64_t n_skipped, n_replaced, n_listed;
};

static inline struct cw_cursor cw_cursor_least(const struct cw_cursor *at, const struct unused *unused, unsigned n_keys)
{
    struct cw_cursor least = *at;
    for (unsigned k = 0; k < n_keys; k++)
        least.split = CW_MIN(least.split, unused[k].from);
    if (least.split < at->split)
        least.batch = 0;
    return least;
}

/* state.c: sets it->at and it->unused. CW_E_STATE where the state does not fit. */
int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err) _must_check_;
