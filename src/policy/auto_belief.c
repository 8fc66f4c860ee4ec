/* What auto believes: a curve of supply by workers, limits that are none of the workers', and how far to
 * trust them. */
#include <math.h>

#include "base/macro.h"
#include "policy/auto.h"

/* A first guess may be rough, the more so the longer it takes: it is corrected. Relative standard errors, and
 * errors per part of the job that has passed. */
#define ROUGH_ERROR 0.06
#define ROUGH_MOST 1.0
#define ROUGH_PER_PART 15.0
#define STALLED \
    0.85 /* workers this much less busy than at their busiest, while the client waits: something else is the \
            limit */
#define ALL_BUSY 0.9 /* of their time: computing is steadier than batches, which come a range at a time */
#define LEAST_LEFT \
    0.1 /* where the cache leaves less to compute than this part, nothing is learned of computing */
#define SUBLINEAR 1.3 /* times the work per batch: workers get in each other's way, or at a limit */
#define SUDDEN 10.0   /* the power of a shape with a sudden limit (curve.h) */
#define UNCLEAR \
    1.7 /* times: so far off that more workers may give more than they seem to, where only time counts */
#define FARTHER 4 /* times the workers to try then */
#define WORTH 1.3 /* ... if there are so many times as many */
#define EXPLORE_GAIN 0.06
#define EXPLORE_PART 5  /* trials that a job must be long for one more */
#define EXPLORE_LONG 20 /* where less is to be won */
#define NEARLY 0.04     /* workers that are too slow by less may do after all */
#define FEWER_GAIN 0.03 /* of the cost, for one that is not needed */
#define FEW 4           /* workers that may always be tried at once */
#define MEASURING_S 3.0 /* about what it takes to see what a decision gave, once workers have started */
/* Of the client's price, for workers without one: where it is as fast fewer are better still; but what is to
 * be as cheap as possible is not to pay for that. */
#define UNPRICED 0.1
#define UNPRICED_COST 0.001

double cw_auto_prefix_s(const struct cw_facts *f, int cache_point)
{
    return cache_point >= 0 ? f->cache_points[cache_point].prefix_s : 0;
}

double cw_auto_all_s(const struct cw_auto *m, const struct cw_facts *f)
{
    double all = m->compute.mean + m->cached * cw_auto_prefix_s(f, (int)m->cache_point);
    for (int i = 0; i < f->n_cache_points; i++)
        all = CW_MAX(all, f->cache_points[i].prefix_s);
    return all;
}

/* Workers that are seldom busy even when they are the limit wait for the source. */
static double waiting(const struct cw_auto *m)
{
    return m->busiest > 0 && m->busiest < STALLED ? 1 - m->busiest : 0;
}

/* What of a worker's time is left with what is cached now. */
static double work_left(const struct cw_auto *m, const struct cw_facts *f)
{
    struct cw_outlook o = {.facts = f, .compute_s = cw_auto_all_s(m, f), .waiting = waiting(m)};
    return cw_outlook_left(&o, (int)m->cache_point, m->cached);
}

double cw_auto_fastest(const struct cw_auto *m)
{
    return m->maximum > 0 ? m->interval.mean * m->running / m->maximum : 0;
}

static double error_of(const struct cw_auto *m, double interval)
{
    /* a client that takes no time is known; so is one that all the workers there may be can't serve */
    double step = 0;
    if (m->step.mean > 0)
        step = cw_mean_error(&m->step) * m->step.mean / CW_MAX(m->step.mean, cw_auto_fastest(m));
    return sqrt(interval * interval + step * step);
}

double cw_auto_error(const struct cw_auto *m)
{
    return error_of(m, cw_mean_error(&m->interval));
}

/* Elements that scatter by all of what one takes, each by itself, give a batch that scatters the less the
 * more there are of them. */
static double deviation_of_compute(const struct cw_facts *f)
{
    return f->positions_per_batch > 0 ? CW_MIN(CW_MEAN_DEVIATION, 1 / sqrt(f->positions_per_batch))
                                      : CW_MEAN_DEVIATION;
}

double cw_auto_rough_error(const struct cw_auto *m, const struct cw_facts *f)
{
    double interval = cw_mean_error(&m->interval);
    bool evenly = m->busy >= ALL_BUSY && m->compute.n > 0;
    return error_of(m, evenly ? CW_MIN(interval, cw_mean_error_thought(&m->compute, deviation_of_compute(f)))
                              : interval);
}

static bool cw_auto_waits(const struct cw_auto *m)
{
    return m->waits > 0 ||
           m->interval.mean > m->step.mean * (1 + CW_AUTO_WAITING + CW_AUTO_SURE * cw_auto_error(m));
}

/* Workers are idle though the client waits: more of them would not help. */
static bool stalled(const struct cw_auto *m, double workers)
{
    return cw_auto_waits(m) && m->n_points > 0 && m->compute.n > 0 && workers > m->points[0].workers &&
           m->busy < STALLED * m->busiest;
}

double cw_auto_scatter(const struct cw_auto *m)
{
    struct cw_mean all = {0, 1, 0};
    for (size_t i = 0; i < (size_t)m->n_points; i++) {
        all.n += CW_MAX(m->points[i].n - 1, 0);
        all.m2 += m->points[i].m2;
    }
    all.n += 1;
    return cw_mean_error(&all) * sqrt(all.n);
}

/* That tells how well points are known that few batches gave. */
static void judge_points(struct cw_auto *m)
{
    double of_one = cw_auto_scatter(m);
    for (size_t i = 0; i < (size_t)m->n_points; i++)
        if (m->points[i].n > 0)
            m->points[i].error = CW_MIN(of_one / sqrt(m->points[i].n), 1);
}

/* `of`: the mean that s is made from. */
static void add_point(struct cw_auto *m, double workers, double s, const struct cw_mean *of)
{
    size_t n = (size_t)m->n_points, at = 0;
    while (at < n && m->points[at].workers < workers)
        at++;
    if (at == n || m->points[at].workers != workers) {
        if (n == CW_CURVE_POINTS)
            return;
        for (size_t i = n; i > at; i--)
            m->points[i] = m->points[i - 1];
        m->n_points++;
    }
    m->points[at] = (struct cw_point){workers, s, ROUGH_ERROR, of->n,
                                      of->mean > 0 ? of->m2 / (of->mean * of->mean) : 0};
    judge_points(m);
}

double cw_auto_supply_error(const struct cw_auto *m)
{
    double least = m->n_points > 0 ? m->points[0].error : 0;
    for (size_t i = 1; i < (size_t)m->n_points; i++)
        least = CW_MIN(least, m->points[i].error);
    return least;
}

/* What the cache's storage takes for a batch, at the part of it that is read. */
static double cache_s(const struct cw_auto *m, const struct cw_facts *f)
{
    bool limited = m->cache_point >= 0 && f->storage.read_bytes_per_s > 0;
    return limited ? m->cached * f->cache_points[(int)m->cache_point].bytes / f->storage.read_bytes_per_s : 0;
}

/* What was seen with these workers becomes a point of the curve, or a limit. */
void cw_auto_learn(struct cw_auto *m, const struct cw_facts *f)
{
    double workers = cw_auto_running(m, f), left = work_left(m, f);
    double source = (m->cache_point >= 0 ? 1 - m->cached : 1) * f->storage.source_bytes;
    if (left < LEAST_LEFT || cache_s(m, f) > STALLED * m->interval.mean) {
        /* what was seen is the cache's speed; of computing it is known what it took before */
        if (m->n_points == 0)
            add_point(m, workers, cw_auto_all_s(m, f) / workers, &(struct cw_mean){0});
        return;
    }
    if (stalled(m, workers)) {
        if (source > 0)
            m->source_bytes_per_s = source / m->interval.mean;
        else
            m->floor_s = m->interval.mean;
    } else { /* faster than what was taken for the limit: that is higher, then */
        double most = m->interval.mean * (1 + CW_AUTO_SURE * cw_auto_error(m));
        if (m->source_bytes_per_s > 0)
            m->source_bytes_per_s = CW_MAX(m->source_bytes_per_s, source / most);
        m->floor_s = CW_MIN(m->floor_s, most);
    }
    bool limits = cw_auto_waits(m) && !stalled(m, workers); /* workers do */
    m->busiest = CW_MAX(m->busiest, m->busy);
    /* or no worker has reported its rate yet: it is at least what the client takes */
    if (limits || !(m->compute.mean > 0))
        add_point(m, workers, m->interval.mean / left, &m->interval);
    else
        add_point(m, workers, m->compute.mean / (workers * (m->busiest > 0 ? m->busiest : 1)) / left,
                  &m->compute);
}

void cw_auto_outlook(const struct cw_auto *m, const struct cw_facts *f, struct cw_outlook *o)
{
    double speed[CW_POLICY_POOLS] = {0}, client = f->client_price_per_h > 0 ? f->client_price_per_h : 1;
    *o = (struct cw_outlook){.facts = f,
                             .step_s = m->step.mean,
                             .source_bytes_per_s = m->source_bytes_per_s,
                             .floor_s = m->floor_s};
    o->compute_s = cw_auto_all_s(m, f);
    o->waiting = waiting(m);
    for (int i = 0; i < f->n_pools; i++) {
        speed[i] = m->pools[i].speed;
        o->asked[i] = m->pools[i].target;
        o->asked_delay_s[i] = CW_MAX(m->pools[i].asked_s + f->pools[i].start_delay_s - m->last_s, 0);
    }
    o->past_time_s = m->past_s;
    o->past_cost = m->past_cost;
    cw_supply_init(&o->supply, f, speed,
                   (f->objective == CW_OBJECTIVE_TIME ? UNPRICED : UNPRICED_COST) * client);
    cw_curve_fit(m->points, (size_t)m->n_points, 0, &o->curve);
}

/*
 * To go on measuring costs time and money: as a part of what the rest takes when it is done better. The more
 * that was already, the less a decision must be sure of.
 */
double cw_auto_tolerated_error(const struct cw_auto *m, const struct cw_facts *f,
                               const struct cw_alternative *rest, double now_s)
{
    double spent_s = now_s - m->since_s,
           spent = spent_s / 3600 * (f->client_price_per_h + cw_auto_price(m, f, true));
    double part = CW_MAX(spent_s / CW_MAX(rest->time_s, 1e-9), spent / CW_MAX(rest->cost, 1e-12));
    return CW_MIN(CW_MAX(ROUGH_ERROR, ROUGH_PER_PART * part), ROUGH_MOST);
}

/* The largest count that was measured, and the one before it. */
static double seen_most(const struct cw_auto *m)
{
    return m->points[(size_t)m->n_points - 1].workers;
}

/* Of an alternative, for what a worker of the first pool computes. */
static double price_of_one(const struct cw_facts *f, const struct cw_alternative *a)
{
    double sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        sum += a->pools[i] / a->capacity * f->pools[i].price_per_h;
    return sum;
}

/*
 * More workers than were ever seen are a guess. A wrong one costs what they cost until that is noticed; a
 * step between costs the time until that one was measured. With what was seen so far the risk is taken that
 * is smaller.
 */
double cw_auto_restrain(const struct cw_auto *m, const struct cw_facts *f, const struct cw_alternative *best)
{
    double seen = seen_most(m), n = best->capacity, trial_s = cw_auto_start_delay(f) + MEASURING_S;
    if (n <= CW_MAX(seen, FEW))
        return n;
    double exposed = (n - seen) * price_of_one(f, best) * trial_s / 3600 / CW_MAX(best->cost, 1e-12),
           slow = trial_s / CW_MAX(best->time_s, 1e-9);
    if (m->n_points < 2) {
        /* something else holds this one up already */
        if (m->busy < STALLED && m->interval.mean > m->step.mean)
            return FEW;
        return 0.3 * exposed > slow ? ceil(sqrt(n * seen)) : n;
    }
    const struct cw_point *last = &m->points[(size_t)m->n_points - 1], *before = last - 1;
    /* nothing to be had beyond what was seen */
    if (m->n_points > 2 && best->batch_s > 0.97 * CW_MAX(last->s, m->step.mean))
        return seen;
    double divided = last->s * last->workers / (before->s * before->workers),
           steps = last->workers / before->workers;
    double most = divided > 1.15 ? 4 * seen : seen * CW_MAX(steps * steps, 4);
    return CW_MIN(n, most);
}

/*
 * Two points tell little. Where workers gain much less than they should and time counts, more of them are
 * tried: too many cost money only, and where they get in each other's way three points show it. Else they may
 * have hit a limit all of a sudden, so that fewer do as much: that is tried if it would pay and the job is
 * long beside the trial. 0: none.
 */
double cw_auto_explore(const struct cw_auto *m, const struct cw_outlook *believed,
                       const struct cw_alternative *stay, double error)
{
    const struct cw_facts *f = believed->facts;
    const struct cw_point *a = &m->points[0], *b = &m->points[1];
    double trial_s = cw_auto_start_delay(f) + MEASURING_S, most = cw_supply_most(&believed->supply);
    if (m->n_points != 2 || m->decisions > 1 || !cw_auto_waits(m) || m->target != b->workers ||
        stay->time_s < EXPLORE_PART * trial_s)
        return 0;
    double work = b->s * b->workers / (a->s * a->workers);
    if (work >= UNCLEAR && f->objective == CW_OBJECTIVE_TIME && most >= WORTH * b->workers)
        return CW_MIN(FARTHER * b->workers, most);
    if (work < SUBLINEAR || stay->time_s < EXPLORE_LONG * trial_s)
        return 0;
    struct cw_outlook sudden = *believed;
    cw_curve_fit(m->points, 2, SUDDEN, &sudden.curve);
    struct cw_alternative best = cw_outlook_best(&sudden, 1),
                          same = cw_outlook_rest(&sudden, stay->pools, f->cache_point);
    double gain = cw_outlook_gain(&sudden, &best, &same, false);
    if (best.capacity >= m->target || gain <= EXPLORE_GAIN + CW_AUTO_SURE * error)
        return 0;
    if (m->target < 2.5 * best.capacity)
        return best.capacity;
    /* half-way: with a curve of yet another shape there is still something to win */
    return ceil(sqrt(best.capacity * m->target));
}

/*
 * The client is served, and with one worker fewer it would have to wait a little, as far as is known: by less
 * than what measuring may be wrong by, since workers beside others are not what one is alone. It is tried
 * where the job is long beside the trial, the start of who has to come back with it.
 */
double cw_auto_fewer(const struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *stay,
                     double error)
{
    const struct cw_facts *f = o->facts;
    double batches = cw_auto_scatter(m) / CW_AUTO_EXACT,
           trial_s = cw_auto_start_delay(f) + MEASURING_S + batches * batches * m->step.mean;
    if (f->objective != CW_OBJECTIVE_TIME || f->n_pools != 1 || m->decisions != 1 || m->tried != 0 ||
        m->target < 2 || error >= CW_AUTO_EXACT || cw_auto_waits(m) ||
        stay->time_s < EXPLORE_LONG * trial_s || cw_outlook_fills(o, stay->cache_point))
        return 0;
    struct cw_alternative less = cw_outlook_like(o, stay, m->target - 1, stay->cache_point);
    bool dear = cw_outlook_price_s(o, stay) * (1 - FEWER_GAIN) > cw_outlook_price_s(o, &less);
    return dear && less.capacity > 0 && less.batch_s <= (1 + NEARLY) * m->step.mean ? less.capacity : 0;
}
