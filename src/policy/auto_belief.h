/* What auto believes: a curve of supply by workers, limits other than workers, and how far to trust them.
 * Owns struct cw_auto_belief; reads what auto_watch.h measured. Called by the other parts of auto. */
#pragma once
#include "policy/auto_memory.h"
#include "policy/plan.h"

#define CW_AUTO_WAITING 0.01 /* part of the interval up to which waiting is not counted */
#define CW_AUTO_SURE 2.0     /* standard errors that a gain must exceed */
#define CW_AUTO_EXACT 0.005  /* standard error at which auto rests */

/* Seconds that a worker computes for a batch with nothing cached: no less than any prefix, as few batches may
 * say less. */
double cw_auto_belief_all_s(const struct cw_auto *m, const struct cw_facts *f);
/* Sets the compute time to what the part `cached` leaves of full_s. It counts as no measurement. */
void cw_auto_belief_expect_compute(struct cw_auto *m, const struct cw_facts *f, double full_s, double cached,
                                   int cache_point);
/* The interval with all workers that there may be, if workers do not slow each other down. */
double cw_auto_belief_fastest(const struct cw_auto *m);
/* Relative standard error of what was measured with these workers. */
double cw_auto_belief_error(const struct cw_auto *m);
/* The same for a first guess, which is corrected later: the interval of workers that are all busy is also
 * known from what they compute. */
double cw_auto_belief_rough_error(const struct cw_auto *m, const struct cw_facts *f);
/* Relative deviation of a batch, from all points of the curve; 0: not known. */
double cw_auto_belief_scatter(const struct cw_auto *m);
/* Standard error of the point of the curve that is known best. */
double cw_auto_belief_supply_error(const struct cw_auto *m);
/* Makes what was measured with these workers a point of the curve, or a limit. */
void cw_auto_belief_learn(struct cw_auto *m, const struct cw_facts *f);
/* All that plans are made from. The curve must have a point. */
void cw_auto_belief_outlook(const struct cw_auto *m, const struct cw_facts *f, struct cw_outlook *ret);
/* The standard error with which a decision may be made now, given what the rest of the job would take. */
double cw_auto_belief_tolerated_error(const struct cw_auto *m, const struct cw_facts *f,
                                      const struct cw_alternative *rest, double now_s);
/* How much of the best plan's capacity to try at once: more workers than were ever measured are a guess. */
double cw_auto_belief_restrain(const struct cw_auto *m, const struct cw_facts *f,
                               const struct cw_alternative *best);
/* A capacity to try because the points leave the shape of the curve open; 0: none. */
double cw_auto_belief_explore(const struct cw_auto *m, const struct cw_outlook *believed,
                              const struct cw_alternative *stay, double error);
/* A capacity of one worker fewer to try, since these may be enough too; 0: none. */
double cw_auto_belief_fewer(const struct cw_auto *m, const struct cw_outlook *o,
                            const struct cw_alternative *stay, double error);
