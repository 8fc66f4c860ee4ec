/*
 * What a part sets by itself while it runs, told as decisions of policies are: what was seen, what else there
 * was, what was chosen, and why. Numbers by name; all names are constants. Of each kind the last one is kept,
 * for some change with every breath of the machine; no lock, that is who keeps them's.
 */
#pragma once
#include <stdint.h>

#define CW_TUNED_NUMBERS 4
#define CW_TUNED_KEPT 16

struct cw_number {
    const char *name; /* NULL: no more */
    double value;
};

struct cw_tuned {
    uint64_t at_ns;   /* by cw_now_ns */
    const char *what; /* "block_rows" */
    const char *of;   /* of what, where there are several; NULL: there is one */
    struct cw_number seen[CW_TUNED_NUMBERS];
    /* what it would be by each consideration, the one that decided included */
    struct cw_number others[CW_TUNED_NUMBERS];
    double chosen;
    const char *why;
    uint64_t n; /* so many times it was chosen anew, this one included; 0: once */
};

struct cw_tuned_log {
    struct cw_tuned last[CW_TUNED_KEPT]; /* in the order in which the kinds came */
    unsigned n;                          /* there are; more kinds than are kept there are not */
};

/* Takes the place of the one of its kind. As it is; and with the time that it is now. */
void cw_tuned_put(struct cw_tuned_log *log, const struct cw_tuned *t);
void cw_tuned_add(struct cw_tuned_log *log, const struct cw_tuned *t);
/* Those of `from` too. */
void cw_tuned_add_all(struct cw_tuned_log *log, const struct cw_tuned_log *from);
