/* What the policy `auto` remembers of a job between two reports. Each part has a module: pools
 * (auto_pools.h), belief (auto_belief.h) and watch (auto_watch.h). auto.c owns cache and plan. When
 * conditions change, watch resets belief and plan too. */
#pragma once
#include "policy/curve.h"
#include "policy/policy.h"

/* Every field is a double, so that the dispatcher's journal can keep it by name. All zeros: the job starts.
 */

struct cw_auto_pool {   /* in the order of the facts */
    double id;          /* hash of its name; 0: this entry is free */
    double target;      /* workers that were decided on */
    double requested_s; /* time of that decision */
    double maximum;     /* most workers it may have, by the last report */
    double speed;       /* of a worker, relative to one of the pool that was first */
    /* time of a worker per batch, relative to the pools that were measured at the same time; n 0: not
     * measured, speed follows from cpu_share */
    struct cw_mean compute;
};

/* target, running and maximum are capacities (supply.h): with one pool the number of its workers. */
struct cw_auto_pools {
    double target, running, maximum;
    struct cw_auto_pool pool[CW_POLICY_POOLS];
};

/* The cache as the last decision took it. A change makes auto evaluate its plan again. */
struct cw_auto_cache {
    double point;       /* in use; -1: none */
    double n_points;    /* in the facts: workers may report them late */
    double cached;      /* part of the epoch */
    double last_cached; /* the same, at the last report */
    double read_bytes_per_s, write_bytes_per_s;
    double saved_s; /* compute time per batch that all cache points together save */
};

struct cw_auto_plan {
    double decisions; /* under the conditions at hand */
    double resting;   /* 1: nothing is evaluated until conditions change */
    /* capacity to return to if the fewer workers under trial are too slow; 0: no trial, -1: it is over */
    double trial_from;
    double promises;                      /* 1: by the last record the client does not wait */
    double evaluated_n;                   /* batches measured when the plan was last evaluated */
    double objective, client_price_per_h; /* at the last report */
    double last_s;                        /* time of the last report */
    double past_s, past_cost;             /* time and cost of the job under the conditions at hand */
};

struct cw_auto_seen { /* a measurement, per batch; busy: part of the workers' time, 0 to 1 */
    struct cw_mean step, interval, compute;
    double busy;
};

struct cw_auto_reports { /* several reports taken together */
    double n;            /* a report without a whole batch counts as that part of one */
    struct cw_auto_seen seen;
};

struct cw_auto_watch {
    double since_s; /* the workers are measured since then */
    double waits;   /* 1: the client waits, however much the measurements scatter */
    /* measured with these workers under these conditions; the step with any workers */
    struct cw_auto_seen known;
    struct cw_auto_seen recent; /* not part of `known` yet: conditions may have changed */
    struct cw_auto_reports window;
    struct cw_auto_reports streak; /* the last reports, of which each showed that the client waits */
};

struct cw_auto_belief {
    double busiest;            /* largest `busy` of workers that were the limit */
    double source_bytes_per_s; /* limit of the source; 0: none seen */
    double floor_s;            /* limit per batch of something else; 0: none seen */
    double n_points;
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
