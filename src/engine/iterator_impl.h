/* What the files of the iterator share. The consumer's thread, but where it says otherwise. */
#pragma once
#include <pthread.h>

#include "base/text.h"
#include "engine/iterator.h"

#define OPEN_EPOCHS 2 /* so that one begins while the one before it ends */

struct any;

struct cw_iterator {
    struct cw_producer *producer;
    const struct cw_compiled *compiled;
    struct cw_plan plan;
    struct cw_iterator_options options;

    struct cw_batches *open[OPEN_EPOCHS]; /* of epoch at.epoch and those after it */
    unsigned n_open;

    struct any *any;                  /* order any: the splits of this rank (iterator_any.c), in the place of what is above and of what follows up to `round`; NULL: exact */

    struct cw_cursor at;              /* the next batch, whatever its rank */
    uint64_t rounds_from;             /* g at which this epoch's rounds of ranks begin: 0, or where a state goes on */
    uint64_t seen;                    /* batches of this epoch before take and skip of batches */
    struct cw_cursor round;           /* the state: the round after the one handed out last */
    struct cw_batch *mine;            /* of the present round */
    bool offered;                     /* the caller has it, and the position is still the one before it */
    struct cw_assembly *pending;      /* pulled, but a wait ended before it was finished, or it failed: the next call meets it again */

    pthread_mutex_t mutex;
    struct cw_iterator *again;        /* over the epoch that is over, for padding; its pointer is guarded by mutex, like the next */
    bool interrupted;

    struct cw_quarantined *quarantined, **quarantined_tail;
    uint64_t n_skipped, n_replaced, n_listed;
};

/* iterator.c */
/* Makes a batch from what was pulled; what is not mine is but looked at. 1: it is lost, with a split that is not run again. */
int cw_iterator_finish(struct cw_iterator *it, struct cw_assembly *a, uint64_t epoch, bool mine, uint64_t deadline_ns, struct cw_error *err) _must_check_;
void cw_iterator_note_quarantined(struct cw_iterator *it, struct cw_assembly *a);
/* cw_iterator_offer until deadline_ns; 0: without limit. */
int cw_iterator_offer_until(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err) _must_check_;

/* iterator_any.c */
int cw_any_new(struct cw_iterator *it, struct cw_error *err) _must_check_;
int cw_any_begin(struct cw_iterator *it, struct cw_error *err) _must_check_; /* once the place is known */
void cw_any_free(struct cw_iterator *it);
int cw_any_offer(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err) _must_check_;
void cw_any_accept(struct cw_iterator *it);
/* any_state.c */
/* Adds the position after the batch handed out last; -1: out of memory. */
int cw_any_state(const struct cw_iterator *it, json_t *state);
int cw_any_load(struct cw_iterator *it, const json_t *state, struct cw_error *err) _must_check_;
/* The first split that a state needs, and the batch of it. */
int cw_any_state_begin(const struct cw_compiled *c, const json_t *state, uint64_t *ret_split, uint64_t *ret_batch, struct cw_error *err) _must_check_;

/* padding.c: an iterator over an epoch that is over, as rank `rank` of world_size, where there is none yet. */
int cw_padding_open(struct cw_iterator *it, uint64_t epoch, unsigned rank, uint64_t world_size, struct cw_error *err) _must_check_;
/* A copy of its next batch, as batch g. A wait that ends leaves it where it is: the next call goes on. */
int cw_padding_next(struct cw_iterator *it, uint64_t epoch, uint64_t g, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err) _must_check_;
void cw_padding_close(struct cw_iterator *it);

/* state.c */
/* Lists by key in a state: "value value key:value". A value without its key is of the key behind the last.
 * 100 numbers below 36^6 take at most 700 bytes, so that a state with 100 keys stays within 1 KB. */
/* Adds what stands before a key's value; *next, at first 0, becomes the key behind it. */
void cw_state_add_key(struct cw_text *t, unsigned key, unsigned *next);
/* The value at `at`; where a key stands before it, that is written to *key. */
const char *cw_state_key(const char *at, unsigned *key);
int cw_state_u64(const json_t *state, const char *key, uint64_t *ret, struct cw_error *err) _must_check_;
/* Sets it->at. CW_E_STATE where the state does not fit. */
int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err) _must_check_;
