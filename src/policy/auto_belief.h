/* What auto derives from its measurements: the curve of supply by number of workers, limits other than
 * workers, and their errors. Owns struct cw_auto_belief; reads the measurements of auto_watch.h. Called by
 * the other files of auto. "Workers" are capacities (supply.h). Errors are relative standard errors. */
#pragma once
#include "policy/auto_memory.h"
#include "policy/plan.h"

#define CW_AUTO_WAITING 0.01 /* waiting up to this part of the step does not count */
#define CW_AUTO_SURE 2.0     /* standard errors that a gain must exceed */
#define CW_AUTO_EXACT 0.005  /* standard error at which auto rests */

/* Returns the seconds that a worker computes for a batch with nothing cached. At least the longest prefix_s
 * of a cache point, in case that few batches were measured. */
double cw_auto_belief_all_s(const struct cw_auto *m, const struct cw_facts *f);
/* Sets the compute time to the part of full_s that is left when the part `cached` is read at the cache point.
 * It is not a measurement: its n is 0. */
void cw_auto_belief_expect_compute(struct cw_auto *m, const struct cw_facts *f, double full_s, double cached,
                                   int cache_point);
/* Returns the interval with the most workers that the job may have, if workers do not slow each other down.
 */
double cw_auto_belief_fastest(const struct cw_auto *m);
/* Returns the error of the measurement with the present workers. */
double cw_auto_belief_error(const struct cw_auto *m);
/* Returns the error for a first decision, which is corrected later. If all workers are busy, it may be
 * smaller: their compute time then also gives the interval. */
double cw_auto_belief_rough_error(const struct cw_auto *m, const struct cw_facts *f);
/* Returns the relative deviation of a batch's time, from all points of the curve. */
double cw_auto_belief_scatter(const struct cw_auto *m);
/* Returns the smallest error of a point of the curve. */
double cw_auto_belief_supply_error(const struct cw_auto *m);
/* Adds the measurement with the present workers to the curve, or takes a limit from it. */
void cw_auto_belief_learn(struct cw_auto *m, const struct cw_facts *f);
/* Handles a change of the client's step with the same workers, to `ratio` times what it was: unless local
 * workers use other CPUs than before, all steps that were measured with other workers change in proportion.
 */
void cw_auto_belief_step_changed(struct cw_auto *m, const struct cw_facts *f, double ratio);
/* Fills in *ret, from which plans are computed. The curve must have a point. */
void cw_auto_belief_outlook(const struct cw_auto *m, const struct cw_facts *f, struct cw_outlook *ret);
/* Returns the largest error with which a decision may be made now, if the rest of the job takes `rest`. */
double cw_auto_belief_tolerated_error(const struct cw_auto *m, const struct cw_facts *f,
                                      const struct cw_alternative *rest, double now_s);
/* Returns the capacity to request now on the way to the best plan. It is less than the best plan's if the
 * speed of so many workers is a risky guess. */
double cw_auto_belief_restrain(const struct cw_auto *m, const struct cw_facts *f,
                               const struct cw_alternative *best);
/* Returns a capacity to try because the points do not show the shape of the curve; 0: none. */
double cw_auto_belief_explore(const struct cw_auto *m, const struct cw_outlook *believed,
                              const struct cw_alternative *stay, double error);
/* Returns the capacity of one worker fewer, if that may be enough and should be tried; else 0. */
double cw_auto_belief_fewer(const struct cw_auto *m, const struct cw_outlook *o,
                            const struct cw_alternative *stay, double error);
