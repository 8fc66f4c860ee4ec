/* What auto measures with the workers that it decided on, and whether that says that conditions are others by
 * now: of client, input, cache. */
#include "policy/auto.h"

#include <math.h>

#include "base/macro.h"

#define CHANGED \
    0.05 /* of step or interval, beyond SURE_CHANGE standard errors: conditions are others now \
          */
#define SURE_CHANGE 5.0   /* it is asked at each report, thousands of times */
#define CHANGED_BATCHES 8 /* that say so: a single one may take several times as long, and tails are long */
#define KNOWN_BATCHES 30  /* before so many nothing can change: it is not known what it was */
#define STORE_CHANGED 0.2 /* of the cache's speed */
#define GREW_LEAST 0.001  /* of the epoch */
#define STILL_GROWS 0.25  /* of what it grew by, since the last report */

#define BROKEN_WAIT \
    0.05                  /* of the step, where none was expected: the plan is not what it was thought to be \
                           */
#define BROKEN_IN_A_ROW 8 /* reports that show it */

static void forget_recent(struct cw_auto *m)
{
    m->recent_step = m->recent_interval = m->recent_compute = (struct cw_mean){0};
    m->recent_busy = 0;
}

static void watch_anew(struct cw_auto *m)
{
    m->watched = 0;
    m->watched_together = (struct cw_auto_seen){0};
}

void cw_auto_forget_waiting(struct cw_auto *m)
{
    m->waited = 0;
    m->waited_together = (struct cw_auto_seen){0};
}

void cw_auto_measure_anew(struct cw_auto *m, double now_s)
{
    forget_recent(m);
    m->interval = (struct cw_mean){0};
    m->compute = (struct cw_mean){0, m->compute.mean, 0}; /* thought, until it was measured */
    m->busy = m->looked_n = m->waits = 0;
    m->since_s = now_s;
    watch_anew(m);
}

void cw_auto_begin_anew(struct cw_auto *m, double decisions)
{
    m->decisions = CW_MIN(m->decisions, decisions);
    m->resting = m->past_s = m->past_cost = 0;
}

/* What cache points save is measured by those who do not use them too. */
static double saved_s(const struct cw_facts *f)
{
    double sum = 0;
    for (int i = 0; i < f->n_cache_points; i++)
        sum += f->cache_points[i].prefix_s;
    return sum;
}

void cw_auto_note_cache(struct cw_auto *m, const struct cw_facts *f)
{
    m->read_bytes_per_s = f->storage.read_bytes_per_s;
    m->write_bytes_per_s = f->storage.write_bytes_per_s;
    m->saved_s = saved_s(f);
}

/* `scatter`: of a batch, as far as that is known besides: a few batches don't know theirs, and may happen to
 * be alike. */
static bool differs(const struct cw_mean *recent, const struct cw_mean *before, double scatter)
{
    double known = CW_MAX(cw_mean_error(before), scatter / sqrt(CW_MAX(before->n, 1)));
    return recent->n >= CHANGED_BATCHES && before->n >= KNOWN_BATCHES &&
           fabs(recent->mean / before->mean - 1) >
               CHANGED + SURE_CHANGE * known * sqrt(1 + before->n / recent->n);
}

/* All that was measured with these workers. */
static struct cw_auto_seen seen_in_all(const struct cw_auto *m)
{
    struct cw_auto_seen all = {m->step, m->interval, m->compute, m->busy};
    double n = m->compute.n + m->recent_compute.n;
    if (n > 0)
        all.busy += (m->recent_busy - m->busy) * m->recent_compute.n / n;
    cw_mean_merge(&all.interval, &m->recent_interval);
    cw_mean_merge(&all.compute, &m->recent_compute);
    cw_mean_merge(&all.step, &m->recent_step);
    return all;
}

static void know(struct cw_auto *m, const struct cw_auto_seen *seen)
{
    m->step = seen->step;
    m->interval = seen->interval;
    m->compute = seen->compute;
    m->busy = seen->busy;
}

/* No change has shown in it. */
static void absorb_recent(struct cw_auto *m)
{
    struct cw_auto_seen all = seen_in_all(m);
    know(m, &all);
    forget_recent(m);
}

/* What was measured since the last report. */
static void take_in(struct cw_auto *m, const struct cw_facts *f, const struct cw_demand *now)
{
    struct cw_auto_work work = cw_auto_work(m, f);
    /* what is not told yet says nothing of how busy workers are */
    double n = m->recent_compute.n + work.compute.n;
    if (n > 0)
        m->recent_busy += (work.busy - m->recent_busy) * work.compute.n / n;
    cw_mean_merge(&m->recent_interval, &now->interval);
    cw_mean_merge(&m->recent_compute, &work.compute);
    cw_mean_merge(&m->recent_step, &now->step);
}

static bool store_changed(double now, double before)
{
    return now > 0 && (!(before > 0) || fabs(now / before - 1) > STORE_CHANGED);
}

/* The cache's storage took a part of what computing takes, and is as quick as memory now: no speed is told of
 * that. */
static bool store_is_no_limit_now(const struct cw_auto *m, const struct cw_facts *f, double full)
{
    double bytes = 0;
    for (int i = 0; i < f->n_cache_points; i++)
        bytes = CW_MAX(bytes, f->cache_points[i].bytes);
    return !(f->storage.read_bytes_per_s > 0) && m->read_bytes_per_s > 0 &&
           bytes / m->read_bytes_per_s > STORE_CHANGED * full;
}

/* What is known of the cache's storage, or of what cache points save, is something else by now: that is to be
 * looked at; what was measured of all else still holds. */
static void watch_cache(struct cw_auto *m, const struct cw_facts *f)
{
    double full = cw_auto_all_s(m, f);
    bool store = store_changed(f->storage.read_bytes_per_s, m->read_bytes_per_s) ||
                 store_changed(f->storage.write_bytes_per_s, m->write_bytes_per_s) ||
                 store_is_no_limit_now(m, f, full);
    if (f->n_cache_points == 0 || !(store || fabs(saved_s(f) - m->saved_s) > STORE_CHANGED * full))
        return;
    cw_auto_note_cache(m, f);
    cw_auto_begin_anew(m, 1);
    m->looked_n = 0;
}

bool cw_auto_changed(struct cw_auto *m, const struct cw_facts *f, const struct cw_demand *now, double now_s)
{
    take_in(m, f, now);
    bool step = differs(&m->recent_step, &m->step, 0) &&
                fabs(m->recent_step.mean - m->step.mean) > CHANGED * cw_auto_fastest(m),
         interval = differs(&m->recent_interval, &m->interval, cw_auto_scatter(m));
    watch_cache(m, f);
    if (!step && !interval) {
        if (m->interval.n < KNOWN_BATCHES || m->recent_interval.n > m->interval.n ||
            cw_mean_error(&m->recent_interval) * SURE_CHANGE < CHANGED)
            absorb_recent(m);
        return false;
    }
    cw_auto_begin_anew(m, 0);
    cw_auto_measure_anew(m, now_s);
    m->tried = 0;
    m->step = (struct cw_mean){0};
    if (!step) /* the input changed, so what was known of it is void */
        m->n_points = m->floor_s = m->source_bytes_per_s = m->busiest = 0;
    return true;
}

static bool shows_waiting(const struct cw_mean *interval, const struct cw_mean *step)
{
    return interval->mean > (1 + BROKEN_WAIT) * step->mean;
}

static void see(struct cw_auto_seen *s, const struct cw_demand *now, const struct cw_auto_work *work)
{
    cw_mean_merge(&s->step, &now->step);
    cw_mean_merge(&s->interval, &now->interval);
    cw_mean_merge(&s->compute, &work->compute);
    if (s->compute.n > 0)
        s->busy += (work->busy - s->busy) * work->compute.n / s->compute.n;
}

bool cw_auto_broken(struct cw_auto *m, const struct cw_facts *f, const struct cw_demand *now)
{
    double report = CW_MIN(now->interval.n, 1);
    struct cw_auto_work work = cw_auto_work(m, f);
    see(&m->watched_together, now, &work);
    m->watched += report;
    if (shows_waiting(&now->interval, &now->step)) {
        see(&m->waited_together, now, &work);
        m->waited += report;
    } else {
        cw_auto_forget_waiting(m);
    }
    bool full = m->watched >= CW_AUTO_REPORTS,
         waits = m->waited >= BROKEN_IN_A_ROW ||
                 (full && shows_waiting(&m->watched_together.interval, &m->watched_together.step));
    bool broken = waits && m->promises;
    if (full && !broken)
        watch_anew(m);
    return broken;
}

void cw_auto_believe_waiting(struct cw_auto *m, double decisions, double now_s)
{
    struct cw_auto_seen seen = m->watched_together, all = seen_in_all(m);
    if (m->waited >= BROKEN_IN_A_ROW)
        seen = m->waited_together;
    else if (shows_waiting(
                 &all.interval,
                 &all.step)) /* batches come in lumps: only all of them together tell how long one takes */
        seen = all;
    cw_auto_begin_anew(m, decisions);
    cw_auto_measure_anew(m, now_s);
    if (!(seen.compute.n > 0))
        seen.compute = m->compute;
    know(m, &seen);
    m->waits = 1;
}

bool cw_auto_cache_grows(struct cw_auto *m, const struct cw_facts *f)
{
    double cached = f->cache_point >= 0 ? f->cache_points[f->cache_point].cached : 0,
           more = fabs(cached - m->cached), now = fabs(cached - m->cached_seen);
    m->cached_seen = cached;
    return f->cache_point == (int)m->cache_point && more > CW_AUTO_GREW && now > STILL_GROWS * more;
}

bool cw_auto_cache_grew(struct cw_auto *m, const struct cw_facts *f, double now_s)
{
    double cached = f->cache_point >= 0 ? f->cache_points[f->cache_point].cached : 0;
    double least = CW_MAX(CW_AUTO_GREW * (1 - CW_MIN(cached, m->cached)), GREW_LEAST);
    bool grew = f->cache_point == (int)m->cache_point && fabs(cached - m->cached) > least;
    if (!grew)
        return false;
    double full = cw_auto_all_s(m, f);
    /* what is left is a difference: workers that go for too small a one take a start delay to come back */
    if (f->objective == CW_OBJECTIVE_TIME)
        full *= 1 + cw_auto_supply_error(m);
    m->cached = cached;
    m->resting = 0;
    cw_auto_measure_anew(m, now_s);
    /* thought, not measured: weighs nothing */
    m->compute = (struct cw_mean){0, CW_MAX(full - cached * cw_auto_prefix_s(f, f->cache_point), 0), 0};
    return m->n_points > 0;
}
