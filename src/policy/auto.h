/* auto's memory and the parts that it is made of: what is believed (auto_belief.c), how that is told (auto_record.c), when what is done (auto.c). */
#pragma once
#include "policy/plan.h"
#include "policy/policies.h"

#define CW_AUTO_WAITING 0.01 /* part of the interval below which the client counts as served */
#define CW_AUTO_SURE 2.0     /* standard errors that a gain must exceed */

struct cw_auto {
    double target, marker, decisions, resting, maximum;
    double running, cached;                    /* at the last report */
    double markers;                            /* that facts told of: who measures them may need a while, or be new */
    double since_s, looked_n;                  /* measuring at this number of workers since; batches at the last look */
    double objective, client_price_per_h;      /* at the last report */
    double last_s, asked_s, past_s, past_cost; /* the last report; when these workers were decided on; what the job took since conditions were others */
    double busiest, source_bytes_per_s, floor_s;
    double read_bytes_per_s, write_bytes_per_s; /* the cache's, as a decision was made with; what changed since is looked at once */
    double saved_s;                            /* of a batch by all markers together, likewise */
    struct cw_mean step, interval, compute;    /* with these workers under these conditions (step: under these conditions) */
    double busy;
    struct cw_mean recent_step, recent_interval, recent_compute; /* not absorbed yet: conditions may have changed */
    double recent_busy;
    double n_points;
    struct cw_point points[CW_CURVE_POINTS];
};
_Static_assert(sizeof(struct cw_auto) <= sizeof(struct cw_policy_memory), "the memory of a policy is too small");

/* What a batch's prefix takes at a marker; -1: nothing. */
double cw_auto_prefix_s(const struct cw_facts *f, int marker);
/* What a worker computes for a batch, nothing cached: at least what any prefix takes, since few batches may say less. */
double cw_auto_all_s(const struct cw_auto *m, const struct cw_facts *f);
/* The interval with all the workers that there may be, if they are alike: a step much shorter than that makes no difference. */
double cw_auto_fastest(const struct cw_auto *m);
/* The relative standard error of what was measured with these workers. */
double cw_auto_error(const struct cw_auto *m);
/* The same for a first guess, to be corrected: of workers that are all busy it is known by what they compute, though batches come a split at a time. */
double cw_auto_rough_error(const struct cw_auto *m);
/* The standard error of what is known of the input side, at the number of workers for which most is known. */
double cw_auto_supply_error(const struct cw_auto *m);
/* What was seen with these workers becomes a point of the curve, or a limit. */
void cw_auto_learn(struct cw_auto *m, const struct cw_facts *f);
/* All that is believed. There must be a point. */
void cw_auto_outlook(const struct cw_auto *m, const struct cw_facts *f, struct cw_outlook *o);
/* The standard error with which a decision may be made now, if the rest of the job can be done so. */
double cw_auto_tolerated_error(const struct cw_auto *m, const struct cw_facts *f, const struct cw_alternative *rest, double now_s);
/* How many of best's workers to try at once: more than were ever seen are a guess. */
double cw_auto_restrain(const struct cw_auto *m, const struct cw_facts *f, const struct cw_alternative *best);
/* Workers to try because what was seen leaves open what the curve is like; 0: none. */
double cw_auto_explore(const struct cw_auto *m, const struct cw_outlook *believed, const struct cw_alternative *stay, double error);
/* Fills in the record of a decision. */
void cw_auto_record(const struct cw_auto *m, const struct cw_facts *f, const struct cw_outlook *o, const struct cw_alternative *chosen, const char *reason, struct cw_decision *d);
