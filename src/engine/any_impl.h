/* Order "any": what iterator_any.c and any_state.c share. The consumer's thread. */
#pragma once
#include "engine/iterator_impl.h"

/* Positions of splits that may be open beyond the oldest unfinished one of all ranks, which share them out (docs/adr/0012); and for a rank at least so many
 * splits, lest it waits for each one. */
#define ANY_POSITIONS 64
#define ANY_LEAST 2
/* Batches joined and not handed out: those that wait for the memory of a worker that stands still don't hold up the next ones. */
#define ANY_JOINED 16

/* A split of this rank. */
struct own {
    struct cw_split *split;
    uint64_t epoch, index;
    uint64_t taken;     /* batches handed out */
    bool only_left;     /* resuming: all its batches were handed out, but not all that it left over */
    bool ended;         /* it has no more batches; what it left over is joined when all before it have ended */
};

/* Remnants of one key: the elements from split `from` on, but for the first `skip` of that split, are in no batch yet. */
struct unused {
    uint64_t from, skip;
};

struct joined {
    struct joined *next;
    struct cw_assembly *a; /* NULL: offered */
    unsigned key;
    struct unused before; /* of its key */
};

struct any {
    uint64_t g, split, batch;    /* the place that comes next: number of the batch, its split, and its number there */
    unsigned n_keys;             /* of remnants that are joined; 0: there are none */
    struct unused *unused;       /* by key */
    struct cw_assembly **joining;/* by key: elements that wait for a batch */
    unsigned key;                /* whose remnants are joined now */
    bool in_remnant;             /* that of `key` is joined, up to: */
    uint64_t remnant_at;
    struct own open[ANY_POSITIONS]; /* ring, in order; those of the next epoch behind those of this one */
    unsigned n_open, first_open, ahead;
    uint64_t open_epoch, open_index; /* the next to open */
    uint64_t handed;             /* batches of this epoch, padding too */
    struct joined *joined;       /* in order */
    unsigned n_joined;
    struct cw_assembly *pending; /* of pending_own, or the first joined: pulled, and not handed out yet */
    struct own *pending_own;     /* pending is NULL when that was offered, until it is accepted */
    uint64_t repeated;           /* batches that the iterator for padding gave */
    /* of the state that is gone on from: splits of epoch resumed_epoch before `resumed` gave all their batches, those from there on the numbers in taken */
    uint64_t resumed_epoch, resumed;
    unsigned n_taken;
    uint64_t taken[ANY_POSITIONS];
};

/* Splits of an epoch. */
static inline uint64_t cw_any_splits(const struct cw_iterator *it) { return cw_plan_splits(&it->plan); }
static inline struct own *cw_any_own(struct any *a, unsigned i) { return &a->open[(a->first_open + i) % ANY_POSITIONS]; }
/* Of a split that the state named: batches that were handed out before; UINT64_MAX: all. */
static inline uint64_t cw_any_resumed(const struct any *a, uint64_t epoch, uint64_t index, uint64_t world_size)
{
    uint64_t i = (index - a->resumed) / world_size;
    if (epoch != a->resumed_epoch)
        return 0;
    return index < a->resumed ? UINT64_MAX : i < a->n_taken ? a->taken[i] : 0;
}
