/* What the files of the iterator share. The consumer's thread, but where it says otherwise. */
#pragma once
#include <pthread.h>

#include "base/text.h"
#include "order/iterator.h"

#define OPEN_EPOCHS 2 /* so that one begins while the one before it ends */

struct cw_iterator {
    struct cw_producer *producer;
    const struct cw_compiled *compiled;
    struct cw_plan plan;
    struct cw_iterator_options options;

    struct cw_batches *open[OPEN_EPOCHS]; /* of epoch at.epoch and those after it */
    unsigned n_open;

    struct cw_cursor at;    /* the next batch, whatever its rank */
    uint64_t seen;          /* batches of this epoch before take and skip of batches */
    struct cw_cursor round; /* the state: the first round whose batch was not accepted */
    struct cw_batch *mine;  /* of the present round */
    bool offered;           /* the caller has it, and the position is still the one before it */
    uint64_t offered_bit;   /* of round.handed: it was offered before its turn; 0: in its turn */
    /* pulled, but a wait ended before it was finished, or it failed: the next call meets it again */
    struct cw_assembly *pending;

    pthread_mutex_t mutex;
    /* over the epoch that is over, for padding; its pointer is guarded by mutex, like the next */
    struct cw_iterator *again;
    bool interrupted;

    struct cw_quarantined *quarantined, **quarantined_tail;
    uint64_t n_skipped, n_replaced, n_listed;
};

/* iterator.c */
/* cw_iterator_offer until deadline_ns; 0: without limit. */
int cw_iterator_offer_until(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret,
                            struct cw_error *err) _must_check_;

/* padding.c: an iterator over an epoch that is over, as rank `rank` of world_size, where there is none yet.
 */
int cw_padding_open(struct cw_iterator *it, uint64_t epoch, unsigned rank, uint64_t world_size,
                    struct cw_error *err) _must_check_;
/* A copy of its next batch, as batch g. A wait that ends leaves it where it is: the next call goes on. */
int cw_padding_next(struct cw_iterator *it, uint64_t epoch, uint64_t g, uint64_t deadline_ns,
                    struct cw_batch **ret, struct cw_error *err) _must_check_;
void cw_padding_close(struct cw_iterator *it);

/* state.c */
/* Sets it->at. CW_E_STATE where the state does not fit. */
int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err) _must_check_;
