/* The order of inputs with weights: its weights as integers, and how a place is found. Pure functions; any
 * thread. */
#include "ops/sequence/quota.h"

#include <math.h>

#include "base/macro.h"
#include "dataset/sequence.h"

/* Weights that have at most this many decimals are used as written. */
#define DECIMALS 9
/* the total of weights that are used as written: integers up to here are exact in a double */
#define EXACT_TOTAL 0x1p53
/* the total that other weights are scaled to, about: so large that rounding them does not show */
#define SCALED_TOTAL 0x1p60

/* Stores the weights times `factor` in ret, rounded to integers. Returns the total, or 0: one of them is not
 * an integer, but for the rounding of a double, or they are too large. */
static uint64_t quota_scale_decimal(const double *weights, unsigned n, double factor, uint64_t *ret)
{
    double total = 0;
    for (unsigned i = 0; i < n; i++) {
        double scaled = weights[i] * factor, whole = rint(scaled);
        total += whole;
        if (whole < 1 || fabs(scaled - whole) > scaled * 0x1p-51 || total > EXACT_TOTAL)
            return 0;
        ret[i] = (uint64_t)whole;
    }
    return (uint64_t)total;
}

/* Stores the weights as integers in ret, and returns their total. */
static uint64_t quota_scale(const double *weights, unsigned n, uint64_t *ret)
{
    double factor = 1, sum = 0;
    for (int decimals = 0; decimals <= DECIMALS; decimals++, factor *= 10) {
        uint64_t total = quota_scale_decimal(weights, n, factor, ret);
        if (total)
            return total;
    }
    uint64_t total = 0;
    for (unsigned i = 0; i < n; i++)
        sum += weights[i];
    for (unsigned i = 0; i < n; i++)
        total += ret[i] = (uint64_t)CW_MAX(rint(weights[i] / sum * SCALED_TOTAL), 1);
    return total;
}

unsigned cw_quota_init(struct cw_quota *q, const double *weights, unsigned n, uint64_t *scaled)
{
    uint64_t total = quota_scale(weights, n, scaled), parts = n > 1 ? 2 * (uint64_t)n - 2 : 2;
    unsigned least = 0;
    for (unsigned i = 1; i < n; i++)
        least = scaled[i] < scaled[least] ? i : least;
    *q = (struct cw_quota){.n = n,
                           .total = total,
                           .open = (total + parts - 1) / parts,
                           .due = total - total / parts,
                           /* see quota_jump */
                           .memory = total / scaled[least] + 3,
                           .weights = scaled};
    return least;
}

/* Stores (count * total + add) / weight, rounded up, and the rest for cw_quota_take. */
static void quota_divide(const struct cw_quota *q, uint64_t count, uint64_t add, uint64_t weight,
                         uint64_t *ret, uint64_t *ret_rest)
{
    unsigned __int128 sum = (unsigned __int128)count * q->total + add + (weight - 1);
    *ret = (uint64_t)(sum / weight);
    *ret_rest = (uint64_t)(sum % weight);
}

static void quota_set(const struct cw_quota *q, struct cw_quota_input *in, uint64_t weight, uint64_t count)
{
    in->count = count;
    in->weight = weight;
    in->step = q->total / weight;
    in->step_rest = q->total % weight;
    quota_divide(q, count, q->open, weight, &in->open, &in->open_rest);
    quota_divide(q, count, q->due, weight, &in->due, &in->due_rest);
}

/* Goes to a place with `at` elements before it whose inputs have had their shares, rounded down or up. It is
 * not a place of the order, but the order follows from it after q->memory steps: an element that is open at
 * the place is due within these steps. The order takes the element that is due first, and never pauses; so
 * once they are due, no element depends on which of them came before the place. */
static void quota_jump(struct cw_quota_place *p, uint64_t at)
{
    const struct cw_quota *q = p->quota;
    uint64_t left = at;
    for (unsigned i = 0; i < q->n; i++)
        left -= p->inputs[i].count = (uint64_t)((unsigned __int128)at * q->weights[i] / q->total);
    for (unsigned i = 0; i < q->n; i++) /* fewer than n elements are left */
        quota_set(q, &p->inputs[i], q->weights[i], p->inputs[i].count + (i < left));
    p->at = at;
}

struct cw_quota_place *cw_quota_place_new(const struct cw_quota *q)
{
    struct cw_quota_place *p = calloc(1, sizeof(*p) + q->n * sizeof(p->inputs[0]));
    if (!p)
        return NULL;
    p->quota = q;
    quota_jump(p, 0);
    return p;
}

void cw_quota_seek(struct cw_quota_place *p, uint64_t at)
{
    uint64_t memory = p->quota->memory;
    if (at < p->at || at - p->at > memory)
        quota_jump(p, at - CW_MIN(at, memory));
    while (p->at < at)
        cw_quota_take(p, cw_quota_next(p));
}

uint64_t cw_quota_find(struct cw_quota_place *p, unsigned i, uint64_t n)
{
    const struct cw_quota *q = p->quota;
    unsigned __int128 open = ((unsigned __int128)(n - 1) * q->total + q->open) / q->weights[i];
    if (open >= CW_ENDLESS)
        return CW_ENDLESS;
    cw_quota_seek(p, open ? (uint64_t)open - 1 : 0); /* the element is not among these yet */
    while (p->inputs[i].count < n)
        cw_quota_take(p, cw_quota_next(p));
    return p->at;
}
