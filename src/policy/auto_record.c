/* Writes the record of a decision of auto: measurements, alternatives, and the reason (`why`, for users).
 * Called by auto.c. */
#include "policy/auto_record.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "policy/auto_belief.h"
#include "policy/auto_pools.h"

#define LEAST_DOUBT 0.01 /* smaller doubts do not change the numbers of a record */
#define SAME 0.0005      /* part of a time below which four digits are equal */
/* If prefetched batches come faster than workers compute by more than this part, the record says so. */
#define PREFETCHED 0.02

/* Returns the number of local workers that run. */
static double record_local(const struct cw_facts *f)
{
    double n = 0;
    for (int i = 0; i < f->n_pools; i++)
        n += f->pools[i].local ? f->pools[i].running : 0;
    return n;
}

/* Returns the seconds per batch with this capacity: as measured, if `now` (the capacity runs); else by the
 * curve. A capacity below the present one is never given as faster than what was measured. */
static double record_expected_s(const struct cw_auto *m, const struct cw_facts *f, const struct cw_outlook *o,
                                double capacity, double local, int cache_point, bool now)
{
    double cached = cache_point >= 0 && cache_point == (int)m->cache.point ? m->cache.cached : 0,
           s = cw_outlook_batch_s(o, capacity, local, cache_point, cached),
           running = cw_auto_pools_running(&m->pools, f), running_local = record_local(f);
    bool measured = m->watch.known.interval.n > 0 && cache_point == (int)m->cache.point && running > 0;
    if (measured && now)
        return m->watch.known.interval.mean;
    return measured && capacity <= running &&
                   s >= cw_outlook_batch_s(o, running, running_local, cache_point, cached)
               ? CW_MAX(s, m->watch.known.interval.mean)
               : s;
}

/* Returns the limit with this capacity. now: it is the capacity that runs; else it is a plan. */
static enum cw_bottleneck record_limit(const struct cw_auto *m, const struct cw_facts *f,
                                       const struct cw_outlook *o, double capacity, double local,
                                       int cache_point, bool now)
{
    double cached = cache_point >= 0 && cache_point == (int)m->cache.point ? m->cache.cached : 0,
           s = record_expected_s(m, f, o, capacity, local, cache_point, now);
    if (s <= o->host.step_s * (1 + 2 * CW_AUTO_WAITING))
        return CW_BOTTLENECK_CLIENT;
    if (capacity >= cw_supply_most(&o->supply) && !f->fixed)
        return CW_BOTTLENECK_MAXIMUM;
    double bigger = cw_outlook_batch_s(o, 2 * capacity, local, cache_point, cached);
    if (bigger < 0.9 * s || bigger <= o->host.step_s * (1 + 2 * CW_AUTO_WAITING))
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
        [CW_BOTTLENECK_WORKERS] = "then computing is the limit",
        [CW_BOTTLENECK_CLIENT] = "then the client itself is the limit",
        [CW_BOTTLENECK_STORAGE] = "then reading the source is the limit",
        [CW_BOTTLENECK_CACHE] = "then reading the cache is the limit",
        [CW_BOTTLENECK_SCALING] = "more workers would hardly help",
        [CW_BOTTLENECK_MAXIMUM] = "the job can't have more workers",
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

/* Appends to the reason of a decision; what does not fit is cut. */
static _printf_(2, 3) void why_add(struct cw_decision *d, const char *format, ...)
{
    size_t n = strlen(d->why);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(d->why + n, sizeof(d->why) - n, format, args);
    va_end(args);
}

/* Adds "5 workers"; with several pools "5 workers (4 of pool near, 1 of pool far", without the closing
 * bracket. */
static void why_add_count(struct cw_decision *d, const struct cw_facts *f, const struct cw_alternative *a)
{
    const char *between = " (";
    why_add(d, "%d worker%s", a->workers, a->workers == 1 ? "" : "s");
    for (int i = 0; f->n_pools > 1 && i < f->n_pools; i++)
        if (a->pools[i] > 0) {
            why_add(d, "%s%d of pool %.20s", between, a->pools[i], f->pools[i].name);
            between = ", ";
        }
}

static const char *why_bracket_end(const struct cw_facts *f)
{
    return f->n_pools > 1 ? ")" : "";
}

/* Adds "cached after decode", or "cached nowhere". */
static void why_add_place(struct cw_decision *d, const struct cw_facts *f, int cache_point)
{
    why_add(d, "cached %s%.60s", cache_point >= 0 ? "after " : "nowhere",
            cache_point >= 0 ? f->cache_points[cache_point].name : "");
}

/* Adds why not twice as many workers are chosen: what they would gain and cost for the rest of the job. If
 * they are no worse there, for the time until the number of workers is decided again. */
static void why_add_more(struct cw_decision *d, const struct cw_outlook *o,
                         const struct cw_alternative *chosen)
{
    struct cw_alternative more = cw_outlook_like(o, chosen, 2 * chosen->capacity, chosen->cache_point);
    bool better = more.time_s <= chosen->time_s && more.cost <= chosen->cost;
    double less = 1 - (better ? more.held_s / CW_MAX(chosen->held_s, 1e-9)
                              : more.time_s / CW_MAX(chosen->time_s, 1e-9));
    double dearer = (better ? more.held_cost / CW_MAX(chosen->held_cost, 1e-12)
                            : more.cost / CW_MAX(chosen->cost, 1e-12)) -
                    1;
    why_add_count(d, o->facts, &more);
    why_add(d, "%s would ", why_bracket_end(o->facts));
    if (less <= 0)
        why_add(d, "start too late to gain anything");
    else if (dearer <= 0)
        why_add(d, "hardly gain anything");
    else
        why_add(d, "take %.2g %% less time and cost %.2g %% more %s", 100 * less, 100 * dearer,
                better ? "until the next decision" : "for the rest of the job");
}

/* Adds the first cache point that would be faster and cheaper than the chosen one, but by too little. */
static void why_add_other_place(struct cw_decision *d, const struct cw_outlook *o,
                                const struct cw_alternative *chosen)
{
    for (int i = -1; i < o->facts->n_cache_points; i++) {
        struct cw_alternative a = cw_outlook_rest(o, chosen->pools, i);
        if (i == chosen->cache_point || a.time_s >= chosen->time_s || a.cost >= chosen->cost)
            continue;
        why_add(d, "; ");
        why_add_place(d, o->facts, i);
        why_add(d, " would be faster and cheaper, but by too little");
        return;
    }
}

/* Adds the end of the reason: the limit, or why there are not more workers, then the alternative that seems
 * better. */
static void why_add_limit(struct cw_decision *d, const struct cw_auto *m, const struct cw_outlook *o,
                          const struct cw_alternative *chosen, const struct cw_auto_reason *reason)
{
    const struct cw_facts *f = o->facts;
    const struct cw_alternative *better = reason->better;
    enum cw_bottleneck limit = record_limit(m, f, o, chosen->capacity, chosen->local, chosen->cache_point,
                                            false);
    bool other = better && (memcmp(better->pools, chosen->pools, sizeof(better->pools)) != 0 ||
                            better->cache_point != chosen->cache_point);
    bool more = other && better->capacity > chosen->capacity;
    if (limit == CW_BOTTLENECK_WORKERS && !more)
        why_add_more(d, o, chosen);
    else if (!more)
        why_add(d, "%s", record_limit_text(limit));
    if (!other) {
        why_add_other_place(d, o, chosen);
        return;
    }
    why_add(d, "%s", more ? "" : "; ");
    why_add_count(d, f, better);
    why_add(d, "%s%s", why_bracket_end(f), better->cache_point != chosen->cache_point ? ", " : "");
    if (better->cache_point != chosen->cache_point)
        why_add_place(d, f, better->cache_point);
    why_add(d, " would seem better, but %s", reason->but);
}

static void why_put(struct cw_decision *d, const struct cw_auto *m, const struct cw_outlook *o,
                    const struct cw_alternative *chosen, const struct cw_auto_reason *reason)
{
    const struct cw_facts *f = o->facts;
    struct cw_outlook sure = *o;
    sure.doubt = 0;
    double computed_s = cw_outlook_batch_s(&sure, cw_auto_pools_running(&m->pools, f), record_local(f),
                                           (int)m->cache.point, m->cache.cached),
           measured_s = m->watch.known.interval.n > 0 ? m->watch.known.interval.mean : 0;
    snprintf(d->why, sizeof(d->why), "%s", reason->why);
    if (m->watch.known.interval.n > 0)
        why_add(d, ": a batch takes %.4g s with %d worker%s (the client's step: %.4g s)", measured_s,
                d->seen.workers, d->seen.workers == 1 ? "" : "s", m->watch.known.step.mean);
    if (m->watch.known.interval.n > 0 && computed_s > (1 + PREFETCHED) * measured_s)
        why_add(d, ", although by the workers' computing time it would take %.4g s", computed_s);
    if (d->seen.doubt >= LEAST_DOUBT)
        why_add(d, ", and workers are assumed to be %.0f %% slower, as a safety margin", 100 * d->seen.doubt);
    why_add(d, "; ");
    why_add_count(d, f, chosen);
    if (f->n_pools > 1) /* and the reason for these pools: "5 workers (4 of pool near; near first: ...)" */
        why_add(d, "; %.20s first: %s)", f->pools[o->supply.order[chosen->order][0]].name,
                chosen->order ? "its workers start soonest" : "its computing costs least");
    if (chosen->cache_point >= 0) {
        why_add(d, ", ");
        why_add_place(d, f, chosen->cache_point);
        why_add(d, ",");
    }
    why_add(d, " %s expected to take %.4g s a batch: ", chosen->workers == 1 ? "is" : "are", chosen->batch_s);
    why_add_limit(d, m, o, chosen, reason);
}

/* Seconds per batch over the rest of the job. */
static double record_rest_s(const struct cw_facts *f, const struct cw_alternative *a)
{
    double batches = f->epochs * f->batches_per_epoch - f->batches_done;
    return batches > 0 ? a->time_s / batches : a->batch_s;
}

/* Writes the reason of a decision about the cache only. It compares the rest of the job, since a cache gains
 * nothing before it has filled. */
static void why_put_cache(struct cw_decision *d, const struct cw_auto *m, const struct cw_outlook *o,
                          const struct cw_alternative *chosen, const int *running,
                          const struct cw_auto_reason *reason)
{
    const struct cw_facts *f = o->facts;
    struct cw_alternative other = {.time_s = -1};
    for (int i = -1; i < f->n_cache_points; i++) {
        struct cw_alternative a = cw_outlook_rest(o, running, i);
        if (i != chosen->cache_point && (other.time_s < 0 || a.time_s < other.time_s))
            other = a;
    }
    snprintf(d->why, sizeof(d->why), "%s", reason->why);
    if (m->watch.known.interval.n > 0)
        why_add(d, ": a batch takes %.4g s (the client's step: %.4g s)", m->watch.known.interval.mean,
                m->watch.known.step.mean);
    why_add(d, "; ");
    why_add_place(d, f, chosen->cache_point);
    why_add(d, ", the rest of the job takes %.4g s a batch", record_rest_s(f, chosen));
    if (other.time_s < 0)
        return;
    bool same = fabs(other.time_s - chosen->time_s) <= SAME * chosen->time_s;
    why_add(d, ", ");
    why_add_place(d, f, other.cache_point);
    why_add(d, " %.4g s%s", record_rest_s(f, &other),
            same                            ? ", too"
            : other.time_s < chosen->time_s ? ", which would be faster and cheaper, but by too little"
                                            : "");
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
    d->promises = chosen->batch_s <= (1 + 2 * CW_AUTO_WAITING) * o->host.step_s;
    d->seen = (struct cw_seen){.step_s = m->watch.known.step.mean,
                               .wait_s = CW_MAX(m->watch.known.interval.mean - m->watch.known.step.mean, 0),
                               .interval_s = m->watch.known.interval.mean,
                               .compute_s = m->watch.known.compute.mean,
                               .busy = m->watch.known.busy,
                               .error = cw_auto_belief_error(m),
                               .doubt = o->doubt,
                               .workers = n_running,
                               .cache_point = (int)m->cache.point,
                               .cached = m->cache.cached,
                               .limit = record_limit(m, f, o, cw_auto_pools_running(&m->pools, f),
                                                     record_local(f), (int)m->cache.point, true)};
    struct cw_alternative now = cw_outlook_rest(o, running, f->cache_point),
                          as_is = cw_outlook_rest(o, running, chosen->cache_point);
    record_add(d, f->fixed ? &as_is : chosen);
    record_add(d, &now);
    record_add_cache_points(d, o, chosen, f->fixed ? running : chosen->pools);
    if (f->fixed) {
        why_put_cache(d, m, o, &as_is, running, reason);
        return;
    }
    if (reason->better)
        record_add(d, reason->better);
    record_add_like(d, o, chosen, 2 * chosen->capacity);
    record_add_like(d, o, chosen, chosen->capacity / 2);
    why_put(d, m, o, chosen, reason);
}
