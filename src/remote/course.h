/* A course is the plan of the batches of one epoch, from an entry (a position where an iterator can start)
 * on. It is planned from the ranges that the dispatcher named, and from what is known of their elements. For
 * each batch that is wanted it makes a slot, with the fetches that the batch needs; sequencer.c takes the
 * batches. The iterator's producer opens courses, placement.c changes them when ranges are cut again, and
 * requests.c lets them plan ahead. The mutex must be held in all functions. */
#pragma once
#include "order/producer.h"
#include "remote/fetch.h"
#include "remote/placer.h"
#include "remote/range_table.h"

struct view;

/* A batch that is wanted. Once all of its fetches have arrived, only the consumer's thread removes it. */
struct slot {
    struct slot *next;
    uint64_t g; /* number of the batch in the epoch */
    unsigned key;
    /* a list of siblings: one for the whole batch, or one for each part; NULL: memory was short, and they are
     * made later */
    struct fetch *fetches;
    /* consumer's thread only: the batch, joined from its parts. Owned; NULL: not joined */
    struct cw_assembly *joined;
};

struct course {
    struct cw_link link; /* in r->courses */
    struct view *view;
    uint64_t epoch;
    uint64_t end; /* position at which the epoch ends */
    /* number in the epoch of the next batch to be taken; batches before compiled->batch_from count */
    uint64_t g;
    /* batches of this rank that were taken before it was their turn: bit i mod 64 is for its batch in round i
     */
    uint64_t handed;
    uint64_t planned; /* number of the next batch to be planned */
    /* if the view repeats batches for padding: the one batch that it wants; UINT64_MAX: not known yet */
    uint64_t wanted;
    struct cw_cursor from; /* where the course began; its entry is owned */
    /* a placed pipeline: the elements of ranges decide the batches; then the next three fields are used */
    bool placed;
    struct cw_placer placer;
    /* number of the placer's first batch that was not taken. If ranks have separate ranges (job.own_ranges),
     * the placer has only this rank's batches, every world_size-th */
    uint64_t placer_g;
    /* ranges of the placer from this position on were cut again, and the plan must change; UINT64_MAX: none
     * were */
    uint64_t recut_at;
    struct fetch *keys;  /* fetches for keys of the placer's ranges, in order */
    struct fetch *early; /* fetches for parts of batches that are not planned yet; for each key in order */
    struct slot *slots;  /* sorted by g */
};

/* Opens a course. from->g: its first batch; from->entry: where that batch's elements begin. NULL: out of
 * memory. */
struct course *cw_course_new(struct view *v, const struct cw_cursor *from);
/* Frees a course. Consumer's thread. The mutex is released in between, after the course is removed from the
 * list. */
void cw_course_free(struct course *c);
/* Frees all slots of a course. Consumer's thread; the mutex is released in between. */
void cw_course_drop_slots(struct course *c);
/* Call when the range that begins at `begin` was ended early, at `end`. False: the plan may depend on
 * elements after that. */
bool cw_course_shorten(struct course *c, uint64_t begin, uint64_t end);
/* Call when the ranges of a counted pipeline were cut again from this position on: later batches whose
 * fetches were cut into parts, and have not all arrived, get one fetch again. */
void cw_course_recut(struct course *c, uint64_t position);
/* Plans the batches before number g with what is known of ranges by now, and makes slots for those that are
 * wanted. 0: done; 1: the epoch has fewer batches; 2: not enough is known of the next ranges yet. */
int cw_course_plan(struct course *c, uint64_t g, struct cw_error *err) _must_check_;
/* Returns the first position that the course needs. */
uint64_t cw_course_position(const struct course *c);

/* ---- for sequencer.c ---- */

/* Whether batch g belongs to this rank. False in courses of views for padding. */
bool cw_course_owns_batch(const struct course *c, uint64_t g);
/* Returns the bit of c->handed for batch g of this rank; 0: the batch is too far ahead to be taken before its
 * turn. */
uint64_t cw_course_handed_bit(const struct course *c, uint64_t g);
/* Makes a slot for batch g, with its fetches. b: its planned parts; NULL: the batch is requested by its
 * number. */
int cw_course_add_slot(struct course *c, uint64_t g, const struct cw_placer_batch *b,
                       struct cw_error *err) _must_check_;
/* Call when the placer's next batch is taken. */
void cw_course_take_placed(struct course *c);
/* For sequential pipelines, whose epochs are one range: sets *ret to the number of batches. False: it is not
 * known yet. */
bool cw_course_count_sequential(const struct course *c, uint64_t *ret);
/* If ranges were cut again, drops the plan from there on, so that it is made again. Consumer's thread; the
 * mutex is released in between. */
void cw_course_settle(struct course *c);
/* Returns the first position of the range that the plan waits for. */
uint64_t cw_course_plan_position(const struct course *c);
/* Frees a slot. It must be in no list, and not be joined. */
void cw_slot_free(struct remote *r, struct slot *s);
/* Frees a list of slots, which must be removed from the course. Consumer's thread; the mutex is released in
 * between. */
void cw_slots_free(struct remote *r, struct slot *slots);
/* Call when a range is lost before this rank got all of its batches of it: counts the range, once. x may be
 * NULL. */
void cw_remote_count_lost(struct remote *r, struct known_range *x);

/* Whether the slot has fetches, and all of them have arrived. */
static inline bool cw_slot_here(const struct slot *s)
{
    const struct fetch *f = s->fetches;
    while (f && f->state == FETCH_HERE)
        f = f->sibling;
    return s->fetches && !f;
}
