/*
 * cachew-atc22 and cachew-atc22-code: the rules that the Cachew paper (ATC'22) published, with the paper's
 * thresholds and with those of its code.
 *
 * Scaling: the job begins with one worker. A report spans 100 batches; the first 200 of a job and 150 after
 * each change are not measured. One worker is added as long as that makes a batch's time fall by more than a
 * threshold. Otherwise the last worker is removed, and the rule rests. After a fixed number of reports it
 * checks again: a longer queue at the client starts a search downwards, a longer batch time starts a search
 * upwards.
 *
 * Caching: after 300 batches on one worker, the time of computing everything is compared with the time at
 * each cache point. The time of reading comes from a table that was measured once. The chosen cache is
 * written during the next whole epoch (a batch waits until it is written), and read from the epoch after
 * that. Each change of mode (computing, writing, reading) restarts the search from one worker.
 *
 * Differences from the published system: an epoch is not extended if a search does not end within it, and a
 * job's memory lasts for all its epochs.
 */
#include <math.h>
#include <stdio.h>

#include "base/macro.h"
#include "policy/policies.h"

#define REPORT_BATCHES 100
#define DROP_AFTER_SCALING 150
#define DROP_AT_START 200
#define PROFILE_BATCHES 300
#define OUTLIER 1.2 /* larger relative changes are measurement errors */

struct rule {
    double up, down; /* least gain by one worker more, and largest loss by one worker fewer */
    int recheck;     /* reports until the rule checks again */
    /* increase of the queue that starts a search downwards, of the batch time that starts a search upwards */
    double queue_ratio, time_ratio;
};
static const struct rule rules[] = {
    {.up = 0.03, .down = 0.03, .recheck = 10, .queue_ratio = 1.4, .time_ratio = 1.4},
    {.up = 0.07, .down = 0.03, .recheck = 20, .queue_ratio = 1.5, .time_ratio = 1.5},
};

enum mode { PROFILE, COMPUTE, PUT, GET };

enum state { FIRST, UP, DOWN, STABLE };

struct atc22 {
    double workers, mode, state, cache_point, epoch;
    /* the report under way: batches still to be ignored; batches so far, the sum of their times, of the queue
     */
    double drop, batches, time, queue;
    double before_s, before_workers;      /* seconds per batch and workers before the last change */
    double settled_s, settled_queue;      /* seconds per batch and queue when the search ended */
    double counter;                       /* reports since then */
    double profile_time, profile_batches; /* of the first PROFILE_BATCHES: computing time, batches */
};

/* The published table of GlusterFS reads: MB and milliseconds per row, linear between and beyond points.
 * Below 0.1 MB it is negative, as published. */
static double atc22_read_s(double bytes)
{
    static const double table[][2] = {{0.1, 0.00376}, {1, 0.2549},   {5, 5.627},   {10, 11.94}, {15, 13.68},
                                      {20, 22.25},    {25, 26.34},   {30, 30.5},   {50, 75.1},  {75, 112.8},
                                      {100, 155.01},  {200, 306.62}, {400, 624.66}};
    double mb = bytes / 1e6;
    size_t i = 1;
    while (i + 1 < CW_COUNT_OF(table) && mb > table[i][0])
        i++;
    const double *a = table[i - 1], *b = table[i];
    return 1e-3 * (a[1] + (b[1] - a[1]) * (mb - a[0]) / (b[0] - a[0]));
}

static void atc22_restart(struct atc22 *m, double drop)
{
    m->workers = 1;
    m->state = FIRST;
    m->drop = drop;
    m->batches = m->time = m->queue = m->counter = 0;
}

static void atc22_change(struct atc22 *m, double workers)
{
    m->before_workers = m->workers;
    m->workers = workers;
    m->drop = DROP_AFTER_SCALING;
}

static void atc22_settle(struct atc22 *m, double workers, double s, double queue)
{
    m->state = STABLE;
    m->counter = 0;
    m->settled_s = s;
    m->settled_queue = queue;
    if (workers != m->workers)
        atc22_change(m, workers);
}

static bool atc22_recheck(const struct rule *rule, struct atc22 *m, double s, double queue)
{
    if (++m->counter < rule->recheck)
        return false;
    m->counter = 0;
    m->before_s = s;
    if (m->settled_queue > 0 && queue > rule->queue_ratio * m->settled_queue && m->workers > 1) {
        m->state = DOWN;
        atc22_change(m, m->workers - 1);
        return true;
    }
    if (s > rule->time_ratio * m->settled_s) {
        m->state = UP;
        atc22_change(m, m->workers + 1);
        return true;
    }
    return false;
}

/* Handles a complete report of s seconds per batch. True: a decision was made. */
static bool atc22_report(const struct rule *rule, struct atc22 *m, double s, double queue, int maximum,
                         struct cw_decision *d)
{
    double gain = m->state == UP || m->state == DOWN ? 1 - s / m->before_s : 0;
    if (m->state == STABLE)
        return atc22_recheck(rule, m, s, queue);
    if (fabs(gain) > OUTLIER)
        return false;
    if (m->state == FIRST) {
        m->state = UP;
        m->before_s = s;
        snprintf(d->why, sizeof(d->why), "first measurement: a batch takes %.4g s", s);
        if (m->workers < maximum)
            atc22_change(m, m->workers + 1);
        else
            atc22_settle(m, m->workers, s, queue);
        return true;
    }
    snprintf(d->why, sizeof(d->why), "with %.0f instead of %.0f workers, a batch takes %.1f %% %s time",
             m->workers, m->before_workers, 100 * fabs(gain), gain < 0 ? "more" : "less");
    bool go_on = m->state == UP ? gain > rule->up && m->workers < maximum
                                : gain > -rule->down && m->workers > 1;
    bool keep = m->state == UP && gain > rule->up;
    if (!go_on) {
        atc22_settle(m, keep ? m->workers : m->before_workers, keep ? s : m->before_s, queue);
        return true;
    }
    m->before_s = s;
    atc22_change(m, m->workers + (m->state == UP ? 1 : -1));
    return true;
}

/* Chooses the cache point with the least time per batch of reading there and computing the rest, or none if
 * computing everything takes less. Of equal cache points, the earlier one is chosen. */
static void atc22_choose_cache_point(struct atc22 *m, const struct cw_facts *f, double compute_s,
                                     struct cw_decision *d)
{
    double best = compute_s * (1 + 1e-9);
    m->cache_point = -1;
    for (int i = 0; i < f->n_cache_points; i++) {
        double s = atc22_read_s(f->cache_points[i].bytes) +
                   CW_MAX(compute_s - f->cache_points[i].prefix_s, 0);
        if (s < best) {
            best = s;
            m->cache_point = i;
        }
    }
    snprintf(d->why, sizeof(d->why),
             "a batch takes %.4g s without a cache; with the best cache point (%s) it takes %.4g s",
             compute_s, m->cache_point >= 0 ? f->cache_points[(int)m->cache_point].name : "none", best);
}

static void atc22_turn_epoch(struct atc22 *m, const struct cw_facts *f)
{
    double mode = m->mode;
    m->epoch = f->epoch;
    if (mode == PROFILE || m->cache_point < 0)
        return;
    m->mode = mode == COMPUTE ? PUT : GET;
    if (m->mode != mode)
        atc22_restart(m, DROP_AT_START);
}

/* Adds a report to the profile. True: the profile is complete, and the cache point was chosen. */
static bool atc22_profile(struct atc22 *m, const struct cw_facts *f, struct cw_decision *d)
{
    const struct cw_pool_facts all = cw_pools_together(f);
    const struct cw_mean *compute = &all.compute;
    m->profile_batches += compute->n;
    m->profile_time += compute->n * compute->mean;
    if (m->profile_batches < PROFILE_BATCHES)
        return false;
    atc22_choose_cache_point(m, f, m->profile_time / m->profile_batches, d);
    m->mode = COMPUTE;
    m->drop = 0;
    return true;
}

static bool atc22_measure(const struct rule *rule, struct atc22 *m, const struct cw_facts *f,
                          struct cw_decision *d)
{
    struct cw_demand now = cw_demand(f);
    struct cw_pool_facts all = cw_pools_together(f);
    if (all.running != (int)m->workers || !(now.interval.n > 0))
        return false;
    double n = now.interval.n, dropped = CW_MIN(m->drop, n);
    m->drop -= dropped;
    m->batches += n - dropped;
    m->time += (n - dropped) * now.interval.mean;
    m->queue += (n - dropped) * f->clients[0].queue;
    if (m->batches < REPORT_BATCHES)
        return false;
    double s = m->time / m->batches, queue = m->queue / m->batches;
    m->batches = m->time = m->queue = 0;
    return atc22_report(rule, m, s, queue, all.maximum, d);
}

static void atc22_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                         const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    struct atc22 *m = (struct atc22 *)memory->values;
    if (m->workers < 1) {
        m->cache_point = -1;
        atc22_restart(m, 0);
    }
    double before = m->workers;
    if (f->epoch > m->epoch)
        atc22_turn_epoch(m, f);
    if (m->workers != before)
        snprintf(d->why, sizeof(d->why),
                 "the job begins to write or read a cache, so the search for the number of workers starts "
                 "again from one");
    bool decided = m->mode == PROFILE ? atc22_profile(m, f, d)
                                      : atc22_measure(&rules[(int)policy->parameter], m, f, d);
    m->workers = CW_MIN(m->workers, cw_pools_together(f).maximum);
    cw_pools_fill(f, m->workers, d);
    d->cache_point = m->mode == PUT || m->mode == GET ? (int)m->cache_point : -1;
    d->write_waits = m->mode == PUT;
    d->concluded = decided || m->workers != before;
}

static const struct cw_field fields[] = {
    CW_FIELD(struct atc22, workers),
    CW_FIELD(struct atc22, mode),
    CW_FIELD(struct atc22, state),
    CW_FIELD(struct atc22, cache_point),
    CW_FIELD(struct atc22, epoch),
    CW_FIELD(struct atc22, drop),
    CW_FIELD(struct atc22, batches),
    CW_FIELD(struct atc22, time),
    CW_FIELD(struct atc22, queue),
    CW_FIELD(struct atc22, before_s),
    CW_FIELD(struct atc22, before_workers),
    CW_FIELD(struct atc22, settled_s),
    CW_FIELD(struct atc22, settled_queue),
    CW_FIELD(struct atc22, counter),
    CW_FIELD(struct atc22, profile_time),
    CW_FIELD(struct atc22, profile_batches),
    {0},
};

const struct cw_policy cw_policy_atc22 = {
    .name = "cachew-atc22",
    .caches = true,
    .fields = fields,
    .parameter = 0,
    .decide = atc22_decide,
};
const struct cw_policy cw_policy_atc22_code = {
    .name = "cachew-atc22-code",
    .caches = true,
    .fields = fields,
    .parameter = 1,
    .decide = atc22_decide,
};
