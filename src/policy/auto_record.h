/* Writes the record of a decision of auto: measurements, alternatives, and the reason (`why`, for users).
 * Changes only *d. Called by auto.c. */
#pragma once
#include "policy/auto_memory.h"
#include "policy/plan.h"

struct cw_auto_reason {
    const char *why; /* the cause of the decision, for example "measured again": the record begins with it */
    /* an alternative that seems better than the chosen one, but is not chosen. NULL, or equal to the chosen
     * alternative: there is none */
    const struct cw_alternative *better;
    const char *but;   /* why `better` is not chosen */
    bool records_stay; /* a decision that changes nothing is recorded too */
};

/* Fills in *d, the record of choosing `chosen`. m: auto's memory of the job; o: what plans were computed
 * from. */
void cw_auto_record(const struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *chosen,
                    const struct cw_auto_reason *reason, struct cw_decision *d);
