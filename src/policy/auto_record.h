/* The record of a decision of auto: what was measured, which alternatives there were, and why. Changes only
 * the decision. Called by auto.c. */
#pragma once
#include "policy/auto_memory.h"
#include "policy/plan.h"

struct cw_auto_reason {
    const char *why; /* what caused the decision */
    /* what seems better, as far as is known; NULL, or the alternative that was chosen: nothing does */
    const struct cw_alternative *better;
    const char *but;   /* why `better` is not chosen */
    bool records_stay; /* that nothing changes is recorded, too */
};

/* Fills in the record. */
void cw_auto_record(const struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *chosen,
                    const struct cw_auto_reason *reason, struct cw_decision *d);
