/* The table of a stream's ranges: an array sorted by position, possibly with gaps. A range is the unit of
 * work: consecutive positions of one epoch. A position is the index of an element in the stream's sequence,
 * counted over all epochs: epoch * N + index in the epoch, where an epoch has N positions. Ranges that all
 * clients have passed are removed at the front; new ranges are mostly added at the end. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "service/dispatcher/types.h"

struct span {
    uint64_t begin, end;
};

enum range_flag {
    RANGE_REPORTED = 1,  /* a worker reported the range's numbers of batches and elements ... */
    RANGE_DURABLE = 2,   /* ... and the report is in the journal */
    RANGE_LOST = 4,      /* at-most-once: the range is lost, and not computed again */
    RANGE_ANNOUNCE = 8,  /* its placement must be sent to clients */
    RANGE_UNSENT = 16,   /* at-most-once: its lease is not durable yet */
    RANGE_COMPLETE = 32, /* the first holder has computed it */
    RANGE_GIVEN = 64,    /* at-most-once: it was leased before a restart */
    RANGE_HELD =
        128 /* it is not known when its holder began: Holdings named the range, or the lease changed */
};

/* Positions begin .. end - 1, all of one epoch. */
struct range {
    uint64_t begin, end;
    uint64_t number; /* unique in the stream */

    struct holder {
        struct assignment *assignment;
        uint64_t lease; /* number of the lease */
    } holder[2];        /* [0]: the holder that clients are told; [1]: an earlier holder that was late */

    uint64_t leased_ns; /* when it was leased; a second lease does not change it */
    uint64_t before;    /* positions that the holder had to compute before this range, when it was leased */
    uint64_t n_batches; /* reported, for sequential streams */
    uint64_t *elements; /* reported number of elements by key, without trailing zeros; owned */
    uint64_t reporter;  /* id of the worker that reported first */
    uint32_t n_elements;
    uint8_t flags; /* enum range_flag */
};

enum range_table_state {
    RANGES_UNPLACED, /* base has no meaning yet */
    RANGES_BASED,    /* base is the least position that a worker or the journal named */
    RANGES_MARKED    /* base is the low-water mark: no cursor is before it */
};

struct range_table {
    struct range *items;   /* sorted by begin: n ranges from index `first` on */
    size_t first, n, room; /* room: capacity of items */
    uint64_t last_number;  /* `number` of the newest range */
    uint64_t base;         /* ranges that end at or before this position are removed */
    enum range_table_state state;
    uint64_t free_from; /* all wanted positions before this one are leased */
    size_t n_passed;    /* removed ranges whose entries may still be in the journal */
};

/* Loops over the ranges from index `from` on. The loop must end when a range is added or removed. */
#define DP_RANGES_EACH(x, table, from) \
    for (struct range *x = cw_dp_range_at(table, from); x; x = cw_dp_range_next(table, x))

/* Pointers to ranges are valid until a range is added or removed. */
struct range *cw_dp_range_at(const struct range_table *t, size_t i);                /* NULL: no more */
struct range *cw_dp_range_next(const struct range_table *t, const struct range *x); /* NULL: no more */
/* Returns the index of the first range that ends after pos. */
size_t cw_dp_range_index(const struct range_table *t, uint64_t pos);
/* Returns the range that contains the position; NULL: no range does. */
struct range *cw_dp_range_find(const struct range_table *t, uint64_t pos);
uint64_t cw_dp_range_begin(
    const struct range_table *t);                      /* begin of the first range, or base if that is less */
uint64_t cw_dp_range_end(const struct range_table *t); /* end of the last range, or base if there is none */
/* Adds a range. NULL: no memory or room, the table has no base yet, or the span overlaps another range. */
struct range *cw_dp_range_add(struct range_table *t, struct span span);
/* Stores a report: copies the numbers of elements by key and of batches. -1: no memory. */
int cw_dp_range_report(struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches) _must_check_;
/* Whether these numbers equal those of the stored report. */
bool cw_dp_range_same(const struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches);
/* Returns the sum of an array of n numbers. */
uint64_t cw_dp_elements_sum(const uint64_t *elements, size_t n);
