/* An arena: fast allocation of many pieces of memory that are freed together, charged to a memory budget.
 * Only one thread at a time may use an arena. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "data/budget.h"

struct cw_arena_chunk;

struct cw_arena {
    struct cw_budget *budget;
    struct cw_arena_chunk *first, *current;
    size_t used;     /* bytes of current that are allocated */
    size_t reserved; /* bytes charged by cw_arena_reserve */
    /* charge only the allocated bytes, rounded up to a page; false: charge whole chunks */
    bool exact;
};

void cw_arena_init(struct cw_arena *a, struct cw_budget *budget);
void cw_arena_deinit(struct cw_arena *a);
/* Returns `bytes` bytes, aligned to 64, not zeroed. NULL: err says whether the system (CW_E_MEMORY) or the
 * budget (CW_E_BUDGET) refused. */
void *cw_arena_alloc(struct cw_arena *a, size_t bytes, struct cw_error *err);
/* Charges memory that a library allocates by itself, until cw_arena_unreserve or cw_arena_reset. what: names
 * the memory in an error. */
int cw_arena_reserve(struct cw_arena *a, size_t bytes, const char *what, struct cw_error *err) _must_check_;
void cw_arena_unreserve(struct cw_arena *a, size_t bytes);

/* A point in the sequence of allocations. cw_arena_release frees everything that was allocated after the mark
 * was taken, such as the scratch memory of one row. */
struct cw_arena_mark {
    struct cw_arena_chunk *chunk;
    size_t used;
};
struct cw_arena_mark cw_arena_mark(const struct cw_arena *a);
void cw_arena_release(struct cw_arena *a, struct cw_arena_mark m);
/* Frees all allocations and reservations. Keeps chunks of up to keep_bytes for reuse; these stay charged. */
void cw_arena_reset(struct cw_arena *a, size_t keep_bytes);
