/* The result of a simulation as JSON. */
#include "base/macro.h"
#include "sim/sim.h"

/* Adds {"t", "workers", "cache", "why", "record"} for each decision; named: with the name of the job. */
static void result_add_decisions(const struct cw_workload *w, const struct cw_sim_job *job,
                                 const struct cw_sim_outcome *o, bool named, json_t *to)
{
    for (size_t i = 0; i < o->n_decisions; i++) {
        const struct cw_sim_decision *d = &o->decisions[i];
        const char *cache = d->cache_point >= 0 ? job->stages[job->cache_points[d->cache_point]].name : NULL;
        json_t *one = json_pack("{s:f, s:i, s:s?, s:O, s:O}", "t", d->t, "workers", d->workers, "cache",
                                cache, "why", json_object_get(d->record, "why"), "record", d->record);
        if (named)
            json_object_set_new(one, "job", json_string(job->name));
        if (w->has_local) {
            json_object_set_new(one, "local", json_integer(d->local));
            json_object_set_new(one, "remote", json_integer(d->workers - d->local));
        }
        json_array_append_new(to, one);
    }
}

static double result_settled_s(const struct cw_sim_outcome *o)
{
    return o->n_decisions > 0 ? o->decisions[o->n_decisions - 1].t : 0;
}

/* Returns the cost of a job until its last decision. */
static double result_settled_cost(const struct cw_sim_outcome *o)
{
    return o->n_decisions > 0 ? o->decisions[o->n_decisions - 1].cost : 0;
}

static json_t *result_regret(double time_s, double cost, const struct cw_sim_outcome *oracle)
{
    double best = oracle->ended_s - oracle->began_s;
    return json_pack("{s:f, s:f}", "time", best > 0 ? time_s / best - 1 : 0, "cost",
                     oracle->cost > 0 ? cost / oracle->cost - 1 : 0);
}

/* Adds the worker hours of all pools, and worker hours and cost of each pool. */
static void result_add_pools(json_t *result, const struct cw_workload *w,
                             const struct cw_sim_outcome *outcomes, size_t n)
{
    json_t *pools = json_object();
    double all_hours = 0;
    for (size_t k = 0; k < w->n_pools; k++) {
        double hours = 0;
        for (size_t i = 0; i < n; i++)
            hours += outcomes[i].worker_s[k] / 3600;
        all_hours += hours;
        json_object_set_new(
            pools, w->pools[k].name,
            json_pack("{s:f, s:f}", "worker_hours", hours, "cost", hours * w->pools[k].price_per_h));
    }
    json_object_set_new(result, "worker_hours", json_real(all_hours));
    json_object_set_new(result, "pools", pools);
}

static json_t *result_job(const struct cw_workload *w, const struct cw_sim_job *job,
                          const struct cw_sim_outcome *o, const struct cw_sim_outcome *oracle)
{
    json_t *decisions = json_array();
    double time_s = o->ended_s - o->began_s;
    result_add_decisions(w, job, o, false, decisions);
    json_t *result = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:o, s:f}", "name", job->name,
                               "arrived_s", o->began_s, "time_s", time_s, "cost", o->cost, "oracle_time_s",
                               oracle->ended_s - oracle->began_s, "oracle_cost", oracle->cost, "regret",
                               result_regret(time_s, o->cost, oracle), "settled_at_s", result_settled_s(o),
                               "settled_cost", result_settled_cost(o), "decisions", decisions, "waiting",
                               time_s > 0 ? o->waited_s / time_s : 0);
    result_add_pools(result, w, o, 1);
    return result;
}

json_t *cw_sim_result(const struct cw_workload *w, const char *policy, const struct cw_sim_outcome *outcomes,
                      const struct cw_sim_outcome *oracles)
{
    double ended = 0, began = outcomes[0].began_s, cost = 0, oracle_time = 0, oracle_cost = 0, settled_at = 0,
           settled_cost = 0, waited = 0, lasted = 0;
    json_t *decisions = json_array(), *jobs = json_array();
    for (size_t i = 0; i < w->n_jobs; i++) {
        const struct cw_sim_outcome *o = &outcomes[i];
        began = CW_MIN(began, o->began_s);
        ended = CW_MAX(ended, o->ended_s);
        cost += o->cost;
        oracle_time = CW_MAX(oracle_time, w->jobs[i].arrive_s + oracles[i].ended_s - oracles[i].began_s);
        oracle_cost += oracles[i].cost;
        settled_at = CW_MAX(settled_at, result_settled_s(o));
        settled_cost += result_settled_cost(o);
        waited += o->waited_s;
        lasted += o->ended_s - o->began_s;
        result_add_decisions(w, &w->jobs[i], o, w->several, decisions);
        json_array_append_new(jobs, result_job(w, &w->jobs[i], o, &oracles[i]));
    }
    oracle_time -= began;
    struct cw_sim_outcome together = {.ended_s = oracle_time, .cost = oracle_cost};
    json_t *result = json_pack(
        "{s:s, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:o, s:f}", "policy", policy, "time_s", ended - began,
        "cost", cost, "oracle_time_s", oracle_time, "oracle_cost", oracle_cost, "regret",
        result_regret(ended - began, cost, &together), "settled_at_s", settled_at, "settled_cost",
        settled_cost, "decisions", decisions, "waiting", lasted > 0 ? waited / lasted : 0);
    result_add_pools(result, w, outcomes, w->n_jobs);
    if (w->several)
        json_object_set_new(result, "jobs", jobs);
    else
        json_decref(jobs);
    return result;
}
