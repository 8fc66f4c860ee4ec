/*
 * auto: Cachew's own policy for workers and cache.
 *
 * It measures the client's step (demand), the interval between batches and the computing time of workers
 * (supply), fits a curve through these measurements, and takes the best plan for the rest of the job
 * (plan.h). Then it measures the result and may improve the plan, usually twice at most. Then it rests until
 * measurements show that conditions changed. How long it measures depends on the noise, and on the cost of
 * waiting. docs/policies.md describes the steps.
 */
#include <math.h>
#include <stdio.h>

#include "base/macro.h"
#include "policy/auto_belief.h"
#include "policy/auto_pools.h"
#include "policy/auto_record.h"
#include "policy/auto_watch.h"
#include "policy/policies.h"

/* Normal number of decisions under the same conditions. Up to DECISIONS_AT_MOST are made if each gains more
 * than LATE_GAIN of the objective, so that a wrong last guess does not last for the rest of the job. */
#define DECISIONS 3
#define DECISIONS_AT_MOST 5
#define LATE_GAIN 0.15
/* A decision after the first needs an error below FINE_ERROR, or below FINE_PART of its gain. */
#define FINE_ERROR 0.03
#define FINE_PART 0.2
/* A start delay counts as long from this part of the rest of the job on. */
#define SHORT_PART 0.1
/* Once measuring has taken this part of the rest of the job, the plan that seems better is taken. */
#define BOLD_PART 0.1
/* Allowed error of a later decision: this number times the part of the rest that was spent on measuring. */
#define ROUGH_PER_PART 10.0
#define LEAST_GAIN 0.015 /* least gain of a decision, as a part of the whole job */
/* A first decision is also made for this gain of time or cost until the number of workers is decided again.
 */
#define NOW_GAIN 0.1
#define LOOK_AGAIN 1.15       /* the plan is evaluated again once this factor more batches are measured */
#define CACHE_POINT_GAIN 0.05 /* least gain of a cache point other than the one in use */
/* A trial needs an error smaller by this factor, since the present workers are not measured again. */
#define TRIAL_SURER 3
/* A guess is tried (auto_try) if its gain times its weight is at least TRY_GAIN, and the rest of the job
 * takes at least TRY_LONG times a start delay and TRY_S. */
#define TRY_GAIN 0.015
#define TRY_LONG 40
#define TRY_S 5.0
/* Workers that have delivered nothing for this time, and for this many times the longest batch that was
 * measured, can't run. */
#define STUCK_S 10.0
#define STUCK_BATCHES 3
#define MOST_REFUSALS 2 /* later, only numbers of local workers that were seen to run are requested */
/* The plan is evaluated again if the free CPUs of the host change by more than HOST_CPUS and this part. */
#define HOST_CPUS 1.0
#define HOST_PART 0.1
#define ALIKE 0.02   /* plans whose workers differ by less than this part are alike */
#define MISSING 0.05 /* a measurement counts if at most this part of the workers is missing */

/* Whether the error is small enough for the first decision. */

static bool auto_rough_enough(const struct cw_auto *m, const struct cw_facts *f, double now_s)
{
    struct cw_outlook o;
    cw_auto_belief_outlook(m, f, &o);
    struct cw_alternative best = cw_outlook_best(&o, 0);
    return cw_auto_belief_rough_error(m, f) <= cw_auto_belief_tolerated_error(m, f, &best, now_s);
}

/* Makes an alternative the plan: sets target and cache point. */
static void auto_apply(struct cw_auto *m, const struct cw_facts *f, const struct cw_alternative *chosen,
                       double now_s)
{
    double cached = chosen->cache_point >= 0 ? f->cache_points[chosen->cache_point].cached : 0,
           full_s = cw_auto_belief_all_s(m, f);
    /* whether reading of cached elements begins or ends now */
    bool reads = chosen->cache_point != (int)m->cache.point &&
                 (cached > CW_AUTO_GREW || (chosen->cache_point < 0 && m->cache.cached > CW_AUTO_GREW));
    bool other = !cw_auto_pools_is_target(&m->pools, chosen->pools) || reads;
    cw_auto_pools_request(&m->pools, chosen->pools, now_s);
    m->cache.point = chosen->cache_point;
    cw_auto_watch_note_cache(m, f);
    m->cache.cached = cached;
    m->plan.decisions++;
    m->plan.trial_from = CW_MIN(m->plan.trial_from, 0);
    if (other)
        cw_auto_watch_restart(m, now_s);
    if (other && cw_host_any(f)) /* other local workers, another step */
        m->watch.known.step = (struct cw_mean){0};
    if (reads)
        cw_auto_belief_expect_compute(m, f, full_s, cached, chosen->cache_point);
}

/* Whether `best` is no worse for the whole job, and better by NOW_GAIN until the number of workers is decided
 * again. Used for the first decision: that time may be hours, though it is a small part of a job with many
 * epochs. */
static bool auto_better_now(const struct cw_outlook *o, const struct cw_alternative *best,
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

/* Whether it pays to change from `stay` to `best`. The gain must exceed the error of the measurement. The
 * larger the part of the rest of the job that was spent on measuring, the larger the error may be. decisions:
 * number after which a decision needs LATE_GAIN. */
static bool auto_pays(const struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *best,
                      const struct cw_alternative *stay, double decisions, double error, double now_s)
{
    double gain = cw_outlook_gain(o, best, stay, m->plan.decisions >= decisions),
           rest = gain * (1 + o->past_time_s / CW_MAX(stay->time_s, 1e-9));
    double needed = m->plan.decisions < decisions ? LEAST_GAIN * (1 + m->plan.decisions / 2) : LATE_GAIN;
    if (m->plan.decisions == 0)
        return gain > needed || auto_better_now(o, best, stay);
    /* for a gain in only the other measure, no risk is taken */
    bool objective = cw_outlook_gain(o, best, stay, true) > needed;
    double part = objective ? (now_s - m->watch.since_s) / CW_MAX(best->time_s, 1e-9) : 0,
           sure = CW_AUTO_SURE * CW_MAX(1 - part / BOLD_PART, 0);
    if (m->watch.waits > 0 &&
        gain > LATE_GAIN) /* the client was seen to wait: the gain is certain, though its size is not */
        return true;
    return gain > needed && rest > needed + sure * error &&
           error < CW_MAX(CW_MAX(FINE_ERROR, FINE_PART * rest), ROUGH_PER_PART * part);
}

/* Returns the part by which plans assume workers to be slower than measured. It is at most one standard
 * error, and 0 for objective cost. A worker that turns out to be missing arrives a start delay later, which
 * matters if the job is short compared with the delay. */
static double auto_doubt(const struct cw_auto *m, const struct cw_outlook *o)
{
    double delay_s = cw_supply_start_delay_s(o->facts);
    if (o->facts->objective != CW_OBJECTIVE_TIME || !(delay_s > 0))
        return 0;
    struct cw_alternative best = cw_outlook_best(o, 0);
    return cw_auto_belief_error(m) * CW_MIN(delay_s / (SHORT_PART * CW_MAX(best.time_s, 1e-9)), 1);
}

static void auto_choose(struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *chosen,
                        const struct cw_auto_reason *reason, double now_s, struct cw_decision *d)
{
    cw_auto_record(m, o, chosen, reason, d);
    auto_apply(m, o->facts, chosen, now_s);
}

/* Ends a trial of fewer workers once measurements show whether they are enough, and returns to the former
 * number if not. True: the caller has nothing else to decide now. */
static bool auto_judge_trial(struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *stay,
                             double now_s, struct cw_decision *d)
{
    double error = cw_auto_belief_error(m),
           late = m->watch.known.interval.mean / m->watch.known.step.mean - 1 - CW_OUTLOOK_TIME_TOLERANCE;
    if (!(m->watch.waits > 0) && error >= CW_AUTO_EXACT && late < CW_AUTO_SURE * error)
        return true; /* not measured well enough yet */
    struct cw_alternative back = cw_outlook_like(o, stay, m->plan.trial_from, stay->cache_point);
    /* the pool may have become smaller meanwhile */
    bool go_back = late > 0 && !cw_auto_pools_is_target(&m->pools, back.pools);
    if (go_back)
        auto_choose(m, o, &back, &(struct cw_auto_reason){.why = "fewer workers are too slow"}, now_s, d);
    m->plan.trial_from = -1;
    return go_back;
}

/* Keeps the present workers, even if reason->better seems better. Rests once they are measured well, unless a
 * trial of one worker fewer pays. */
static void auto_settle(struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *stay,
                        const struct cw_auto_reason *reason, double error, double now_s,
                        struct cw_decision *d)
{
    bool first = m->plan.decisions == 0;
    if (first || reason->records_stay)
        cw_auto_record(m, o, stay, reason, d);
    m->plan.decisions = CW_MAX(m->plan.decisions, 1);
    double fewer = cw_auto_belief_fewer(m, o, stay, error), before = m->pools.target;
    m->plan.resting = error < CW_AUTO_EXACT && fewer == 0;
    if (fewer > 0 && !d->concluded) { /* one decision per report: the trial waits for the next one */
        struct cw_alternative less = cw_outlook_like(o, stay, fewer, stay->cache_point);
        auto_choose(m, o, &less, &(struct cw_auto_reason){.why = "one worker fewer may be enough"}, now_s, d);
        m->plan.trial_from = before;
        d->promises = true; /* a trial that breaks this promise ends at once */
    }
}

/* Whether a plan was measured, or one that is nearly the same. */
static bool auto_measured(const struct cw_auto *m, const struct cw_alternative *a)
{
    for (size_t i = 0; i < (size_t)m->belief.n_points; i++) {
        const struct cw_point *p = &m->belief.points[i];
        if (fabs(p->workers - a->capacity) <= ALIKE * a->capacity &&
            fabs(p->local - a->local) <= ALIKE * a->local)
            return true;
    }
    return false;
}

/* If a guess promises much more than the best plan by all guesses, and was not measured yet, it is tried. The
 * product of its weight and its gain is compared. Sets *best to its plan. */
static void auto_try_guess(const struct cw_auto *m, const struct cw_outlook *guess, double weight,
                           const struct cw_alternative *by_all, double *most, struct cw_alternative *best)
{
    struct cw_alternative a = cw_outlook_best(guess, 1),
                          same = cw_outlook_rest(guess, by_all->pools, by_all->cache_point);
    double gain = weight * cw_outlook_gain(guess, &a, &same, true);
    if (gain <= *most || auto_measured(m, &a))
        return;
    *most = gain;
    *best = a;
}

/* Of a job that may have local workers: a few measurements do not show the surface. Replaces *best by the
 * plan of a guess that is worth trying. True: it did. */
static bool auto_try(const struct cw_auto *m, const struct cw_outlook *o, struct cw_alternative *best)
{
    double trial_s = cw_supply_start_delay_s(o->facts) + TRY_S, most = TRY_GAIN;
    const struct cw_alternative by_all = *best;
    if (o->surface.n_guesses == 0 || m->plan.decisions < 1 || m->plan.decisions > DECISIONS - 1 ||
        best->time_s < TRY_LONG * trial_s || cw_outlook_fills(o, best->cache_point))
        return false;
    for (enum cw_guess_kind kind = 0; kind < CW_GUESS_KINDS; kind++) {
        struct cw_outlook guess = *o;
        double weight = cw_surface_keep(&guess.surface, kind);
        if (weight > 0 && weight < 1)
            auto_try_guess(m, &guess, weight, &by_all, &most, best);
    }
    for (size_t i = 0; i < o->host.n && o->host.n > 1; i++) {
        struct cw_outlook guess = *o;
        guess.host.slow[0] = o->host.slow[i];
        guess.host.weight[0] = guess.host.n = 1;
        auto_try_guess(m, &guess, o->host.weight[i], &by_all, &most, best);
    }
    return most > TRY_GAIN;
}

/* Finds the best plan and takes it if that pays. predicted: conditions changed in a known way, so the curve
 * is used without a new measurement. cause: why the plan is evaluated; NULL: because of more measurements. */
static void auto_evaluate(struct cw_auto *m, const struct cw_facts *f, double now_s, bool predicted,
                          const char *cause, struct cw_decision *d)
{
    struct cw_outlook o;
    int target[CW_POLICY_POOLS];
    bool first = m->plan.decisions == 0;
    if (!predicted)
        cw_auto_belief_learn(m, f);
    cw_auto_belief_outlook(m, f, &o);
    o.doubt = predicted ? 0 : auto_doubt(m, &o);
    cw_auto_pools_target(&m->pools, target);
    struct cw_alternative stay = (predicted ? cw_outlook_keep : cw_outlook_rest)(&o, target, f->cache_point);
    if (m->plan.trial_from > 0 && !predicted && auto_judge_trial(m, &o, &stay, now_s, d))
        return;
    struct cw_alternative best = cw_outlook_best(&o, first ? 0 : CACHE_POINT_GAIN), seems = best;
    bool fills = cw_outlook_fills(&o, best.cache_point);
    double decisions = fills ? DECISIONS - 1 : DECISIONS; /* one decision is reserved for the full cache */
    double most = predicted && fills
                      ? DECISIONS
                      : DECISIONS_AT_MOST; /* a later epoch has more cached and decides again */
    double error = predicted ? 0 : cw_auto_belief_error(m),
           trial = predicted ? 0 : cw_auto_belief_explore(m, &o, &stay, error),
           n = trial > 0 ? trial : cw_auto_belief_restrain(m, f, &best);
    if (n != best.capacity)
        best = cw_outlook_like(&o, &best, n, best.cache_point);
    bool tries = !predicted && auto_try(m, &o, &best);
    if (tries)
        trial = best.capacity;
    bool other = !cw_auto_pools_is_target(&m->pools, best.pools) || best.cache_point != f->cache_point;
    bool worth = trial > 0 ? error < cw_auto_belief_tolerated_error(m, f, &best, now_s) / TRIAL_SURER
                           : auto_pays(m, &o, &best, &stay, decisions, error, now_s);
    const char *why = cause ? cause : first ? "measured" : "measured again";
    if (other && worth && m->plan.decisions < most)
        auto_choose(m, &o, &best,
                    &(struct cw_auto_reason){why, &seems,
                                             trial > 0 ? "the chosen number of workers is measured first"
                                                       : "the speed of that many workers was never measured"},
                    now_s, d);
    else if (!predicted)
        auto_settle(m, &o, &stay,
                    &(struct cw_auto_reason){why, &best,
                                             trial > 0 ? "measurements are not certain enough yet"
                                                       : "would gain too little",
                                             cause && !predicted},
                    error, now_s, d);
}

static void auto_start(struct cw_auto *m, const struct cw_facts *f, double now_s)
{
    struct cw_supply s;
    int workers[CW_POLICY_POOLS] = {0};
    cw_auto_pools_supply(&m->pools, f, 0, &s);
    for (int i = 0; i < f->n_pools; i++)
        workers[i] = f->pools[i].running;
    m->pools.running = cw_supply_capacity(&s, workers);
    if (!(m->pools.running > 0))
        cw_supply_fill(&s, 0, 1, workers);
    cw_auto_pools_set_target(&m->pools, workers);
    m->cache.point = f->cache_point;
    m->cache.n_points = f->n_cache_points;
    m->plan.objective = f->objective;
    m->plan.client_price_per_h = f->client_price_per_h;
    m->plan.free_cpus = cw_host_free_cpus(f);
    m->watch.since_s = m->plan.last_s = m->plan.idle_since_s = now_s;
    cw_auto_watch_note_cache(m, f);
}

/* If cache points were added or removed, or the cache point in use is not the one decided on: resets the
 * number of decisions, so that auto decides again. */
static void auto_fit_cache_points(struct cw_auto *m, const struct cw_facts *f)
{
    if (m->cache.n_points == f->n_cache_points && m->cache.point == f->cache_point)
        return;
    m->cache.n_points = f->n_cache_points;
    m->cache.point = f->cache_point;
    m->cache.cached = f->cache_point >= 0 ? f->cache_points[f->cache_point].cached : 0;
    cw_auto_watch_conditions_changed(m, 1);
    m->plan.evaluated_n = 0;
    cw_auto_watch_note_cache(m, f);
}

/* Resets the number of decisions if the objective or the price changed. Measurements stay valid. */
static void auto_fit_objective(struct cw_auto *m, const struct cw_facts *f)
{
    if (m->plan.objective == f->objective && m->plan.client_price_per_h == f->client_price_per_h)
        return;
    m->plan.objective = f->objective;
    m->plan.client_price_per_h = f->client_price_per_h;
    cw_auto_watch_conditions_changed(m, 1);
    m->plan.evaluated_n = m->plan.trial_from = 0;
}

/* Resets the number of decisions if other processes use many more or fewer CPUs of the training host than
 * before. */
static void auto_fit_host(struct cw_auto *m, const struct cw_facts *f)
{
    double now = cw_host_free_cpus(f), before = m->plan.free_cpus;
    if (fabs(now - before) <= CW_MAX(HOST_CPUS, HOST_PART * before))
        return;
    m->plan.free_cpus = now;
    cw_auto_watch_conditions_changed(m, 1);
    m->plan.evaluated_n = m->plan.trial_from = 0;
}

/* Whether a pool may have more workers now, and before the target had all workers of every pool. Compares
 * numbers of workers and not capacities, which change with each measurement. */
static bool auto_pools_grew(struct cw_auto *m, const struct cw_facts *f)
{
    bool all = true, more = false;
    for (int i = 0; i < f->n_pools; i++) {
        struct cw_auto_pool *p = &m->pools.pool[i];
        all &= p->target >= p->maximum;
        more |= f->pools[i].maximum > p->maximum;
        p->maximum = f->pools[i].maximum;
    }
    return all && more;
}

/* Limits the target to the maximum of each pool. Other pools replace the workers that this takes away, and
 * those of pools that are gone, whose capacity is `lost`. If all workers were in use and a maximum grew,
 * resets the number of decisions. */
static void auto_fit_maximum(struct cw_auto *m, const struct cw_facts *f, double lost, double now_s,
                             struct cw_decision *d)
{
    struct cw_supply s;
    int workers[CW_POLICY_POOLS];
    cw_auto_pools_supply(&m->pools, f, 0, &s);
    if (auto_pools_grew(m, f) && m->pools.maximum > 0)
        cw_auto_watch_conditions_changed(m, 0);
    m->pools.maximum = cw_supply_most(&s);
    cw_auto_pools_target(&m->pools, workers);
    if (lost > 0) {
        d->concluded = true;
        snprintf(d->why, sizeof(d->why), "a pool is gone: other pools replace its workers if they can");
    }
    for (int i = 0; i < f->n_pools; i++)
        if (workers[i] > f->pools[i].maximum) {
            lost += (workers[i] - f->pools[i].maximum) * s.speed[i];
            workers[i] = f->pools[i].maximum;
            d->concluded = true;
            snprintf(d->why, sizeof(d->why), "%s has no more than %d workers for this job",
                     f->n_pools > 1 ? f->pools[i].name : "the pool", f->pools[i].maximum);
        }
    if (!d->concluded)
        return;
    d->promises = true; /* until the remaining workers were measured */
    cw_supply_add(&s, 0, lost, workers);
    cw_auto_pools_set_target(&m->pools, workers);
    m->plan.resting = 0;
    cw_auto_watch_restart(m, now_s);
}

/* Evaluates the plan again because the client waits although it was expected not to. The reports in which it
 * waited count as the measurement. */
static void auto_replan(struct cw_auto *m, const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    bool first = m->plan.decisions == 0;
    cw_auto_watch_believe_waiting(m, DECISIONS - 1, now_s);
    if (!first && !(m->plan.trial_from > 0)) /* these workers are too few, so fewer are not to be tried */
        m->plan.trial_from = -1;
    auto_evaluate(m, f, now_s, false, first ? NULL : "the client waits for batches, which was not expected",
                  d);
    d->replanned = d->concluded && !first;
    m->plan.evaluated_n = m->watch.known.interval.n;
}

/* Handles a report while exactly the workers decided on run. Until auto rests, evaluates the plan again after
 * LOOK_AGAIN times as many batches as at the last evaluation. */
static void auto_observe(struct cw_auto *m, const struct cw_facts *f, const struct cw_auto_seen *now,
                         double now_s, struct cw_decision *d)
{
    if (cw_auto_watch_broken(&m->watch, m->plan.promises, now)) {
        auto_replan(m, f, now_s, d);
        return;
    }
    if (cw_auto_watch_changed(m, f, now, now_s) || m->plan.resting ||
        m->watch.known.interval.n < LOOK_AGAIN * m->plan.evaluated_n || !(m->watch.known.interval.n > 0))
        return;
    m->plan.evaluated_n = m->watch.known.interval.n;
    if (m->belief.n_points == 0)
        cw_auto_belief_learn(m, f);
    if (m->plan.decisions > 0 || auto_rough_enough(m, f, now_s))
        auto_evaluate(m, f, now_s, false, NULL, d);
}

static void auto_spend(struct cw_auto *m, const struct cw_facts *f, double now_s)
{
    double seconds = CW_MAX(now_s - m->plan.last_s, 0);
    m->plan.past_s += seconds;
    m->plan.past_cost += seconds / 3600 * (f->client_price_per_h + cw_auto_pools_price(&m->pools, f, false));
    m->plan.last_s = now_s;
}

/* Whether a capacity differs from another one by no more than a worker that died and is being replaced. */
static bool auto_about(double workers, double of)
{
    return fabs(workers - of) <= MISSING * of;
}

/* Whether all workers decided on run, and have delivered nothing for long. */
static bool auto_is_stuck(struct cw_auto *m, const struct cw_facts *f, const struct cw_demand *demand,
                          double now_s)
{
    double longest_s = 0;
    bool all = m->pools.maximum > 0;
    for (int i = 0; i < f->n_pools; i++)
        all &= f->pools[i].running == (int)m->pools.pool[i].target;
    for (size_t i = 0; i < (size_t)m->belief.n_points; i++)
        longest_s = CW_MAX(longest_s, m->belief.points[i].s);
    if (!all || demand->interval.n > 0)
        m->plan.idle_since_s = now_s;
    return now_s - m->plan.idle_since_s > CW_MAX(STUCK_S, STUCK_BATCHES * longest_s);
}

/* Of a job that may have local workers: its workers deliver nothing. Local workers that were never seen to
 * run are refused from now on: so many of them, or all without another worker. Requests the best plan that is
 * left. If nothing ever ran, requests more workers of all pools. */
static void auto_unstick(struct cw_auto *m, const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    struct cw_outlook o;
    int target[CW_POLICY_POOLS], most = 0, all = 0;
    cw_auto_pools_target(&m->pools, target);
    int local = cw_host_local(f, target);
    for (size_t i = 0; i < (size_t)m->belief.n_points; i++)
        most = CW_MAX(most, (int)m->belief.points[i].local);
    for (int i = 0; i < f->n_pools; i++)
        all += target[i];
    m->plan.idle_since_s = now_s;
    if (m->belief.n_points == 0) {
        for (int i = 0; i < f->n_pools; i++)
            target[i] = CW_MIN(CW_MAX(2 * target[i], 1), f->pools[i].maximum);
        cw_auto_pools_request(&m->pools, target, now_s);
        d->concluded = d->promises = true;
        snprintf(d->why, sizeof(d->why), "the workers deliver nothing: more of all pools are requested");
        return;
    }
    if (++m->belief.refusals > MOST_REFUSALS) { /* one local worker, then only what was seen to run */
        m->belief.alone_refused = m->belief.refusals > MOST_REFUSALS + 1;
        m->belief.local_refused = m->belief.refusals > MOST_REFUSALS + 1 ? most + 1 : CW_MAX(most + 1, 2);
    } else if (local == all) {
        m->belief.alone_refused = local;
    } else if (local > 0) { /* half-way to the number that was seen to run */
        m->belief.local_refused = local > most + 1 ? most + 1 + (local - most + 1) / 2 : local;
        if (local <= m->belief.alone_refused) /* then there were too many, whether alone or not */
            m->belief.alone_refused = 0;
    }
    cw_auto_belief_outlook(m, f, &o);
    struct cw_alternative best = cw_outlook_best(&o, 1);
    if (best.workers > 0)
        auto_choose(m, &o, &best, &(struct cw_auto_reason){.why = "the workers deliver nothing"}, now_s, d);
}

/* The same for each pool, where workers of another pool do not replace them. */
static bool auto_each_about(const struct cw_auto *m, const struct cw_facts *f)
{
    for (int i = 0; i < f->n_pools; i++)
        if (!auto_about(f->pools[i].running, m->pools.pool[i].target))
            return false;
    return true;
}

static void auto_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                        const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    struct cw_auto *m = (struct cw_auto *)memory->values;
    struct cw_demand demand = cw_demand(f);
    struct cw_auto_seen now = {.step = demand.step, .interval = demand.interval};
    double lost = cw_auto_pools_fit(&m->pools, f);
    if (!(m->pools.target > 0))
        auto_start(m, f, now_s);
    cw_auto_pools_learn_speeds(&m->pools, f);
    cw_auto_pools_work(&m->pools, f, &now);
    double running = cw_auto_pools_running(&m->pools, f);
    auto_spend(m, f, now_s);
    /* must come before measuring, since a measurement with more workers than the maximum does not count */
    auto_fit_maximum(m, f, lost, now_s, d);
    bool same = auto_about(running, m->pools.running) && auto_about(running, m->pools.target) &&
                (!cw_host_any(f) || auto_each_about(m, f));
    auto_fit_cache_points(m, f);
    auto_fit_objective(m, f);
    auto_fit_host(m, f);
    m->pools.running = running;
    bool grows = cw_auto_watch_cache_growing(&m->cache, f);
    if (cw_host_any(f) && auto_is_stuck(m, f, &demand, now_s))
        auto_unstick(m, f, now_s, d);
    else if (!(m->pools.maximum > 0)) /* no pool may have a worker */
        cw_mean_merge(&m->watch.known.step, &now.step);
    else if (!grows && cw_auto_watch_cache_grew(m, f, now_s))
        auto_evaluate(m, f, now_s, true, "more of the epoch is cached now", d);
    else if ((!same || grows) && !cw_host_any(f))
        cw_mean_merge(&m->watch.known.step, &now.step);
    else if (same && !grows && now.interval.n > 0)
        auto_observe(m, f, &now, now_s, d);
    cw_auto_pools_target(&m->pools, d->workers);
    d->cache_point = (int)m->cache.point;
    if (d->concluded) {
        m->plan.promises = d->promises;
        cw_auto_watch_end_streak(&m->watch);
    }
}

static const struct cw_field auto_fields[] = {
    CW_FIELD(struct cw_auto, pools.target),
    CW_FIELD(struct cw_auto, pools.running),
    CW_FIELD(struct cw_auto, pools.maximum),
    CW_FIELD(struct cw_auto, pools.pool),
    CW_FIELD(struct cw_auto, cache.point),
    CW_FIELD(struct cw_auto, cache.n_points),
    CW_FIELD(struct cw_auto, cache.cached),
    CW_FIELD(struct cw_auto, cache.last_cached),
    CW_FIELD(struct cw_auto, cache.read_bytes_per_s),
    CW_FIELD(struct cw_auto, cache.write_bytes_per_s),
    CW_FIELD(struct cw_auto, cache.saved_s),
    CW_FIELD(struct cw_auto, plan.decisions),
    CW_FIELD(struct cw_auto, plan.resting),
    CW_FIELD(struct cw_auto, plan.trial_from),
    CW_FIELD(struct cw_auto, plan.promises),
    CW_FIELD(struct cw_auto, plan.evaluated_n),
    CW_FIELD(struct cw_auto, plan.objective),
    CW_FIELD(struct cw_auto, plan.client_price_per_h),
    CW_FIELD(struct cw_auto, plan.last_s),
    CW_FIELD(struct cw_auto, plan.free_cpus),
    CW_FIELD(struct cw_auto, plan.idle_since_s),
    CW_FIELD(struct cw_auto, plan.past_s),
    CW_FIELD(struct cw_auto, plan.past_cost),
    CW_FIELD(struct cw_auto, watch.since_s),
    CW_FIELD(struct cw_auto, watch.waits),
    CW_FIELD(struct cw_auto, watch.known),
    CW_FIELD(struct cw_auto, watch.recent),
    CW_FIELD(struct cw_auto, watch.window),
    CW_FIELD(struct cw_auto, watch.streak),
    CW_FIELD(struct cw_auto, belief.busiest),
    CW_FIELD(struct cw_auto, belief.source_bytes_per_s),
    CW_FIELD(struct cw_auto, belief.floor_s),
    CW_FIELD(struct cw_auto, belief.local_refused),
    CW_FIELD(struct cw_auto, belief.alone_refused),
    CW_FIELD(struct cw_auto, belief.refusals),
    CW_FIELD(struct cw_auto, belief.n_points),
    CW_FIELD(struct cw_auto, belief.points),
    {0},
};

const struct cw_policy cw_policy_auto = {
    .name = "auto",
    .caches = true,
    .fields = auto_fields,
    .decide = auto_decide,
};
