/*
 * Laws of order: when two consecutive operators give the same results, bit for bit, in the opposite order.
 * Laws use only the effects in the operators' descriptors. `explain` uses them to look for better orders;
 * tests/unit/test_laws.c runs both orders of each law.
 */
#pragma once
#include "pipeline/op.h"

enum cw_law_condition {
    CW_LAW_UNREAD = 1, /* the later operator reads no component that the earlier one writes */
    /* the earlier operator writes one component, and the later operator reads it as its first */
    CW_LAW_ONLY_READ = 2,
    CW_LAW_NO_DRAW = 4, /* the later operator draws no random numbers */
};

struct cw_law {
    const char *says; /* the law as a sentence */
    /* Effects of the operator that comes first in the pipeline as written. */
    enum cw_op_count earlier;
    unsigned earlier_actions; /* bits 1 << enum cw_op_action; 0: any */
    /* Effects of the operator that comes next, and may be moved before it. */
    enum cw_op_count later;
    unsigned later_actions;
    unsigned conditions; /* enum cw_law_condition; all must be met */
};

/* Returns the table. */
const struct cw_law *cw_laws(size_t *ret_n);

/* Returns the first law by which `later`, which comes directly after `earlier` in a program, may be moved
 * before it; NULL: none. Both must be bound and live. The law covers only elements that do not fail: if an
 * element is bad for both operators, the order decides which error ends the run, or which reason is recorded.
 */
const struct cw_law *cw_law_find(const struct cw_op *earlier, const struct cw_op *later);
