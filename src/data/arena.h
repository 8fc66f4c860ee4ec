/* Bump allocation charged to a memory budget. One thread at a time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "data/budget.h"

struct cw_arena_chunk;

struct cw_arena {
    struct cw_budget *budget;
    struct cw_arena_chunk *first, *current;
    size_t used;     /* in current */
    size_t reserved; /* bytes charged by cw_arena_reserve */
    /* takes from the budget exactly what is allocated, rounded up to a page */
    bool exact;
};

void cw_arena_init(struct cw_arena *a, struct cw_budget *budget);
void cw_arena_deinit(struct cw_arena *a);
/* 64-byte aligned. NULL: err says whether the system (CW_E_MEMORY) or the budget (CW_E_BUDGET) refused. */
void *cw_arena_alloc(struct cw_arena *a, size_t bytes, struct cw_error *err);
/* Charges memory that a library allocates by itself; given back by cw_arena_unreserve or cw_arena_reset. */
int cw_arena_reserve(struct cw_arena *a, size_t bytes, const char *what, struct cw_error *err) _must_check_;
void cw_arena_unreserve(struct cw_arena *a, size_t bytes);

/* Marks and releases: everything allocated after the mark is free again (scratch of one row). */
struct cw_arena_mark {
    struct cw_arena_chunk *chunk;
    size_t used;
};
struct cw_arena_mark cw_arena_mark(const struct cw_arena *a);
void cw_arena_release(struct cw_arena *a, struct cw_arena_mark m);
/* Forgets all allocations, keeps up to keep_bytes of chunks for reuse (still charged). */
void cw_arena_reset(struct cw_arena *a, size_t keep_bytes);
