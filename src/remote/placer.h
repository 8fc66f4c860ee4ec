/*
 * Which elements make which batch of an epoch whose batches follow from what ranges leave (a placed
 * pipeline). Told of ranges and their elements in order, a placer plans batches ahead of those that were
 * taken, and knows the entry behind these. No locks, no I/O: the owner locks.
 */
#pragma once
#include "engine/entry.h"

/* Elements from .. from + n - 1 of the batch's key, counted in the range that begins there. */
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
    bool foreign;      /* its elements are in no batch: it is known to be over once it is */
    uint64_t elements; /* one key: how many the range leaves, once `known` */
    /* several keys: that of each element so far, in order. Owned; freed once the plan is past the range */
    uint16_t *keys;
    size_t n, room; /* keys that came; that there is memory for */
    /* [n_keys] elements of the placer before this range; valid once the plan has come to it */
    uint64_t *before;
};

struct cw_placer {
    unsigned n_keys;
    const uint64_t *sizes; /* [n_keys], borrowed: elements of a batch */
    bool drop_remainder;   /* what is left over at the end makes no batches */
    uint64_t begin, end;   /* positions that it goes over */
    /* one key: the epoch ends behind so many elements from `begin` on; UINT64_MAX: it does not */
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
    /* [n_keys] elements before this were asked for though they wait for a batch (cw_placer_ask) */
    uint64_t *asked;
    size_t at, element; /* the plan's place: a range, and of several keys an element in it */
    struct cw_placer_batch *batches, **last; /* planned and not taken, */
    size_t n_batches;                        /* so many */
};

/* From an entry on to position `end`. */
int cw_placer_init(struct cw_placer *w, unsigned n_keys, const uint64_t *sizes, bool drop_remainder,
                   const struct cw_entry *from, uint64_t end, struct cw_error *err) _must_check_;
void cw_placer_deinit(struct cw_placer *w);
/* Of one key, before anything is added: the epoch that this entry is of ends behind `take` elements, which
 * n_limits of its limits count. */
void cw_placer_limit(struct cw_placer *w, const struct cw_entry *from, unsigned n_limits, uint64_t take);
/* Where the next range begins; and that range. */
uint64_t cw_placer_position(const struct cw_placer *w);
int cw_placer_add(struct cw_placer *w, uint64_t end, struct cw_error *err) _must_check_;
/* Of several keys: the next n elements of a range of the placer have these. */
int cw_placer_keys(struct placer_range *range, const uint16_t *keys, size_t n,
                   struct cw_error *err) _must_check_;
/* A range of the placer is over and leaves `elements` of the one key, or as many keys as it has by now:
 * before an error where it failed. Returns how many planned batches are left: those that counted on more of
 * the range are dropped. */
size_t cw_placer_known(struct cw_placer *w, struct placer_range *range, uint64_t elements, bool failed);
/* Of one key: elements of a range that are in batches which are planned or taken. */
uint64_t cw_placer_planned(const struct cw_placer *w, const struct placer_range *range);
/* Plans the next batch: *ret, the last of w->batches, which stays the placer's. 1: there are no more; 2:
 * ranges are missing, or of several keys their elements; 3: the plan has come to the error of range w->at. Of
 * one key, the first range that is not known is taken to have as many elements as are planned. */
int cw_placer_plan(struct cw_placer *w, const struct cw_placer_batch **ret,
                   struct cw_error *err) _must_check_;
/* Whether the first planned batch is certain: it does not count on elements of a range that is not known. */
bool cw_placer_certain(const struct cw_placer *w);
/* The first planned batch is taken, and freed. */
void cw_placer_take(struct cw_placer *w);
/* *ret, which has room for keys, becomes the entry behind the batches that were taken. */
void cw_placer_entry(const struct cw_placer *w, struct cw_entry *ret);
/* The begin of the first range of the placer that shares positions with another range, begin .. end - 1;
 * UINT64_MAX: there is none. */
uint64_t cw_placer_differs(const struct cw_placer *w, uint64_t begin, uint64_t end);
/* The range that begins there, and is not known, ends at `end`. Ranges behind it are forgotten: another one
 * comes before them. False: the placer has no such range, or knows keys of its elements, which may stand
 * behind `end`. */
bool cw_placer_shorten(struct cw_placer *w, uint64_t begin, uint64_t end);
/* Forgets the ranges from the one on that ends behind `position`, and batches planned with them. False: some
 * of theirs were taken, so that all stays as it is. */
bool cw_placer_cut(struct cw_placer *w, uint64_t position);
/* The next part of what waits under a key for a batch, and was not asked for, in the ranges before the one
 * that the plan is in; false: there is none. */
bool cw_placer_ask(struct cw_placer *w, unsigned key, struct cw_placer_part *ret);
/* The first position with something that is neither planned nor, where `waiting` counts, asked for. */
uint64_t cw_placer_needed(const struct cw_placer *w, bool waiting);
/* Whether all batches are planned. */
bool cw_placer_over(const struct cw_placer *w);
