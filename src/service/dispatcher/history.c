/* Records points and marks for each job, and returns them as JSON. */
#include "service/dispatcher/history.h"

#include <math.h>
#include <stdlib.h>

#include "service/dispatcher/caching.h"
#include "service/dispatcher/json_list.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/worker_history.h"

/* ---- taking points ---- */

/* least time per batch: keeps the demand finite if the client spends no time between batches */
#define LEAST_STEP_S 1e-9

/* Computes which share of the time since the last point the rank waited, and its demand. If it got no batch
 * since, the demand stays as it was. */
static void point_add_rank(struct rank *r)
{
    struct rank_pace *p = &r->pace;
    double n = p->now.n - p->at_point.n, wait_s = p->now.wait_s - p->at_point.wait_s,
           step_s = p->now.step_s - p->at_point.step_s;
    if (!p->known) {
        p->waited = r->greeted
                        ? NAN
                        : 1; /* NAN: its first report has not arrived yet. 1: its data is being opened */
    } else if (n > 0) {
        p->waited = wait_s + step_s > 0 ? (float)(wait_s / (wait_s + step_s)) : 0;
        p->demand = n / CW_MAX(step_s, LEAST_STEP_S * n);
    } else {
        p->waited = p->waiting
                        ? 1
                        : 0; /* 1: it waits for its first batch, or for a slow one. 0: its own step is long */
    }
    p->at_point = p->now;
}

/* Returns the number of batches that were delivered to the rank since the last point. */
static double point_batches(struct rank *r)
{
    uint64_t before = r->pace.batches_at_point, now = r->progress.n_batches;
    r->pace.batches_at_point = now;
    return r->pace.known && now > before ? (double)(now - before) : 0;
}

static void point_add_ranks(struct job *j, double seconds, struct series_point *p)
{
    double batches = 0, demand = 0, waited = 0, most = 0;
    size_t n_known = 0, n_demand = 0;
    DP_RANKS_EACH (r, j) {
        batches += point_batches(r);
        r->pace.waited = NAN;
        if (!r->client || r->finished)
            continue;
        point_add_rank(r);
        demand += r->pace.demand;
        n_demand += r->pace.demand > 0;
        if (isnan(r->pace.waited))
            continue;
        waited += r->pace.waited;
        most = CW_MAX(most, r->pace.waited);
        n_known++;
    }
    p->values[JOB_RATE] = (float)(batches / seconds);
    p->values[JOB_DEMAND] = n_demand > 0 && n_demand == j->ranks.n_attached ? (float)demand : NAN;
    p->values[JOB_WAITED] = n_known > 0 ? (float)(waited / (double)n_known) : NAN;
    p->values[JOB_WAITED_MOST] = n_known > 0 ? (float)most : NAN;
}

/* Adds the CPUs that workers used for the job's stream, and the share of elements that they read from caches.
 */
static void point_add_stats(struct job *j, bool first, double seconds, struct series_point *p)
{
    static const struct compute_stats nothing;
    const struct compute_stats *c = j->stream ? &j->stream->computed : &nothing;
    double positions = c->positions - j->history.positions, cached = c->cached_positions - j->history.cached;
    bool caches = c->cached_positions > 0 || (j->stream && cw_dp_caching_open(j->stream));
    p->values[JOB_CPUS] = first ? NAN : (float)(CW_MAX(c->compute_s - j->history.compute_s, 0) / seconds);
    p->values[JOB_CACHED] = first || !caches || !(positions > 0)
                                ? NAN
                                : (float)CW_MIN(CW_MAX(cached / positions, 0), 1);
    j->history.compute_s = c->compute_s;
    j->history.positions = c->positions;
    j->history.cached = c->cached_positions;
}

/* Computes the job's point for the last `seconds`. */
static void point_take(struct cw_dispatcher *d, struct job *j, double seconds)
{
    struct series_point *p = &j->history.now;
    bool first = p->at_ns == 0;
    p->at_ns = d->now_ns;
    point_add_stats(j, first, seconds, p);
    point_add_ranks(j, seconds, p);
    p->values[JOB_WORKERS] = !j->stream          ? 0
                             : d->scaler.enabled ? (float)cw_dp_worker_set_running(j->stream)
                                                 : (float)j->stream->assignments.n_ready;
    p->values[JOB_WANTED] = d->scaler.enabled ? (float)j->scaling.claim.want : NAN;
}

/* Returns the job's history, and makes it if there is none. NULL: no memory, or there are DP_HISTORIES
 * already. */
static struct history *history_get(struct cw_dispatcher *d, struct job *j)
{
    if (!j->history.kept && d->history.n < DP_HISTORIES &&
        (j->history.kept = calloc(1, sizeof(*j->history.kept))))
        d->history.n++;
    return j->history.kept;
}

void cw_dp_history_tick(struct cw_dispatcher *d)
{
    if (d->now_ns - d->history.last_point_ns < SERIES_INTERVAL_NS)
        return;
    double seconds = (double)(d->now_ns - d->history.last_point_ns) / 1e9;
    d->history.last_point_ns = d->now_ns;
    d->history.waited_most = 0;
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs.list) {
        if (cw_dp_job_over(j))
            continue;
        point_take(d, j, seconds);
        d->history.waited_most = fmax(d->history.waited_most, j->history.now.values[JOB_WAITED_MOST]);
        struct history *h = history_get(d, j);
        if (h)
            cw_dp_series_add(&h->series, &j->history.now);
    }
    cw_dp_worker_history_tick(d, seconds);
}

void cw_dp_history_free(struct cw_dispatcher *d, struct job *j)
{
    if (!j->history.kept)
        return;
    d->history.n--;
    cw_dp_series_deinit(&j->history.kept->series);
    free(j->history.kept);
    j->history.kept = NULL;
}

/* ---- events ---- */

/* Adds a mark to the job's history, unless the job is over. */
static void history_mark(struct cw_dispatcher *d, struct job *j, enum mark_kind kind, uint64_t which)
{
    struct history *h = !cw_dp_job_over(j) ? history_get(d, j) : NULL;
    if (h)
        h->marks[h->n_marks++ % DP_MARKS] = (struct mark){.at_ns = d->now_ns, .kind = kind, .which = which};
}

void cw_dp_history_worker_gone(struct cw_dispatcher *d, const struct worker *w)
{
    CW_LIST_EACH_OF (t, const struct assignment, by_worker, &w->assignments) {
        if (t->state != ASSIGNMENT_READY || !t->granted)
            continue;
        CW_LIST_EACH_OF (j, struct job, by_stream, &t->stream->jobs)
            history_mark(d, j, MARK_WORKER_GONE, w->id);
    }
}

void cw_dp_history_rank_gone(struct cw_dispatcher *d, const struct rank *r)
{
    history_mark(d, r->job, MARK_RANK_GONE, r->number);
}

/* ---- JSON ---- */

static const char *const columns[JOB_COLUMNS] = {[JOB_RATE] = "rate",       [JOB_DEMAND] = "demand",
                                                 [JOB_WAITED] = "waited",   [JOB_WAITED_MOST] = "waited_most",
                                                 [JOB_WORKERS] = "workers", [JOB_WANTED] = "wanted",
                                                 [JOB_CPUS] = "cpus",       [JOB_CACHED] = "cached"};

static double history_since_start(const struct cw_dispatcher *d, uint64_t at_ns)
{
    return (double)(at_ns - d->start_ns) / 1e9;
}

json_t *cw_dp_history_now(const struct job *j)
{
    if (j->history.now.at_ns == 0 || cw_dp_job_over(j))
        return json_null();
    json_t *o = json_object();
    for (size_t i = 0; i < JOB_COLUMNS; i++) {
        float value = j->history.now.values[i];
        cw_dp_json_set(&o, columns[i], isnan(value) ? json_null() : json_real(value));
    }
    return o;
}

static json_t *history_marks_json(const struct cw_dispatcher *d, const struct history *h)
{
    static const struct {
        const char *kind, *which;
    } words[] = {[MARK_WORKER_GONE] = {"worker-gone", "worker"}, [MARK_RANK_GONE] = {"rank-gone", "rank"}};

    json_t *list = json_array();
    for (size_t i = h->n_marks - CW_MIN(h->n_marks, (size_t)DP_MARKS); i < h->n_marks; i++) {
        const struct mark *m = &h->marks[i % DP_MARKS];
        cw_dp_json_append(&list, json_pack("{s:f, s:s, s:I}", "t", history_since_start(d, m->at_ns), "kind",
                                           words[m->kind].kind, words[m->kind].which, (json_int_t)m->which));
    }
    return list;
}

json_t *cw_dp_history_json(const struct cw_dispatcher *d, const struct job *j, uint64_t from_ns,
                           uint64_t to_ns)
{
    static const struct history none;
    const struct history *h = j->history.kept ? j->history.kept : &none;
    json_t *o = cw_dp_series_json(&h->series, from_ns, to_ns, d->start_ns, columns, JOB_COLUMNS);
    cw_dp_json_set(&o, "uptime_s", json_real(history_since_start(d, d->now_ns)));
    cw_dp_json_set(&o, "events", history_marks_json(d, h));
    return o;
}
