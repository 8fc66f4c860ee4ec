/* The placer decides which elements make which batch of an epoch of a placed pipeline: one whose batches
 * depend on which elements earlier ranges leave, after filters for example. A course gives it the ranges in
 * order, with their numbers of elements or their elements' keys. It plans batches ahead of those that are
 * taken, and knows the entry (where an iterator can start) after the last taken batch. "The plan" below is
 * how far it has planned. No I/O; not thread-safe: the owner locks. */
#pragma once
#include "engine/entry.h"

/* A part of a batch: elements from to from + n - 1 of a key, counted in the range that begins at `begin`; at
 * most as many as a full batch of that key has. */
struct cw_placer_part {
    unsigned key;
    uint64_t begin, from, n;
};

struct cw_placer_batch {
    struct cw_placer_batch *next;
    unsigned key; /* of the batch; at the end of an epoch, it may have parts of smaller keys too */
    uint64_t n;   /* elements */
    size_t n_parts;
    struct cw_placer_part parts[];
};

struct placer_range {
    uint64_t begin, end;
    bool known;        /* the number of elements of the range is final */
    bool failed;       /* the range ends in an error after these elements */
    bool foreign;      /* its elements are only for other ranks */
    uint64_t elements; /* one key: number of elements of the range, once `known` */
    /* several keys: the key of each element so far, in order. Owned; freed once the plan has passed the range
     */
    uint16_t *keys;
    size_t n, room; /* keys that arrived; capacity */
    /* [n_keys] number of elements from the placer's begin to this range; valid once the plan has reached it
     */
    uint64_t *before;
};

struct cw_placer {
    unsigned n_keys;
    const uint64_t *sizes; /* [n_keys] elements of a batch, by key. Borrowed */
    struct cw_grouping grouping;
    unsigned group_given, group_key; /* as in struct cw_entry: after the last taken batch */
    uint64_t begin, end;             /* positions at which the placer started, and at which the epoch ends */
    /* one key: the epoch ends after this number of elements from `begin` on; UINT64_MAX: no limit */
    uint64_t take;
    uint64_t arrived; /* elements before `begin`, as the entry's n_limits counts say */
    unsigned n_limits;
    /* in order, without gaps; the first one may have elements that are in no taken batch */
    struct placer_range *ranges;
    size_t n_ranges, capacity;
    /* [n_keys] number of elements from `begin` on: in taken batches; in taken and planned batches. Elements
     * that the entry leaves out count as taken */
    uint64_t *taken, *planned;
    /* [n_keys] number of elements that the plan has passed; with one key, only whole ranges count */
    uint64_t *seen;
    /* [n_keys] elements before this one were requested before their batch was planned (cw_placer_request) */
    uint64_t *requested;
    uint64_t *waiting; /* [n_keys] scratch of the plan's end */
    size_t at,
        element; /* where the plan is: the index of a range, and with several keys of an element in it */
    struct cw_placer_batch *batches, **last; /* planned batches that are not taken yet, in order */
    size_t n_batches;
};

/* Starts the placer at an entry. end: position at which the epoch ends. sizes: borrowed. grouping: copied;
 * with one key, its size is 1. */
int cw_placer_init(struct cw_placer *w, unsigned n_keys, const uint64_t *sizes,
                   const struct cw_grouping *grouping, const struct cw_entry *from, uint64_t end,
                   struct cw_error *err) _must_check_;
void cw_placer_deinit(struct cw_placer *w);
/* For one key; call before a range is added: the epoch ends after `take` elements. The entry's n_limits
 * limits have counted those before it. */
void cw_placer_limit(struct cw_placer *w, const struct cw_entry *from, unsigned n_limits, uint64_t take);
/* Returns where the next range begins. */
uint64_t cw_placer_position(const struct cw_placer *w);
/* Adds the next range, which ends at position `end`. */
int cw_placer_add(struct cw_placer *w, uint64_t end, struct cw_error *err) _must_check_;
/* Several keys: adds the keys of the next n elements of a range. */
int cw_placer_keys(struct placer_range *range, const uint16_t *keys, size_t n,
                   struct cw_error *err) _must_check_;
/* Call when a range is over. With one key, it has `elements` elements; with several, one for each key that
 * was added. failed: it ends in an error after them. Drops planned batches that need more elements of the
 * range. Returns how many planned batches are left. */
size_t cw_placer_known(struct cw_placer *w, struct placer_range *range, uint64_t elements, bool failed);
/* One key: returns the number of elements of a range that are in planned or taken batches. */
uint64_t cw_placer_planned(const struct cw_placer *w, const struct placer_range *range);
/* Plans the next batch. 0: *ret is the batch, the last of w->batches; the placer owns it. 1: there are no
 * more batches; 2: the next range is missing, or with several keys its elements; 3: the plan has reached the
 * error of range w->at. With one key, the first range that is not `known` is assumed to have all elements
 * that batches need. */
int cw_placer_plan(struct cw_placer *w, const struct cw_placer_batch **ret,
                   struct cw_error *err) _must_check_;
/* Whether the first planned batch is certain: all of its elements are in ranges that are `known`. */
bool cw_placer_certain(const struct cw_placer *w);
/* Marks the first planned batch as taken, and frees it. */
void cw_placer_take(struct cw_placer *w);
/* Sets *ret, which must have room for the keys, to the entry after the last taken batch. */
void cw_placer_entry(const struct cw_placer *w, struct cw_entry *ret);
/* Returns the begin of the first range that overlaps begin .. end - 1 and has other bounds; UINT64_MAX: none
 * does. */
uint64_t cw_placer_differs(const struct cw_placer *w, uint64_t begin, uint64_t end);
/* Call when the range that begins at `begin` was ended early, at `end`. Forgets later ranges, because a new
 * range comes before them. False: the placer has no such range, or the range is `known`, or has keys, whose
 * elements may lie after `end`. */
bool cw_placer_shorten(struct cw_placer *w, uint64_t begin, uint64_t end);
/* Forgets the ranges that end after `position`, and the batches planned with them. False: some of their
 * elements were taken already, and nothing changes. */
bool cw_placer_cut(struct cw_placer *w, uint64_t position);
/* Returns how many batches of the last group are planned or taken, and sets *ret to its key; 0: that group is
 * complete, or there is none. */
unsigned cw_placer_group(const struct cw_placer *w, unsigned *ret);
/* Sets *ret to the next elements of a key, all from one range that the plan has passed, that are in no batch
 * and were not requested; if the key fills further batches, all in one of them. They count as requested from
 * now on. False: there are none. */
bool cw_placer_request(struct cw_placer *w, unsigned key, struct cw_placer_part *ret);
/* Returns the begin of the range that the plan has reached. */
uint64_t cw_placer_plan_position(const struct cw_placer *w);
/* Returns the first position whose range the plan has not passed. waiting: counts also ranges with elements
 * that are in no batch and were not requested. */
uint64_t cw_placer_needed(const struct cw_placer *w, bool waiting);
/* Whether all batches of the epoch are planned. */
bool cw_placer_over(const struct cw_placer *w);
