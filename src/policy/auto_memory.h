/* The memory of the policy `auto` for a job, from one report to the next. auto_pools.c owns `pools`,
 * auto_belief.c owns `belief`, auto_watch.c owns `watch`, auto.c owns `cache` and `plan`. When conditions
 * change, auto_watch.c resets `belief` and `plan` too. */
#pragma once
#include "policy/curve.h"
#include "policy/policy.h"

/* Every field is a double, so that the dispatcher's journal can keep the memory by the names of its fields.
 * All zeros: the job starts. Times are those of the caller's clock, in seconds. */

struct cw_auto_pool {   /* in the order of the facts' pools */
    double id;          /* hash of the pool's name; 0: this entry is free */
    double target;      /* workers that were decided on */
    double requested_s; /* time of that decision */
    double maximum;     /* most workers that the job may have of this pool, by the last report */
    double speed;       /* of a worker, relative to a worker of the job's first pool */
    /* computing time of a worker per batch, relative to a worker of the first pool, from reports in which
     * other pools were measured too. n 0: not measured, so `speed` follows from cpu_share */
    struct cw_mean compute;
};

/* target, running and maximum are capacities (supply.h). With one pool these are numbers of workers. */
struct cw_auto_pools {
    double target, running, maximum;
    struct cw_auto_pool pool[CW_POLICY_POOLS];
};

/* The cache at the last decision. If it changes, auto evaluates its plan again. */
struct cw_auto_cache {
    double point;       /* index of the cache point in use; -1: none */
    double n_points;    /* cache points in the facts: workers may report them late */
    double cached;      /* part of the epoch that can be read at `point` */
    double last_cached; /* the same, at the last report */
    double read_bytes_per_s, write_bytes_per_s;
    double saved_s; /* sum of prefix_s (policy.h) of all cache points */
};

struct cw_auto_plan {
    double decisions; /* number of decisions under the present conditions */
    double resting;   /* 1: no plan is evaluated until conditions change */
    /* capacity to return to if the fewer workers under trial are too slow. 0: none was tried; -1: the trial
     * is over, and is not repeated under the present conditions */
    double trial_from;
    double promises;                      /* 1: with this plan the client is expected not to wait */
    double evaluated_n;                   /* batches measured when the plan was last evaluated */
    double objective, client_price_per_h; /* at the last report */
    double last_s;                        /* time of the last report */
    double free_cpus;                     /* of the training host, at the last decision */
    double idle_since_s;                  /* time since which the workers decided on deliver nothing */
    double past_s, past_cost;             /* time and cost of the job under the present conditions */
};

struct cw_auto_seen {                       /* a measurement, per batch */
    struct cw_mean step, interval, compute; /* as in policy.h; interval: step and waiting */
    double busy;                            /* part of the workers' time in which they computed, 0 to 1 */
};

struct cw_auto_reports { /* the sum of several reports */
    double n;            /* reports; a report that covers a part of a batch counts as that part */
    struct cw_auto_seen seen;
};

struct cw_auto_watch {
    double since_s; /* time since which the present workers are measured */
    double waits;   /* 1: the client was seen to wait unexpectedly, so that the scatter does not matter */
    /* measured with the present workers under the present conditions; the step also with earlier workers */
    struct cw_auto_seen known;
    struct cw_auto_seen recent;    /* later measurements, which join `known` if no change shows in them */
    struct cw_auto_reports window; /* up to CW_AUTO_REPORTS reports, then it begins anew */
    struct cw_auto_reports streak; /* the latest reports as long as the client waits in each of them */
};

struct cw_auto_belief {
    double busiest;            /* largest `busy` that was measured */
    double source_bytes_per_s; /* speed limit of the source; 0: none was observed */
    double floor_s;            /* least seconds per batch, whatever the workers; 0: none was observed */
    /* of jobs that may have local workers: local workers that can't run, and all larger numbers, 0: none;
     * those that could not run alone, 0: none, else local workers are never alone */
    double local_refused, alone_refused, refusals; /* refusals: how often workers delivered nothing */
    double n_points;                               /* used entries of `points`, by increasing capacity */
    struct cw_point points[CW_CURVE_POINTS];
};

struct cw_auto {
    struct cw_auto_pools pools;
    struct cw_auto_cache cache;
    struct cw_auto_plan plan;
    struct cw_auto_watch watch;
    struct cw_auto_belief belief;
};

_Static_assert(sizeof(struct cw_auto) <= sizeof(struct cw_policy_memory),
               "the memory of a policy is too small");
