/*
 * Tuning records: decisions that a part of the program makes by itself while it runs, reported like the
 * decisions of policies: what was measured, which value each consideration would give, which value was chosen
 * and why. Names of numbers are constants. Only the last decision of each kind is kept, because some change
 * constantly. Not thread-safe: the owner locks.
 */
#pragma once
#include <stdint.h>

#define CW_TUNED_NUMBERS 4
#define CW_TUNED_KEPT 16

struct cw_number {
    const char *name; /* NULL: ends the list */
    double value;
};

struct cw_tuned {
    uint64_t at_ns;   /* time of the decision, by cw_now_ns */
    const char *what; /* the kind of decision, such as "block_rows" */
    const char *of;   /* what the decision is about, where there are several of a kind; NULL: there is one */
    struct cw_number seen[CW_TUNED_NUMBERS];
    /* the value that each consideration would give, including the decisive one */
    struct cw_number others[CW_TUNED_NUMBERS];
    double chosen;
    const char *why;
    uint64_t n; /* how often a value was chosen for this kind, including now; 0: once */
};

struct cw_tuned_log {
    struct cw_tuned last[CW_TUNED_KEPT]; /* in the order of first decisions */
    unsigned n;                          /* at most CW_TUNED_KEPT kinds exist */
};

/* Replaces the decision of this kind (`what` and `of`). at_ns 0 means now. */
void cw_tuned_add(struct cw_tuned_log *log, const struct cw_tuned *t);
/* Adds all decisions of `from`. */
void cw_tuned_add_all(struct cw_tuned_log *log, const struct cw_tuned_log *from);
