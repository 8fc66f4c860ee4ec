/*
 * auto: Cachew's own policy for workers and cache.
 *
 * It measures the client's step (demand), the interval between batches and what a worker computes (supply),
 * puts a curve through what it saw, and takes the best plan for the rest of the job (plan.h). Then it
 * measures what that gave, at most twice more, and rests until measurements say that conditions changed. How
 * long it measures follows from the noise, and from what waiting costs. docs/policies.md tells it step by
 * step.
 */
#include "policy/auto.h"

#include <math.h>
#include <stdio.h>

#include "base/macro.h"

/* Decisions until it rests. More only where much of the objective is at stake: a wrong last guess may not
 * last for the rest of the job. */
#define DECISIONS 3
#define DECISIONS_AT_MOST 5
#define LATE_GAIN 0.15
#define FINE_ERROR 0.03 /* decisions after the first are made with less, or with this part of the gain */
#define FINE_PART 0.2
#define SHORT_PART 0.1      /* a start delay that is more than that of the rest is long */
#define BOLD_PART 0.1       /* of the rest, measured: then it does what seems better */
#define ROUGH_PER_PART 10.0 /* error with which it may, by that part */
#define LEAST_GAIN 0.015
#define NOW_GAIN 0.1          /* of the time, or the cost, as long as the workers stay */
#define LOOK_AGAIN 1.15       /* times the batches of the last look */
#define CACHE_POINT_GAIN 0.05 /* another cache point than the one chosen must give more by so much */
#define TRIAL_SURER 3         /* than a first guess: what is left behind is not measured again */
#define MISSING 0.05          /* of the workers: what is measured then still counts */

static bool rough_enough(const struct cw_auto *m, const struct cw_facts *f, double now_s)
{
    struct cw_outlook o;
    cw_auto_outlook(m, f, &o);
    struct cw_alternative best = cw_outlook_best(&o, 0);
    return cw_auto_rough_error(m, f) <= cw_auto_tolerated_error(m, f, &best, now_s);
}

static void take(struct cw_auto *m, const struct cw_facts *f, const struct cw_alternative *chosen,
                 double now_s)
{
    double cached = chosen->cache_point >= 0 ? f->cache_points[chosen->cache_point].cached : 0,
           full = cw_auto_all_s(m, f);
    /* what is there, from now on; or no more */
    bool reads = chosen->cache_point != (int)m->cache_point &&
                 (cached > CW_AUTO_GREW || (chosen->cache_point < 0 && m->cached > CW_AUTO_GREW));
    bool other = !cw_auto_is_target(m, chosen->pools) || reads;
    cw_auto_ask(m, chosen->pools, now_s);
    m->cache_point = chosen->cache_point;
    cw_auto_note_cache(m, f);
    m->cached = cached;
    m->decisions++;
    m->tried = CW_MIN(m->tried, 0);
    if (other)
        cw_auto_measure_anew(m, now_s);
    if (reads)
        /* thought, like that of workers */
        m->compute = (struct cw_mean){0, CW_MAX(full - cached * cw_auto_prefix_s(f, chosen->cache_point), 0),
                                      0};
}

/*
 * No worse for the whole job, and better by more than a first guess's error as long as the workers stay. For
 * the first decision: a job of many epochs gains next to nothing by its first one, but that may take hours.
 */
static bool better_now(const struct cw_outlook *o, const struct cw_alternative *best,
                       const struct cw_alternative *stay)
{
    bool by_time = o->facts->objective == CW_OBJECTIVE_TIME, no_slower = best->time_s <= stay->time_s,
         no_dearer = best->cost <= stay->cost;
    bool sooner = best->held_s < (1 - NOW_GAIN) * stay->held_s,
         cheaper = best->held_cost < (1 - NOW_GAIN) * stay->held_cost;
    if (by_time ? no_slower && sooner : no_dearer && cheaper)
        return true;
    return no_slower && no_dearer && (sooner || cheaper);
}

/* Whether a change pays. What it gains must be more than an error of what was measured with these workers;
 * the longer that took beside what is left, the bolder. */
static bool pays(const struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *best,
                 const struct cw_alternative *stay, double decisions, double error, double now_s)
{
    double gain = cw_outlook_gain(o, best, stay, m->decisions >= decisions),
           rest = gain * (1 + o->past_time_s / CW_MAX(stay->time_s, 1e-9));
    double needed = m->decisions < decisions ? LEAST_GAIN * (1 + m->decisions / 2) : LATE_GAIN;
    if (m->decisions == 0)
        return gain > needed || better_now(o, best, stay);
    /* nothing is risked for the other measure */
    bool objective = cw_outlook_gain(o, best, stay, true) > needed;
    double part = objective ? (now_s - m->since_s) / CW_MAX(best->time_s, 1e-9) : 0,
           sure = CW_AUTO_SURE * CW_MAX(1 - part / BOLD_PART, 0);
    if (m->waits > 0 && gain > LATE_GAIN) /* that there is something to gain was seen, if not how much */
        return true;
    return gain > needed && rest > needed + sure * error &&
           error < CW_MAX(CW_MAX(FINE_ERROR, FINE_PART * rest), ROUGH_PER_PART * part);
}

/*
 * Where only time counts workers should do even if they are slower than they seem, by a standard error: what
 * is missing comes a start delay later. That matters as far as the job is short beside it.
 */
static double doubt(const struct cw_auto *m, const struct cw_outlook *o)
{
    double delay_s = cw_auto_start_delay(o->facts);
    if (o->facts->objective != CW_OBJECTIVE_TIME || !(delay_s > 0))
        return 0;
    struct cw_alternative best = cw_outlook_best(o, 0);
    return cw_auto_error(m) * CW_MIN(delay_s / (SHORT_PART * CW_MAX(best.time_s, 1e-9)), 1);
}

static void choose(struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *chosen,
                   const struct cw_auto_reason *reason, double now_s, struct cw_decision *d)
{
    cw_auto_record(m, o, chosen, reason, d);
    take(m, o->facts, chosen, now_s);
}

/* Fewer workers are tried out: whether they do, as plans have it; else those come back that were there
 * before. True: there is nothing else to decide now. */
static bool judge_fewer(struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *stay,
                        double now_s, struct cw_decision *d)
{
    double error = cw_auto_error(m), late = m->interval.mean / m->step.mean - 1 - CW_OUTLOOK_TIME_TOLERANCE;
    if (!(m->waits > 0) && error >= CW_AUTO_EXACT && late < CW_AUTO_SURE * error)
        return true; /* not known yet */
    struct cw_alternative back = cw_outlook_like(o, stay, m->tried, stay->cache_point);
    /* the pool may have become smaller meanwhile */
    bool go_back = late > 0 && !cw_auto_is_target(m, back.pools);
    if (go_back)
        choose(m, o, &back, &(struct cw_auto_reason){.why = "fewer don't do"}, now_s, d);
    m->tried = -1;
    return go_back;
}

/* What there is stays, whatever `reason` has that is better: it rests once that is known well, unless one
 * worker fewer may do, too. */
static void settle(struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *stay,
                   const struct cw_auto_reason *reason, double error, double now_s, struct cw_decision *d)
{
    bool first = m->decisions == 0;
    if (first || reason->told)
        cw_auto_record(m, o, stay, reason, d);
    m->decisions = CW_MAX(m->decisions, 1);
    double fewer = cw_auto_fewer(m, o, stay, error), before = m->target;
    m->resting = error < CW_AUTO_EXACT && fewer == 0;
    if (fewer > 0 && !d->concluded) { /* one decision a report: the next time, then */
        struct cw_alternative less = cw_outlook_like(o, stay, fewer, stay->cache_point);
        choose(m, o, &less, &(struct cw_auto_reason){.why = "fewer may do"}, now_s, d);
        m->tried = before;
        d->promises = true; /* if it is not kept, those that were there come back */
    }
}

/* The best plan as far as is known, held back. `predicted`: conditions changed in a known way, so it rests
 * on the curve alone. `cause`: of this look; NULL: measurements. */
static void look(struct cw_auto *m, const struct cw_facts *f, double now_s, bool predicted, const char *cause,
                 struct cw_decision *d)
{
    struct cw_outlook o;
    int target[CW_POLICY_POOLS];
    bool first = m->decisions == 0;
    if (!predicted)
        cw_auto_learn(m, f);
    cw_auto_outlook(m, f, &o);
    o.doubt = predicted ? 0 : doubt(m, &o);
    cw_auto_target(m, target);
    struct cw_alternative stay = (predicted ? cw_outlook_keep : cw_outlook_rest)(&o, target, f->cache_point);
    if (m->tried > 0 && !predicted && judge_fewer(m, &o, &stay, now_s, d))
        return;
    struct cw_alternative best = cw_outlook_best(&o, first ? 0 : CACHE_POINT_GAIN), seems = best;
    bool fills = cw_outlook_fills(&o, best.cache_point);
    double decisions = fills ? DECISIONS - 1 : DECISIONS;             /* one is kept for when it is full */
    double most = predicted && fills ? DECISIONS : DECISIONS_AT_MOST; /* it will be fuller still */
    double error = predicted ? 0 : cw_auto_error(m),
           trial = predicted ? 0 : cw_auto_explore(m, &o, &stay, error),
           n = trial > 0 ? trial : cw_auto_restrain(m, f, &best);
    if (n != best.capacity)
        best = cw_outlook_like(&o, &best, n, best.cache_point);
    bool other = !cw_auto_is_target(m, best.pools) || best.cache_point != f->cache_point;
    bool worth = trial > 0 ? error < cw_auto_tolerated_error(m, f, &best, now_s) / TRIAL_SURER
                           : pays(m, &o, &best, &stay, decisions, error, now_s);
    const char *why = cause ? cause : first ? "measured" : "measured again";
    if (other && worth && m->decisions < most)
        choose(m, &o, &best,
               &(struct cw_auto_reason){why, &seems,
                                        trial > 0 ? "what these give is to be known first"
                                                  : "so many more than were ever measured are a guess"},
               now_s, d);
    else if (!predicted)
        settle(m, &o, &stay,
               &(struct cw_auto_reason){
                   why, &best, trial > 0 ? "that is not known well enough yet" : "would gain too little",
                   cause && !predicted},
               error, now_s, d);
}

static void start(struct cw_auto *m, const struct cw_facts *f, double now_s)
{
    struct cw_supply s;
    int workers[CW_POLICY_POOLS] = {0};
    cw_auto_supply(m, f, &s);
    for (int i = 0; i < f->n_pools; i++)
        workers[i] = f->pools[i].running;
    m->running = cw_supply_capacity(&s, workers);
    if (!(m->running > 0))
        cw_supply_fill(&s, 0, 1, workers);
    cw_auto_set_target(m, workers);
    m->cache_point = f->cache_point;
    m->cache_points = f->n_cache_points;
    m->objective = f->objective;
    m->client_price_per_h = f->client_price_per_h;
    m->since_s = m->last_s = now_s;
    cw_auto_note_cache(m, f);
}

/* Cache points came to be known, or are not known any more; or what was decided on is not done. It looks at
 * what can be done now, from what is. */
static void fit_cache_points(struct cw_auto *m, const struct cw_facts *f)
{
    if (m->cache_points == f->n_cache_points && m->cache_point == f->cache_point)
        return;
    m->cache_points = f->n_cache_points;
    m->cache_point = f->cache_point;
    m->cached = f->cache_point >= 0 ? f->cache_points[f->cache_point].cached : 0;
    cw_auto_begin_anew(m, 1);
    m->looked_n = 0;
    cw_auto_note_cache(m, f);
}

/* Something else is looked for: what was measured holds, what was decided does not. */
static void fit_objective(struct cw_auto *m, const struct cw_facts *f)
{
    if (m->objective == f->objective && m->client_price_per_h == f->client_price_per_h)
        return;
    m->objective = f->objective;
    m->client_price_per_h = f->client_price_per_h;
    cw_auto_begin_anew(m, 1);
    m->looked_n = m->tried = 0;
}

/* There are more of a pool, where all of every pool was taken. In workers: what these are worth is known
 * better with each report, and that is no other maximum. */
static bool more_than_all(struct cw_auto *m, const struct cw_facts *f)
{
    bool all = true, more = false;
    for (int i = 0; i < f->n_pools; i++) {
        struct cw_auto_pool *p = &m->pools[i];
        all &= p->target >= p->maximum;
        more |= f->pools[i].maximum > p->maximum;
        p->maximum = f->pools[i].maximum;
    }
    return all && more;
}

/*
 * A pool has become smaller than what was wanted of it, or is gone (`lost`): others give as much, if they
 * can. Or there is more, where all of it was taken: then it looks again.
 */
static void fit_maximum(struct cw_auto *m, const struct cw_facts *f, double lost, double now_s,
                        struct cw_decision *d)
{
    struct cw_supply s;
    int workers[CW_POLICY_POOLS];
    cw_auto_supply(m, f, &s);
    if (more_than_all(m, f) && m->maximum > 0)
        cw_auto_begin_anew(m, 0);
    m->maximum = cw_supply_most(&s);
    cw_auto_target(m, workers);
    if (lost > 0) {
        d->concluded = true;
        snprintf(d->why, sizeof(d->why), "a pool is gone, others give what they can");
    }
    for (int i = 0; i < f->n_pools; i++)
        if (workers[i] > f->pools[i].maximum) {
            lost += (workers[i] - f->pools[i].maximum) * s.speed[i];
            workers[i] = f->pools[i].maximum;
            d->concluded = true;
            snprintf(d->why, sizeof(d->why), "%s has no more than %d for this job",
                     f->n_pools > 1 ? f->pools[i].name : "the pool", f->pools[i].maximum);
        }
    if (!d->concluded)
        return;
    d->promises = true; /* until it is looked at what those give that are left */
    cw_supply_add(&s, lost, workers);
    cw_auto_set_target(m, workers);
    m->resting = 0;
    cw_auto_measure_anew(m, now_s);
}

/* The client waits, which was not expected: whatever was decided before, and whether it rests or not, what
 * is seen now is the beginning of another plan. */
static void replan(struct cw_auto *m, const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    bool first = m->decisions == 0;
    cw_auto_believe_waiting(m, DECISIONS - 1, now_s);
    if (!first && !(m->tried > 0)) /* fewer will not do, if these don't */
        m->tried = -1;
    look(m, f, now_s, false, first ? NULL : "the client waits, which was not expected", d);
    d->replanned = d->concluded && !first;
    m->looked_n = m->interval.n;
}

/* A report with the workers that were decided on. Looks again whenever there is some more to look at, until
 * it rests. */
static void observe(struct cw_auto *m, const struct cw_facts *f, const struct cw_demand *now, double now_s,
                    struct cw_decision *d)
{
    if (cw_auto_broken(m, f, now)) {
        replan(m, f, now_s, d);
        return;
    }
    if (cw_auto_changed(m, f, now, now_s) || m->resting || m->interval.n < LOOK_AGAIN * m->looked_n ||
        !(m->interval.n > 0))
        return;
    m->looked_n = m->interval.n;
    if (m->n_points == 0)
        cw_auto_learn(m, f);
    if (m->decisions > 0 || rough_enough(m, f, now_s))
        look(m, f, now_s, false, NULL, d);
}

static void spend(struct cw_auto *m, const struct cw_facts *f, double now_s)
{
    double seconds = CW_MAX(now_s - m->last_s, 0);
    m->past_s += seconds;
    m->past_cost += seconds / 3600 * (f->client_price_per_h + cw_auto_price(m, f, false));
    m->last_s = now_s;
}

/* Of many workers one may be missing, and be on its way again. */
static bool about(double workers, double of)
{
    return fabs(workers - of) <= MISSING * of;
}

static void auto_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                        const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    struct cw_auto *m = (struct cw_auto *)memory->values;
    struct cw_demand now = cw_demand(f);
    double lost = cw_auto_fit_pools(m, f);
    if (!(m->target > 0))
        start(m, f, now_s);
    cw_auto_learn_speeds(m, f);
    double running = cw_auto_running(m, f);
    spend(m, f, now_s);
    /* first: what was measured with more than there may be now is not of these */
    fit_maximum(m, f, lost, now_s, d);
    bool same = about(running, m->running) && about(running, m->target);
    fit_cache_points(m, f);
    fit_objective(m, f);
    m->running = running;
    bool grows = cw_auto_cache_grows(m, f);
    if (!(m->maximum > 0)) /* nothing can be had */
        cw_mean_merge(&m->step, &now.step);
    else if (!grows && cw_auto_cache_grew(m, f, now_s))
        look(m, f, now_s, true, "more of the epoch is cached now", d);
    else if (!same || grows)
        cw_mean_merge(&m->step, &now.step);
    else if (now.interval.n > 0)
        observe(m, f, &now, now_s, d);
    cw_auto_target(m, d->workers);
    d->cache_point = (int)m->cache_point;
    if (d->concluded) {
        m->promises = d->promises;
        cw_auto_forget_waiting(m);
    }
}

static const struct cw_field fields[] = {
    CW_FIELD(struct cw_auto, target),
    CW_FIELD(struct cw_auto, cache_point),
    CW_FIELD(struct cw_auto, decisions),
    CW_FIELD(struct cw_auto, resting),
    CW_FIELD(struct cw_auto, tried),
    CW_FIELD(struct cw_auto, maximum),
    CW_FIELD(struct cw_auto, running),
    CW_FIELD(struct cw_auto, cached),
    CW_FIELD(struct cw_auto, cached_seen),
    CW_FIELD(struct cw_auto, cache_points),
    CW_FIELD(struct cw_auto, since_s),
    CW_FIELD(struct cw_auto, looked_n),
    CW_FIELD(struct cw_auto, objective),
    CW_FIELD(struct cw_auto, client_price_per_h),
    CW_FIELD(struct cw_auto, last_s),
    CW_FIELD(struct cw_auto, pools),
    CW_FIELD(struct cw_auto, past_s),
    CW_FIELD(struct cw_auto, past_cost),
    CW_FIELD(struct cw_auto, promises),
    CW_FIELD(struct cw_auto, waits),
    CW_FIELD(struct cw_auto, watched),
    CW_FIELD(struct cw_auto, waited),
    CW_FIELD(struct cw_auto, watched_together),
    CW_FIELD(struct cw_auto, waited_together),
    CW_FIELD(struct cw_auto, busiest),
    CW_FIELD(struct cw_auto, source_bytes_per_s),
    CW_FIELD(struct cw_auto, floor_s),
    CW_FIELD(struct cw_auto, read_bytes_per_s),
    CW_FIELD(struct cw_auto, write_bytes_per_s),
    CW_FIELD(struct cw_auto, saved_s),
    CW_FIELD(struct cw_auto, step),
    CW_FIELD(struct cw_auto, interval),
    CW_FIELD(struct cw_auto, compute),
    CW_FIELD(struct cw_auto, busy),
    CW_FIELD(struct cw_auto, recent_step),
    CW_FIELD(struct cw_auto, recent_interval),
    CW_FIELD(struct cw_auto, recent_compute),
    CW_FIELD(struct cw_auto, recent_busy),
    CW_FIELD(struct cw_auto, n_points),
    CW_FIELD(struct cw_auto, points),
    {0},
};

const struct cw_policy cw_policy_auto = {
    .name = "auto",
    .summary = "Cachew's own: workers and cache from measured demand and supply",
    .caches = true,
    .fields = fields,
    .decide = auto_decide,
};
