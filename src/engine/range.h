/* A range: positions of an epoch that are worked on as one. It owns its pieces, the batches that its blocks
 * fill, and the entry that it begins again from. Everything here needs the runner's mutex. */
#pragma once
#include "engine/assembly.h"
#include "engine/entry.h"
#include "engine/runner.h"

struct block;
struct piece;

/* Permutations and keys of an epoch, shared by its ranges. Used by the thread that plans (sched.planning). */
struct epoch_ref {
    unsigned refs;
    struct cw_epoch epoch;
};

/* Elements of a key, where a range keeps them by key: batch i has elements i * size .. of them. */
struct key_rows {
    struct cw_assembly **batches; /* NULL: given away, or dropped */
    size_t n, room, first;        /* first: those before are gone */
    uint64_t dropped;             /* elements before it are not wanted any more */
};

/* Of a range opened with `rows`. */
struct range_keyed {
    struct key_rows *by_key;
    unsigned n_held; /* batches in by_key */
    uint16_t *keys;  /* with several keys: of each element in order */
    size_t n_keys, keys_room;
};

/* What was counted of the elements that passed points, since the range began (again). */
struct range_counts {
    struct cw_limit_count *limits;
    uint64_t *arrived; /* by key: elements that passed the last point */
    uint64_t *batched; /* by key: of these and of those to come, in batches that are full, or were before */
    uint64_t slots_at; /* the position behind the blocks that passed the last point */
};

/* Each includes the ones before it. */
enum range_state {
    RANGE_OPEN,
    RANGE_OVER,     /* nothing more is carved: positions used up, a full `take`, an error */
    RANGE_FLUSHED,  /* and what is left over at the epoch's end is among the batches */
    RANGE_POISONED, /* an element's error ends it */
};

struct cw_range {
    struct cw_range *next;
    const struct cw_runner *runner;
    struct epoch_ref *epoch;
    uint64_t begin, limit; /* as it was opened: positions begin .. limit - 1 */
    bool rows;             /* elements are kept by key */
    struct cw_entry entry; /* behind the last batch that the consumer took: where it begins (again) */
    /* of the sequence; from `position` on not yet in a piece. end: limit, or where a stream ended */
    uint64_t position, end;
    uint64_t n_taken; /* batches that the consumer took */
    struct piece *first;
    uint64_t next_seq; /* of the next block carved */
    uint64_t *passed;  /* by point: the block whose turn it is */
    struct block *parked;
    struct range_counts counts;
    struct cw_assembly *head, *tail; /* batches in the order of delivery */
    struct cw_assembly **open;       /* by key: the batch that is filled */
    struct range_keyed keyed;
    struct cw_quarantined *quarantined; /* records that left no trace in a batch */
    /* of a stream: comes after everything that it gave; rows: of a record, behind all elements. NULL: it did
     * not fail */
    struct cw_error *failed;
    unsigned n_blocks; /* carved and not done */
    enum range_state state;
    bool closed;            /* by the consumer */
    _Atomic bool cancelled; /* closed, and what still runs for it takes long */
};

static inline bool cw_range_before(const struct cw_range *a, const struct cw_range *b)
{
    return a->epoch->epoch.epoch != b->epoch->epoch.epoch ? a->epoch->epoch.epoch < b->epoch->epoch.epoch
                                                          : a->begin < b->begin;
}

/* Everything was computed. */
static inline bool cw_range_computed(const struct cw_range *s)
{
    return s->state != RANGE_OPEN && s->n_blocks == 0;
}

/* The next batch is computed. */
static inline bool cw_range_head_complete(const struct cw_range *s)
{
    return s && s->head && cw_assembly_complete(s->head);
}

/* Nothing more is carved of the range; a state that says more stays. */
static inline void cw_range_end(struct cw_range *s, enum range_state state)
{
    s->state = CW_MAX(s->state, state);
}

/* Nothing of it is computed yet, or any more: it begins at its entry. */
void cw_range_begin(const struct cw_runner *r, struct cw_range *s);
/* Drops all that it holds and begins again. No block of it is in flight. */
void cw_range_restart(struct cw_runner *r, struct cw_range *s);
void cw_range_free(struct cw_runner *r, struct cw_range *s);
/* Frees pieces that are used up, and returns how many. */
unsigned cw_range_collect(struct cw_range *s);
bool cw_range_holds_anything(const struct cw_runner *r, const struct cw_range *s);

/* Appends a batch to those to deliver. */
void cw_range_append(struct cw_range *s, struct cw_assembly *a);
/* Takes a batch that is not full, the last one, out of those to deliver. */
void cw_range_remove_last(struct cw_range *s);
/* Appends a batch to those of its key. */
int cw_range_append_rows(struct cw_range *s, struct cw_assembly *a, struct cw_error *err) _must_check_;

/* Whether the rows of a batch can be copied: they are computed, and no others will come to them meanwhile. */
bool cw_range_copyable(const struct cw_range *s, const struct cw_assembly *a);
/* Whether clients can take rows of the range before more of it is computed, which frees memory. They can once
 * a batch and all rows but one of the next are computed: wherever their batches begin, one of them lies
 * within. */
bool cw_range_rows_ready(const struct cw_runner *r, const struct cw_range *s);
void cw_epoch_ref_drop(struct epoch_ref *e); /* may be NULL */
