/*
 * Workers of several pools as one capacity. A worker counts as its speed, in workers of the pool that was
 * there first; what a pool adds costs its price and comes after its start delay. Plans go over *rungs*: pools
 * are filled one after the other, and each count of workers on the way is a rung.
 */
#pragma once
#include <stdbool.h>

#include "policy/policy.h"

#define CW_SUPPLY_ORDERS 2

struct cw_supply {
    int n;
    double speed[CW_POLICY_POOLS], price_per_h[CW_POLICY_POOLS]; /* of a worker */
    int maximum[CW_POLICY_POOLS];
    /* In which order pools are filled. First: the cheapest for what it computes. Then, if that differs: the
     * one that is there soonest. */
    int order[CW_SUPPLY_ORDERS][CW_POLICY_POOLS];
    int n_orders;
};

struct cw_rung { /* all zeros: below the first one */
    int workers[CW_POLICY_POOLS];
    int order, place;  /* pool order[place] is being filled */
    int base;          /* workers of it on the last whole rung */
    int instead, more; /* 1 + the pool whose workers are tried in the place of one more of it, and how many */
};

/* speed: by pool, NULL: cpu_share says. no_price: what workers count with that have none. */
void cw_supply_init(struct cw_supply *s, const struct cw_facts *f, const double *speed, double no_price);
double cw_supply_capacity(const struct cw_supply *s, const int *workers);
double cw_supply_price(const struct cw_supply *s, const int *workers);
double cw_supply_most(const struct cw_supply *s);
/* The next rung: of an order, with every count that makes a difference, then of the next one up to `orders`.
 * False: that was the last one. */
bool cw_supply_next(const struct cw_supply *s, int orders, struct cw_rung *r);
/* As much as fits into this capacity, at least a worker. */
void cw_supply_fill(const struct cw_supply *s, int order, double capacity, int *ret);
/* As much more, as far as there is: the cheapest first. At least a worker is there then. */
void cw_supply_add(const struct cw_supply *s, double capacity, int *workers);
/* n workers, whatever they compute, the cheapest first; what is more than there are, of the cheapest. */
void cw_supply_count(const struct cw_supply *s, int n, int *ret);
