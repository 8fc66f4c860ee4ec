/*
 * The placer decides which elements make which batch of an epoch whose batches follow from what ranges leave
 * (a placed pipeline). A course gives it ranges and their elements in order. It plans batches beyond those
 * that were taken, and knows the entry behind these. No I/O, not thread-safe: the owner locks.
 */
#pragma once
#include "engine/entry.h"

/* Elements from .. from + n - 1 of the batch's key, counted in the range that begins at `begin`. */
struct cw_placer_part {
    uint64_t begin, from, n;
};

struct cw_placer_batch {
    struct cw_placer_batch *next;
    unsigned key;
    uint64_t n;
    size_t n_parts;
    struct cw_placer_part parts[];
};

struct placer_range {
    uint64_t begin, end;
    bool known;        /* the number of elements that the range leaves is final */
    bool failed;       /* the range ends in an error, behind these elements */
    bool foreign;      /* its elements are in no batch of this rank */
    uint64_t elements; /* one key: how many the range leaves, once `known` */
    /* several keys: the key of each element so far, in order. Owned; freed once the plan is past the range */
    uint16_t *keys;
    size_t n, room; /* keys that arrived; capacity */
    /* [n_keys] elements of the placer before this range; valid once the plan has come to it */
    uint64_t *before;
};

struct cw_placer {
    unsigned n_keys;
    const uint64_t *sizes; /* [n_keys], borrowed: elements of a batch */
    bool drop_remainder;   /* an incomplete batch at the end is dropped */
    uint64_t begin, end;   /* positions of the ranges */
    /* one key: number of elements from `begin` on behind which the epoch ends; UINT64_MAX: no such limit */
    uint64_t take;
    uint64_t arrived; /* elements before `begin`, as n_limits of an entry count them */
    unsigned n_limits;
    /* in order, without gaps, from the first that may have an element in no batch that was taken */
    struct placer_range *ranges;
    size_t n_ranges, capacity;
    /* [n_keys] elements from `begin` on, in batches that were taken; in these and planned ones. What an entry
     * leaves out counts as taken */
    uint64_t *taken, *planned;
    uint64_t *seen; /* [n_keys] elements that the plan has come past; of one key only whole ranges count */
    /* [n_keys] elements before this were requested though they wait for a batch (cw_placer_request) */
    uint64_t *requested;
    size_t at, element; /* where the plan is: a range, and with several keys an element in it */
    struct cw_placer_batch *batches, **last; /* planned and not taken */
    size_t n_batches;
};

/* Begins at an entry; the epoch ends at position `end`. sizes: borrowed. */
int cw_placer_init(struct cw_placer *w, unsigned n_keys, const uint64_t *sizes, bool drop_remainder,
                   const struct cw_entry *from, uint64_t end, struct cw_error *err) _must_check_;
void cw_placer_deinit(struct cw_placer *w);
/* One key, before a range is added: the epoch of the entry ends behind `take` elements, which n_limits limits
 * of the entry count. */
void cw_placer_limit(struct cw_placer *w, const struct cw_entry *from, unsigned n_limits, uint64_t take);
/* Returns where the next range begins. */
uint64_t cw_placer_position(const struct cw_placer *w);
/* Adds the next range. */
int cw_placer_add(struct cw_placer *w, uint64_t end, struct cw_error *err) _must_check_;
/* Several keys: adds the keys of the next n elements of a range. */
int cw_placer_keys(struct placer_range *range, const uint16_t *keys, size_t n,
                   struct cw_error *err) _must_check_;
/* A range is over: it leaves `elements` of the one key, or as many keys as it has by now. failed: an error
 * follows them. Drops planned batches that counted on more of the range, and returns how many are left. */
size_t cw_placer_known(struct cw_placer *w, struct placer_range *range, uint64_t elements, bool failed);
/* One key: returns the number of elements of a range that are in batches which are planned or taken. */
uint64_t cw_placer_planned(const struct cw_placer *w, const struct placer_range *range);
/* Plans the next batch: *ret, the last of w->batches, which stays the placer's. 1: there are no more; 2:
 * ranges are missing, or with several keys their elements; 3: the plan has come to the error of range w->at.
 * With one key, the first range that is not known is assumed to have as many elements as are planned. */
int cw_placer_plan(struct cw_placer *w, const struct cw_placer_batch **ret,
                   struct cw_error *err) _must_check_;
/* Whether the first planned batch is certain: all of its elements are in ranges that are known. */
bool cw_placer_certain(const struct cw_placer *w);
/* Takes the first planned batch, and frees it. */
void cw_placer_take(struct cw_placer *w);
/* Sets *ret, which has room for keys, to the entry behind the batches that were taken. */
void cw_placer_entry(const struct cw_placer *w, struct cw_entry *ret);
/* Returns the begin of the first range that overlaps begin .. end - 1 and has other bounds; UINT64_MAX: none
 * does. */
uint64_t cw_placer_differs(const struct cw_placer *w, uint64_t begin, uint64_t end);
/* The range that begins there, and is not known, now ends at `end`. Forgets the ranges behind it: another one
 * comes before them. False: the placer has no such range, or knows keys of its elements, which may be behind
 * `end`. */
bool cw_placer_shorten(struct cw_placer *w, uint64_t begin, uint64_t end);
/* Forgets the ranges that end behind `position`, and batches planned with them. False: some of their elements
 * were taken; nothing changes. */
bool cw_placer_cut(struct cw_placer *w, uint64_t position);
/* Sets *ret to the next elements of a key that wait for a batch and were not requested, in one of the ranges
 * before the plan; they now count as requested. False: there are none. */
bool cw_placer_request(struct cw_placer *w, unsigned key, struct cw_placer_part *ret);
/* Returns the begin of the range that the plan is in. */
uint64_t cw_placer_plan_position(const struct cw_placer *w);
/* Returns the first position with elements that are not planned. waiting: with those, too, that wait for a
 * batch and were not requested. */
uint64_t cw_placer_needed(const struct cw_placer *w, bool waiting);
/* Whether all batches are planned. */
bool cw_placer_over(const struct cw_placer *w);
