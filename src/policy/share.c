#include "policy/share.h"

/* One more worker for the job that is furthest below its part: for whom (share + 1) / weight is least. Water filling, a drop at a time. */
static int thirstiest(const struct cw_claim *claims, int n, int priority)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        const struct cw_claim *c = &claims[i];
        int limit = c->quota > 0 && c->quota < c->want ? c->quota : c->want;
        if (c->priority != priority || c->share >= limit)
            continue;
        if (best < 0 || (c->share + 1) / c->weight < (claims[best].share + 1) / claims[best].weight)
            best = i;
    }
    return best;
}

static int next_priority(const struct cw_claim *claims, int n, int below, int *ret)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        if (claims[i].priority < below && (!found || claims[i].priority > *ret)) {
            *ret = claims[i].priority;
            found = 1;
        }
    return found;
}

void cw_share(struct cw_claim *claims, int n, int workers)
{
    int level = 0, below = __INT_MAX__;
    for (int i = 0; i < n; i++)
        claims[i].share = 0;
    for (int i = 0; i < n && workers > 0; i++)
        if (claims[i].want > 0) {
            claims[i].share = 1;
            workers--;
        }
    while (workers > 0 && next_priority(claims, n, below, &level)) {
        for (int at; workers > 0 && (at = thirstiest(claims, n, level)) >= 0; workers--)
            claims[at].share++;
        below = level;
    }
}
