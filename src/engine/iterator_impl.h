/* What the files of the iterator share. The consumer's thread, but where it says otherwise. */
#pragma once
#include <pthread.h>

#include "engine/iterator.h"

#define AHEAD_MAX 256 /* splits opened ahead */

/* Remnants of one key: the elements from split `from` on, but for the first `skip` of that split, are in no batch yet. */
struct unused {
    uint64_t from, skip;
};

struct any;

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

    struct any *any;                  /* order any: the splits of this rank (iterator_any.c), in the place of the ring above and of what follows up to `round`; NULL: exact */

    struct cw_cursor at;               /* the next batch, whatever its rank */
    uint64_t rounds_from;             /* g at which this epoch's rounds of ranks begin: 0, or where a state goes on */
    struct unused *unused;            /* by key */
    enum phase phase;                 /* of the oldest split */
    uint64_t discard;                 /* batches of split at.split that come again but were handed out before */
    uint64_t seen;                    /* batches of this epoch before take and skip of batches */
    unsigned key;                     /* whose remnants are joined or flushed now */
    struct cw_assembly **joining;     /* by key: elements that wait for a batch */
    struct joining_ahead *joining_ahead; /* by key (iterator_ahead.c); NULL: nothing is made ahead */
    uint64_t *remnant_sizes;          /* by key: room for it */
    bool in_remnant;                  /* that of `key` is joined, up to: */
    uint64_t remnant_at;

    struct cw_cursor round;               /* the state: the round after the one handed out last */
    struct unused *round_unused;
    struct cw_batch *mine;            /* of the present round */
    bool offered;                     /* the caller has it, and the position is still the one before it */
    struct cw_assembly *pending;      /* pulled, but a wait ended before it was finished, or it failed: the next call meets it again */

    pthread_mutex_t mutex;
    struct cw_iterator *again;        /* over the epoch that is over, for padding; its pointer is guarded by mutex, like the next */
    bool interrupted;

    struct cw_quarantined *quarantined, **quarantined_tail;
    uint64_t n_skipped, n_replaced, n_listed;
    struct cw_tuned_log tuned;        /* immutable once it is made */
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

/* iterator.c */
/* Makes a batch from what was pulled; what is not mine is but looked at. 1: it is lost, with a split that is not run again. */
int cw_iterator_finish(struct cw_iterator *it, struct cw_assembly *a, bool mine, uint64_t deadline_ns, struct cw_error *err) _must_check_;
void cw_iterator_note_quarantined(struct cw_iterator *it, struct cw_assembly *a);
/* Appends what split s, number index, left over under key it->key to what waits there in it->joining. 1: that filled a batch, which the caller takes, and there
 * may be more; 0: all is in. */
int cw_iterator_join(struct cw_iterator *it, struct cw_split *s, uint64_t index, uint64_t deadline_ns, struct cw_error *err) _must_check_;
void cw_iterator_drop_joining(struct cw_iterator *it);
/* cw_iterator_offer until deadline_ns; 0: without limit. */
int cw_iterator_offer_until(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err) _must_check_;

/* iterator_ahead.c */
int cw_join_ahead_new(struct cw_iterator *it, struct cw_error *err) _must_check_;
void cw_join_ahead_free(struct cw_iterator *it);
/* Has batches begun that will be joined of what splits left over that are computed. */
void cw_join_ahead(struct cw_iterator *it);
/* `a` was joined: what was begun of it is used. */
void cw_join_claim(struct cw_iterator *it, struct cw_assembly *a, uint64_t split);

/* iterator_any.c */
int cw_any_new(struct cw_iterator *it, struct cw_error *err) _must_check_;
int cw_any_begin(struct cw_iterator *it, struct cw_error *err) _must_check_; /* once the place is known */
void cw_any_free(struct cw_iterator *it);
int cw_any_offer(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err) _must_check_;
void cw_any_accept(struct cw_iterator *it);
/* any_state.c */
/* The position after the batch handed out last, and what is unused then, by key. */
void cw_any_place(const struct cw_iterator *it, struct cw_cursor *ret, struct unused *ret_unused);
int cw_any_state(const struct cw_iterator *it, json_t *state); /* adds what a state in order any has in addition; -1: out of memory */
/* Once it->at and it->unused are read. */
int cw_any_load(struct cw_iterator *it, const json_t *state, struct cw_error *err) _must_check_;

/* padding.c: an iterator over an epoch that is over, as rank `rank` of world_size, where there is none yet. */
int cw_padding_open(struct cw_iterator *it, uint64_t epoch, unsigned rank, uint64_t world_size, struct cw_error *err) _must_check_;
/* A copy of its next batch, as batch g. A wait that ends leaves it where it is: the next call goes on. */
int cw_padding_next(struct cw_iterator *it, uint64_t epoch, uint64_t g, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err) _must_check_;
void cw_padding_close(struct cw_iterator *it);

/* state.c */
int cw_state_u64(const json_t *state, const char *key, uint64_t *ret, struct cw_error *err) _must_check_;
/* Sets it->at and it->unused. CW_E_STATE where the state does not fit. */
int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err) _must_check_;
