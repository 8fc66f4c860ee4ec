/* Workers of several pools in the policy auto: the relative speed of each pool's workers, and how many were
 * decided on. Owns struct cw_auto_pools. Called by the other files of auto. */
#pragma once
#include "policy/auto_memory.h"
#include "policy/supply.h"

/* Brings the entries into the order of the facts' pools, adds new pools and removes those that are gone.
 * Returns the capacity that was decided on in the removed pools. */
double cw_auto_pools_fit(struct cw_auto_pools *p, const struct cw_facts *f);
/* Updates the speed of each pool from this report's compute times of its workers and those of other pools. */
void cw_auto_pools_learn_speeds(struct cw_auto_pools *p, const struct cw_facts *f);
/* Initializes a supply with the measured speeds. no_price: as in cw_supply_init. */
void cw_auto_pools_supply(const struct cw_auto_pools *p, const struct cw_facts *f, double no_price,
                          struct cw_supply *ret);
/* Sets ret->compute and ret->busy from this report, in units of a worker of the first pool. Both must be 0.
 */
void cw_auto_pools_work(const struct cw_auto_pools *p, const struct cw_facts *f, struct cw_auto_seen *ret);
/* Returns the capacity of the workers that run. */
double cw_auto_pools_running(const struct cw_auto_pools *p, const struct cw_facts *f);
/* Returns the price per hour of the workers decided on (decided), or of those that run or start. */
double cw_auto_pools_price(const struct cw_auto_pools *p, const struct cw_facts *f, bool decided);
/* The target is the workers decided on, by pool. These functions copy it to ret, compare it and set it. */
void cw_auto_pools_target(const struct cw_auto_pools *p, int *ret);
bool cw_auto_pools_is_target(const struct cw_auto_pools *p, const int *workers);
void cw_auto_pools_set_target(struct cw_auto_pools *p, const int *workers);
/* Sets the target, and stores now_s for pools whose target changed: their workers start a start delay later.
 */
void cw_auto_pools_request(struct cw_auto_pools *p, const int *workers, double now_s);
