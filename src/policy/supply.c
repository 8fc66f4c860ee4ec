/* Workers of several pools as one capacity, measured in workers of the first pool. Each worker adds its speed
 * relative to a worker of that pool. Pure functions, called by the policy auto. */
#include "policy/supply.h"

#include <math.h>
#include <string.h>

#include "base/macro.h"

/* From this many workers of a pool on, rungs with slower workers in place of one worker are not tried. */
#define FINE 16
/* Up to this many workers of a pool every number is tried; of jobs with local workers, and of local workers,
 * since all their combinations are tried. */
#define EVERY 64
#define EVERY_PLACED 24
#define EVERY_LOCAL 12
#define EVERY_COARSE 6
#define UNPRICED 0.1 /* price of workers without a price, as a part of the least price of other workers */

static void supply_sort(int *order, int n, const double *first, const double *second)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0; k--) {
            int a = order[k - 1], b = order[k];
            if (first[a] < first[b] || (first[a] == first[b] && second[a] <= second[b]))
                break;
            order[k - 1] = b;
            order[k] = a;
        }
}

void cw_supply_init(struct cw_supply *s, const struct cw_facts *f, const double *speed, double no_price)
{
    double dear[CW_POLICY_POOLS], delay_s[CW_POLICY_POOLS];
    *s = (struct cw_supply){.n = f->n_pools, .local = -1, .local_alone = true};
    for (int i = 0; i < s->n; i++) /* workers without a price are cheaper than all others */
        if (f->pools[i].price_per_h > 0)
            no_price = CW_MIN(no_price, UNPRICED * f->pools[i].price_per_h);
    for (int i = 0; i < s->n; i++) {
        const struct cw_pool_facts *p = &f->pools[i];
        bool shared = p->cpu_share > 0 && f->pools[0].cpu_share > 0;
        s->speed[i] = speed ? speed[i] : shared ? p->cpu_share / f->pools[0].cpu_share : 1;
        s->price_per_h[i] = p->price_per_h > 0 ? p->price_per_h : no_price;
        s->maximum[i] = CW_MAX(p->maximum, 0);
        if (p->local && s->local < 0)
            s->local = i;
        dear[i] = s->price_per_h[i] / s->speed[i];
        delay_s[i] = p->start_delay_s;
    }
    supply_sort(s->order[0], s->n, dear, delay_s);
    supply_sort(s->order[1], s->n, delay_s, dear);
    s->n_orders = memcmp(s->order[0], s->order[1], sizeof(s->order[0])) == 0 ? 1 : 2;
}

double cw_supply_capacity(const struct cw_supply *s, const int *workers)
{
    double sum = 0;
    for (int i = 0; i < s->n; i++)
        sum += workers[i] * s->speed[i];
    return sum;
}

double cw_supply_price(const struct cw_supply *s, const int *workers)
{
    double sum = 0;
    for (int i = 0; i < s->n; i++)
        sum += workers[i] * s->price_per_h[i];
    return sum;
}

double cw_supply_most(const struct cw_supply *s)
{
    return cw_supply_capacity(s, s->maximum);
}

double cw_supply_start_delay_s(const struct cw_facts *f)
{
    double most = 0;
    for (int i = 0; i < f->n_pools; i++)
        most = CW_MAX(most, f->pools[i].maximum > 0 ? f->pools[i].start_delay_s : 0);
    return most;
}

/* Returns the next count of workers that is tried: every count up to `all`, then steps of 1/all. */
static int supply_next_count(int n, int all)
{
    return n < all ? n + 1 : n + n / all;
}

/* Moves on to the next rung in which workers of a slower pool replace the next worker of the pool that is
 * being filled. False: there is none. */
static bool rung_next_instead(const struct cw_supply *s, struct cw_rung *r)
{
    int filled = s->order[r->order][r->place];
    if (s->n == 1 || filled == s->local || r->base >= FINE || r->base >= s->maximum[filled])
        return false;
    if (!r->instead)
        r->instead = 1;
    for (; r->instead <= s->n; r->instead++, r->more = 0) {
        int pool = r->instead - 1;
        bool smaller = (r->more + 1) * s->speed[pool] < s->speed[filled];
        if (pool != filled && pool != s->local && smaller && r->workers[pool] < s->maximum[pool]) {
            r->workers[pool]++;
            r->more++;
            return true;
        }
        r->workers[pool] -= r->more;
    }
    return false;
}

/* Moves on to the next rung of the pools without local workers. */
static bool rung_next(const struct cw_supply *s, int orders, struct cw_rung *r)
{
    if (rung_next_instead(s, r))
        return true;
    r->instead = r->more = 0;
    for (; r->order < CW_MIN(orders, s->n_orders); r->order++, r->place = r->base = 0) {
        for (; r->place < s->n; r->place++, r->base = 0) {
            int pool = s->order[r->order][r->place],
                n = supply_next_count(r->base, s->local < 0 ? EVERY
                                               : s->coarse  ? EVERY_COARSE
                                                            : EVERY_PLACED);
            if (pool == s->local)
                continue;
            if (n <= s->maximum[pool]) {
                r->base = r->workers[pool] = n;
                return true;
            }
            r->workers[pool] = s->maximum[pool];
        }
        memset(r->workers, 0, sizeof(r->workers));
        if (s->local >= 0)
            r->workers[s->local] = r->local;
    }
    return false;
}

bool cw_supply_next(const struct cw_supply *s, int orders, struct cw_rung *r)
{
    if (rung_next(s, orders, r))
        return true;
    if (s->local < 0 || r->local >= s->maximum[s->local])
        return false;
    int n = CW_MIN(supply_next_count(r->local, s->coarse ? EVERY_COARSE : EVERY_LOCAL), s->maximum[s->local]);
    *r = (struct cw_rung){.local = n};
    r->workers[s->local] = n;
    return s->local_alone || cw_supply_next(s, orders, r);
}

static void supply_at_least_one(const struct cw_supply *s, int order, int *ret)
{
    int first = s->order[order][0];
    for (int i = s->n - 1; i >= 0; i--) {
        if (ret[i] > 0)
            return;
        if (s->maximum[s->order[order][i]] > 0)
            first = s->order[order][i];
    }
    ret[first] = 1;
}

void cw_supply_add(const struct cw_supply *s, int order, double capacity, int *workers)
{
    for (int i = 0; i < s->n; i++) {
        int pool = s->order[order][i],
            more = (int)CW_MAX(CW_MIN(floor(capacity / s->speed[pool]), s->maximum[pool] - workers[pool]), 0);
        workers[pool] += more;
        capacity -= more * s->speed[pool];
    }
    supply_at_least_one(s, order, workers);
}

void cw_supply_fill(const struct cw_supply *s, int order, double capacity, int *ret)
{
    memset(ret, 0, sizeof(int) * CW_POLICY_POOLS);
    cw_supply_add(s, order, capacity, ret);
}

void cw_supply_count(const struct cw_supply *s, int n, int *ret)
{
    memset(ret, 0, sizeof(int) * CW_POLICY_POOLS);
    for (int i = 0; i < s->n; i++) {
        int pool = s->order[0][i];
        ret[pool] = CW_MIN(n, s->maximum[pool]);
        n -= ret[pool];
    }
    ret[s->order[0][0]] += n;
}
