/* The loop of the simulator: advances jobs from event to event, calls policies at reports, and shares pools
 * among jobs. */
#include "sim/sim.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macro.h"
#include "policy/share.h"
#include "sim/job.h"

/* Seconds between reports: FIRST_REPORT_S after a change, as in a service, then growing to REPORT_S. Long
 * after a change, a report covers REPORT_PART of the time since the change, so that a week without changes
 * does not take a million reports. */
#define FIRST_REPORT_S 0.125
#define REPORT_S 1.0
#define REPORT_PART 1e-3
#define ASK_STEPS 10  /* a call of a policy counts as this many steps: it takes as long as 2 to 20 */
#define STAGES_STEP 8 /* summing up this many stages counts as a step */
#define END_S 1e200   /* end of a run without reports */

struct sim {
    const struct cw_workload *w;
    const struct cw_sim_options *o;
    struct cw_sim_played *jobs;
    size_t n;
    uint64_t *steps; /* of the options */
};

/* Whether a lump (work that is finished and reported together) is due now. Without lumps: always. */
static bool lump_is_due(const struct cw_sim_played *p)
{
    return p->now - p->window.lump_at >= p->job->lump_s;
}

/* Corrects the client's waiting for lumps. The batches of a lump arrive together, so the client waits only
 * for the first of them, as long as for all. Until a lump is due, its waiting is kept for later. */
static void lump_wait(struct cw_sim_played *p, struct cw_client_facts *client)
{
    double n = client->wait.n;
    if (!(p->job->lump_s > 0) || !(n > 0))
        return;
    p->window.lump_wait_s += n * client->wait.mean;
    double wait_s = lump_is_due(p) ? p->window.lump_wait_s : 0;
    client->wait = (struct cw_mean){n, wait_s / n, n > 1 ? wait_s * wait_s * (1 - 1 / n) : 0};
    p->window.lump_wait_s -= wait_s;
}

static void sim_facts(const struct cw_sim_played *p, struct cw_client_facts *client,
                      struct cw_cache_point_facts *cache_points, struct cw_facts *f)
{
    const struct cw_sim_job *job = p->job;
    const struct cw_sim_change *phase = &job->phases[p->phase];
    double spent = p->now - p->window.since;
    *client = (struct cw_client_facts){
        .step = p->window.step, .wait = p->window.interval, .queue = spent > 0 ? p->window.queue / spent : 0};
    client->wait.mean = p->window.interval.mean - p->window.step.mean;
    client->wait.m2 = CW_MAX(p->window.interval.m2 - p->window.step.m2, 0);
    *f = (struct cw_facts){
        .clients = client,
        .n_clients = 1,
        .n_pools = (int)p->w->n_pools,
        .cache_points = cache_points,
        .n_cache_points = (int)job->n_cache_points,
        .cache_point = p->choice.cache_point,
        .epoch = p->epoch,
        .epochs = job->epochs,
        .batches_per_epoch = job->batches_per_epoch,
        .bytes_per_batch = job->bytes_per_batch,
        .batches_done = p->done,
        .objective = job->objective,
        .client_price_per_h = job->client_price_per_h,
    };
    for (size_t i = 0; i < p->w->n_pools; i++) {
        const struct cw_sim_pool *pool = &p->w->pools[i];
        f->pools[i] = (struct cw_pool_facts){
            .name = pool->name,
            .running = p->worker_sets[i].running,
            .starting = p->worker_sets[i].starting,
            .maximum = (int)pool->max_workers,
            .price_per_h = pool->price_per_h,
            .price_per_gb = pool->price_per_gb,
            .local = pool->local,
            .host_cpus = pool->local ? job->host_cpus : 0,
            .host_busy_cpus = pool->local ? phase->host_busy_cpus : 0,
            .start_delay_s = pool->start_delay_s,
            .cpu_share = pool->worker_cpus,
        };
        if (lump_is_due(p)) {
            f->pools[i].compute = p->window.compute[i];
            f->pools[i].busy = p->now > p->window.lump_at ? p->window.busy_s / (p->now - p->window.lump_at)
                                                          : 0;
        }
    }
    for (size_t i = 0; i < job->n_cache_points; i++)
        cache_points[i] = (struct cw_cache_point_facts){
            .name = job->stages[job->cache_points[i]].name,
            .prefix_s = p->costs.prefix_s[i] * (phase->worker_slowdown * p->w->pools[0].slowdown) /
                        p->w->pools[0].worker_cpus,
            .bytes = p->costs.bytes[i],
            .cached = p->cache.readable[i],
            .written = p->cache.written[i]};
    f->storage = (struct cw_storage_facts){.source_bytes = job->n_stages ? p->costs.source_bytes : 0,
                                           .read_bytes_per_s = phase->read_bytes_per_s,
                                           .write_bytes_per_s = phase->write_bytes_per_s,
                                           .cache_bytes = job->store_bytes};
}

/*
 * Sets shares[job] to the workers of each pool that the job gets. whole: a job that is treated as if it
 * wanted all workers, to find its maximum; NULL: none. A quota limits the sum over all pools, so workers of
 * earlier pools are subtracted from it.
 */
static void sim_share(const struct sim *s, const struct cw_sim_played *whole, struct cw_sim_vector *shares)
{
    struct cw_claim claims[CW_SIM_MAX_JOBS];
    int had[CW_SIM_MAX_JOBS] = {0};
    for (size_t k = 0; k < s->w->n_pools; k++) {
        int most = (int)s->w->pools[k].max_workers;
        for (size_t i = 0; i < s->n; i++) {
            const struct cw_sim_played *p = &s->jobs[i];
            int want = p->state == CW_SIM_PLAYING ? p->choice.workers[k] : 0, quota = (int)p->job->quota;
            if (p == whole)
                want = most;
            else if (quota > 0)
                want = CW_MIN(want, quota - had[i]);
            claims[i] = (struct cw_claim){
                .want = want, .weight = p->job->weight, .priority = (int)p->job->priority, .quota = quota};
        }
        cw_share(claims, (int)s->n, most);
        for (size_t i = 0; i < s->n; i++)
            had[i] += shares[i].workers[k] = claims[i].share;
    }
}

static void reports_restart(struct cw_sim_played *p, double now)
{
    p->reports.every_s = FIRST_REPORT_S;
    p->reports.next = now + p->reports.every_s;
    p->reports.changed = now;
}

static void window_restart(struct cw_sim_played *p)
{
    p->window.step = p->window.interval = (struct cw_mean){0};
    p->window.queue = 0;
    p->window.since = p->now;
    if (!lump_is_due(p))
        return;
    memset(p->window.compute, 0, sizeof(p->window.compute));
    p->window.busy_s = 0;
    p->window.lump_at = p->now;
}

/* Whether workers of a pool other than `pool` are starting. Until they run, workers that are to be stopped
 * stay, so that the job always has workers. */
static bool job_others_start(const struct cw_sim_played *p, size_t pool)
{
    bool any = false;
    for (size_t i = 0; i < p->w->n_pools; i++)
        any |= i != pool && p->worker_sets[i].starting > 0;
    return any;
}

/* Gives a job its share of each pool. 1: its workers changed; negative: out of memory. */
static int job_grant(struct cw_sim_played *p, const struct cw_sim_vector *share, double now)
{
    bool changed = false;
    for (int more = 1; more >= 0;
         more--) /* first the pools that give more workers, then those that give fewer */
        for (size_t i = 0; i < p->w->n_pools; i++) {
            struct cw_sim_worker_set *worker_set = &p->worker_sets[i];
            int target = share->workers[i], n = worker_set->running + worker_set->starting;
            if (n > target && job_others_start(p, i))
                target = CW_MAX(target, worker_set->running);
            if (n == target || (n < target) != more)
                continue;
            if (cw_sim_worker_set_resize(worker_set, p->w, now, target) < 0)
                return CW_E_MEMORY;
            changed = true;
        }
    return changed;
}

/* Gives every job its share. */
static int sim_grant(struct sim *s, double now)
{
    struct cw_sim_vector shares[CW_SIM_MAX_JOBS];
    sim_share(s, NULL, shares);
    for (size_t i = 0; i < s->n; i++) {
        int r = s->jobs[i].state != CW_SIM_WAITING ? job_grant(&s->jobs[i], &shares[i], now) : 0;
        if (r < 0)
            return r;
        if (r > 0)
            reports_restart(&s->jobs[i], now);
    }
    return 0;
}

static bool choice_differs(const struct cw_sim_played *p, const struct cw_decision *d)
{
    return memcmp(d->workers, p->choice.workers, sizeof(p->choice.workers)) != 0 ||
           d->cache_point != p->choice.cache_point;
}

int cw_sim_workers_sum(const int *workers)
{
    int n = 0;
    for (int i = 0; i < CW_POLICY_POOLS; i++)
        n += workers[i];
    return n;
}

/* Returns the number of workers of the training host's pool. */
static int sim_local(const struct cw_workload *w, const int *workers)
{
    int n = 0;
    for (size_t i = 0; i < w->n_pools; i++)
        n += w->pools[i].local ? workers[i] : 0;
    return n;
}

static int job_record(struct cw_sim_played *p, const struct cw_decision *d, const struct cw_facts *f)
{
    struct cw_sim_outcome *out = p->out;
    if (p->expected || !(choice_differs(p, d) || (d->concluded && !p->choice.recorded)))
        return 0;
    p->choice.recorded = true;
    if (CW_ARRAY_ROOM(out->decisions, out->decisions_room, out->n_decisions + 1, "decisions", NULL) < 0)
        return CW_E_MEMORY;
    json_t *json = cw_decision_json(d, f);
    if (!json)
        return CW_E_MEMORY;
    out->decisions[out->n_decisions++] = (struct cw_sim_decision){.t = p->now,
                                                                  .workers = cw_sim_workers_sum(d->workers),
                                                                  .local = sim_local(p->w, d->workers),
                                                                  .cache_point = d->cache_point,
                                                                  .cost = out->cost,
                                                                  .record = json};
    return 0;
}

static int sim_apply(struct sim *s, struct cw_sim_played *p, const struct cw_decision *d)
{
    bool other = choice_differs(p, d);
    memcpy(p->choice.workers, d->workers, sizeof(p->choice.workers));
    if (d->cache_point != p->choice.cache_point || d->write_waits != p->choice.write_waits)
        reports_restart(p, p->now);
    p->choice.cache_point = d->cache_point;
    p->choice.write_waits = d->write_waits;
    return other ? sim_grant(s, p->now) : 0;
}

/* Returns the number of workers of all pools that run. */
static int job_running(const struct cw_sim_played *p)
{
    int n = 0;
    for (size_t i = 0; i < p->w->n_pools; i++)
        n += p->worker_sets[i].running;
    return n;
}

static int job_sample(struct cw_sim_played *p)
{
    struct cw_sim_outcome *out = p->out;
    if (p->expected || !(p->window.interval.n > 0))
        return 0;
    if (CW_ARRAY_ROOM(out->samples, out->samples_room, out->n_samples + 1, "samples", NULL) < 0)
        return CW_E_MEMORY;
    out->samples[out->n_samples++] = (struct cw_sim_sample){
        p->now, job_running(p), cw_sim_workers_sum(p->choice.workers),
        1 - p->window.step.mean / p->window.interval.mean};
    return 0;
}

/* Makes the plan of this phase a decision. */
static void job_follow_plan(const struct cw_sim_played *p, struct cw_decision *d)
{
    *d = (struct cw_decision){.cache_point = p->plan->cache_point,
                              .concluded = true,
                              .why = "the oracle's plan, the best of all plans that it tried"};
    memcpy(d->workers, p->plan->phases[p->phase].workers, sizeof(d->workers));
}

/* Calls the policy, or follows the plan, and carries out the decision. */
static int sim_decide(struct sim *s, struct cw_sim_played *p)
{
    struct cw_client_facts client;
    struct cw_cache_point_facts cache_points[CW_POLICY_CACHE_POINTS];
    struct cw_facts f;
    struct cw_decision d = {0};
    struct cw_sim_vector shares[CW_SIM_MAX_JOBS];
    sim_facts(p, &client, cache_points, &f);
    lump_wait(p, &client);
    sim_share(s, p, shares);
    for (int i = 0; i < f.n_pools; i++)
        f.pools[i].maximum = shares[p - s->jobs].workers[i];
    *s->steps += p->plan ? 1 : ASK_STEPS;
    if (p->plan)
        job_follow_plan(p, &d);
    else
        s->o->policy->decide(s->o->policy, &p->memory, &f, p->now, &d);
    for (size_t i = 0; i < s->w->n_pools; i++)
        d.workers[i] = CW_MAX(CW_MIN(d.workers[i], (int)s->w->pools[i].max_workers), 0);
    if (cw_sim_workers_sum(d.workers) == 0)
        d.workers[s->w->first_pool] = 1;
    int r = job_record(p, &d, &f);
    return r < 0 ? r : sim_apply(s, p, &d);
}

static int sim_report(struct sim *s, struct cw_sim_played *p)
{
    int r = job_sample(p);
    p->reports.every_s = CW_MIN(2 * p->reports.every_s,
                                CW_MAX(REPORT_S, REPORT_PART * (p->now - p->reports.changed)));
    p->reports.next = p->now + p->reports.every_s;
    if (r == 0)
        r = sim_decide(s, p);
    window_restart(p);
    return r;
}

static int sim_arrive(struct sim *s, struct cw_sim_played *p, double now)
{
    p->state = CW_SIM_PLAYING;
    p->now = p->window.since = p->window.lump_at = p->out->began_s = now;
    p->choice.workers[s->w->first_pool] = 1;
    for (size_t i = 0; i < s->w->n_pools; i++)
        p->worker_sets[i].fails_at = CW_SIM_NEVER;
    p->out->ended_s = now;
    reports_restart(p, now);
    /* a single job begins with a worker */
    if (s->n == 1 || s->o->alone >= 0) {
        p->worker_sets[s->w->first_pool].running = 1;
        if (cw_sim_worker_set_resize(&p->worker_sets[s->w->first_pool], s->w, now, 1) < 0)
            return CW_E_MEMORY;
    } else if (sim_grant(s, now) < 0)
        return CW_E_MEMORY;
    return sim_decide(s, p); /* nothing is measured yet, but policies such as fixed:N decide at once */
}

static double sim_next_event(const struct sim *s)
{
    double at = CW_SIM_NEVER;
    for (size_t i = 0; i < s->n; i++) {
        const struct cw_sim_played *p = &s->jobs[i];
        if (p->state == CW_SIM_OVER)
            continue;
        if (p->state == CW_SIM_WAITING)
            at = CW_MIN(at, p->job->arrive_s);
        else
            at = CW_MIN(at, p->expected ? END_S : p->reports.next);
        for (size_t k = 0; p->state == CW_SIM_PLAYING && k < s->w->n_pools; k++)
            at = CW_MIN(at, cw_sim_worker_set_next(&p->worker_sets[k]));
    }
    return at;
}

static int job_end(struct cw_sim_played *p, double at)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < p->w->n_pools; i++)
        r = cw_sim_worker_set_resize(&p->worker_sets[i], p->w, at, 0);
    return r;
}

/* Starts and fails the workers of a job that are due. Workers that were to be stopped, and stayed until
 * others have started, leave. 1: something was due; negative: out of memory. */
static int sim_step_workers(struct sim *s, struct cw_sim_played *p, double at)
{
    bool any = false;
    for (size_t i = 0; i < s->w->n_pools; i++) {
        int r = cw_sim_worker_set_step(&p->worker_sets[i], s->w, at);
        if (r < 0)
            return r;
        any |= r > 0;
    }
    return any && s->w->n_pools > 1 && sim_grant(s, at) < 0 ? CW_E_MEMORY : any;
}

/* Advances a job to the event at time `at`, and carries out what is due. Returns 0, or negative: out of
 * memory. */
static int sim_at_event(struct sim *s, struct cw_sim_played *p, double at)
{
    if (p->state == CW_SIM_WAITING)
        return p->job->arrive_s <= at ? sim_arrive(s, p, at) : 0;
    if (cw_sim_job_advance(p, at))
        return sim_decide(s, p);
    if (p->state == CW_SIM_OVER)
        return job_end(p, at) < 0 ? CW_E_MEMORY : sim_grant(s, at);
    int r = sim_step_workers(s, p, at);
    if (r > 0)
        reports_restart(p, at);
    return r >= 0 && !p->expected && p->reports.next <= at ? sim_report(s, p) : CW_MIN(r, 0);
}

struct cause { /* a field of the workload, its value, and the factor of steps that it causes */
    const char *field;
    double value, times;
};

/* Sets the error of a workload that takes too many steps. It names the field that multiplies the steps most.
 * A search for an oracle (expected) plays equal epochs in one step, but simulates many plans. Other runs take
 * a step for each failure. */
static int sim_too_long(const struct sim *s, double at, struct cw_error *err)
{
    const struct cw_workload *w = s->w;
    struct cause worst = {0};
    double most = 0;
    for (size_t k = 0; k < w->n_pools; k++)
        most = CW_MAX(most, w->pools[k].max_workers);
    for (size_t i = 0; i < s->n; i++) {
        const struct cw_sim_job *job = s->jobs[i].job;
        bool search = s->jobs[i].expected;
        int want = cw_sim_workers_sum(s->jobs[i].choice.workers);
        const struct cause causes[] = {
            {"batches_per_epoch", job->batches_per_epoch, 1}, /* the default */
            {"epochs", job->epochs, job->epochs},
            {"failures.mtbf_s", w->mtbf_s, !search && w->mtbf_s > 0 ? at / w->mtbf_s * want : 0},
            {"max_workers", most, search ? most : 0},
            {"changes", (double)job->n_phases - 1, search ? (double)(job->n_phases * job->n_phases) : 0},
        };
        for (size_t k = 0; k < CW_COUNT_OF(causes); k++)
            if (causes[k].times > worst.times)
                worst = causes[k];
    }
    bool more = strcmp(worst.field, "failures.mtbf_s") == 0;
    char value[32];
    snprintf(value, sizeof(value), "%.6g", worst.value);
    return cw_error_value(err, CW_E_PIPELINE, worst.field, value, more ? "more" : "less",
                          "%s is %s: expected %s, because the simulation would take more than %" PRIu64
                          " steps",
                          worst.field, value, more ? "more" : "less", CW_SIM_MAX_STEPS);
}

static int sim_play(struct sim *s, struct cw_error *err)
{
    for (double at; (at = sim_next_event(s)) < CW_SIM_NEVER;) {
        for (size_t i = 0; i < s->n; i++)
            if (s->jobs[i].state != CW_SIM_OVER && sim_at_event(s, &s->jobs[i], at) < 0)
                return cw_error_nomem(err, 0, "a simulation");
        if (++*s->steps > CW_SIM_MAX_STEPS)
            return sim_too_long(s, at, err);
    }
    return 0;
}

int cw_sim_run(const struct cw_workload *w, const struct cw_sim_options *o, struct cw_sim_outcome *outcomes,
               struct cw_error *err)
{
    struct sim s = {.w = w, .o = o, .n = o->alone >= 0 ? 1 : w->n_jobs, .steps = o->steps};
    s.jobs = calloc(s.n, sizeof(*s.jobs));
    if (!s.jobs)
        return cw_error_nomem(err, 0, "a simulation");
    for (size_t i = 0; i < s.n; i++) {
        struct cw_sim_played *p = &s.jobs[i];
        const struct cw_sim_job *job = &w->jobs[o->alone >= 0 ? (size_t)o->alone : i];
        *p = (struct cw_sim_played){.w = w,
                                    .job = job,
                                    .plan = o->plans ? &o->plans[i] : NULL,
                                    .costs = cw_sim_costs(job),
                                    .steps = s.steps,
                                    .expected = o->expected,
                                    .choice = {.cache_point = -1},
                                    .out = &outcomes[i],
                                    .draw = cw_draw_new(w->seed + i, "batches")};
        *s.steps += job->n_stages / STAGES_STEP;
        for (size_t k = 0; k < w->n_pools; k++) {
            p->worker_sets[k].start_delay_s = w->pools[k].start_delay_s;
            p->worker_sets[k].reliable = o->expected;
            p->worker_sets[k].draw = cw_draw_new(w->seed + i, k == 0 ? "workers" : w->pools[k].name);
        }
        outcomes[i] = (struct cw_sim_outcome){0};
    }
    int r = sim_play(&s, err);
    for (size_t i = 0; i < s.n; i++)
        for (size_t k = 0; k < w->n_pools; k++)
            free(s.jobs[i].worker_sets[k].starts);
    free(s.jobs);
    return r;
}

void cw_sim_outcome_deinit(struct cw_sim_outcome *o)
{
    for (size_t i = 0; i < o->n_decisions; i++)
        json_decref(o->decisions[i].record);
    free(o->decisions);
    free(o->samples);
    *o = (struct cw_sim_outcome){0};
}
