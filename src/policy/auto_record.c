#include "policy/auto_record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "policy/auto_belief.h"
#include "policy/auto_pools.h"

#define LEAST_DOUBT 0.01 /* smaller doubts do not change the numbers of a record */
#define SAME 0.0005      /* part of a time below which four digits are equal */
/* Least part by which prefetched batches come faster than workers compute, for the record to say so. */
#define PREFETCHED 0.02

/* Seconds per batch. Measured with these workers, if `now`; else as the curve has it. Fewer workers than
 * those with which the client waits are no faster than these. */
static double record_expected_s(const struct cw_auto *m, const struct cw_facts *f, const struct cw_outlook *o,
                                double capacity, int cache_point, bool now)
{
    double cached = cache_point >= 0 && cache_point == (int)m->cache.point ? m->cache.cached : 0,
           s = cw_outlook_batch_s(o, capacity, cache_point, cached),
           running = cw_auto_pools_running(&m->pools, f);
    bool measured = m->watch.known.interval.n > 0 && cache_point == (int)m->cache.point && running > 0;
    if (measured && now)
        return m->watch.known.interval.mean;
    return measured && capacity <= running && s >= cw_outlook_batch_s(o, running, cache_point, cached)
               ? CW_MAX(s, m->watch.known.interval.mean)
               : s;
}

/* The limit with this capacity. now: of the workers that run; else of a plan. */
static enum cw_bottleneck record_limit(const struct cw_auto *m, const struct cw_facts *f,
                                       const struct cw_outlook *o, double capacity, int cache_point, bool now)
{
    double cached = cache_point >= 0 && cache_point == (int)m->cache.point ? m->cache.cached : 0,
           s = record_expected_s(m, f, o, capacity, cache_point, now);
    if (s <= o->step_s * (1 + 2 * CW_AUTO_WAITING))
        return CW_BOTTLENECK_CLIENT;
    if (capacity >= cw_supply_most(&o->supply) && !f->fixed)
        return CW_BOTTLENECK_MAXIMUM;
    double bigger = cw_outlook_batch_s(o, 2 * capacity, cache_point, cached);
    if (bigger < 0.9 * s || bigger <= o->step_s * (1 + 2 * CW_AUTO_WAITING))
        return CW_BOTTLENECK_WORKERS;
    if (cache_point >= 0 && f->storage.read_bytes_per_s > 0 &&
        cached * f->cache_points[cache_point].bytes / f->storage.read_bytes_per_s >= 0.99 * s)
        return CW_BOTTLENECK_CACHE;
    return m->belief.floor_s > 0 || m->belief.source_bytes_per_s > 0 ? CW_BOTTLENECK_STORAGE
                                                                     : CW_BOTTLENECK_SCALING;
}

static const char *record_limit_text(enum cw_bottleneck limit)
{
    static const char *const texts[] = {
        [CW_BOTTLENECK_UNKNOWN] = "",
        [CW_BOTTLENECK_WORKERS] = "computing is the limit then",
        [CW_BOTTLENECK_CLIENT] = "the client itself is the limit then",
        [CW_BOTTLENECK_STORAGE] = "reading the source is the limit then",
        [CW_BOTTLENECK_CACHE] = "reading the cache is the limit then",
        [CW_BOTTLENECK_SCALING] = "more workers hardly help",
        [CW_BOTTLENECK_MAXIMUM] = "there are no more workers",
    };
    return texts[limit];
}

static void record_add(struct cw_decision *d, const struct cw_alternative *a)
{
    for (int i = 0; i < d->n_alternatives; i++)
        if (memcmp(d->alternatives[i].pools, a->pools, sizeof(a->pools)) == 0 &&
            d->alternatives[i].cache_point == a->cache_point)
            return;
    if (d->n_alternatives < CW_POLICY_ALTERNATIVES)
        d->alternatives[d->n_alternatives++] = *a;
}

static void record_add_like(struct cw_decision *d, const struct cw_outlook *o,
                            const struct cw_alternative *chosen, double capacity)
{
    struct cw_alternative a = cw_outlook_like(o, chosen, capacity, chosen->cache_point);
    record_add(d, &a);
}

/* Prints "5", or "5 (4 of near, 1 of far" without the bracket's end. Returns its length. */
static size_t record_put_count(char *to, size_t size, const struct cw_facts *f,
                               const struct cw_alternative *a)
{
    const char *between = " (";
    size_t n = (size_t)snprintf(to, size, "%d", a->workers);
    for (int i = 0; f->n_pools > 1 && i < f->n_pools && n < size; i++)
        if (a->pools[i] > 0) {
            n += (size_t)snprintf(to + n, size - n, "%s%d of %.20s", between, a->pools[i], f->pools[i].name);
            between = ", ";
        }
    return CW_MIN(n, size - 1);
}

/* Prints the same with the reason for these pools: "5 (4 of near, 1 of far; near first: ...)". */
static void record_put_workers(char *to, size_t size, const struct cw_outlook *o,
                               const struct cw_alternative *a)
{
    const struct cw_facts *f = o->facts;
    size_t n = record_put_count(to, size, f, a);
    if (f->n_pools > 1)
        snprintf(to + n, size - n, "; %.20s first: %s)", f->pools[o->supply.order[a->order][0]].name,
                 a->order ? "it is there soonest" : "what it computes costs least");
}

/* Prints "cached after decode", or "cached nowhere". */
static void record_put_place(char to[80], const struct cw_facts *f, int cache_point)
{
    snprintf(to, 80, "cached %s%.60s", cache_point >= 0 ? "after " : "nowhere",
             cache_point >= 0 ? f->cache_points[cache_point].name : "");
}

/* Prints why not twice as many workers: by the rest of the job, or by the time for which the workers stay
 * where the rest is equal. */
static void record_put_more(char *to, size_t size, const struct cw_outlook *o,
                            const struct cw_alternative *chosen)
{
    struct cw_alternative more = cw_outlook_like(o, chosen, 2 * chosen->capacity, chosen->cache_point);
    bool better = more.time_s <= chosen->time_s && more.cost <= chosen->cost;
    double less = 1 - (better ? more.held_s / CW_MAX(chosen->held_s, 1e-9)
                              : more.time_s / CW_MAX(chosen->time_s, 1e-9));
    double dearer = (better ? more.held_cost / CW_MAX(chosen->held_cost, 1e-12)
                            : more.cost / CW_MAX(chosen->cost, 1e-12)) -
                    1;
    size_t n = record_put_count(to, size, o->facts, &more);
    n += (size_t)snprintf(to + n, size - n, "%s would ", o->facts->n_pools > 1 ? ")" : "");
    if (n >= size)
        return;
    if (less <= 0)
        snprintf(to + n, size - n, "start too late to gain anything");
    else if (dearer <= 0)
        snprintf(to + n, size - n, "hardly gain anything");
    else
        snprintf(to + n, size - n, "take %.2g %% less time and cost %.2g %% more%s", 100 * less, 100 * dearer,
                 better ? " as long as they stay" : "");
}

/* Adds a cache point that would be better, but gains too little. */
static void record_put_other_place(char *to, size_t size, const struct cw_outlook *o,
                                   const struct cw_alternative *chosen)
{
    char cache[80];
    size_t n = strlen(to);
    for (int i = -1; i < o->facts->n_cache_points; i++) {
        struct cw_alternative a = cw_outlook_rest(o, chosen->pools, i);
        if (i == chosen->cache_point || a.time_s >= chosen->time_s || a.cost >= chosen->cost)
            continue;
        record_put_place(cache, o->facts, i);
        snprintf(to + n, size - n, "; %s would gain too little", cache);
        return;
    }
}

/* Prints what follows the numbers of a decision: the limit, or why there are no more workers, and what
 * seems better. */
static void record_put_limit(char *to, size_t size, const struct cw_auto *m, const struct cw_outlook *o,
                             const struct cw_alternative *chosen, const struct cw_auto_reason *reason)
{
    const struct cw_facts *f = o->facts;
    const struct cw_alternative *better = reason->better;
    enum cw_bottleneck limit = record_limit(m, f, o, chosen->capacity, chosen->cache_point, false);
    char cache[80] = "";
    size_t n = 0;
    bool other = better && (memcmp(better->pools, chosen->pools, sizeof(better->pools)) != 0 ||
                            better->cache_point != chosen->cache_point);
    bool more = other && better->capacity > chosen->capacity;
    if (limit == CW_BOTTLENECK_WORKERS && !more)
        record_put_more(to, size, o, chosen);
    else if (!more)
        snprintf(to, size, "%s", record_limit_text(limit));
    if (!other) {
        record_put_other_place(to, size, o, chosen);
        return;
    }
    n = more ? 0 : strlen(to);
    n += (size_t)snprintf(to + n, size - n, "%s", more ? "" : "; ");
    if (n >= size)
        return;
    n += record_put_count(to + n, size - n, f, better);
    if (better->cache_point != chosen->cache_point)
        record_put_place(cache, f, better->cache_point);
    snprintf(to + n, size - n, "%s%s%s would seem better, but %s", f->n_pools > 1 ? ")" : "",
             *cache ? ", " : "", cache, reason->but);
}

static void record_put_why(char *to, size_t size, const struct cw_auto *m, const struct cw_outlook *o,
                           const struct cw_alternative *chosen, const struct cw_auto_reason *reason,
                           const struct cw_seen *seen)
{
    char measured[160] = "", workers[200], limit[240], place[80] = "";
    size_t n = 0;
    struct cw_outlook sure = *o;
    sure.doubt = 0;
    record_put_workers(workers, sizeof(workers), o, chosen);
    record_put_limit(limit, sizeof(limit), m, o, chosen, reason);
    if (m->watch.known.interval.n > 0)
        n = (size_t)snprintf(measured, sizeof(measured), ": %.4g s a batch with %d (step %.4g s)",
                             m->watch.known.interval.mean, seen->workers, m->watch.known.step.mean);
    double computed_s = cw_outlook_batch_s(&sure, cw_auto_pools_running(&m->pools, o->facts),
                                           (int)m->cache.point, m->cache.cached);
    if (m->watch.known.interval.n > 0 && computed_s > (1 + PREFETCHED) * m->watch.known.interval.mean)
        n += (size_t)snprintf(measured + n, sizeof(measured) - n,
                              ", though by what they compute it is %.4g s", computed_s);
    if (seen->doubt >= LEAST_DOUBT)
        snprintf(measured + n, sizeof(measured) - n, ", which may be %.0f %% more", 100 * seen->doubt);
    if (chosen->cache_point >= 0)
        record_put_place(place, o->facts, chosen->cache_point);
    snprintf(to, size, "%s%s; %s%s%s%s %s %.4g s: %s", reason->why, measured, workers, *place ? ", " : "",
             place, *place ? "," : "", chosen->workers == 1 ? "gives" : "give", chosen->batch_s, limit);
}

/* Seconds per batch over the rest of the job. */
static double record_rest_s(const struct cw_facts *f, const struct cw_alternative *a)
{
    double batches = f->epochs * f->batches_per_epoch - f->batches_done;
    return batches > 0 ? a->time_s / batches : a->batch_s;
}

/* Prints the reason of a decision about the cache only. It compares the rest of the job, since a cache
 * that fills gains nothing at once. */
static void record_put_cache_why(char *to, size_t size, const struct cw_auto *m, const struct cw_outlook *o,
                                 const struct cw_alternative *chosen, const int *running,
                                 const struct cw_auto_reason *reason)
{
    const struct cw_facts *f = o->facts;
    struct cw_alternative other = {.time_s = -1};
    char measured[96] = "", place[80], otherwise[200] = "";
    for (int i = -1; i < f->n_cache_points; i++) {
        struct cw_alternative a = cw_outlook_rest(o, running, i);
        if (i != chosen->cache_point && (other.time_s < 0 || a.time_s < other.time_s))
            other = a;
    }
    if (m->watch.known.interval.n > 0)
        snprintf(measured, sizeof(measured), ": %.4g s a batch (step %.4g s)", m->watch.known.interval.mean,
                 m->watch.known.step.mean);
    if (other.time_s >= 0) {
        record_put_place(place, f, other.cache_point);
        bool same = fabs(other.time_s - chosen->time_s) <= SAME * chosen->time_s;
        snprintf(otherwise, sizeof(otherwise), ", %s %.4g s%s", place, record_rest_s(f, &other),
                 same                            ? ", too"
                 : other.time_s < chosen->time_s ? ", which is too little a gain"
                                                 : "");
    }
    record_put_place(place, f, chosen->cache_point);
    snprintf(to, size, "%s%s; %s the rest of the job takes %.4g s a batch%s", reason->why, measured, place,
             record_rest_s(f, chosen), otherwise);
}

static void record_add_cache_points(struct cw_decision *d, const struct cw_outlook *o,
                                    const struct cw_alternative *chosen, const int *workers)
{
    for (int i = -1; i < o->facts->n_cache_points && i < 2; i++) {
        struct cw_alternative other = cw_outlook_rest(o, workers, i);
        if (i != chosen->cache_point)
            record_add(d, &other);
    }
}

void cw_auto_record(const struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *chosen,
                    const struct cw_auto_reason *reason, struct cw_decision *d)
{
    const struct cw_facts *f = o->facts;
    int running[CW_POLICY_POOLS] = {0}, n_running = 0;
    for (int i = 0; i < f->n_pools; i++)
        n_running += running[i] = f->pools[i].running;
    if (n_running == 0)
        cw_supply_fill(&o->supply, 0, 1, running);
    d->concluded = true;
    d->promises = chosen->batch_s <= (1 + 2 * CW_AUTO_WAITING) * o->step_s;
    d->seen = (struct cw_seen){
        .step_s = m->watch.known.step.mean,
        .wait_s = CW_MAX(m->watch.known.interval.mean - m->watch.known.step.mean, 0),
        .interval_s = m->watch.known.interval.mean,
        .compute_s = m->watch.known.compute.mean,
        .busy = m->watch.known.busy,
        .error = cw_auto_belief_error(m),
        .doubt = o->doubt,
        .workers = n_running,
        .cache_point = (int)m->cache.point,
        .cached = m->cache.cached,
        .limit = record_limit(m, f, o, cw_auto_pools_running(&m->pools, f), (int)m->cache.point, true)};
    struct cw_alternative now = cw_outlook_rest(o, running, f->cache_point),
                          as_is = cw_outlook_rest(o, running, chosen->cache_point);
    record_add(d, f->fixed ? &as_is : chosen);
    record_add(d, &now);
    record_add_cache_points(d, o, chosen, f->fixed ? running : chosen->pools);
    if (f->fixed) {
        record_put_cache_why(d->why, sizeof(d->why), m, o, &as_is, running, reason);
        return;
    }
    if (reason->better)
        record_add(d, reason->better);
    record_add_like(d, o, chosen, 2 * chosen->capacity);
    record_add_like(d, o, chosen, chosen->capacity / 2);
    record_put_why(d->why, sizeof(d->why), m, o, chosen, reason, &d->seen);
}
