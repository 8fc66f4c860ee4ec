/* Time and cost of the rest of a job, by workers and cache point. Called by auto and by autocache, which
 * choose among these together. */
#pragma once
#include "policy/curve.h"
#include "policy/supply.h"

#define CW_OUTLOOK_TIME_TOLERANCE 0.015 /* plans that take longer by this part count as equally fast */

struct cw_outlook { /* what is believed when a plan is made */
    const struct cw_facts *facts;
    double step_s;           /* of the client */
    struct cw_supply supply; /* speed and price of workers by pool */
    struct cw_curve curve;   /* time per batch by capacity, nothing cached, where workers are the limit */
    double doubt;            /* part by which workers may be slower than the curve says */
    double compute_s;        /* of a worker per batch, nothing cached: prefixes are parts of it */
    double waiting; /* part of its time that a worker waits for the source, where workers are the limit */
    double source_bytes_per_s; /* limit of the source; 0: none seen */
    double floor_s;            /* limit of something else; 0: none seen */
    /* workers that were requested, by pool, and the time until they start */
    double requested[CW_POLICY_POOLS], requested_delay_s[CW_POLICY_POOLS];
    /* what the job took under these conditions so far: gains are parts of all of it */
    double past_time_s, past_cost;
};

/* The part of a worker's time per batch that is left if the part `cached` is read at the cache point (-1:
 * all of it). */
double cw_outlook_left(const struct cw_outlook *o, int cache_point, double cached);

/* Seconds per batch with this capacity, if the part `cached` is read at the cache point (-1: none). */
double cw_outlook_batch_s(const struct cw_outlook *o, double capacity, int cache_point, double cached);

/* Price per second of an alternative's workers and the client. */
double cw_outlook_price_s(const struct cw_outlook *o, const struct cw_alternative *a);

/* The rest of the job with these workers of each pool, from when they have started, and this cache point.
 * Once the cache is full the best number of workers follows. */
struct cw_alternative cw_outlook_rest(const struct cw_outlook *o, const int *workers, int cache_point);
/* The same, with these workers to the end, however full the cache becomes. */
struct cw_alternative cw_outlook_keep(const struct cw_outlook *o, const int *workers, int cache_point);
/* An alternative of at most this capacity, whose pools are filled in the order of `a`. */
struct cw_alternative cw_outlook_like(const struct cw_outlook *o, const struct cw_alternative *a,
                                      double capacity, int cache_point);

/* Whether the cache will hold more of the epoch than now, so that the best plan will change. */
bool cw_outlook_fills(const struct cw_outlook *o, int cache_point);

/* The best alternative. For objective time: the cheapest of those that take at most 1.5 % longer than the
 * fastest, so that waiting stays below 2 %. For objective cost: the fastest of those that cost at most 0.5
 * % more than the cheapest. Both in all and as long as the workers stay. Another cache point than the one
 * in use must gain more than cache_point_gain, and 2 %. */
struct cw_alternative cw_outlook_best(const struct cw_outlook *o, double cache_point_gain);
/* The gain of a over b, as a part of the whole job's time or cost: 0.1 is 10 % less. Where these are about
 * equal the other measure counts, unless `only`. */
double cw_outlook_gain(const struct cw_outlook *o, const struct cw_alternative *a,
                       const struct cw_alternative *b, bool only);
