/* The memory budget: one counter, to which every large piece of memory is charged before it is touched. Any
 * thread may call. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cw_budget {
    /* bytes. May change; if it falls below `used`, existing charges stay, and new ones are refused */
    atomic_size_t limit;
    atomic_size_t used, peak; /* bytes charged now; the maximum so far */
    atomic_size_t wanted; /* the value that `used` would have had after the last charge that was refused */
};

void cw_budget_init(struct cw_budget *b, size_t limit);
/* Charges bytes. Returns 0, or CW_E_BUDGET if `used` would exceed the limit. Never waits: a caller that is
 * refused gives memory back and tries again later. what: names the memory in the error. */
int cw_budget_take(struct cw_budget *b, size_t bytes, const char *what, struct cw_error *err) _must_check_;
/* Charges bytes of memory that exists already, even beyond the limit. */
void cw_budget_force(struct cw_budget *b, size_t bytes);
/* Ends a charge of bytes. */
void cw_budget_give(struct cw_budget *b, size_t bytes);
/* Returns the bytes that can still be charged. */
size_t cw_budget_left(const struct cw_budget *b);
