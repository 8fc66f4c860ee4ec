/* Divides the workers of a pool among jobs. Called by the dispatcher and the simulator. */
#include "policy/share.h"

#include <math.h>
#include <stdbool.h>

#include "base/macro.h"

/* Shares are computed by water-filling: jobs of one priority rise to one level, in workers per weight. So
 * many halvings of an interval find the level exactly. */
#define HALVINGS 80
#define EQUAL 1e-12 /* relative difference below which two levels are equal */

static int claim_limit(const struct cw_claim *c)
{
    return c->quota > 0 && c->quota < c->want ? c->quota : c->want;
}

/* Returns a job's workers at a level, in workers per weight: no fewer than its share so far, no more than its
 * limit. */
static int claim_at_level(const struct cw_claim *c, double level)
{
    return (int)CW_MAX(CW_MIN(floor(level * c->weight), claim_limit(c)), c->share);
}

/* Returns how many more workers the jobs of one priority need to reach a level. */
static double share_needed(const struct cw_claim *claims, int n, int priority, double level)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (claims[i].priority == priority)
            sum += claim_at_level(&claims[i], level) - claims[i].share;
    return sum;
}

/* Gives one more worker to each job whose (share + 1) / weight is least, in order. Returns how many of the
 * `rest` workers are left. */
static int share_give_rest(struct cw_claim *claims, int n, int priority, int rest)
{
    double least = INFINITY;
    for (int i = 0; i < n; i++)
        if (claims[i].priority == priority && claims[i].share < claim_limit(&claims[i]))
            least = CW_MIN(least, (claims[i].share + 1) / claims[i].weight);
    for (int i = 0; i < n && rest > 0 && least < INFINITY; i++)
        if (claims[i].priority == priority && claims[i].share < claim_limit(&claims[i]) &&
            (claims[i].share + 1) / claims[i].weight <= least * (1 + EQUAL)) {
            claims[i].share++;
            rest--;
        }
    return least < INFINITY ? rest : 0;
}

/* Fills jobs of one priority to the same level. Returns how many workers are left. */
static int share_fill(struct cw_claim *claims, int n, int priority, int workers)
{
    double low = 0, high = 1;
    bool enough = share_needed(claims, n, priority, INFINITY) <= workers;
    while (!enough && share_needed(claims, n, priority, high) <= workers)
        high *= 2;
    for (int i = 0; i < HALVINGS && !enough; i++) {
        double middle = (low + high) / 2;
        if (share_needed(claims, n, priority, middle) <= workers)
            low = middle;
        else
            high = middle;
    }
    for (int i = 0; i < n; i++)
        if (claims[i].priority == priority) {
            int share = claim_at_level(&claims[i], enough ? INFINITY : low);
            workers -= share - claims[i].share;
            claims[i].share = share;
        }
    while (!enough && workers > 0)
        workers = share_give_rest(claims, n, priority, workers);
    return workers;
}

/* Sets *ret to the highest priority below `below`. Returns 0 if there is none. */
static int share_next_priority(const struct cw_claim *claims, int n, int below, int *ret)
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
    while (workers > 0 && share_next_priority(claims, n, below, &level)) {
        workers = share_fill(claims, n, level, workers);
        below = level;
    }
}
