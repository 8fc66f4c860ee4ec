/* The memory budget: one counter that everything sizeable is charged to before it is touched. Thread-safe. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cw_budget {
    /* may change: below what is in use, nothing is refused that is there, but all that is new */
    atomic_size_t limit;
    atomic_size_t used, peak;
    atomic_size_t wanted; /* what the last refusal would have brought `used` to */
};

void cw_budget_init(struct cw_budget *b, size_t limit);
/* 0, or CW_E_BUDGET when bytes more would pass the limit. Never waits: a refused caller gives memory back and
 * tries later. */
int cw_budget_take(struct cw_budget *b, size_t bytes, const char *what, struct cw_error *err) _must_check_;
/* Charges bytes of memory that exists already, even beyond the limit. Given back with cw_budget_give. */
void cw_budget_force(struct cw_budget *b, size_t bytes);
void cw_budget_give(struct cw_budget *b, size_t bytes);
/* Bytes that may still be taken. */
size_t cw_budget_left(const struct cw_budget *b);
