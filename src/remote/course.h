/*
 * Courses: the batches of an epoch from an entry on, planned from what is known of ranges. A course makes a
 * slot for each batch that is wanted, with the fetches that the batch needs; sequencer.c takes the batches.
 * The iterator's producer opens courses, placement.c changes them when ranges are cut again, and requests.c
 * has them plan ahead. The mutex is held throughout.
 */
#pragma once
#include "order/producer.h"
#include "remote/fetch.h"
#include "remote/placer.h"
#include "remote/range_table.h"

struct view;

/* A batch that is wanted. Once all of its fetches are here, only the consumer's thread removes it. */
struct slot {
    struct slot *next;
    uint64_t g;
    unsigned key;
    /* siblings: one whole batch, or its parts; NULL: memory lacked, they are made later */
    struct fetch *fetches;
    /* the consumer's thread: the batch, once it was joined from its parts. Owned */
    struct cw_assembly *joined;
};

struct course {
    struct cw_link link; /* in r->courses */
    struct view *view;
    uint64_t epoch;
    uint64_t end; /* of the epoch: a position */
    uint64_t g;   /* the next batch to be taken, in the epoch, counting those before compiled->batch_from */
    /* batches of this rank that were taken before their turn: bit i mod 64 is for its batch of round i */
    uint64_t handed;
    uint64_t planned;      /* the next batch to be planned */
    uint64_t wanted;       /* a view for padding: the one batch that it wants; UINT64_MAX: not known yet */
    struct cw_cursor from; /* where it began; its entry is owned */
    bool placed;           /* batches follow from what ranges leave; the next three are used */
    struct cw_placer placer;
    /* the number of the placer's first batch that was not taken. Where ranks have ranges of their own, the
     * placer has only this rank's batches: every world_size-th */
    uint64_t placer_g;
    /* some ranges of the placer were cut again, the first of which holds or follows this position;
     * UINT64_MAX: none were */
    uint64_t recut_at;
    struct fetch *keys;  /* of ranges of the placer, in order */
    struct fetch *early; /* parts of batches that are not planned yet, in the order of each key */
    struct slot *slots;  /* by g */
};

/* Opens a course at batch from->g, before which from->entry stands. NULL: out of memory. */
struct course *cw_course_new(struct view *v, const struct cw_cursor *from);
/* Consumer's thread; the mutex is released meanwhile, once the course is out of the list. */
void cw_course_free(struct course *c);
/* Frees all slots; likewise. */
void cw_course_drop_slots(struct course *c);
/* The range that begins there now ends at `end`, which is earlier. False: the plan may count on elements
 * behind that. */
bool cw_course_shorten(struct course *c, uint64_t begin, uint64_t end);
/* A counted pipeline's ranges were cut again from this position on: batches behind it that were cut into
 * parts and are not here become one fetch again. */
void cw_course_recut(struct course *c, uint64_t position);
/* Takes in what is known of ranges by now, plans the batches before number g, and makes slots for those that
 * are wanted. 1: the epoch has fewer batches; 2: what comes is not known yet. */
int cw_course_plan(struct course *c, uint64_t g, struct cw_error *err) _must_check_;
/* Returns the first position that the course needs. */
uint64_t cw_course_position(const struct course *c);

/* ---- for sequencer.c ---- */

/* Whether batch g is this rank's. Only the iterator's own course has such batches. */
bool cw_course_owns_batch(const struct course *c, uint64_t g);
/* The bit of c->handed for batch g of this rank; 0: it is too far ahead to be taken before its turn. */
uint64_t cw_course_handed_bit(const struct course *c, uint64_t g);
/* Makes a slot for batch g, with its fetches. b: its parts, as planned; NULL: the batch is requested by
 * number. */
int cw_course_add_slot(struct course *c, uint64_t g, const struct cw_placer_batch *b,
                       struct cw_error *err) _must_check_;
/* The placer's next batch is taken. */
void cw_course_take_placed(struct course *c);
/* Where an epoch is one range: sets *ret to the number of its batches. False: it is not known yet. */
bool cw_course_count_sequential(const struct course *c, uint64_t *ret);
/* Drops the plan of ranges that were cut again, and plans from there anew. Consumer's thread; the mutex is
 * released meanwhile. */
void cw_course_settle(struct course *c);
/* Returns the first position of what the plan waits for. */
uint64_t cw_course_plan_position(const struct course *c);
/* Frees a slot, which is in no list, and nothing was joined in. */
void cw_slot_free(struct remote *r, struct slot *s);
/* Frees slots, which are in no list. Consumer's thread; the mutex is released meanwhile. */
void cw_slots_free(struct remote *r, struct slot *slots);
/* A range (may be NULL) is lost, and this rank did not get all of its batches in it: counts it once. */
void cw_remote_count_lost(struct remote *r, struct known_range *x);

static inline bool cw_slot_here(const struct slot *s)
{
    const struct fetch *f = s->fetches;
    while (f && f->state == FETCH_HERE)
        f = f->sibling;
    return s->fetches && !f;
}
