/* Computes time and cost of the rest of a job for a number of workers and a cache point, and finds the best
 * combination. Pure functions, called by auto. */
#pragma once
#include "policy/curve.h"
#include "policy/host.h"
#include "policy/supply.h"
#include "policy/surface.h"

#define CW_OUTLOOK_TIME_TOLERANCE 0.015 /* plans that take longer by this part count as equally fast */

struct cw_outlook { /* all that a plan is computed from */
    const struct cw_facts *facts;
    struct cw_host host;     /* the client's step per batch */
    struct cw_supply supply; /* speed and price of workers by pool */
    struct cw_curve curve;   /* seconds per batch by capacity, nothing cached, where workers are the limit */
    struct cw_surface
        surface;  /* the same of a job that may have local workers; no guesses: the curve is used */
    double doubt; /* part by which workers are assumed to be slower than the curve says */
    /* a worker's computing time per batch with nothing cached; prefix_s of cache points are parts of it */
    double compute_s;
    double waiting; /* part of its time that a worker waits for the source, where workers are the limit */
    double source_bytes_per_s; /* speed limit of the source; 0: none was observed */
    double floor_s;            /* least seconds per batch, whatever the workers; 0: none was observed */
    /* workers that were requested, by pool, and the seconds until they start */
    double requested[CW_POLICY_POOLS], requested_delay_s[CW_POLICY_POOLS];
    /* time and cost of the job so far under the present conditions: gains are relative to the whole job */
    double past_time_s, past_cost;
};

/* Returns the part of a worker's time per batch that remains if the part `cached` of the elements is read at
 * the cache point. Cache point -1: 1. */
double cw_outlook_left(const struct cw_outlook *o, int cache_point, double cached);

/* Returns the seconds per batch with this capacity, of which `local` are local workers, if the part `cached`
 * of the elements is read at the cache point (-1: none). */
double cw_outlook_batch_s(const struct cw_outlook *o, double capacity, double local, int cache_point,
                          double cached);

/* Returns the price per second of an alternative's workers and the client together. */
double cw_outlook_price_s(const struct cw_outlook *o, const struct cw_alternative *a);

/* Returns the rest of the job with these workers of each pool (after their start delays) and this cache
 * point. If the cache fills, the best number of workers follows once it is full. */
struct cw_alternative cw_outlook_rest(const struct cw_outlook *o, const int *workers, int cache_point);
/* The same as cw_outlook_rest, but with these workers to the end of the job. */
struct cw_alternative cw_outlook_keep(const struct cw_outlook *o, const int *workers, int cache_point);
/* Returns an alternative of at most this capacity, whose pools are filled in the order of `a`. */
struct cw_alternative cw_outlook_like(const struct cw_outlook *o, const struct cw_alternative *a,
                                      double capacity, int cache_point);

/* Whether the cache will hold more of the epoch than now, so that the best plan will change. */
bool cw_outlook_fills(const struct cw_outlook *o, int cache_point);

/* Returns the best alternative. For objective time: the cheapest of those that take at most 1.5 % longer than
 * the fastest, so that waiting stays below 2 %. For objective cost: the fastest of those that cost at most
 * 0.5 % more than the cheapest. Each limit must hold for the whole rest of the job, and for the time until
 * the number of workers is decided again. A cache point other than the one in use must gain more than
 * cache_point_gain, and more than 2 %. */
struct cw_alternative cw_outlook_best(const struct cw_outlook *o, double cache_point_gain);
/* Returns the gain of a over b in the objective, as a part of the whole job's time or cost: 0.1 is 10 % less.
 * If both are about equal in the objective, the gain in the other measure counts, unless `only`. */
double cw_outlook_gain(const struct cw_outlook *o, const struct cw_alternative *a,
                       const struct cw_alternative *b, bool only);
