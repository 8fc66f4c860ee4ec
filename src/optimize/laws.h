/*
 * Laws of order: when two operators give the same results, bit for bit, in the opposite order; and, for the
 * order `relaxed`, which pairs of augmentations may change places though the results change. Laws use only
 * the effects in the operators' descriptors, and the names of the components that the operators read and
 * write. order.c finds orders with them; tests/unit/test_laws.c runs both orders of each law.
 */
#pragma once
#include "pipeline/op.h"

enum cw_law_condition {
    CW_LAW_UNREAD = 1, /* the later operator reads no component that the earlier one writes */
    /* the two operators have one component in common, which each reads first, and replaces */
    CW_LAW_SAME_COMPONENT = 2,
    CW_LAW_NO_DRAW = 4, /* the later operator draws no random numbers */
    /* both operators write a component, and neither one that the other reads or writes */
    CW_LAW_NO_COMPONENT = 8,
    CW_LAW_ONE_SIZE = 16, /* at most one of the operators changes the size of the image */
};

struct cw_law {
    const char *says; /* the law as a sentence */
    /* Effects of the operator that comes first in the pipeline as written. */
    enum cw_op_count earlier;
    unsigned earlier_actions; /* bits 1 << enum cw_op_action; 0: any */
    /* Effects of the operator that comes later, and may be moved before it. */
    enum cw_op_count later;
    unsigned later_actions;
    unsigned conditions; /* enum cw_law_condition; all must be met */
    bool relaxed;        /* the results change, so the law holds only for the order `relaxed` */
};

/* Returns the table. */
const struct cw_law *cw_laws(size_t *ret_n);

/* relaxed: all laws, else the exact ones. Returns the first law by which `later`, which comes after `earlier`
 * in a program, may be moved before it if every operator between them may be passed too; NULL: none. Both
 * must be bound and live. The law covers only elements that do not fail: if an element is bad for both
 * operators, the order decides which error ends the run, or which reason is recorded.
 */
const struct cw_law *cw_law_find(const struct cw_op *earlier, const struct cw_op *later, bool relaxed);
/* Whether the operator must stay where it is written: its descriptor says so, or its attributes. */
bool cw_law_pinned(const struct cw_op *op);
/* Whether both operators read the component first that the other reads first, and replace it. */
bool cw_law_same_component(const struct cw_op *a, const struct cw_op *b);
