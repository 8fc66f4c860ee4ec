/* The dispatcher's metrics in Prometheus' format (cw_dispatcher_metrics in core.h). docs/metrics.md lists
 * them. */
#include <string.h>

#include "net/metrics.h"
#include "service/dispatcher/state.h"

/* Adds a gauge with one sample for each value of the label, even if its count is 0. */
static void metrics_by_label(struct cw_metrics *m, const char *name, const char *help, const char *label,
                             const char *const *values, const uint64_t *counts, size_t n)
{
    cw_metrics_family(m, CW_METRIC_GAUGE, name, NULL, help);
    for (size_t i = 0; i < n; i++)
        cw_metrics_add(m, (double)counts[i], label, values[i], NULL);
}

static void metrics_connections(const struct cw_dispatcher *d, struct cw_metrics *m)
{
    static const char *const roles[] = {"client", "worker", "admin_client", "provisioner"};
    uint64_t counts[CW_COUNT_OF(roles)] = {0};
    CW_LIST_EACH_OF (p, struct cw_peer, link, &d->peers.list)
        counts[p->role == CACHEW__ROLE__ROLE_CLIENT         ? 0
               : p->role == CACHEW__ROLE__ROLE_WORKER       ? 1
               : p->role == CACHEW__ROLE__ROLE_ADMIN_CLIENT ? 2
                                                            : 3]++;
    metrics_by_label(m, "dispatcher_connections", "Open connections to the dispatcher, by the peer's role.",
                     "role", roles, counts, CW_COUNT_OF(roles));
}

static void metrics_workers(const struct cw_dispatcher *d, struct cw_metrics *m)
{
    static const char *const states[] = {"ready", "draining", "gone"};
    uint64_t counts[CW_COUNT_OF(states)] = {0}, held = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list) {
        counts[!w->peer ? 2 : w->leaving ? 1 : 0]++;
        held += w->n_held;
    }
    metrics_by_label(m, "dispatcher_workers",
                     "Workers by state; a worker that is gone is counted for ten minutes.", "state", states,
                     counts, CW_COUNT_OF(states));
    cw_metrics_list(m,
                    (const struct cw_metric_row[]){
                        {CW_METRIC_COUNTER, "dispatcher_workers_lost", NULL, (double)d->workers.n_lost,
                         "Workers whose connection broke although they had not announced that they leave."},
                        {CW_METRIC_GAUGE, "dispatcher_ranges_held", NULL, (double)held,
                         "Ranges leased to workers at the moment, finished or not."},
                        {0},
                    });
}

static void metrics_jobs(const struct cw_dispatcher *d, struct cw_metrics *m)
{
    static const char *const states[] = {"waiting", "running",   "unattended", "paused",
                                         "done",    "cancelled", "failed"};
    uint64_t counts[CW_COUNT_OF(states)] = {0}, ranks = 0;
    CW_LIST_EACH_OF (j, const struct job, link, &d->jobs.list) {
        const char *state = cw_dp_job_state(j);
        for (size_t i = 0; i < CW_COUNT_OF(states); i++)
            counts[i] += strcmp(state, states[i]) == 0;
        ranks += j->ranks.n_attached;
    }
    metrics_by_label(m, "dispatcher_jobs", "Jobs by state; a job that is over is counted for an hour.",
                     "state", states, counts, CW_COUNT_OF(states));
    cw_metrics_list(m,
                    (const struct cw_metric_row[]){
                        {CW_METRIC_GAUGE, "dispatcher_ranks_attached", NULL, (double)ranks,
                         "Ranks with a connected client."},
                        {CW_METRIC_COUNTER, "dispatcher_rank_batches", NULL, d->history.paces.n,
                         "Batches delivered to ranks; the first batch of each rank is not counted."},
                        {CW_METRIC_COUNTER, "dispatcher_rank_wait", "seconds", d->history.paces.wait_s,
                         "Time that ranks waited for the batches of cachew_dispatcher_rank_batches_total."},
                        {CW_METRIC_COUNTER, "dispatcher_rank_step", "seconds", d->history.paces.step_s,
                         "Time between the batches of cachew_dispatcher_rank_batches_total without waiting."},
                        {CW_METRIC_GAUGE, "dispatcher_rank_waiting", "ratio", d->history.waited_most,
                         "Share of the last two seconds that the longest-waiting rank waited."},
                        {0},
                    });
}

/* Without a policy all of these except the decisions are 0. */
static void metrics_scaling(const struct cw_dispatcher *d, struct cw_metrics *m)
{
    uint64_t wanted = 0, serving = 0, pooled = 0, pools = 0, short_of = 0;
    CW_LIST_EACH_OF (j, const struct job, link, &d->jobs.list)
        if (d->scaler.enabled && cw_dp_scaling_active(j))
            wanted += (uint64_t)j->scaling.claim.want;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list)
        serving += d->scaler.enabled && w->n_worker_sets > 0;
    CW_LIST_EACH_OF (p, const struct pool, link, &d->scaler.pools) {
        pooled += p->wanted;
        pools++;
        short_of += *p->info->why != '\0';
    }
    cw_metrics_list(m,
                    (const struct cw_metric_row[]){
                        {CW_METRIC_GAUGE, "dispatcher_workers_wanted", NULL, (double)wanted,
                         "Workers that the policy wants for all jobs together; 0 without a policy."},
                        {CW_METRIC_GAUGE, "dispatcher_workers_serving", NULL, (double)serving,
                         "Workers that serve a job; 0 without a policy."},
                        {CW_METRIC_GAUGE, "dispatcher_pool_workers_wanted", NULL, (double)pooled,
                         "Workers requested from provisioners."},
                        {CW_METRIC_GAUGE, "dispatcher_pools", NULL, (double)pools, "Connected provisioners."},
                        {CW_METRIC_GAUGE, "dispatcher_pools_short", NULL, (double)short_of,
                         "Connected provisioners that can't supply the workers wanted."},
                        {CW_METRIC_COUNTER, "dispatcher_decisions", NULL, (double)d->scaler.n_decisions,
                         "Decisions of the policy, including decisions to change nothing."},
                        {CW_METRIC_COUNTER, "dispatcher_cache_moves", NULL, (double)d->scaler.n_cache_moves,
                         "Decisions of the policy that move a job's cache point, or turn its cache off."},
                        {0},
                    });
}

static void metrics_streams(const struct cw_dispatcher *d, struct cw_metrics *m)
{
    static const char *const states[] = {"preparing", "ready", "idle"};
    uint64_t counts[CW_COUNT_OF(states)] = {0};
    CW_LIST_EACH_OF (s, const struct stream, link, &d->streams.list)
        counts[!s->data ? 0 : cw_list_empty(&s->jobs) ? 2 : 1]++;
    metrics_by_label(m, "dispatcher_streams",
                     "Streams by state; an idle stream has no job and is kept ready for a while.", "state",
                     states, counts, CW_COUNT_OF(states));
}

void cw_dispatcher_metrics(struct cw_dispatcher *d, uint64_t now_ns, struct cw_text *text)
{
    struct cw_metrics m = {.text = text};
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    cw_metrics_list(&m, (const struct cw_metric_row[]){
                            {CW_METRIC_GAUGE, "dispatcher_uptime", "seconds",
                             (double)(d->now_ns - d->start_ns) / 1e9, "Time since the dispatcher started."},
                            {0},
                        });
    metrics_connections(d, &m);
    metrics_workers(d, &m);
    metrics_jobs(d, &m);
    metrics_scaling(d, &m);
    metrics_streams(d, &m);
    cw_metrics_list(
        &m,
        (const struct cw_metric_row[]){
            {CW_METRIC_COUNTER, "dispatcher_ranges_leased", NULL, (double)d->leases.n_leased,
             "Ranges of data given (leased) to workers, including second leases of late ranges."},
            {CW_METRIC_COUNTER, "dispatcher_ranges_completed", NULL, (double)d->leases.n_completed,
             "Ranges reported as completed; a second report of the same range is not counted."},
            {CW_METRIC_COUNTER, "dispatcher_ranges_late", NULL, (double)d->leases.n_late,
             "Ranges that took much longer than expected and were leased to a second worker."},
            {CW_METRIC_COUNTER, "dispatcher_ranges_moved", NULL, (double)d->leases.n_moved,
             "Ranges whose only worker was lost, or had to give them back."},
            {CW_METRIC_COUNTER, "dispatcher_ranges_lost", NULL, (double)d->leases.n_lost,
             "Ranges lost with their worker and not computed again, because the guarantee is at-most-once; a "
             "range counts even if ranks had received a part of it."},
            {CW_METRIC_COUNTER, "dispatcher_journal_commits", NULL, (double)d->journal.n_commits,
             "Transactions that were written to the journal and synced."},
            {CW_METRIC_COUNTER, "dispatcher_journal_commit", "seconds", (double)d->journal.commit_ns / 1e9,
             "Time that transactions of the journal took to write and sync, in total."},
            {CW_METRIC_COUNTER, "dispatcher_journal_failures", NULL, (double)d->journal.n_failures,
             "Failed attempts to write a transaction to the journal."},
            {CW_METRIC_GAUGE, "dispatcher_journal_ok", NULL, d->journal.retry_ns == 0,
             "1: the journal can be written; 0: it can't, so the dispatcher acknowledges nothing."},
            {0},
        });
}
