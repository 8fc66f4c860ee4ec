/* The table of a stream's ranges: an array in the order of positions, with gaps. Ranges that all cursors have
 * passed are removed at the front; new ranges are mostly added at the end. Positions count through the
 * epochs: epoch * N + position in the epoch, where an epoch has N positions. */
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
    RANGE_REPORTED = 1,  /* what it gives is known ... */
    RANGE_DURABLE = 2,   /* ... and in the journal */
    RANGE_LOST = 4,      /* at-most-once: it will not be run again */
    RANGE_ANNOUNCE = 8,  /* clients are to be sent its placement */
    RANGE_UNSENT = 16,   /* at-most-once: its lease is not durable yet */
    RANGE_COMPLETE = 32, /* the first holder has computed it */
    RANGE_GIVEN = 64,    /* at-most-once: it was leased before a restart */
    RANGE_HELD = 128     /* its holder had it before this dispatcher knew: its start time is not known */
};

/* Positions begin .. end - 1, all of one epoch. */
struct range {
    uint64_t begin, end;
    uint64_t number; /* unique in the stream */

    struct holder {
        struct assignment *assignment;
        uint64_t lease; /* its number */
    } holder[2];        /* [0]: the one that clients are sent; [1]: an earlier one that was late */

    uint64_t leased_ns;
    uint64_t before;    /* positions that the holder had to compute before it, when it was leased */
    uint64_t n_batches; /* of a sequential stream */
    uint64_t *elements; /* that it gives, by key; trailing zeros are left out */
    uint64_t reporter;  /* the worker whose report came first */
    uint32_t n_elements;
    uint8_t flags; /* enum range_flag */
};

enum range_table_state {
    RANGES_UNPLACED, /* base has no meaning yet */
    RANGES_BASED,    /* base is the least position that a worker or the journal named */
    RANGES_MARKED    /* base is the low-water mark: no cursor is before it */
};

struct range_table {
    struct range *items;   /* by begin: n of them, from `first` on */
    size_t first, n, room; /* room: of items */
    uint64_t last_number;  /* of ranges */
    uint64_t base;         /* ranges that end at or before it are gone */
    enum range_table_state state;
    uint64_t free_from; /* before it, every wanted position is in a range that has a holder */
    size_t n_passed;    /* removed ranges whose rows may still be in the journal */
};

/* Each range of the table from index `from` on; adding or removing ranges ends the pass. */
#define DP_RANGES_EACH(x, table, from) \
    for (struct range *x = cw_dp_range_at(table, from); x; x = cw_dp_range_next(table, x))

/* Pointers to ranges are valid until a range is added or removed. */
struct range *cw_dp_range_at(const struct range_table *t, size_t i);                /* NULL: no more */
struct range *cw_dp_range_next(const struct range_table *t, const struct range *x); /* NULL: no more */
/* Returns the index of the first range that ends behind pos. */
size_t cw_dp_range_index(const struct range_table *t, uint64_t pos);
/* Returns the range that has the position; NULL: none has it. */
struct range *cw_dp_range_find(const struct range_table *t, uint64_t pos);
uint64_t cw_dp_range_begin(const struct range_table *t); /* of the first range, or base if that is less */
uint64_t cw_dp_range_end(const struct range_table *t);   /* of the last range, or base */
/* Adds a range. NULL: no memory or room, the table has no base yet, or the span overlaps another range. */
struct range *cw_dp_range_add(struct range_table *t, struct span span);
/* Takes note of what the range gives. -1: no memory. */
int cw_dp_range_report(struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches) _must_check_;
/* Whether a second report equals the first one. */
bool cw_dp_range_same(const struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches);
uint64_t cw_dp_elements_sum(const uint64_t *elements, size_t n);
