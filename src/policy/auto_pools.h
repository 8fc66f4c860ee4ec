/* Workers of several pools, as auto counts them: what a worker of each is worth, and how many were decided
 * on. Owns struct cw_auto_pools. Called by the other parts of auto. */
#pragma once
#include "policy/auto_memory.h"
#include "policy/supply.h"

/* Moves the entries into the order of the facts, and adds new pools. Returns the capacity that was decided on
 * in pools that are gone. */
double cw_auto_pools_fit(struct cw_auto_pools *p, const struct cw_facts *f);
/* Updates the speed of each pool from what its workers and those of other pools measured in this report. */
void cw_auto_pools_learn_speeds(struct cw_auto_pools *p, const struct cw_facts *f);
/* Supply by the speeds that were measured. no_price: as in cw_supply_init. */
void cw_auto_pools_supply(const struct cw_auto_pools *p, const struct cw_facts *f, double no_price,
                          struct cw_supply *ret);
/* Adds to `ret` what workers measured in this report, in units of a worker of the first pool. */
void cw_auto_pools_work(const struct cw_auto_pools *p, const struct cw_facts *f, struct cw_auto_seen *ret);
/* The capacity that runs. */
double cw_auto_pools_running(const struct cw_auto_pools *p, const struct cw_facts *f);
/* Price per hour of the workers that were decided on, or of those that run or start. */
double cw_auto_pools_price(const struct cw_auto_pools *p, const struct cw_facts *f, bool decided);
/* The workers that were decided on, by pool: read, compared, set. */
void cw_auto_pools_target(const struct cw_auto_pools *p, int *ret);
bool cw_auto_pools_is_target(const struct cw_auto_pools *p, const int *workers);
void cw_auto_pools_set_target(struct cw_auto_pools *p, const int *workers);
/* Sets the target, and notes that pools whose target changed have their workers a start delay later. */
void cw_auto_pools_request(struct cw_auto_pools *p, const int *workers, double now_s);
