/* The simulator's model of a job: computes the cost of a batch from the job's stages or table, and the time
 * between batches for given workers, bandwidths and client. */
#include "sim/model.h"

#include "base/macro.h"

/* Least seconds between two batches, so that time always advances. */
#define LEAST_S 1e-9

/* Returns the speed of a pool's worker relative to a worker of the first pool, by the workload file. */
static double pool_speed(const struct cw_workload *w, size_t pool)
{
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
static struct cw_sim_workers model_together(const struct cw_workload *w, const struct cw_sim_workers *workers,
                                            double *ret_speeds)
{
    struct cw_sim_workers all = {0};
    for (size_t i = 0; i < w->n_pools; i++) {
        ret_speeds[i] = workers[i].speed;
        all.running += workers[i].running;
        all.speed += workers[i].speed * pool_speed(w, i);
    }
    return all;
}

/* Divides the batches among the pools in proportion to their speeds. */
static void model_divide(const struct cw_workload *w, const struct cw_sim_workers *workers,
                         const struct cw_sim_workers *all, struct cw_sim_conditions *c)
{
    for (size_t i = 0; i < w->n_pools; i++) {
        double speed = workers[i].speed * pool_speed(w, i);
        if (!(speed > 0))
            continue;
        c->part[i] = speed / all->speed;
        /* the average speed of a worker of any pool / that of a worker of this pool */
        c->slower[i] = all->speed / all->running / (speed / workers[i].running);
    }
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
    const struct cw_sim_workers all = model_together(w, workers, speeds);
    if (!(all.speed > 0)) {
        c.interval_s = CW_SIM_NEVER_S;
        c.starved = true; /* the client waits for its input, as below */
        return c;
    }
    if (job->table) {
        supply = CW_MIN(cw_sim_table_s(job->table, speeds) * phase->worker_slowdown, CW_SIM_NEVER_S);
        cpu_s = (job->worker_cpu_s > 0 ? job->worker_cpu_s : supply * all.speed);
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
    c.starved = supply > c.step_s; /* the supply, not the client's step, limits the speed */
    c.interval_s = CW_MAX(CW_MAX(supply, c.step_s), LEAST_S);
    c.compute_s = cpu_s * all.running / all.speed;
    c.busy = CW_MIN(1, c.compute_s / (all.running * c.interval_s));
    model_divide(w, workers, &all, &c);
    double write_s = model_transfer_s(to_write, phase->write_bytes_per_s);
    c.written = write_s > c.interval_s ? c.interval_s / write_s : 1;
    return c;
}
