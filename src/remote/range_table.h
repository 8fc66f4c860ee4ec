/* The table of ranges of positions that the dispatcher named, sorted by epoch and position; ranges do not
 * overlap. A position is the index of an element in its epoch. The table has the ranges that end after the
 * client's cursor. Part of struct remote, whose mutex guards it. placement.c changes it; courses, requests
 * and arrivals look ranges up. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct epoch_position {
    uint64_t epoch, position;
};

static inline bool cw_position_before(struct epoch_position a, struct epoch_position b)
{
    return a.epoch != b.epoch ? a.epoch < b.epoch : a.position < b.position;
}

struct known_range {
    uint64_t epoch, begin, end;
    uint64_t worker;        /* id of the worker that has the lease; 0: none */
    uint64_t not_before_ns; /* no request is sent before this time, because the worker answered NotHere */
    unsigned n_not_here;    /* NotHere answers in a row */
    bool lost;              /* at-most-once: the range is lost, and not computed again */
    bool missed;            /* it is counted in remote.n_lost */
    bool reported;          /* the range is over, and the counts below are final */
    uint64_t n_batches;     /* number of batches, of a sequential pipeline */
    uint64_t elements;      /* number of elements, over all keys */
};

struct range_table {
    struct known_range *list;
    size_t n, capacity;
};

/* Returns the range that contains a position; NULL: none is known. The pointer is valid until the table
 * changes. */
struct known_range *cw_range_table_find(const struct range_table *t, uint64_t epoch, uint64_t position);
/* Returns the index of the first range that overlaps begin .. end - 1, or where such a range would be
 * inserted. *ret_n: how many ranges overlap. */
size_t cw_range_table_overlap(const struct range_table *t, uint64_t epoch, uint64_t begin, uint64_t end,
                              size_t *ret_n);
/* Replaces n ranges from index `at` on by a new range, and returns it. NULL: out of memory, or too many
 * ranges; the n ranges are removed even then. */
struct known_range *cw_range_table_replace(struct range_table *t, size_t at, size_t n, uint64_t epoch,
                                           uint64_t begin, uint64_t end);
/* Removes the ranges that end at or before a position. */
void cw_range_table_forget(struct range_table *t, struct epoch_position before);
