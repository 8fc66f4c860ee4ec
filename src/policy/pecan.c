/*
 * pecan and pecan-code: the placement of workers that the Pecan paper (ATC'24) published: its Algorithm 1
 * (AutoPlacement), and the state machine of its code, which differs.
 *
 * Both begin with one remote worker, and change one worker at a time. A report spans 500 batches; the first
 * 200 of a job and 150 after each change are not measured. First, remote workers are added as long as that
 * makes a batch's time fall by more than a threshold. Then local workers are added, as long as they do not
 * slow the job down, and remote workers are removed, in turns, until neither changes. The paper compares the
 * time with local workers with the time at the end of the first phase, and removes remote workers as long as
 * a batch costs no more. The code compares successive reports, with a tolerance of 10 %. Neither rule changes
 * anything afterwards: the paper says that it would, its code does not. Neither decides about caches.
 */
#include <math.h>
#include <stdio.h>

#include "base/macro.h"
#include "policy/policies.h"
#include "policy/supply.h"

#define REPORT_BATCHES 500
#define DROP_AT_START 200
#define DROP_AFTER_CHANGE 150
#define THRESHOLD 0.03
#define CODE_TOLERANCE 0.10
#define CODE_OUTLIER 1.3 /* larger relative changes are measurement errors */
/* Workers that deliver nothing for this time can't run: their batches count as infinitely slow. */
#define STALLED_S 120
#define STALLED_BATCH_S 1e9

enum state { MORE_REMOTE, MORE_LOCAL, FEWER_REMOTE, STABLE };

struct pecan {
    double started; /* 0: the job starts */
    double state, remote, local;
    double drop, batches, time;                   /* the report under way, as in atc22.c */
    double changed_s;                             /* time of the last change, or of the last batch */
    double before_s, before_remote, before_local; /* the report before the last change */
    double reached_s;                             /* seconds per batch at the end of MORE_REMOTE */
    double round_remote, round_local;             /* workers when this turn of local and remote began */
};

/* Whether a pool is wanted of a kind. */
static bool pecan_is(const struct cw_pool_facts *pool, bool local)
{
    return pool->local == local;
}

static double pecan_most(const struct cw_facts *f, bool local)
{
    double sum = 0;
    for (int i = 0; i < f->n_pools; i++)
        sum += pecan_is(&f->pools[i], local) ? CW_MAX(f->pools[i].maximum, 0) : 0;
    return sum;
}

/* Sets d->workers: of each kind of pool, the cheapest pools first. */
static void pecan_fill(const struct pecan *m, const struct cw_facts *f, struct cw_decision *d)
{
    struct cw_supply s;
    cw_supply_init(&s, f, NULL, 0);
    int left[] = {(int)m->remote, (int)m->local};
    for (int i = 0; i < s.n; i++) {
        int pool = s.order[0][i], *of = &left[f->pools[pool].local], n = CW_MIN(*of, s.maximum[pool]);
        d->workers[pool] = n;
        *of -= n;
    }
}

/* Whether exactly the workers decided on run. */
static bool pecan_runs(const struct pecan *m, const struct cw_facts *f)
{
    int running[2] = {0};
    for (int i = 0; i < f->n_pools; i++)
        running[f->pools[i].local] += f->pools[i].running;
    return running[false] == (int)m->remote && running[true] == (int)m->local;
}

static double pecan_price(const struct cw_facts *f, bool local)
{
    double price = -1;
    for (int i = 0; i < f->n_pools; i++)
        if (pecan_is(&f->pools[i], local) && (price < 0 || f->pools[i].price_per_h < price))
            price = f->pools[i].price_per_h;
    return CW_MAX(price, 0);
}

/* Changes the number of workers, and keeps the present one and its time, with which the next report is
 * compared. */
static void pecan_change(struct pecan *m, double s, double remote, double local)
{
    m->before_s = s;
    m->before_remote = m->remote;
    m->before_local = m->local;
    m->remote = remote;
    m->local = local;
    m->drop = DROP_AFTER_CHANGE;
    m->batches = m->time = 0;
}

/* Begins to remove remote workers, or rests if the turn changed nothing, or nothing can be removed. s:
 * seconds per batch with the present workers. */
static void pecan_turn(struct pecan *m, double s)
{
    bool last = m->remote < 1 || m->remote + m->local < 2;
    m->state = last ? STABLE : FEWER_REMOTE;
    if (!last)
        pecan_change(m, s, m->remote - 1, m->local);
}

/* Begins to add local workers, or removes remote ones if there can't be more. */
static void pecan_begin_local(struct pecan *m, double s, double most)
{
    m->state = MORE_LOCAL;
    m->round_remote = m->remote;
    m->round_local = m->local;
    if (m->local < most)
        pecan_change(m, s, m->remote, m->local + 1);
    else
        pecan_turn(m, s);
}

/* Ends a phase: goes back to the workers before the last change if `undo`. Returns the seconds per batch of
 * the workers that stay. */
static double pecan_end_phase(struct pecan *m, double s, bool undo)
{
    double kept_s = undo ? m->before_s : s;
    if (undo)
        pecan_change(m, kept_s, m->before_remote, m->before_local);
    return kept_s;
}

/* Whether one more remote worker pays, after the last one made a batch's time fall by the part `gain`. */
static bool pecan_more_remote(const struct pecan *m, const struct cw_facts *f, bool code, double gain)
{
    double worker = pecan_price(f, false);
    if (code && f->objective == CW_OBJECTIVE_COST) /* the code's optimize_cost */
        return gain * (f->client_price_per_h + m->before_remote * worker) > worker * (1 - gain);
    return gain > THRESHOLD;
}

/* Whether the last local worker slowed the job down. */
static bool pecan_local_harms(const struct pecan *m, bool code, double gain, double s)
{
    return code ? gain < -CODE_TOLERANCE : s / m->reached_s - 1 >= THRESHOLD;
}

/* Whether the job is worse after the last remote worker was removed. */
static bool pecan_fewer_harms(const struct pecan *m, const struct cw_facts *f, bool code, double gain,
                              double s)
{
    double remote = pecan_price(f, false), local = m->local * pecan_price(f, true);
    if (!code)
        return s * (f->client_price_per_h + m->remote * remote + local) >
               m->before_s * (f->client_price_per_h + m->before_remote * remote + local);
    if (f->objective == CW_OBJECTIVE_COST)
        return remote <= -gain * (f->client_price_per_h + m->before_remote * remote);
    return gain < -CODE_TOLERANCE;
}

/* Handles a complete report of s seconds per batch. */
static void pecan_report(struct pecan *m, const struct cw_facts *f, bool code, double s)
{
    double gain = m->before_s > 0 ? 1 - s / m->before_s : 0, most = pecan_most(f, true);
    if (code && fabs(gain) > CODE_OUTLIER && s < STALLED_BATCH_S)
        return;
    switch ((enum state)m->state) {
    case MORE_REMOTE: {
        bool first = !(m->before_s > 0), pays = first || pecan_more_remote(m, f, code, gain);
        if (pays && m->remote < pecan_most(f, false)) {
            pecan_change(m, s, m->remote + 1, m->local);
            return;
        }
        m->reached_s = pecan_end_phase(m, s, !pays);
        pecan_begin_local(m, m->reached_s, most);
        return;
    }
    case MORE_LOCAL: {
        bool harms = pecan_local_harms(m, code, gain, s);
        if (!harms && m->local < most) {
            pecan_change(m, s, m->remote, m->local + 1);
            return;
        }
        double kept_s = pecan_end_phase(m, s, harms);
        if (code && m->local <= m->round_local)
            m->state = STABLE;
        else
            pecan_turn(m, kept_s);
        return;
    }
    case FEWER_REMOTE: {
        bool harms = pecan_fewer_harms(m, f, code, gain, s);
        if (!harms && m->remote > 0 && m->remote + m->local > 1) {
            pecan_change(m, s, m->remote - 1, m->local);
            return;
        }
        double kept_s = pecan_end_phase(m, s, harms);
        bool same = m->remote >= m->round_remote && m->local <= m->round_local;
        if (same || (code && (m->remote >= m->round_remote || m->local >= most)))
            m->state = STABLE;
        else
            pecan_begin_local(m, kept_s, most);
        return;
    }
    case STABLE:
        break;
    }
}

/* Adds the measurements of a call to the report. True: the report is complete, and *ret its seconds per
 * batch. */
static bool pecan_measure(struct pecan *m, const struct cw_facts *f, double now_s, double *ret)
{
    struct cw_demand now = cw_demand(f);
    double n = now.interval.n, dropped = CW_MIN(m->drop, n);
    if (!pecan_runs(m, f)) {
        m->changed_s = now_s;
        return false;
    }
    if (n > 0)
        m->changed_s = now_s;
    *ret = STALLED_BATCH_S;
    if (now_s - m->changed_s > STALLED_S)
        return true;
    m->drop -= dropped;
    m->batches += n - dropped;
    m->time += (n - dropped) * now.interval.mean;
    if (m->batches < REPORT_BATCHES)
        return false;
    *ret = m->time / m->batches;
    m->batches = m->time = 0;
    return true;
}

static void pecan_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                         const struct cw_facts *f, double now_s, struct cw_decision *d)
{
    static const char *const texts[] = {"remote workers are added", "local workers are added",
                                        "remote workers are removed", "the search has ended"};
    struct pecan *m = (struct pecan *)memory->values;
    double s, most[] = {pecan_most(f, false), pecan_most(f, true)};
    if (!m->started)
        *m = (struct pecan){.started = 1,
                            .remote = most[0] > 0,
                            .local = !(most[0] > 0),
                            .drop = DROP_AT_START,
                            .changed_s = now_s};
    double remote = m->remote, local = m->local;
    if (pecan_measure(m, f, now_s, &s)) {
        pecan_report(m, f, policy->parameter > 0, s);
        m->changed_s = now_s;
        snprintf(d->why, sizeof(d->why), "with %.0f remote and %.0f local workers, a batch takes %.4g s: %s",
                 remote, local, s, texts[(int)m->state]);
    }
    m->remote = CW_MIN(m->remote, most[0]);
    m->local = CW_MIN(m->local, most[1]);
    pecan_fill(m, f, d);
    d->cache_point = -1;
    d->concluded = m->remote != remote || m->local != local;
}

static const struct cw_field fields[] = {
    CW_FIELD(struct pecan, started),
    CW_FIELD(struct pecan, state),
    CW_FIELD(struct pecan, remote),
    CW_FIELD(struct pecan, local),
    CW_FIELD(struct pecan, drop),
    CW_FIELD(struct pecan, batches),
    CW_FIELD(struct pecan, time),
    CW_FIELD(struct pecan, changed_s),
    CW_FIELD(struct pecan, before_s),
    CW_FIELD(struct pecan, before_remote),
    CW_FIELD(struct pecan, before_local),
    CW_FIELD(struct pecan, reached_s),
    CW_FIELD(struct pecan, round_remote),
    CW_FIELD(struct pecan, round_local),
    {0},
};

const struct cw_policy cw_policy_pecan = {
    .name = "pecan",
    .fields = fields,
    .parameter = 0,
    .decide = pecan_decide,
};
const struct cw_policy cw_policy_pecan_code = {
    .name = "pecan-code",
    .fields = fields,
    .parameter = 1,
    .decide = pecan_decide,
};
