/* Workers of several pools as one capacity. Capacity is measured in workers of the first pool: each worker
 * adds its speed relative to a worker of that pool. A worker has the price and the start delay of its pool.
 * Plans try *rungs*: pools are filled one after the other, and each combination of worker counts on the way
 * is a rung. Pure functions. */
#pragma once
#include <stdbool.h>

#include "policy/policy.h"

#define CW_SUPPLY_ORDERS 2

struct cw_supply {
    int n;                                                       /* pools */
    double speed[CW_POLICY_POOLS], price_per_h[CW_POLICY_POOLS]; /* of one worker of each pool */
    int maximum[CW_POLICY_POOLS];                                /* most workers of each pool */
    /* Orders in which pools are filled. Order 0: by price per speed, the cheapest pool first. Order 1: by
     * start delay, the shortest first. n_orders is 1 if both are equal. */
    int order[CW_SUPPLY_ORDERS][CW_POLICY_POOLS];
    int n_orders;
    /* The pool of local workers, -1: none. With such a pool, all its numbers of workers are combined with the
     * rungs of the other pools. Its workers have their place in the orders only where pools are filled. */
    int local;
    bool local_alone; /* local workers can run without others */
    bool coarse;      /* with a local pool, fewer numbers of workers are tried */
};

struct cw_rung { /* a position of cw_supply_next; all zeros: before the first rung */
    int workers[CW_POLICY_POOLS];
    int order, place; /* s->order[order][place] is the pool that is being filled */
    int base;         /* number of its workers on the last rung without replacements */
    /* Between two such rungs, workers of another, slower pool replace the next worker of this pool. instead:
     * 1 + the index of that pool, 0: none; more: how many of its workers were added. */
    int instead, more;
    int local; /* workers of the local pool */
};

/* speed: of a worker of each pool; NULL: by cpu_share. no_price: price of workers whose pool has no price. */
void cw_supply_init(struct cw_supply *s, const struct cw_facts *f, const double *speed, double no_price);
/* Returns the capacity of these workers of each pool. */
double cw_supply_capacity(const struct cw_supply *s, const int *workers);
/* Returns the price per hour of these workers of each pool. */
double cw_supply_price(const struct cw_supply *s, const int *workers);
/* Returns the capacity of all workers that all pools may have. */
double cw_supply_most(const struct cw_supply *s);
/* Returns the longest start delay of the pools that may have workers, in seconds. */
double cw_supply_start_delay_s(const struct cw_facts *f);
/* Moves r to the next rung of its order, then to the first rung of the next order, up to `orders` orders.
 * Skips large counts that differ by less than 1/64. False: there is no further rung. */
bool cw_supply_next(const struct cw_supply *s, int orders, struct cw_rung *r);
/* Sets ret, by pool, to the workers that fit into this capacity, at least one. Pools are filled by `order`.
 */
void cw_supply_fill(const struct cw_supply *s, int order, double capacity, int *ret);
/* Adds workers that fit into this capacity, in `order` and within each pool's maximum. If there is no worker
 * at all then, sets one. */
void cw_supply_add(const struct cw_supply *s, int order, double capacity, int *workers);
/* Sets ret to n workers, of the cheapest pools first, whatever their speed. If the pools may have fewer than
 * n workers, the cheapest pool gets the rest beyond its maximum. */
void cw_supply_count(const struct cw_supply *s, int n, int *ret);
