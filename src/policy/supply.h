/* Workers of several pools as one capacity, in workers of the pool that was first. A worker counts as its
 * speed, costs its price, and comes after the start delay of its pool. Plans try *rungs*: pools are filled
 * one after the other, and each count of workers on the way is a rung. */
#pragma once
#include <stdbool.h>

#include "policy/policy.h"

#define CW_SUPPLY_ORDERS 2

struct cw_supply {
    int n;
    double speed[CW_POLICY_POOLS], price_per_h[CW_POLICY_POOLS]; /* of a worker */
    int maximum[CW_POLICY_POOLS];
    /* Orders in which pools are filled: by price for what workers compute, and by start delay, if that
     * differs. */
    int order[CW_SUPPLY_ORDERS][CW_POLICY_POOLS];
    int n_orders;
};

struct cw_rung { /* all zeros: before the first one */
    int workers[CW_POLICY_POOLS];
    int order, place;  /* pool order[place] is being filled */
    int base;          /* its workers on the last whole rung */
    int instead, more; /* 1 + the pool whose workers replace one more of it, and how many do */
};

/* speed: by pool; NULL: by cpu_share. no_price: price of workers that have none. */
void cw_supply_init(struct cw_supply *s, const struct cw_facts *f, const double *speed, double no_price);
double cw_supply_capacity(const struct cw_supply *s, const int *workers);
double cw_supply_price(const struct cw_supply *s, const int *workers);
double cw_supply_most(const struct cw_supply *s);
/* Seconds until workers of every pool have started. */
double cw_supply_start_delay_s(const struct cw_facts *f);
/* Moves on to the next rung: every count of an order that makes a difference, then the next of `orders`
 * orders. False: there is none. */
bool cw_supply_next(const struct cw_supply *s, int orders, struct cw_rung *r);
/* Workers that fit into this capacity, at least one. */
void cw_supply_fill(const struct cw_supply *s, int order, double capacity, int *ret);
/* Adds workers of this capacity, the cheapest first, as far as there are any. There is at least one then. */
void cw_supply_add(const struct cw_supply *s, int order, double capacity, int *workers);
/* n workers of any speed, the cheapest first. If there are too few, the rest is of the cheapest pool. */
void cw_supply_count(const struct cw_supply *s, int n, int *ret);
