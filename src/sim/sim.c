/* The loop: goes from event to event, asks policies at reports, shares the pool. */
#include "sim/sim.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "policy/share.h"
#include "sim/internal.h"

/* Reports come often after a change, as daemons send them then, and once a second later. Long after a change they span a thousandth of the time since:
 * a week that nothing happens in is not worth a million of them. */
#define FIRST_REPORT_S 0.125
#define REPORT_S 1.0
#define REPORT_PART 1e-3
#define ASK_STEPS 10  /* asking a policy takes as long as 2 to 20 steps */
#define STAGES_STEP 8 /* summing up so many stages as long as one */
#define END_S 1e200 /* when all is over, for those that are not asked on the way */

struct sim {
    const struct cw_workload *w;
    const struct cw_sim_options *o;
    struct cw_sim_played *jobs;
    size_t n;
    uint64_t *steps, own_steps;
};

static int grow(void **items, size_t n, size_t size)
{
    if (n & (n - 1))
        return 0;
    void *more = realloc(*items, CW_MAX(2 * n, 1) * size);
    if (!more)
        return CW_E_MEMORY;
    *items = more;
    return 0;
}

static void facts(const struct cw_sim_played *p, struct cw_client_facts *client, struct cw_marker_facts *markers, struct cw_facts *f)
{
    const struct cw_sim_job *job = p->job;
    const struct cw_sim_change *phase = &job->phases[p->phase];
    double spent = p->now - p->since;
    *client = (struct cw_client_facts){.step = p->step, .wait = p->interval, .late = p->late, .queue = spent > 0 ? p->queue / spent : 0};
    client->wait.mean = p->interval.mean - p->step.mean;
    client->wait.m2 = CW_MAX(p->interval.m2 - p->step.m2, 0);
    *f = (struct cw_facts){
        .clients = client, .n_clients = 1, .n_pools = 1, .markers = markers, .n_markers = (int)job->n_markers, .marker = p->marker, .epoch = p->epoch, .epochs = job->epochs,
        .batches_per_epoch = job->batches_per_epoch, .batches_done = p->done, .objective = job->objective, .client_price_per_h = job->client_price_per_h,
    };
    f->pools[0] = (struct cw_pool_facts){
        .name = p->w->pool, .place = CW_PLACE_REMOTE, .running = p->crew.running, .starting = p->crew.starting, .maximum = (int)p->w->max_workers,
        .price_per_h = p->w->worker_price_per_h, .start_delay_s = p->w->start_delay_s, .cpu_share = p->w->worker_cpus, .compute = p->compute,
        .busy = spent > 0 ? p->busy_s / spent : 0,
    };
    for (size_t i = 0; i < job->n_markers; i++)
        markers[i] = (struct cw_marker_facts){.name = job->stages[job->markers[i]].name, .prefix_s = p->costs.prefix_s[i] * phase->worker_slowdown / p->w->worker_cpus,
                                              .bytes = p->costs.bytes[i], .cached = p->cached[i], .written = p->written[i]};
    f->storage = (struct cw_storage_facts){.source_bytes = job->n_stages ? p->costs.source_bytes : 0, .read_bytes_per_s = phase->read_bytes_per_s,
                                           .write_bytes_per_s = phase->write_bytes_per_s, .cache_bytes = job->store_bytes, .price_per_gb_h = job->store_price_per_gb_h};
}

/* What each job wants of the pool, and gets. `whole`: this job as if it wanted everything, for what it could get. */
static int share_of(const struct sim *s, const struct cw_sim_played *whole, int *shares)
{
    struct cw_claim claims[CW_SIM_MAX_JOBS];
    int of_whole = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct cw_sim_played *p = &s->jobs[i];
        int want = p->active && !p->over ? p->want : 0;
        claims[i] = (struct cw_claim){.want = p == whole ? (int)s->w->max_workers : want, .weight = p->job->weight, .priority = (int)p->job->priority, .quota = (int)p->job->quota};
    }
    cw_share(claims, (int)s->n, (int)s->w->max_workers);
    for (size_t i = 0; i < s->n; i++) {
        if (&s->jobs[i] == whole)
            of_whole = claims[i].share;
        if (shares)
            shares[i] = claims[i].share;
    }
    return of_whole;
}

static void report_soon(struct cw_sim_played *p, double now)
{
    p->report_s = FIRST_REPORT_S;
    p->next_report = now + p->report_s;
    p->changed_s = now;
}

static void begin_window(struct cw_sim_played *p)
{
    p->step = p->interval = p->compute = (struct cw_mean){0};
    p->busy_s = p->late = p->queue = 0;
    p->since = p->now;
}

/* Gives all jobs their shares. */
static int regrant(struct sim *s, double now)
{
    int shares[CW_SIM_MAX_JOBS];
    share_of(s, NULL, shares);
    for (size_t i = 0; i < s->n; i++) {
        struct cw_sim_played *p = &s->jobs[i];
        if (!p->active || p->crew.running + p->crew.starting == shares[i])
            continue;
        if (cw_sim_crew_set(&p->crew, s->w, now, shares[i]) < 0)
            return CW_E_MEMORY;
        report_soon(p, now);
    }
    return 0;
}

static int record(struct cw_sim_played *p, const struct cw_decision *d, const struct cw_facts *f)
{
    struct cw_sim_outcome *out = p->out;
    bool changes = d->workers[0] != p->want || d->marker != p->marker;
    if (p->expected || !(changes || (d->concluded && !p->decided)))
        return 0;
    p->decided = true;
    if (grow((void **)&out->decisions, out->n_decisions, sizeof(*out->decisions)) < 0)
        return CW_E_MEMORY;
    json_t *json = cw_decision_json(d, f);
    if (!json)
        return CW_E_MEMORY;
    out->decisions[out->n_decisions++] = (struct cw_sim_decision){.t = p->now, .workers = d->workers[0], .marker = d->marker, .record = json};
    return 0;
}

static int apply(struct sim *s, struct cw_sim_played *p, const struct cw_decision *d)
{
    bool changes = d->workers[0] != p->want || d->marker != p->marker;
    p->want = d->workers[0];
    if (d->marker != p->marker || d->write_waits != p->write_waits)
        report_soon(p, p->now);
    p->marker = d->marker;
    p->write_waits = d->write_waits;
    return changes ? regrant(s, p->now) : 0;
}

static int sample(struct cw_sim_played *p)
{
    struct cw_sim_outcome *out = p->out;
    if (p->expected || !(p->interval.n > 0))
        return 0;
    if (grow((void **)&out->samples, out->n_samples, sizeof(*out->samples)) < 0)
        return CW_E_MEMORY;
    out->samples[out->n_samples++] = (struct cw_sim_sample){p->now, p->crew.running, p->want, 1 - p->step.mean / p->interval.mean};
    return 0;
}

/* The plan of this phase, as a decision. */
static void follow_plan(const struct cw_sim_played *p, struct cw_decision *d)
{
    *d = (struct cw_decision){.marker = p->plan->marker, .concluded = true, .why = "the best plan, found by trying all"};
    d->workers[0] = p->plan->workers[p->phase];
}

/* Asks who decides. */
static int ask(struct sim *s, struct cw_sim_played *p)
{
    struct cw_client_facts client;
    struct cw_marker_facts markers[CW_POLICY_MARKERS];
    struct cw_facts f;
    struct cw_decision d = {0};
    facts(p, &client, markers, &f);
    f.pools[0].maximum = share_of(s, p, NULL);
    *s->steps += p->plan ? 1 : ASK_STEPS;
    if (p->plan)
        follow_plan(p, &d);
    else
        s->o->policy->decide(s->o->policy, &p->memory, &f, p->now, &d);
    d.workers[0] = CW_MAX(CW_MIN(d.workers[0], (int)s->w->max_workers), 1);
    int r = record(p, &d, &f);
    return r < 0 ? r : apply(s, p, &d);
}

static int report(struct sim *s, struct cw_sim_played *p)
{
    int r = sample(p);
    p->report_s = CW_MIN(2 * p->report_s, CW_MAX(REPORT_S, REPORT_PART * (p->now - p->changed_s)));
    p->next_report = p->now + p->report_s;
    if (r == 0)
        r = ask(s, p);
    begin_window(p);
    return r;
}

static int arrive(struct sim *s, struct cw_sim_played *p, double now)
{
    p->active = true;
    p->now = p->since = p->out->began_s = now;
    p->want = 1;
    p->crew.fails_at = CW_SIM_NEVER;
    p->out->ended_s = now;
    report_soon(p, now);
    /* the first worker of all is there already, and a job alone begins with it */
    if (s->n == 1 || s->o->alone >= 0) {
        p->crew.running = 1;
        if (cw_sim_crew_set(&p->crew, s->w, now, 1) < 0)
            return CW_E_MEMORY;
    } else if (regrant(s, now) < 0)
        return CW_E_MEMORY;
    return ask(s, p); /* nothing was measured yet, but not everybody needs that */
}

static double next_event(const struct sim *s)
{
    double at = CW_SIM_NEVER;
    for (size_t i = 0; i < s->n; i++) {
        const struct cw_sim_played *p = &s->jobs[i];
        if (p->over)
            continue;
        if (!p->active)
            at = CW_MIN(at, p->job->arrive_s);
        else
            at = CW_MIN(at, CW_MIN(cw_sim_crew_next(&p->crew), p->expected ? END_S : p->next_report));
    }
    return at;
}

/* One job at the time of an event. 0, or negative. */
static int at_event(struct sim *s, struct cw_sim_played *p, double at)
{
    if (!p->active)
        return p->job->arrive_s <= at ? arrive(s, p, at) : 0;
    if (cw_sim_job_advance(p, at))
        return ask(s, p);
    if (p->over)
        return cw_sim_crew_set(&p->crew, s->w, at, 0) < 0 ? CW_E_MEMORY : regrant(s, at);
    int r = cw_sim_crew_step(&p->crew, s->w, at);
    if (r > 0)
        report_soon(p, at);
    return r >= 0 && !p->expected && p->next_report <= at ? report(s, p) : CW_MIN(r, 0);
}

struct cause { const char *field; double value, times; };

/* The field that multiplies the steps most. The oracle, who has plans, plays alike epochs at once, and each of many plans; a run sees each failure. */
static int too_long(const struct sim *s, double at, struct cw_error *err)
{
    const struct cw_workload *w = s->w;
    struct cause worst = {0};
    for (size_t i = 0; i < s->n; i++) {
        const struct cw_sim_job *job = s->jobs[i].job;
        bool search = s->jobs[i].expected;
        const struct cause causes[] = {
            {"epochs", job->epochs, job->epochs},
            {"failures.mtbf_s", w->mtbf_s, !search && w->mtbf_s > 0 ? at / w->mtbf_s * s->jobs[i].want : 0},
            {"max_workers", w->max_workers, search ? w->max_workers : 0},
            {"changes", (double)job->n_phases - 1, search ? (double)(job->n_phases * job->n_phases) : 0},
        };
        for (size_t k = 0; k < CW_COUNT_OF(causes); k++)
            if (causes[k].times > worst.times)
                worst = causes[k];
    }
    bool more = strcmp(worst.field, "failures.mtbf_s") == 0;
    char value[32];
    snprintf(value, sizeof(value), "%.6g", worst.value);
    cw_error_attribute(err, worst.field, value, more ? "more" : "less");
    return cw_error_set(err, CW_E_PIPELINE, "%s is %s: expected %s: the workload takes more than %" PRIu64 " steps to play", worst.field, value, more ? "more" : "less",
                        CW_SIM_MAX_STEPS);
}

static int play(struct sim *s, struct cw_error *err)
{
    for (double at; (at = next_event(s)) < CW_SIM_NEVER;) {
        for (size_t i = 0; i < s->n; i++)
            if (!s->jobs[i].over && at_event(s, &s->jobs[i], at) < 0)
                return cw_error_nomem(err, 0, "a simulation");
        if (++*s->steps > CW_SIM_MAX_STEPS)
            return too_long(s, at, err);
    }
    return 0;
}

int cw_sim_run(const struct cw_workload *w, const struct cw_sim_options *o, struct cw_sim_outcome *outcomes, struct cw_error *err)
{
    struct sim s = {.w = w, .o = o, .n = o->alone >= 0 ? 1 : w->n_jobs};
    s.steps = o->steps ? o->steps : &s.own_steps;
    s.jobs = calloc(s.n, sizeof(*s.jobs));
    if (!s.jobs)
        return cw_error_nomem(err, 0, "a simulation");
    for (size_t i = 0; i < s.n; i++) {
        struct cw_sim_played *p = &s.jobs[i];
        p->w = w;
        p->job = &w->jobs[o->alone >= 0 ? (size_t)o->alone : i];
        p->plan = o->plans ? &o->plans[i] : NULL;
        p->costs = cw_sim_costs(p->job);
        p->steps = s.steps;
        *s.steps += p->job->n_stages / STAGES_STEP;
        p->expected = p->crew.reliable = o->expected;
        p->marker = -1;
        p->draw = cw_draw_new(w->seed + i, "batches");
        p->crew.draw = cw_draw_new(w->seed + i, "workers");
        p->out = &outcomes[i];
        outcomes[i] = (struct cw_sim_outcome){0};
    }
    int r = play(&s, err);
    for (size_t i = 0; i < s.n; i++)
        free(s.jobs[i].crew.starts);
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
