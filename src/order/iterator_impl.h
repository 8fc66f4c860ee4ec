/* struct cw_iterator, which the files of this folder share. Only the consumer's thread uses it, unless a
 * comment says otherwise. */
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

    struct cw_batches *open[OPEN_EPOCHS]; /* open[i] is epoch at.epoch + i */
    unsigned n_open;

    struct cw_cursor at; /* the next batch in the order of all ranks */
    /* batches of this epoch before `at`, counted before `take` and `skip` of batches leave out any */
    uint64_t passed;
    /* what a saved state holds: the first round (one batch for each rank) whose batch was not accepted */
    struct cw_cursor round;
    /* this rank's batch of the present round; NULL: not computed yet, or already handed out */
    struct cw_batch *own;
    /* the caller has a batch that it has not accepted, so the position is still before that batch */
    bool offered;
    /* the bit in round.handed of the batch offered, if its turn has not come yet; else 0 */
    uint64_t offered_bit;
    /* a batch that was pulled and not finished, because a wait ended or finishing failed; the next call
     * continues with it. NULL: none */
    struct cw_assembly *pending;

    pthread_mutex_t mutex;
    /* repeats batches of the epoch that is over, as padding; NULL: not needed now. The mutex guards the
     * pointer and `interrupted` */
    struct cw_iterator *again;
    bool interrupted;

    struct cw_quarantined *quarantined, **quarantined_tail;
    uint64_t n_skipped, n_replaced, n_listed;
};

/* padding.c */
/* Makes it->own a copy of batch j of the epoch that is over, with number g. j is less than the world size.
 * After CW_E_DEADLINE or CW_E_INTERRUPTED the next call continues. */
int cw_padding_take(struct cw_iterator *it, uint64_t epoch, uint64_t g, uint64_t j, uint64_t deadline_ns,
                    struct cw_error *err) _must_check_;

/* state.c */
/* Sets it->at and it->passed from a state. CW_E_STATE: the state does not fit the pipeline, the seed, the
 * data or the ranks. */
int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err) _must_check_;
