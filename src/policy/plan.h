/* What the rest of a job would take: time and cost by number of workers and cache point. Autoscale and
 * autocache choose among these together. */
#pragma once
#include "policy/curve.h"
#include "policy/supply.h"

#define CW_OUTLOOK_TIME_TOLERANCE 0.015 /* a plan that takes so much longer is as fast */

struct cw_outlook { /* what is believed */
    const struct cw_facts *facts;
    double step_s;           /* the client's own */
    struct cw_supply supply; /* what workers of each pool are worth, and cost */
    struct cw_curve curve;   /* the input side by capacity, nothing cached, as far as workers are the limit */
    double doubt;     /* by this part the input side may be slower, and plans are to be good nevertheless */
    double compute_s; /* of a worker per batch, nothing cached: what prefixes are parts of */
    double waiting;   /* the part of a worker's time, if it is the limit, that it waits for the source */
    double source_bytes_per_s; /* 0: no limit seen yet */
    double floor_s;            /* of a limit that is none of the known ones; 0: none seen */
    /* workers that were asked for already, and when these will have started */
    double asked[CW_POLICY_POOLS], asked_delay_s[CW_POLICY_POOLS];
    /* of what went before under the same conditions: what is gained is a part of it all */
    double past_time_s, past_cost;
};

/* What is left of a worker's time for a batch with the part `cached` of cache point's chunks (cache point -1:
 * all): computing less the prefix, waiting for less of the source. */
double cw_outlook_left(const struct cw_outlook *o, int cache_point, double cached);

/* A batch with this capacity, reading the part `cached` of cache point's chunks (cache point -1: none). */
double cw_outlook_batch_s(const struct cw_outlook *o, double capacity, int cache_point, double cached);

/* What a second costs with the workers of an alternative, the client's with it. */
double cw_outlook_price_s(const struct cw_outlook *o, const struct cw_alternative *a);

/* The rest of the job with so many workers of each pool from now on (from when they have started) and cache
 * point; where the cache fills, with the best number afterwards. */
struct cw_alternative cw_outlook_rest(const struct cw_outlook *o, const int *workers, int cache_point);
/* The same, but nothing is decided any more, however full the cache becomes. */
struct cw_alternative cw_outlook_keep(const struct cw_outlook *o, const int *workers, int cache_point);
/* Like an alternative, with this capacity at most, filled in the same order. */
struct cw_alternative cw_outlook_like(const struct cw_outlook *o, const struct cw_alternative *a,
                                      double capacity, int cache_point);

/* More of the epoch will be cached than now: what is best then can be foreseen to be something else. */
bool cw_outlook_fills(const struct cw_outlook *o, int cache_point);

/*
 * The best there is. For objective `time` the cheapest of those that take at most 1.5 % longer than the
 * fastest: so waiting stays below 2 %. For `cost` the fastest of those that cost at most 0.5 % more than the
 * cheapest. Both in all, and as long as the workers stay. Another cache point than the one in use must gain
 * more than cache_point_gain, and 2 %.
 */
struct cw_alternative cw_outlook_best(const struct cw_outlook *o, double cache_point_gain);
/*
 * By how much a is better than b: 0.1 is 10 % less of what the objective is, for the whole job. Where that is
 * about equal the other measure counts, unless `only`.
 */
double cw_outlook_gain(const struct cw_outlook *o, const struct cw_alternative *a,
                       const struct cw_alternative *b, bool only);
