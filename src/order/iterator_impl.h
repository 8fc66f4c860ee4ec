/* struct iterator, which the files of this folder share. The consumer's thread, unless a comment says
 * otherwise. */
#pragma once
#include <pthread.h>

#include "base/text.h"
#include "order/iterator.h"

#define OPEN_EPOCHS 2 /* the next epoch begins while one ends */

struct cw_iterator {
    struct cw_producer *producer;
    const struct cw_compiled *compiled;
    struct cw_plan plan;
    struct cw_iterator_options options;

    struct cw_batches *open[OPEN_EPOCHS]; /* of epoch at.epoch and those after it */
    unsigned n_open;

    struct cw_cursor at; /* the next batch, of any rank */
    uint64_t passed;     /* batches of this epoch that are behind, counted before take and skip of batches */
    struct cw_cursor round; /* the state: the first round whose batch was not accepted */
    struct cw_batch *own;   /* this rank's batch of the present round; NULL: not there, or handed out */
    bool offered;           /* the caller has a batch, and the position is still the one before it */
    uint64_t offered_bit;   /* its bit of round.handed, if it was offered before its turn; else 0 */
    /* pulled, but a wait ended before it was finished, or it failed: the next call goes on with it */
    struct cw_assembly *pending;

    pthread_mutex_t mutex;
    /* for padding, over the epoch that is over; the pointer and `interrupted` are guarded by the mutex */
    struct cw_iterator *again;
    bool interrupted;

    struct cw_quarantined *quarantined, **quarantined_tail;
    uint64_t n_skipped, n_replaced, n_listed;
};

/* padding.c */
/* Makes it->own a copy of batch j of an epoch that is over, as batch g. j is less than the world size. After
 * a wait that ended, the next call goes on. */
int cw_padding_take(struct cw_iterator *it, uint64_t epoch, uint64_t g, uint64_t j, uint64_t deadline_ns,
                    struct cw_error *err) _must_check_;

/* state.c */
/* Sets it->at and it->passed from a state. CW_E_STATE: it does not fit. */
int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err) _must_check_;
