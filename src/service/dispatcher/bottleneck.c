/* Names the bottleneck of a job. */
#include "service/dispatcher/bottleneck.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "service/dispatcher/json_list.h"
#include "service/dispatcher/state.h"

#define LITTLE 0.05 /* ranks that wait for a smaller part of the time are not held back */
#define FULL 0.85   /* part of the CPUs in use from which they are the limit */

/* Sums over the workers that compute for the job. */
struct job_cpus {
    size_t n_workers;
    double used, budget; /* CPUs */
};

static struct job_cpus job_cpus(const struct job *j)
{
    struct job_cpus sum = {0};
    if (!j->stream)
        return sum;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &j->stream->assignments.list) {
        if (t->state != ASSIGNMENT_READY || !t->worker->peer)
            continue;
        sum.n_workers++;
        sum.used += t->worker->rates.cpus;
        sum.budget += t->worker->info->cpu_budget;
    }
    return sum;
}

json_t *cw_dp_bottleneck_json(const struct cw_dispatcher *d, const struct job *j)
{
    const struct series_point *now = &j->history.now;
    double waited = now->at_ns ? (double)now->values[JOB_WAITED] : NAN;
    const char *kind, *remedy;
    char says[160];
    if (isnan(waited) || strcmp(cw_dp_job_state(j), "running") != 0)
        return json_null();
    /* a sum over all workers of the job: only where it is needed */
    struct job_cpus cpus = waited < LITTLE ? (struct job_cpus){0} : job_cpus(j);
    double part = cpus.budget > 0 ? cpus.used / cpus.budget : NAN;
    int running = j->stream && d->scaler.enabled ? cw_dp_worker_set_running(j->stream) : 0,
        wanted = d->scaler.enabled ? j->scaling.claim.want : 0;
    if (waited < LITTLE) {
        kind = "none";
        remedy = "nothing, the ranks get batches as fast as they take them";
        snprintf(says, sizeof(says), "nothing");
    } else if (cpus.n_workers == 0) {
        kind = "no-worker";
        remedy = "start workers; the dashboard lists those that are connected, with their problems";
        snprintf(says, sizeof(says), "no worker computes for it");
    } else if (running < wanted) {
        kind = "few-workers";
        remedy = "find out why provisioners start fewer: see provisioners on the dashboard, and their logs";
        snprintf(says, sizeof(says), "too few workers: %d of %d run", running, wanted);
    } else if (isnan(part)) {
        kind = "unknown";
        remedy = "wait until workers have reported their CPU time";
        snprintf(says, sizeof(says), "not known yet");
    } else if (part >= FULL) {
        kind = "cpu";
        remedy = "more workers, a cache, or cheaper operators; cachew explain PIPELINE predicts their gain";
        snprintf(says, sizeof(says), "CPUs of workers: %.0f %% in use", 100 * part);
    } else {
        kind = "waiting";
        remedy = "more threads (--threads) if functions wait, else faster storage or network; cachew explain "
                 "PIPELINE measures them";
        snprintf(says, sizeof(says),
                 "not the CPUs of workers (%.0f %% in use): storage, network, or functions that wait",
                 100 * part);
    }
    return json_pack("{s:s, s:f, s:s, s:s}", "kind", kind, "waited", waited, "says", says, "remedy", remedy);
}
