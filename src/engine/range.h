/* A range: consecutive positions of an epoch that are given to the engine as one unit of work. It owns its
 * pieces, the batches that its blocks fill, and the entry from which it begins again. Everything here needs
 * the runner's mutex. */
#pragma once
#include "engine/assembly.h"
#include "engine/entry.h"
#include "engine/runner.h"

struct block;
struct piece;

/* Permutations and keys of an epoch, shared by its ranges. Only the thread that plans uses `epoch`
 * (sched.planning). */
struct epoch_ref {
    unsigned refs;
    struct cw_epoch epoch;
};

/* The elements of a key in a range with `rows`: batch i has elements i * size to (i + 1) * size - 1. */
struct key_rows {
    struct cw_assembly **batches; /* NULL: the batch was given away, or dropped */
    /* n: batches so far; room: allocated; first: the batches before it are gone */
    size_t n, room, first;
    uint64_t dropped; /* elements before this number are not needed any more */
};

/* What a range with `rows` keeps. */
struct range_keyed {
    struct key_rows *by_key;
    unsigned n_held; /* batches in by_key */
    uint16_t *keys;  /* with several keys: the key of each element, in order */
    size_t n_keys, keys_room;
};

/* The full batches of a key that wait until their group is complete; at the end of an epoch also the last
 * batch of the key. */
struct range_group {
    struct cw_assembly *head, *tail;
    unsigned n;     /* batches in the list */
    uint64_t moved; /* rows of the first batch that are in a batch of flush.c already */
};

/* Counts of the elements that passed points since the range began, or began again. */
struct range_counts {
    struct cw_limit_count *limits;
    uint64_t *arrived; /* by key: how many elements passed the last point */
    /* by key: how many elements are in full batches, or were in earlier batches when the range began */
    uint64_t *batched;
    uint64_t slots_at;               /* the position after the blocks that passed the last point */
    unsigned group_given, group_key; /* as in struct cw_entry, of the batches in the list */
};

/* Each state includes the ones before it. */
enum range_state {
    RANGE_OPEN,
    /* no more blocks are carved: all positions are carved, a `take` is full, or an error came */
    RANGE_OVER,
    RANGE_FLUSHED,  /* and the short batches at the epoch's end are in the list of batches */
    RANGE_POISONED, /* the error of an element ends the range */
};

struct cw_range {
    struct cw_range *next;
    const struct cw_runner *runner;
    struct epoch_ref *epoch;
    uint64_t begin, limit; /* as given when it was opened: positions begin .. limit - 1 */
    bool rows;             /* opened with `rows`: elements are kept by key */
    /* the entry after the last batch that the consumer took: the range begins (again) there */
    struct cw_entry entry;
    /* positions of the sequence: those from `position` on are not in a piece yet. end: limit, or where a
     * stream ended */
    uint64_t position, end;
    uint64_t n_taken; /* batches that the consumer took */
    struct piece *first;
    uint64_t next_seq; /* the number of the next block that is carved */
    uint64_t *passed;  /* by point: the number of the block whose turn it is */
    struct block *parked;
    struct range_counts counts;
    struct cw_assembly *head, *tail; /* batches in the order of delivery */
    struct cw_assembly **open;       /* by key: the batch that is being filled */
    struct range_group *groups;      /* by key */
    struct range_keyed keyed;
    struct cw_quarantined *quarantined; /* records that failed and are in no batch */
    /* the error of a stream, which comes after all its elements; with `rows`: the error of a record, which
     * comes after all elements. NULL: there is none */
    struct cw_error *failed;
    unsigned n_blocks; /* blocks that are carved and not done */
    enum range_state state;
    bool closed;            /* by the consumer */
    _Atomic bool cancelled; /* closed, and operators that still run for it are told to stop */
};

/* Returns whether range a comes before range b: ranges are computed in the order of (epoch, begin). */
static inline bool cw_range_before(const struct cw_range *a, const struct cw_range *b)
{
    return a->epoch->epoch.epoch != b->epoch->epoch.epoch ? a->epoch->epoch.epoch < b->epoch->epoch.epoch
                                                          : a->begin < b->begin;
}

/* Returns whether everything is computed. */
static inline bool cw_range_computed(const struct cw_range *s)
{
    return s->state != RANGE_OPEN && s->n_blocks == 0;
}

/* Returns whether all rows of the next batch are computed. */
static inline bool cw_range_head_complete(const struct cw_range *s)
{
    return s && s->head && cw_assembly_complete(s->head);
}

/* Ends carving of the range: sets its state, unless the present state is a later one. */
static inline void cw_range_end(struct cw_range *s, enum range_state state)
{
    s->state = CW_MAX(s->state, state);
}

/* Sets the range to begin at its entry, with nothing computed. */
void cw_range_begin(const struct cw_runner *r, struct cw_range *s);
/* Drops all that the range holds, and sets it to begin again. None of its blocks may be in flight. */
void cw_range_restart(struct cw_runner *r, struct cw_range *s);
void cw_range_free(struct cw_runner *r, struct cw_range *s);
/* Frees pieces that are completely carved and computed, and returns their number. */
unsigned cw_range_collect(struct cw_range *s);
/* Returns whether the range has memory to give up. */
bool cw_range_holds_anything(const struct cw_runner *r, const struct cw_range *s);

/* Appends a batch to the list of batches to deliver. */
void cw_range_append(struct cw_range *s, struct cw_assembly *a);
/* Appends a batch to those that wait for their group. */
void cw_range_append_group(struct cw_range *s, struct cw_assembly *a);
/* Removes the first batch of those of a key that wait for their group; there must be one. */
struct cw_assembly *cw_range_pop_group(struct cw_range *s, unsigned key);
/* Appends the batch that comes next in its group to the list of batches to deliver. */
void cw_range_deliver_group(const struct cw_runner *r, struct cw_range *s, struct cw_assembly *a);
/* Removes the last batch, which is not full, from the list of batches to deliver. */
void cw_range_remove_last(struct cw_range *s);
/* Appends a batch to the batches of its key. */
int cw_range_append_rows(struct cw_range *s, struct cw_assembly *a, struct cw_error *err) _must_check_;

/* Returns whether the rows of a batch can be copied: they are computed, and no rows are added meanwhile. */
bool cw_range_copyable(const struct cw_range *s, const struct cw_assembly *a);
/* Returns whether clients can take rows of the range, which frees memory, before more of it is computed. They
 * can when a full group of batches, and all rows but one of the next group, are computed: wherever the
 * clients' groups begin, one of them then lies within these rows. */
bool cw_range_rows_ready(const struct cw_runner *r, const struct cw_range *s);
void cw_epoch_ref_drop(struct epoch_ref *e); /* may be NULL */
