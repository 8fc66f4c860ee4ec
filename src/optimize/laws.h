/*
 * Laws of order: when an operator gives the same, bit for bit, directly before another one as directly behind
 * it. The table is derived from nothing but the effects in the descriptors. `explain` looks for better orders
 * with it; tests/unit/test_laws.c runs both orders of each law.
 */
#pragma once
#include "pipeline/op.h"

enum cw_law_condition {
    CW_LAW_UNREAD = 1,    /* the later operator reads nothing that the earlier one writes */
    CW_LAW_ONLY_READ = 2, /* it reads what the earlier one writes, which is one component */
    CW_LAW_NO_DRAW = 4,   /* it does not draw */
};

struct cw_law {
    const char *says; /* a sentence, for people */
    /* Effects of the operator written first. Of several laws that fit the first one counts. */
    enum cw_op_count earlier;
    unsigned earlier_actions; /* bits 1 << enum cw_op_action; 0: any */
    /* Effects of the one that may move in front of it. */
    enum cw_op_count later;
    unsigned later_actions;
    unsigned conditions; /* enum cw_law_condition */
};

const struct cw_law *cw_laws(size_t *ret_n);

/* The law by which `later`, directly behind `earlier` in a program, may stand directly before it;
 * NULL: there is none. Both are bound and live. The law is about elements that do not fail: where another
 * operator meets a bad element first, another error ends the run, or another reason is recorded. */
const struct cw_law *cw_law_find(const struct cw_op *earlier, const struct cw_op *later);
