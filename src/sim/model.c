/* The simulator's model of a job: computes the cost of a batch from the job's stages or table, and the time
 * between batches for given workers, bandwidths and client. */
#include "sim/model.h"

#include <math.h>

#include "base/macro.h"

/* Least seconds between two batches, so that time always advances. */
#define LEAST_S 1e-9

#define GB 1e9 /* bytes, of a price */

/* Returns the speed of a pool's worker relative to a worker of the first pool, by the workload file. */
static double pool_speed(const struct cw_workload *w, const struct cw_sim_job *job, size_t pool)
{
    if (job->alone_s[pool] > 0)
        return job->alone_s[0] / job->alone_s[pool];
    const struct cw_sim_pool *p = &w->pools[pool], *first = &w->pools[0];
    return p->worker_cpus / first->worker_cpus * (first->slowdown / p->slowdown);
}

/* Since stages keep only a part of their elements, more than one batch of elements passes the earlier stages.
 */
struct cw_sim_costs cw_sim_costs(const struct cw_sim_job *job)
{
    struct cw_sim_costs c = {0};
    double passing = 1, size = job->source_batch_bytes;
    for (size_t i = 0; i < job->n_stages; i++)
        passing /= job->stages[i].keep;
    c.source_bytes = job->source_batch_bytes * passing;
    for (size_t i = 0; i < job->n_stages; i++) {
        const struct cw_sim_stage *stage = &job->stages[i];
        c.cpu_s += stage->cpu_s * passing;
        passing *= stage->keep;
        size *= stage->size_factor;
        for (size_t m = 0; m < job->n_cache_points; m++)
            if (job->cache_points[m] == i) {
                c.prefix_s[m] = c.cpu_s;
                c.bytes[m] = size * passing;
            }
    }
    return c;
}

static double model_transfer_s(double bytes, double bytes_per_s)
{
    return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

/* Returns the workers of all pools together, with their speed in workers of the first pool. Sets ret_speeds
 * to the speed of each pool in workers of that pool, as tables of seconds per batch (cw_sim_table_s) need it.
 */
static struct cw_sim_workers model_together(const struct cw_workload *w, const struct cw_sim_job *job,
                                            const struct cw_sim_workers *workers, double *ret_speeds)
{
    struct cw_sim_workers all = {0};
    for (size_t i = 0; i < w->n_pools; i++) {
        ret_speeds[i] = workers[i].speed;
        all.running += workers[i].running;
        all.speed += workers[i].speed * pool_speed(w, job, i);
    }
    return all;
}

/* Divides the batches among the pools in proportion to their speeds. */
static void model_divide(const struct cw_workload *w, const struct cw_sim_job *job,
                         const struct cw_sim_workers *workers, const struct cw_sim_workers *all,
                         struct cw_sim_conditions *c)
{
    for (size_t i = 0; i < w->n_pools; i++) {
        double speed = workers[i].speed * pool_speed(w, job, i);
        if (!(speed > 0))
            continue;
        c->part[i] = speed / all->speed;
        /* the average speed of a worker of any pool / that of a worker of this pool */
        c->slower[i] = all->speed / all->running / (speed / workers[i].running);
        c->network_price += c->part[i] * job->bytes_per_batch / GB * w->pools[i].price_per_gb;
    }
}

/* Returns the seconds per batch of the input; CW_SIM_NEVER_S: these workers can't run. */
static double model_table_s(const struct cw_workload *w, const struct cw_sim_job *job,
                            const struct cw_sim_change *phase, const struct cw_sim_workers *workers,
                            const double *speeds)
{
    double running[CW_POLICY_POOLS];
    for (size_t i = 0; i < w->n_pools; i++)
        running[i] = workers[i].running;
    if (!cw_sim_table_runs(job->table, running) && job->table->constant)
        return CW_SIM_NEVER_S;
    return CW_MIN(cw_sim_table_s(job->table, speeds) * phase->worker_slowdown, CW_SIM_NEVER_S);
}

/* Returns the factor of the client's step: local workers use CPUs of the training host. They use `cpus` if
 * they always compute, which takes compute_s per batch. supply_s: least seconds per batch. If they do not
 * always compute, the slower step makes them use fewer CPUs: an equation for the interval. */
static double model_contention(const struct cw_sim_job *job, const struct cw_sim_change *phase, double cpus,
                               double compute_s, double supply_s)
{
    double free = CW_MAX(job->host_cpus - phase->host_busy_cpus, 0), step_s = phase->client_step_s;
    double used = cpus * CW_MIN(1, compute_s / CW_MAX(supply_s, CW_MAX(step_s, LEAST_S)));
    if (!(job->contention > 0) || used <= free)
        return 1;
    /* interval = step (1 + contention (cpus compute / interval - free)) */
    double half = 0.5 * step_s * (1 - job->contention * free),
           interval_s = half + sqrt(half * half + step_s * job->contention * cpus * compute_s);
    used = cpus * CW_MIN(1, compute_s / CW_MAX(supply_s, interval_s));
    return 1 + job->contention * CW_MAX(used - free, 0);
}

/* Returns the CPUs that the local workers have. */
static double model_local_cpus(const struct cw_workload *w, const struct cw_sim_workers *workers)
{
    double cpus = 0;
    for (size_t i = 0; i < w->n_pools; i++)
        cpus += w->pools[i].local ? workers[i].running * w->pools[i].worker_cpus : 0;
    return cpus;
}

struct cw_sim_conditions cw_sim_conditions(const struct cw_workload *w, const struct cw_sim_job *job,
                                           const struct cw_sim_costs *costs,
                                           const struct cw_sim_change *phase,
                                           const struct cw_sim_workers *workers, int cache_point,
                                           double cached, bool write_waits)
{
    struct cw_sim_conditions c = {.step_s = phase->client_step_s};
    /* In seconds per batch. supply: the time in which the service makes a batch. cpu_s: the computing time of
     * a batch on one worker of the first pool at normal speed. */
    double supply, cpu_s, speeds[CW_POLICY_POOLS];
    double to_write = cache_point >= 0 ? (1 - cached) * costs->bytes[cache_point] : 0,
           slow = phase->worker_slowdown * w->pools[0].slowdown, cpus = w->pools[0].worker_cpus;
    const struct cw_sim_workers all = model_together(w, job, workers, speeds);
    if (!(all.speed > 0)) {
        c.interval_s = CW_SIM_NEVER_S;
        c.starved = true; /* the client waits for its input, as below */
        return c;
    }
    if (job->table) {
        supply = model_table_s(w, job, phase, workers, speeds);
        c.never = job->table->constant && supply >= CW_SIM_NEVER_S;
        cpu_s = job->worker_cpu_s > 0 ? job->worker_cpu_s
                : job->alone_s[0] > 0 ? job->alone_s[0] * phase->worker_slowdown
                                      : supply * all.speed;
    } else {
        cpu_s = costs->cpu_s * slow / cpus;
        if (cache_point >= 0)
            cpu_s -= cached * costs->prefix_s[cache_point] * slow / cpus;
        supply = CW_MAX(cpu_s / all.speed,
                        model_transfer_s((cache_point >= 0 ? 1 - cached : 1) * costs->source_bytes,
                                         phase->source_bytes_per_s));
        if (cache_point >= 0)
            supply = CW_MAX(supply,
                            model_transfer_s(cached * costs->bytes[cache_point], phase->read_bytes_per_s));
        if (write_waits)
            supply = CW_MAX(supply, model_transfer_s(to_write, phase->write_bytes_per_s));
    }
    c.step_s *= model_contention(job, phase, model_local_cpus(w, workers), cpu_s / all.speed, supply);
    c.starved = supply > c.step_s; /* the supply, not the client's step, limits the speed */
    c.interval_s = CW_MAX(CW_MAX(supply, c.step_s), LEAST_S);
    c.compute_s = cpu_s * all.running / all.speed;
    c.busy = CW_MIN(1, c.compute_s / (all.running * c.interval_s));
    model_divide(w, job, workers, &all, &c);
    double write_s = model_transfer_s(to_write, phase->write_bytes_per_s);
    c.written = write_s > c.interval_s ? c.interval_s / write_s : 1;
    return c;
}
