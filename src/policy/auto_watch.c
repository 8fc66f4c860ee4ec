/* Collects what auto measures with the workers that it decided on, and detects when conditions changed: the
 * client's step, the speed of the input, or the cache. Owns struct cw_auto_watch. Called by auto.c at each
 * report. */
#include "policy/auto_watch.h"

#include <math.h>

#include "base/macro.h"
#include "policy/auto_belief.h"

#define CHANGED 0.05      /* least change of step or interval, in addition to SURE_CHANGE standard errors */
#define SURE_CHANGE 5.0   /* this many, since the test is made thousands of times in a job */
#define CHANGED_BATCHES 8 /* least batches after a change: single batches may take very long */
#define KNOWN_BATCHES 30  /* least batches before a change */
#define STORE_CHANGED 0.2 /* least change of the cache's speed */
#define GREW_LEAST 0.001  /* least change of the cached part of the epoch */
#define STILL_GROWS 0.25  /* the cached part still grows if this part of its change is new in this report */
#define BROKEN_WAIT 0.05  /* the client waits unexpectedly if it waits for more than this part of its step */
#define BROKEN_IN_A_ROW 8 /* reports of a streak that suffice */

/* Adds one measurement to another, as if all batches had been measured together. */
static void seen_add(struct cw_auto_seen *into, const struct cw_auto_seen *more)
{
    cw_mean_merge(&into->step, &more->step);
    cw_mean_merge(&into->interval, &more->interval);
    cw_mean_merge(&into->compute, &more->compute);
    if (into->compute.n > 0) /* batches without a reported compute time do not change `busy` */
        into->busy += (more->busy - into->busy) * more->compute.n / into->compute.n;
}

static bool seen_waits(const struct cw_auto_seen *s)
{
    return s->interval.mean > (1 + BROKEN_WAIT) * s->step.mean;
}

void cw_auto_watch_end_streak(struct cw_auto_watch *w)
{
    w->streak = (struct cw_auto_reports){0};
}

void cw_auto_watch_restart(struct cw_auto *m, double now_s)
{
    struct cw_auto_watch *w = &m->watch;
    w->recent = (struct cw_auto_seen){0};
    w->window = (struct cw_auto_reports){0};
    /* n 0: the old compute time is used until a new one is measured */
    w->known = (struct cw_auto_seen){.step = w->known.step, .compute = {0, w->known.compute.mean, 0}};
    w->waits = m->plan.evaluated_n = 0;
    w->since_s = now_s;
}

void cw_auto_watch_conditions_changed(struct cw_auto *m, double decisions)
{
    m->plan.decisions = CW_MIN(m->plan.decisions, decisions);
    m->plan.resting = m->plan.past_s = m->plan.past_cost = 0;
}

/* Returns the time per batch that all cache points save. Workers measure it also for cache points that are
 * not in use. */
static double cache_saved_s(const struct cw_facts *f)
{
    double sum = 0;
    for (int i = 0; i < f->n_cache_points; i++)
        sum += f->cache_points[i].prefix_s;
    return sum;
}

void cw_auto_watch_note_cache(struct cw_auto *m, const struct cw_facts *f)
{
    m->cache.read_bytes_per_s = f->storage.read_bytes_per_s;
    m->cache.write_bytes_per_s = f->storage.write_bytes_per_s;
    m->cache.saved_s = cache_saved_s(f);
}

/* Whether a mean changed. `scatter`: relative deviation of a batch by other measurements, which matters since
 * a few batches may be alike by chance; 0: not known. */
static bool mean_changed(const struct cw_mean *recent, const struct cw_mean *before, double scatter)
{
    double known = CW_MAX(cw_mean_error(before), scatter / sqrt(CW_MAX(before->n, 1)));
    return recent->n >= CHANGED_BATCHES && before->n >= KNOWN_BATCHES &&
           fabs(recent->mean / before->mean - 1) >
               CHANGED + SURE_CHANGE * known * sqrt(1 + before->n / recent->n);
}

static bool store_changed(double now, double before)
{
    return now > 0 && (!(before > 0) || fabs(now / before - 1) > STORE_CHANGED);
}

/* Whether reading the cache took a noticeable part of the computing time before, and is now as fast as
 * memory, for which no speed is reported. */
static bool store_became_memory(const struct cw_auto *m, const struct cw_facts *f, double full_s)
{
    double bytes = 0;
    for (int i = 0; i < f->n_cache_points; i++)
        bytes = CW_MAX(bytes, f->cache_points[i].bytes);
    return !(f->storage.read_bytes_per_s > 0) && m->cache.read_bytes_per_s > 0 &&
           bytes / m->cache.read_bytes_per_s > STORE_CHANGED * full_s;
}

/* If the cache's speed, or the time that cache points save, changed: makes auto evaluate the plan again. All
 * other measurements stay valid. */
static void watch_cache(struct cw_auto *m, const struct cw_facts *f)
{
    double full_s = cw_auto_belief_all_s(m, f);
    bool store = store_changed(f->storage.read_bytes_per_s, m->cache.read_bytes_per_s) ||
                 store_changed(f->storage.write_bytes_per_s, m->cache.write_bytes_per_s) ||
                 store_became_memory(m, f, full_s);
    if (f->n_cache_points == 0 ||
        !(store || fabs(cache_saved_s(f) - m->cache.saved_s) > STORE_CHANGED * full_s))
        return;
    cw_auto_watch_note_cache(m, f);
    cw_auto_watch_conditions_changed(m, 1);
    m->plan.evaluated_n = 0;
}

bool cw_auto_watch_changed(struct cw_auto *m, const struct cw_facts *f, const struct cw_auto_seen *now,
                           double now_s)
{
    struct cw_auto_seen *known = &m->watch.known, *recent = &m->watch.recent;
    seen_add(recent, now);
    bool step = mean_changed(&recent->step, &known->step, 0) &&
                fabs(recent->step.mean - known->step.mean) > CHANGED * cw_auto_belief_fastest(m),
         interval = mean_changed(&recent->interval, &known->interval, cw_auto_belief_scatter(m));
    watch_cache(m, f);
    if (!step && !interval) {
        if (known->interval.n < KNOWN_BATCHES || recent->interval.n > known->interval.n ||
            cw_mean_error(&recent->interval) * SURE_CHANGE < CHANGED) {
            seen_add(known, recent);
            *recent = (struct cw_auto_seen){0};
        }
        return false;
    }
    if (step && cw_host_any(f))
        cw_auto_belief_step_changed(m, f, recent->step.mean / known->step.mean);
    cw_auto_watch_conditions_changed(m, 0);
    cw_auto_watch_restart(m, now_s);
    m->plan.trial_from = 0;
    known->step = (struct cw_mean){0};
    if (!step) /* the input changed: the curve and the limits are no longer valid */
        m->belief.n_points = m->belief.floor_s = m->belief.source_bytes_per_s = m->belief.busiest = 0;
    return true;
}

bool cw_auto_watch_broken(struct cw_auto_watch *w, bool promises, const struct cw_auto_seen *now)
{
    double report = CW_MIN(now->interval.n, 1);
    seen_add(&w->window.seen, now);
    w->window.n += report;
    if (seen_waits(now)) {
        seen_add(&w->streak.seen, now);
        w->streak.n += report;
    } else {
        cw_auto_watch_end_streak(w);
    }
    bool full = w->window.n >= CW_AUTO_REPORTS,
         waits = w->streak.n >= BROKEN_IN_A_ROW || (full && seen_waits(&w->window.seen));
    if (full && !(waits && promises))
        w->window = (struct cw_auto_reports){0};
    return waits && promises;
}

void cw_auto_watch_believe_waiting(struct cw_auto *m, double decisions, double now_s)
{
    struct cw_auto_watch *w = &m->watch;
    struct cw_auto_seen seen = w->window.seen, all = w->known;
    seen_add(&all, &w->recent);
    if (w->streak.n >= BROKEN_IN_A_ROW)
        seen = w->streak.seen;
    else if (seen_waits(&all)) /* batches come in groups: only all of them together show the interval */
        seen = all;
    cw_auto_watch_conditions_changed(m, decisions);
    cw_auto_watch_restart(m, now_s);
    if (!(seen.compute.n > 0))
        seen.compute = w->known.compute;
    w->known = seen;
    w->waits = 1;
}

static double cache_cached(const struct cw_facts *f)
{
    return f->cache_point >= 0 ? f->cache_points[f->cache_point].cached : 0;
}

bool cw_auto_watch_cache_growing(struct cw_auto_cache *c, const struct cw_facts *f)
{
    double cached = cache_cached(f), more = fabs(cached - c->cached), now = fabs(cached - c->last_cached);
    c->last_cached = cached;
    return f->cache_point == (int)c->point && more > CW_AUTO_GREW && now > STILL_GROWS * more;
}

bool cw_auto_watch_cache_grew(struct cw_auto *m, const struct cw_facts *f, double now_s)
{
    double cached = cache_cached(f),
           least = CW_MAX(CW_AUTO_GREW * (1 - CW_MIN(cached, m->cache.cached)), GREW_LEAST);
    if (f->cache_point != (int)m->cache.point || fabs(cached - m->cache.cached) <= least)
        return false;
    double full_s = cw_auto_belief_all_s(m, f);
    /* Assume slightly more work: the computing that is left is a small difference of two times, and if it is
     * underestimated, stopped workers need a start delay to return. */
    if (f->objective == CW_OBJECTIVE_TIME)
        full_s *= 1 + cw_auto_belief_supply_error(m);
    m->cache.cached = cached;
    m->plan.resting = 0;
    cw_auto_watch_restart(m, now_s);
    cw_auto_belief_expect_compute(m, f, full_s, cached, f->cache_point);
    return m->belief.n_points > 0;
}
