/* What auto derives from its measurements: the curve of supply by number of workers, limits other than
 * workers, and their errors. Owns struct cw_auto_belief; reads the measurements of auto_watch.h. Called by
 * the other files of auto. "Workers" are capacities (supply.h). */
#include "policy/auto_belief.h"

#include <math.h>

#include "base/macro.h"
#include "policy/auto_pools.h"

/* Largest error of a first decision, which is corrected later: ROUGH_ERROR, or ROUGH_PER_PART times the part
 * of the rest of the job that was spent on measuring, but at most ROUGH_MOST. */
#define ROUGH_ERROR 0.06
#define ROUGH_MOST 1.0
#define ROUGH_PER_PART 15.0
/* Workers are stalled if they are less busy than this part of `busiest` while the client waits. */
#define STALLED 0.85
/* Workers that are busy for this part of the time are never idle for long. Their compute time then gives the
 * interval, and scatters less than intervals do, since batches arrive in groups, one range at a time. */
#define ALL_BUSY 0.9
/* A measurement shows computing only if the cache leaves at least this part of it. */
#define LEAST_LEFT 0.1
/* "Work" is a batch's time multiplied by the number of workers. If the work at the second point is this
 * factor of that at the first, workers slow each other down, or reach a limit. */
#define SUBLINEAR 1.3
#define SUDDEN 10.0 /* the power p of a shape with a sudden limit (curve.h) */
/* From this factor of work on, for objective time, the curve is too uncertain to stop: FARTHER times the
 * workers are tried, if the maximum is at least WORTH times the workers. */
#define UNCLEAR 1.7
#define FARTHER 4
#define WORTH 1.3
#define SAME 0.3 /* points whose capacity differs by less are the same, or by less than SAME_PART */
#define SAME_PART 0.01
#define OTHER_CPUS 0.5    /* CPUs by which the use of the host must differ to explain a change of the step */
#define EXPLORE_GAIN 0.06 /* least gain for which fewer workers are tried */
#define EXPLORE_PART 5    /* a trial needs a rest of the job of at least this many trials */
#define EXPLORE_LONG 20   /* the same, where a trial can gain less */
#define NEARLY 0.04       /* fewer workers are tried if they are too slow by at most this part */
#define FEWER_GAIN 0.03   /* least saving of cost by one worker fewer */
#define FEW 4             /* this many workers may always be requested at once */
#define MEASURING_S 3.0   /* seconds to measure a decision, once its workers have started */
/* Price of workers without a price, as a part of the client's price. For objective time, the smaller of two
 * equally fast numbers of workers is then better. For objective cost, the price must not matter. */
#define UNPRICED 0.1
#define UNPRICED_COST 0.001

static double belief_prefix_s(const struct cw_facts *f, int cache_point)
{
    return cache_point >= 0 ? f->cache_points[cache_point].prefix_s : 0;
}

double cw_auto_belief_all_s(const struct cw_auto *m, const struct cw_facts *f)
{
    double all = m->watch.known.compute.mean + m->cache.cached * belief_prefix_s(f, (int)m->cache.point);
    for (int i = 0; i < f->n_cache_points; i++)
        all = CW_MAX(all, f->cache_points[i].prefix_s);
    return all;
}

void cw_auto_belief_expect_compute(struct cw_auto *m, const struct cw_facts *f, double full_s, double cached,
                                   int cache_point)
{
    double left_s = CW_MAX(full_s - cached * belief_prefix_s(f, cache_point), 0);
    m->watch.known.compute = (struct cw_mean){0, left_s, 0};
}

/* Returns the part of its time that a worker waits for the source: workers that are seldom busy although they
 * are the limit wait for the source. */
static double belief_waiting(const struct cw_auto *m)
{
    return m->belief.busiest > 0 && m->belief.busiest < STALLED ? 1 - m->belief.busiest : 0;
}

/* Returns the part of a worker's time per batch that is left with what is cached now. */
static double belief_work_left(const struct cw_auto *m, const struct cw_facts *f)
{
    struct cw_outlook o = {.facts = f, .compute_s = cw_auto_belief_all_s(m, f), .waiting = belief_waiting(m)};
    return cw_outlook_left(&o, (int)m->cache.point, m->cache.cached);
}

double cw_auto_belief_fastest(const struct cw_auto *m)
{
    return m->pools.maximum > 0 ? m->watch.known.interval.mean * m->pools.running / m->pools.maximum : 0;
}

static double belief_error_with(const struct cw_auto *m, double interval)
{
    /* The error of the step matters only as far as workers could serve the client: not if the step takes no
     * time, and less if even all workers together are slower than the client. */
    double step = 0;
    if (m->watch.known.step.mean > 0)
        step = cw_mean_error(&m->watch.known.step) * m->watch.known.step.mean /
               CW_MAX(m->watch.known.step.mean, cw_auto_belief_fastest(m));
    return sqrt(interval * interval + step * step);
}

double cw_auto_belief_error(const struct cw_auto *m)
{
    return belief_error_with(m, cw_mean_error(&m->watch.known.interval));
}

/* Returns the assumed relative deviation of a batch's compute time. A batch of many elements scatters less:
 * the elements are assumed to scatter independently, each by 100 %. */
static double belief_compute_deviation(const struct cw_facts *f)
{
    return f->positions_per_batch > 0 ? CW_MIN(CW_MEAN_DEVIATION, 1 / sqrt(f->positions_per_batch))
                                      : CW_MEAN_DEVIATION;
}

double cw_auto_belief_rough_error(const struct cw_auto *m, const struct cw_facts *f)
{
    double interval = cw_mean_error(&m->watch.known.interval);
    bool evenly = m->watch.known.busy >= ALL_BUSY && m->watch.known.compute.n > 0;
    return belief_error_with(m, evenly ? CW_MIN(interval, cw_mean_error_thought(&m->watch.known.compute,
                                                                                belief_compute_deviation(f)))
                                       : interval);
}

static bool belief_waits(const struct cw_auto *m)
{
    return m->watch.waits > 0 ||
           m->watch.known.interval.mean >
               m->watch.known.step.mean * (1 + CW_AUTO_WAITING + CW_AUTO_SURE * cw_auto_belief_error(m));
}

/* Whether workers are less busy than fewer workers were, although the client waits, so that more workers
 * would not help. */
static bool belief_stalled(const struct cw_auto *m, double workers)
{
    return belief_waits(m) && m->belief.n_points > 0 && m->watch.known.compute.n > 0 &&
           workers > m->belief.points[0].workers && m->watch.known.busy < STALLED * m->belief.busiest;
}

double cw_auto_belief_scatter(const struct cw_auto *m)
{
    struct cw_mean all = {0, 1, 0};
    for (size_t i = 0; i < (size_t)m->belief.n_points; i++) {
        all.n += CW_MAX(m->belief.points[i].n - 1, 0);
        all.m2 += m->belief.points[i].m2;
    }
    all.n += 1;
    return cw_mean_error(&all) * sqrt(all.n);
}

/* Sets the error of all points from the scatter over all points, which is known better than the scatter of a
 * point with few batches. */
static void belief_judge_points(struct cw_auto *m)
{
    double of_one = cw_auto_belief_scatter(m);
    for (size_t i = 0; i < (size_t)m->belief.n_points; i++)
        if (m->belief.points[i].n > 0)
            m->belief.points[i].error = CW_MIN(of_one / sqrt(m->belief.points[i].n), 1);
}

/* Returns the number of local workers that run. */
static double belief_local(const struct cw_facts *f)
{
    int running[CW_POLICY_POOLS] = {0};
    for (int i = 0; i < f->n_pools; i++)
        running[i] = f->pools[i].running;
    return cw_host_local(f, running);
}

/* Adds a point, or replaces the point with the same capacity and local workers. s: seconds per batch with
 * nothing cached; of: the mean that s was computed from. */
static void belief_add_point(struct cw_auto *m, const struct cw_facts *f, double workers, double s,
                             const struct cw_mean *of)
{
    size_t n = (size_t)m->belief.n_points, at = 0;
    double local = belief_local(f);
    if (cw_host_any(f)) /* the speed of local workers is known a little better with each report */
        while (at < n && !(m->belief.points[at].local == local &&
                           fabs(m->belief.points[at].workers - workers) <= CW_MAX(SAME, SAME_PART * workers)))
            at++;
    else
        while (at < n && m->belief.points[at].workers < workers)
            at++;
    if (at == n || (m->belief.points[at].workers != workers && !cw_host_any(f))) {
        if (n == CW_CURVE_POINTS)
            return;
        for (size_t i = n; i > at; i--)
            m->belief.points[i] = m->belief.points[i - 1];
        m->belief.n_points++;
    }
    m->belief.points[at] = (struct cw_point){workers,
                                             s,
                                             ROUGH_ERROR,
                                             of->n,
                                             of->mean > 0 ? of->m2 / (of->mean * of->mean) : 0,
                                             local,
                                             cw_host_over(f),
                                             m->watch.known.step.mean};
    belief_judge_points(m);
}

double cw_auto_belief_supply_error(const struct cw_auto *m)
{
    double least = m->belief.n_points > 0 ? m->belief.points[0].error : 0;
    for (size_t i = 1; i < (size_t)m->belief.n_points; i++)
        least = CW_MIN(least, m->belief.points[i].error);
    return least;
}

/* Returns the seconds per batch that reading the cache takes at its measured speed. */
static double belief_cache_s(const struct cw_auto *m, const struct cw_facts *f)
{
    bool limited = m->cache.point >= 0 && f->storage.read_bytes_per_s > 0;
    return limited
               ? m->cache.cached * f->cache_points[(int)m->cache.point].bytes / f->storage.read_bytes_per_s
               : 0;
}

void cw_auto_belief_learn(struct cw_auto *m, const struct cw_facts *f)
{
    double workers = cw_auto_pools_running(&m->pools, f), left = belief_work_left(m, f);
    double source = (m->cache.point >= 0 ? 1 - m->cache.cached : 1) * f->storage.source_bytes;
    if (left < LEAST_LEFT || belief_cache_s(m, f) > STALLED * m->watch.known.interval.mean) {
        /* this measurement shows the cache's speed and not that of computing */
        if (m->belief.n_points == 0)
            belief_add_point(m, f, workers, cw_auto_belief_all_s(m, f) / workers, &(struct cw_mean){0});
        return;
    }
    /* local workers may have slowed the input down, which the surface shows */
    bool stalled = belief_stalled(m, workers) && (source > 0 || !cw_host_any(f));
    if (stalled) {
        if (source > 0)
            m->belief.source_bytes_per_s = source / m->watch.known.interval.mean;
        else
            m->belief.floor_s = m->watch.known.interval.mean;
    } else { /* if this is faster than a limit assumed before, raises the limit */
        double most = m->watch.known.interval.mean * (1 + CW_AUTO_SURE * cw_auto_belief_error(m));
        if (m->belief.source_bytes_per_s > 0)
            m->belief.source_bytes_per_s = CW_MAX(m->belief.source_bytes_per_s, source / most);
        m->belief.floor_s = CW_MIN(m->belief.floor_s, most);
    }
    bool limits = belief_waits(m) && !stalled; /* workers are the limit */
    m->belief.busiest = CW_MAX(m->belief.busiest, m->watch.known.busy);
    /* if workers are not the limit, the interval does not show their speed, but their compute time does.
     * Without a compute time, the interval is used: workers are at least as fast as the client */
    if (limits || !(m->watch.known.compute.mean > 0))
        belief_add_point(m, f, workers, m->watch.known.interval.mean / left, &m->watch.known.interval);
    else
        belief_add_point(m, f, workers,
                         m->watch.known.compute.mean /
                             (workers * (m->belief.busiest > 0 ? m->belief.busiest : 1)) / left,
                         &m->watch.known.compute);
}

void cw_auto_belief_step_changed(struct cw_auto *m, const struct cw_facts *f, double ratio)
{
    double local = belief_local(f), over = cw_host_over(f);
    for (size_t i = 0; i < (size_t)m->belief.n_points; i++)
        if (m->belief.points[i].local == local && fabs(m->belief.points[i].over_cpus - over) > OTHER_CPUS)
            return;
    for (size_t i = 0; i < (size_t)m->belief.n_points; i++)
        m->belief.points[i].step_s *= ratio;
}

void cw_auto_belief_outlook(const struct cw_auto *m, const struct cw_facts *f, struct cw_outlook *o)
{
    double client = f->client_price_per_h > 0 ? f->client_price_per_h : 1;
    *o = (struct cw_outlook){.facts = f,
                             .host.step_s = m->watch.known.step.mean,
                             .source_bytes_per_s = m->belief.source_bytes_per_s,
                             .floor_s = m->belief.floor_s};
    o->compute_s = cw_auto_belief_all_s(m, f);
    o->waiting = belief_waiting(m);
    for (int i = 0; i < f->n_pools; i++) {
        o->requested[i] = m->pools.pool[i].target;
        o->requested_delay_s[i] = CW_MAX(
            m->pools.pool[i].requested_s + f->pools[i].start_delay_s - m->plan.last_s, 0);
    }
    o->past_time_s = m->plan.past_s;
    o->past_cost = m->plan.past_cost;
    cw_auto_pools_supply(&m->pools, f,
                         (f->objective == CW_OBJECTIVE_TIME ? UNPRICED : UNPRICED_COST) * client, &o->supply);
    size_t n = (size_t)m->belief.n_points;
    if (o->supply.local < 0) {
        cw_curve_fit(m->belief.points, n, 0, &o->curve);
        return;
    }
    if (m->belief.local_refused > 0)
        o->supply.maximum[o->supply.local] = (int)CW_MIN(o->supply.maximum[o->supply.local],
                                                         m->belief.local_refused - 1);
    o->supply.local_alone = !(m->belief.alone_refused > 0);
    cw_surface_fit(m->belief.points, n, &o->surface);
    cw_host_fit(f, m->belief.points, n, m->watch.known.step.mean, &o->host);
}

/* Measuring costs time and money. The larger their part of the time and cost of the rest of the job, the
 * larger the error may be. */
double cw_auto_belief_tolerated_error(const struct cw_auto *m, const struct cw_facts *f,
                                      const struct cw_alternative *rest, double now_s)
{
    double spent_s = now_s - m->watch.since_s,
           spent = spent_s / 3600 * (f->client_price_per_h + cw_auto_pools_price(&m->pools, f, true));
    double part = CW_MAX(spent_s / CW_MAX(rest->time_s, 1e-9), spent / CW_MAX(rest->cost, 1e-12));
    return CW_MIN(CW_MAX(ROUGH_ERROR, ROUGH_PER_PART * part), ROUGH_MOST);
}

/* Returns the price per hour of an alternative's workers per unit of capacity. */
static double belief_price_of_one(const struct cw_facts *f, const struct cw_alternative *a)
{
    double sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        sum += a->pools[i] / a->capacity * f->pools[i].price_per_h;
    return sum;
}

/* The speed of more workers than were ever measured is a guess. A wrong guess costs the price of the workers
 * until it is noticed. An intermediate step costs the time of one more measurement. Takes the smaller risk.
 */
double cw_auto_belief_restrain(const struct cw_auto *m, const struct cw_facts *f,
                               const struct cw_alternative *best)
{
    const struct cw_point *last = &m->belief.points[(size_t)m->belief.n_points - 1];
    double seen = last->workers, n = best->capacity, trial_s = cw_supply_start_delay_s(f) + MEASURING_S;
    if (n <= CW_MAX(seen, FEW))
        return n;
    double exposed = (n - seen) * belief_price_of_one(f, best) * trial_s / 3600 / CW_MAX(best->cost, 1e-12),
           slow = trial_s / CW_MAX(best->time_s, 1e-9);
    if (m->belief.n_points < 2) {
        /* something other than workers is the limit already */
        if (m->watch.known.busy < STALLED && m->watch.known.interval.mean > m->watch.known.step.mean)
            return FEW;
        return 0.3 * exposed > slow ? ceil(sqrt(n * seen)) : n;
    }
    /* more workers gain nothing */
    if (m->belief.n_points > 2 && best->batch_s > 0.97 * CW_MAX(last->s, m->watch.known.step.mean))
        return seen;
    const struct cw_point *before = last - 1;
    double divided = last->s * last->workers / (before->s * before->workers),
           steps = last->workers / before->workers;
    double most = divided > 1.15 ? 4 * seen : seen * CW_MAX(steps * steps, 4);
    return CW_MIN(n, most);
}

/* Two points do not show the shape of the curve. If the objective is time and more workers gained much less
 * than expected, even more are tried: that costs only money, and a third point shows whether workers slow
 * each other down. Otherwise the curve may have a sudden limit, so that fewer workers are as fast. Fewer
 * workers are tried if that would pay and the job is long compared with the trial. */
double cw_auto_belief_explore(const struct cw_auto *m, const struct cw_outlook *believed,
                              const struct cw_alternative *stay, double error)
{
    const struct cw_facts *f = believed->facts;
    const struct cw_point *a = &m->belief.points[0], *b = &m->belief.points[1];
    double trial_s = cw_supply_start_delay_s(f) + MEASURING_S, most = cw_supply_most(&believed->supply);
    if (believed->supply.local >= 0 || m->belief.n_points != 2 || m->plan.decisions > 1 || !belief_waits(m) ||
        m->pools.target != b->workers || stay->time_s < EXPLORE_PART * trial_s)
        return 0;
    double work = b->s * b->workers / (a->s * a->workers);
    if (work >= UNCLEAR && f->objective == CW_OBJECTIVE_TIME && most >= WORTH * b->workers)
        return CW_MIN(FARTHER * b->workers, most);
    if (work < SUBLINEAR || stay->time_s < EXPLORE_LONG * trial_s)
        return 0;
    struct cw_outlook sudden = *believed;
    cw_curve_fit(m->belief.points, 2, SUDDEN, &sudden.curve);
    struct cw_alternative best = cw_outlook_best(&sudden, 1),
                          same = cw_outlook_rest(&sudden, stay->pools, f->cache_point);
    double gain = cw_outlook_gain(&sudden, &best, &same, false);
    if (best.capacity >= m->pools.target || gain <= EXPLORE_GAIN + CW_AUTO_SURE * error)
        return 0;
    if (m->pools.target < 2.5 * best.capacity)
        return best.capacity;
    /* half-way, which still gains something on a curve of another shape */
    return ceil(sqrt(best.capacity * m->pools.target));
}

/* The client does not wait, and with one worker fewer it would wait so little that the curve's error could
 * explain it. One worker fewer is tried if the job is long compared with the trial and a start delay, after
 * which the worker would be back. */
double cw_auto_belief_fewer(const struct cw_auto *m, const struct cw_outlook *o,
                            const struct cw_alternative *stay, double error)
{
    const struct cw_facts *f = o->facts;
    double batches = cw_auto_belief_scatter(m) / CW_AUTO_EXACT,
           trial_s = cw_supply_start_delay_s(f) + MEASURING_S + batches * batches * m->watch.known.step.mean;
    if (f->objective != CW_OBJECTIVE_TIME || f->n_pools != 1 || m->plan.decisions != 1 ||
        m->plan.trial_from != 0 || m->pools.target < 2 || error >= CW_AUTO_EXACT || belief_waits(m) ||
        stay->time_s < EXPLORE_LONG * trial_s || cw_outlook_fills(o, stay->cache_point))
        return 0;
    struct cw_alternative less = cw_outlook_like(o, stay, m->pools.target - 1, stay->cache_point);
    bool dear = cw_outlook_price_s(o, stay) * (1 - FEWER_GAIN) > cw_outlook_price_s(o, &less);
    return dear && less.capacity > 0 && less.batch_s <= (1 + NEARLY) * m->watch.known.step.mean
               ? less.capacity
               : 0;
}
