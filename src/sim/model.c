#include "sim/model.h"

#include "base/macro.h"

/* Nothing takes no time: a batch of nothing still has to be handed over. */
#define LEAST_S 1e-9
#define NEVER_S 1e18

/* The table: linear between its points, constant beyond the last, and before the first as if workers were alike. */
static double table_s(const struct cw_sim_job *job, double workers)
{
    const struct cw_sim_point *p = job->table;
    size_t low = 0, high = job->n_table - 1;
    if (workers >= p[high].workers)
        return p[high].s;
    if (workers < p[0].workers)
        return p[0].s * p[0].workers / workers;
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (p[mid].workers <= workers)
            low = mid;
        else
            high = mid;
    }
    return p[low].s + (p[high].s - p[low].s) * (workers - p[low].workers) / (p[high].workers - p[low].workers);
}

/* A stage keeps a part of its elements, so for a batch at the end more than a batch passes what is before it. */
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
        for (size_t m = 0; m < job->n_markers; m++)
            if (job->markers[m] == i) {
                c.prefix_s[m] = c.cpu_s;
                c.bytes[m] = size * passing;
            }
    }
    return c;
}

static double transfer_s(double bytes, double bytes_per_s) { return bytes_per_s > 0 ? bytes / bytes_per_s : 0; }

struct cw_sim_conditions cw_sim_conditions(const struct cw_workload *w, const struct cw_sim_job *job, const struct cw_sim_costs *costs, const struct cw_sim_change *phase,
                                           double workers, double speed, int marker, double cached, bool write_waits)
{
    struct cw_sim_conditions c = {.step_s = phase->client_step_s};
    double supply, cpu_s; /* cpu_s: of a worker of the usual speed */
    double to_write = marker >= 0 ? (1 - cached) * costs->bytes[marker] : 0;
    if (!(speed > 0)) {
        c.interval_s = NEVER_S;
        c.supplied = true;
        return c;
    }
    if (job->n_table > 0) {
        supply = table_s(job, speed) * phase->worker_slowdown;
        cpu_s = (job->worker_cpu_s > 0 ? job->worker_cpu_s : supply * speed);
    } else {
        cpu_s = costs->cpu_s * phase->worker_slowdown / w->worker_cpus;
        if (marker >= 0)
            cpu_s -= cached * costs->prefix_s[marker] * phase->worker_slowdown / w->worker_cpus;
        supply = CW_MAX(cpu_s / speed, transfer_s((marker >= 0 ? 1 - cached : 1) * costs->source_bytes, phase->source_bytes_per_s));
        if (marker >= 0)
            supply = CW_MAX(supply, transfer_s(cached * costs->bytes[marker], phase->read_bytes_per_s));
        if (write_waits)
            supply = CW_MAX(supply, transfer_s(to_write, phase->write_bytes_per_s));
    }
    c.supplied = supply > c.step_s;
    c.interval_s = CW_MAX(CW_MAX(supply, c.step_s), LEAST_S);
    c.compute_s = cpu_s * workers / speed;
    c.busy = CW_MIN(1, c.compute_s / (workers * c.interval_s));
    double write_s = transfer_s(to_write, phase->write_bytes_per_s);
    c.written = write_s > c.interval_s ? c.interval_s / write_s : 1;
    return c;
}
