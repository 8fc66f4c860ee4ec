/* Collects facts about a job, queries the policy, and carries out and records its decision. */
#include "service/dispatcher/policy_step.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policies.h"
#include "service/dispatcher/caching.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/worker_sets.h"

/* ---- facts ---- */

/* Returns the number of batches per position: from the plan, or as workers measured. 0: not known yet. */
static double policy_batches_per_position(const struct stream *s)
{
    double positions = 0, batches = 0;
    if (cw_dp_stream_counted(s))
        return 1 / (double)s->data->plan->align;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list) {
        positions += t->work.positions;
        batches += t->work.batches;
    }
    return positions > 0 ? batches / positions : 0;
}

/* Fills in what the worker set computed since the last decision. Each worker's mean is one sample; the
 * scatter is that of the samples. facts_of: for each pool index, the index in f->pools, or -1. */
static void policy_supply_facts(const struct stream *s, double per_position, const int *facts_of,
                                struct cw_facts *f)
{
    double bytes = 0, n_all = 0, busy_s[DP_POOL_INDEXES] = {0}, span_s[DP_POOL_INDEXES] = {0};
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list) {
        const struct work *a = &t->last_work, *b = &t->work;
        double n = (b->positions - a->positions) * per_position, seconds = b->compute_s - a->compute_s;
        int i = facts_of[t->worker->pool_index];
        /* there are no two heartbeats yet, or the sums were reset */
        if (!t->granted || i < 0 || a->at_ns == 0 || b->at_ns <= a->at_ns || b->compute_s < a->compute_s ||
            b->positions < a->positions)
            continue;
        struct cw_mean mean = cw_mean_of(n, seconds, n > 0 ? seconds * seconds / n : 0);
        cw_mean_merge(&f->pools[i].compute, &mean);
        n_all += n;
        bytes += b->read_bytes - a->read_bytes;
        busy_s[i] += seconds;
        span_s[i] += (double)(b->at_ns - a->at_ns) / 1e9;
    }
    for (int i = 0; i < f->n_pools; i++)
        f->pools[i].busy = span_s[i] > 0 ? CW_MIN(busy_s[i] / span_s[i], 1) : 0;
    f->storage.source_bytes = n_all > 0 ? bytes / n_all : 0;
}

/* Lets the next measurements begin now. */
static void policy_measure_anew(struct job *j)
{
    DP_RANKS_EACH (r, j)
        r->pace.at_policy = r->pace.now;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &j->stream->assignments.list)
        t->last_work = t->work;
}

/* Fills in the lengths of batches and epochs, and the job's progress. */
static void policy_epoch_facts(struct job *j, double per_position, struct cw_facts *f)
{
    const Cachew__Plan *p = j->stream->data->plan;
    double positions = (double)p->n_positions, mark = (double)CW_MIN(cw_dp_job_mark(j), DP_ENDLESS),
           per = per_position > 0 ? per_position : 1;
    f->positions_per_batch = per_position > 0 ? 1 / per_position : 0;
    f->epochs = (double)j->terms.epochs;
    f->batches_per_epoch = CW_MAX(positions * per, 1);
    f->batches_done = CW_MIN(mark * per, f->epochs * f->batches_per_epoch);
    f->epoch = CW_MIN(positions > 0 ? (double)(uint64_t)(mark / positions) : 0, f->epochs - 1);
}

/* Returns the most workers of a pool that the job can get: if a wait for more was given up, the number at
 * that time, until the supply changes. */
static int policy_cap(const struct cw_dispatcher *d, const struct job *j, int pool)
{
    const struct scaling *x = &j->scaling;
    return x->cap_serial != 0 && x->cap_serial == d->scaler.supply_serial && x->cap[pool] >= 0 ? x->cap[pool]
                                                                                               : DP_WORKERS;
}

/* Returns the longest start delay of all pools. */
static double policy_start_delay_s(const struct cw_dispatcher *d)
{
    double most = 0;
    CW_LIST_EACH_OF (p, struct pool, link, &d->scaler.pools)
        most = CW_MAX(most, p->start_delay_s);
    return most;
}

/* Returns the facts of one pool index. If there are pools, workers of no pool count as free: they run anyway,
 * while workers of pools are paid for only as long as they are wanted. */
static struct cw_pool_facts policy_facts_of_pool(const struct cw_dispatcher *d, const struct job *j, int pool,
                                                 int running, int most)
{
    const struct pool *p = cw_dp_pool_at(d, pool);
    struct cw_pool_facts f = {.name = p ? p->info->name : CW_POOL_STATIC,
                              .running = running,
                              .starting = CW_MAX(j->scaling.share[pool] - running, 0),
                              .maximum = CW_MIN(most, policy_cap(d, j, pool)),
                              .start_delay_s = p ? p->start_delay_s : 0,
                              .cpu_share = p ? p->info->cpu_share : 0};
    if (p && p->info->price_per_h > 0)
        f.price_per_h = p->info->price_per_h;
    else if (p || cw_list_empty(&d->scaler.pools))
        f.price_per_h = d->scaler.worker_price_per_h;
    return f;
}

/* Fills in the facts of each pool index that has workers; without a policy, of all workers together as one
 * pool. facts_of: set for each pool index to the index in f->pools, or -1. */
static void policy_pool_facts(struct cw_dispatcher *d, struct job *j, struct cw_facts *f, int *facts_of)
{
    int running[DP_POOL_INDEXES];
    memset(facts_of, 0, DP_POOL_INDEXES * sizeof(*facts_of));
    cw_dp_worker_set_running_of(j->stream, running);
    if (!d->scaler.enabled) {
        int n = cw_dp_worker_set_running(j->stream);
        f->fixed = true;
        f->pools[f->n_pools++] = (struct cw_pool_facts){
            .name = CW_POOL_STATIC, .running = n, .maximum = n, .price_per_h = d->scaler.worker_price_per_h};
        return;
    }
    const int *most = cw_dp_worker_sets_most(d, j);
    for (int pool = 0; pool < DP_POOL_INDEXES; pool++) {
        bool any = most[pool] > 0 || running[pool] > 0 || cw_dp_pool_at(d, pool) ||
                   (pool == 0 && cw_list_empty(&d->scaler.pools));
        facts_of[pool] = any ? f->n_pools : -1;
        if (any)
            f->pools[f->n_pools++] = policy_facts_of_pool(d, j, pool, running[pool], most[pool]);
    }
}

/* ---- phases ---- */

#define POLICY_STEP_NS DP_S /* ns between two queries of a job; clients and workers report once a second */
/* After this number of seconds an incomplete worker set is no longer waited for: workers can't open the data,
 * or a pool supplies fewer than it promised. */
#define PATIENCE_S 60.0
#define PATIENCE_STARTS 4 /* additional patience, in start delays of pools */
/* if at most 1/20 of a worker set is missing, measurements count as those of the whole set */
#define MISSING 20

/* Returns the first position after all ranges that workers are computing. */
static uint64_t phase_end_of_unfinished(const struct stream *s)
{
    for (size_t i = s->ranges.n; i-- > 0;) {
        const struct range *x = cw_dp_range_at(&s->ranges, i);
        if (x->holder[0].assignment && !(x->flags & RANGE_COMPLETE))
            return x->end;
    }
    return s->ranges.base;
}

static void phase_begin(struct cw_dispatcher *d, struct job *j, enum scaling_phase phase)
{
    j->scaling.phase = phase;
    j->scaling.phase_ns = d->now_ns;
}

/* Whether new workers replaced members since the set was complete, even if no member was missing at any tick.
 * The ranges that the replaced workers had begun are computed again, and clients wait for them. */
static bool phase_has_replacements(const struct job *j)
{
    return j->stream->assignments.n_joined - j->scaling.n_joined >
           (uint64_t)(j->scaling.claim.share / MISSING);
}

/* Whether the worker set is complete. 1/MISSING of it may be missing: policies allow for that. */
static bool phase_is_complete(const struct cw_dispatcher *d, const struct job *j)
{
    int running[DP_POOL_INDEXES], missing = 0, share = 0;
    cw_dp_worker_set_running_of(j->stream, running);
    for (int pool = 0; pool < DP_POOL_INDEXES; pool++) {
        int n = CW_MIN(j->scaling.share[pool], policy_cap(d, j, pool));
        share += n;
        missing += CW_MAX(n - running[pool], 0);
    }
    return missing <= share / MISSING;
}

/* Whether to wait for missing workers. If not, sets the cap: no more workers are expected until the supply
 * changes. */
static bool phase_is_awaited(struct cw_dispatcher *d, struct job *j)
{
    struct scaling *x = &j->scaling;
    int running[DP_POOL_INDEXES];
    double patience_s = PATIENCE_S + PATIENCE_STARTS * policy_start_delay_s(d);
    if (cw_dp_worker_set_running(j->stream) == 0 || (double)(d->now_ns - x->phase_ns) < patience_s * 1e9)
        return true;
    cw_dp_worker_set_running_of(j->stream, running);
    for (int pool = 0; pool < DP_POOL_INDEXES; pool++)
        x->cap[pool] = running[pool] < x->share[pool] ? running[pool] : -1;
    x->cap_serial = d->scaler.supply_serial;
    return false;
}

/* Advances the phase. Returns whether the measurements are those of the worker set that the policy decided
 * on. */
static bool phase_measures(struct cw_dispatcher *d, struct job *j)
{
    struct scaling *x = &j->scaling;
    bool complete = phase_is_complete(d, j);
    if ((!complete || phase_has_replacements(j)) && x->phase != SCALING_STARTS)
        phase_begin(d, j, SCALING_STARTS);
    switch (x->phase) {
    case SCALING_STARTS:
        if (!complete && phase_is_awaited(d, j))
            return false;
        x->until_pos = phase_end_of_unfinished(j->stream);
        x->n_joined = j->stream->assignments.n_joined;
        /* before the first decision no range is computed by an older worker set */
        phase_begin(d, j, x->n_decisions == 0 ? SCALING_MEASURES : SCALING_PASSES);
        policy_measure_anew(j);
        return false;
    case SCALING_PASSES:
        if (cw_dp_job_mark(j) < x->until_pos)
            return false;
        x->until_pos = cw_dp_range_end(&j->stream->ranges);
        /* what was prefetched in this phase is used up after the same time again, at the latest */
        x->until_ns = d->now_ns + (d->now_ns - x->phase_ns);
        phase_begin(d, j, SCALING_DRAWS_OFF);
        return false;
    case SCALING_DRAWS_OFF:
        if (cw_dp_job_mark(j) < x->until_pos && d->now_ns < x->until_ns)
            return false;
        phase_begin(d, j, SCALING_MEASURES);
        policy_measure_anew(j);
        return false;
    case SCALING_MEASURES:
        break;
    }
    return true;
}

/* ---- decisions ---- */

/* Logs the decision and keeps it with its facts. */
static void decision_record(struct cw_dispatcher *d, struct job *j, const struct cw_decision *decision,
                            const struct cw_facts *f)
{
    struct scaling *x = &j->scaling;
    struct decision *at = &x->decisions[x->n_decisions % DP_DECISIONS];
    json_t *json = cw_decision_json(decision, f);
    const char *what = json_string_value(json_object_get(json, "what"));
    d->scaler.n_decisions++;
    cw_dp_log(d, false, "job \"%s\": %s: %s", j->name, what ? what : "decided", decision->why);
    if (!json)
        return;
    if (x->n_decisions >= DP_DECISIONS)
        json_decref(at->record);
    *at = (struct decision){(double)(d->now_ns - x->began_ns) / 1e9, d->now_ns, json};
    x->n_decisions++;
}

/* Whether this job decides on the cache point of its stream: of the jobs that share the stream, the first one
 * does. */
static bool decision_moves_cache(const struct job *j, const struct cw_facts *f)
{
    CW_LIST_EACH_OF (first, const struct job, by_stream, &j->stream->jobs)
        if (cw_dp_scaling_active(first) && first->ranks.n_attached > 0)
            return f->n_cache_points > 0 && first == j;
    return false;
}

/* Limits the decision to the maximum of each pool, and to at least one worker. Returns the number of workers.
 */
static int decision_bound(const struct cw_dispatcher *d, const struct cw_facts *f,
                          struct cw_decision *decision)
{
    int n = 0;
    for (int i = 0; i < f->n_pools; i++)
        n += decision->workers[i] = d->scaler.enabled
                                        ? CW_MAX(CW_MIN(decision->workers[i], f->pools[i].maximum), 0)
                                        : f->pools[i].running;
    if (n == 0 && d->scaler.enabled)
        n = decision->workers[0] = 1;
    return n;
}

/* Whether the policy has chosen pools since the job or the dispatcher started. */
static bool decision_is_placed(const struct scaling *x)
{
    for (int pool = 0; pool < DP_POOL_INDEXES; pool++)
        if (x->want[pool] > 0)
            return true;
    return false;
}

/* Queries the policy with the clients' facts, and carries out its decision. */
static void policy_query(struct cw_dispatcher *d, struct job *j, const struct cw_client_facts *clients)
{
    struct scaling *x = &j->scaling;
    struct cw_facts f = {.clients = clients,
                         .n_clients = (int)j->terms.world_size,
                         .cache_point = -1,
                         .objective = cw_dp_scaling_objective(d, j),
                         .client_price_per_h = cw_dp_scaling_client_price(d, j)};
    struct cw_decision decision;
    struct cw_cache_point_facts cache_points[CW_POLICY_CACHE_POINTS];
    const struct cw_policy *policy = d->scaler.enabled ? &d->scaler.policy : &cw_policy_auto;
    double per_position = policy_batches_per_position(j->stream);
    int facts_of[DP_POOL_INDEXES], want[DP_POOL_INDEXES];
    /* cache points are measured with the first ranges: wait for that before the first decision */
    if (!(per_position > 0) && j->stream->n_completed == 0 && cw_dp_caching_open(j->stream))
        return;
    policy_epoch_facts(j, per_position, &f);
    policy_pool_facts(d, j, &f, facts_of);
    policy_supply_facts(j->stream, per_position, facts_of, &f);
    if (per_position > 0)
        cw_dp_caching_facts(j->stream, 1 / per_position, &f, cache_points);
    cw_policy_decide(policy, &x->memory, &f, (double)d->now_ns / 1e9, &decision);
    int n = decision_bound(d, &f, &decision);
    for (int pool = 0; pool < DP_POOL_INDEXES; pool++)
        want[pool] = facts_of[pool] >= 0 ? decision.workers[facts_of[pool]] : 0;
    if (!decision_moves_cache(j, &f))
        decision.cache_point = f.cache_point;
    bool changes = d->scaler.enabled && (n != x->claim.want ||
                                         (decision_is_placed(x) && memcmp(want, x->want, sizeof(want)) != 0)),
         moves = decision.cache_point != f.cache_point;
    if (changes || moves || (decision.concluded && x->n_decisions == 0) || decision.replanned)
        decision_record(d, j, &decision, &f);
    if (moves) {
        d->scaler.n_cache_moves++;
        cw_dp_caching_choose(d, j->stream, decision.cache_point);
        phase_begin(d, j,
                    SCALING_STARTS); /* ranges that are being computed still use the earlier cache point */
    }
    policy_measure_anew(j);
    if (memcmp(want, x->want, sizeof(want)) != 0)
        cw_dp_scaling_due(d);
    memcpy(x->want, want, sizeof(want));
    if (!changes)
        return;
    x->claim.want = n;
    phase_begin(d, j, SCALING_STARTS);
    cw_dp_scaling_due(d);
    cw_dp_job_save(d, j);
}

static void policy_query_job(struct cw_dispatcher *d, struct job *j)
{
    _cleanup_free_ struct cw_client_facts *clients = calloc(j->terms.world_size, sizeof(*clients));
    if (!clients)
        return; /* the next step tries again */
    for (size_t i = 0; i < j->ranks.n; i++)
        clients[i] = cw_pace_facts(&j->ranks.items[i]->pace.now, &j->ranks.items[i]->pace.at_policy);
    policy_query(d, j, clients);
}

void cw_dp_policy_tick(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs.list) {
        if (!cw_dp_scaling_active(j) || d->now_ns < j->scaling.next_ns ||
            !(d->scaler.enabled || cw_dp_caching_open(j->stream)))
            continue;
        j->scaling.next_ns = d->now_ns + POLICY_STEP_NS;
        if (cw_dp_worker_set_running(j->stream) < j->scaling.claim.share)
            cw_dp_scaling_due(d); /* a worker may have become free */
        if (j->stream->data && j->ranks.n_attached > 0 && phase_measures(d, j))
            policy_query_job(d, j);
    }
    if (d->scaler.enabled)
        cw_dp_worker_sets_tick(d);
}
