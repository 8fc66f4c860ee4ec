#include "service/dispatcher/history.h"

#include <math.h>
#include <stdlib.h>

#include "service/dispatcher/internal.h"

#define LEAST_STEP_S 1e-9 /* who takes a batch in no time at all: 10^9 per second */

/* ---- taking points ---- */

/* What a rank did since it was looked at last: what it waited, and how fast it could go, or went when it last
 * got anything. */
static void look_at_rank(struct rank *r)
{
    double n = r->pace.n - r->looked.n, wait_s = r->pace.wait_s - r->looked.wait_s,
           step_s = r->pace.step_s - r->looked.step_s;
    if (!r->paces) {
        r->waited = r->greeted ? NAN : 1; /* its first word is on the way; or its data is being opened */
    } else if (n > 0) {
        r->waited = wait_s + step_s > 0 ? (float)(wait_s / (wait_s + step_s)) : 0;
        r->would_take = n / CW_MAX(step_s, LEAST_STEP_S * n);
    } else {
        r->waited = r->waits ? 1 : 0; /* for the first batch, or a long time; else its step is long */
    }
    r->looked = r->pace;
}

/* Batches that it was handed since then. */
static double handed(struct rank *r)
{
    uint64_t n_batches = r->progress.n_batches;
    double n = r->paces && n_batches > r->looked_batches ? (double)(n_batches - r->looked_batches) : 0;
    r->looked_batches = n_batches;
    return n;
}

static void look_at_ranks(struct job *j, double seconds, struct point *p)
{
    double batches = 0, demand = 0, waited = 0, most = 0;
    size_t n_known = 0, n_demand = 0;
    for (size_t i = 0; i < j->n_ranks; i++) {
        struct rank *r = j->ranks[i];
        batches += handed(r);
        r->waited = NAN;
        if (!r->client || r->finished)
            continue;
        look_at_rank(r);
        if (r->would_take > 0) {
            demand += r->would_take;
            n_demand++;
        }
        if (isnan(r->waited))
            continue;
        waited += r->waited;
        most = CW_MAX(most, r->waited);
        n_known++;
    }
    p->rate = (float)(batches / seconds);
    p->demand = n_demand > 0 && n_demand == j->n_attached ? (float)demand : NAN;
    p->waited = n_known > 0 ? (float)(waited / (double)n_known) : NAN;
    p->waited_most = n_known > 0 ? (float)most : NAN;
}

/* What workers computed for its stream, and what they read instead. */
static void look_at_computed(struct job *j, bool first, double seconds, struct point *p)
{
    static const struct computed nothing;
    const struct computed *c = j->stream ? &j->stream->computed : &nothing;
    double positions = c->positions - j->looked.positions, cached = c->cached_positions - j->looked.cached;
    bool caches = c->cached_positions > 0 || (j->stream && cw_dp_caching_open(j->stream));
    p->cpus = first ? NAN : (float)(CW_MAX(c->compute_s - j->looked.compute_s, 0) / seconds);
    p->cached = first || !caches || !(positions > 0) ? NAN : (float)CW_MIN(CW_MAX(cached / positions, 0), 1);
    j->looked.compute_s = c->compute_s;
    j->looked.positions = c->positions;
    j->looked.cached = c->cached_positions;
}

static void take_point(struct cw_dispatcher *d, struct job *j, double seconds)
{
    struct point *p = &j->now;
    bool first = p->at_ns == 0;
    p->at_ns = d->now_ns;
    look_at_computed(j, first, seconds, p);
    look_at_ranks(j, seconds, p);
    p->workers = !j->stream  ? 0
                 : d->scales ? (float)cw_dp_worker_set_running(j->stream)
                             : (float)j->stream->n_ready;
    p->wanted = d->scales ? (float)j->scaling.claim.want : NAN;
}

static struct history *history_of(struct cw_dispatcher *d, struct job *j)
{
    if (!j->history && d->n_histories < DP_HISTORIES && (j->history = calloc(1, sizeof(*j->history))))
        d->n_histories++;
    return j->history;
}

void cw_dp_history_tick(struct cw_dispatcher *d)
{
    if (d->now_ns - d->looked_ns < DP_POINT_NS)
        return;
    double seconds = (double)(d->now_ns - d->looked_ns) / 1e9;
    d->looked_ns = d->now_ns;
    d->waited_most = 0;
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs) {
        if (j->state >= JOB_DONE)
            continue;
        take_point(d, j, seconds);
        if (j->now.waited_most > d->waited_most)
            d->waited_most = j->now.waited_most;
        struct history *h = history_of(d, j);
        if (h)
            h->points[h->n_points++ % DP_POINTS] = j->now;
    }
}

void cw_dp_history_free(struct cw_dispatcher *d, struct job *j)
{
    d->n_histories -= j->history != NULL;
    free(j->history);
    j->history = NULL;
}

/* ---- what happened ---- */

static void mark(struct cw_dispatcher *d, struct job *j, int kind, uint64_t which)
{
    struct history *h = j->state < JOB_DONE ? history_of(d, j) : NULL;
    if (h)
        h->marks[h->n_marks++ % DP_MARKS] = (struct mark){.at_ns = d->now_ns, .kind = kind, .which = which};
}

void cw_dp_history_worker_gone(struct cw_dispatcher *d, const struct worker *w)
{
    CW_LIST_EACH_OF (t, const struct assignment, by_worker, &w->assignments) {
        if (t->state != ASSIGNMENT_READY || !t->granted)
            continue;
        CW_LIST_EACH_OF (j, struct job, by_stream, &t->stream->jobs)
            mark(d, j, MARK_WORKER_GONE, w->id);
    }
}

void cw_dp_history_rank_gone(struct cw_dispatcher *d, const struct rank *r)
{
    mark(d, r->job, MARK_RANK_GONE, r->number);
}

/* ---- telling ---- */

static const struct {
    const char *name;
    size_t at;
} columns[] = {
    {"rate", offsetof(struct point, rate)},       {"demand", offsetof(struct point, demand)},
    {"waited", offsetof(struct point, waited)},   {"waited_most", offsetof(struct point, waited_most)},
    {"workers", offsetof(struct point, workers)}, {"wanted", offsetof(struct point, wanted)},
    {"cpus", offsetof(struct point, cpus)},       {"cached", offsetof(struct point, cached)},
};

static json_t *value_of(const struct point *p, size_t column)
{
    float value = *(const float *)(const void *)((const char *)p + columns[column].at);
    return isnan(value) ? json_null() : json_real(value);
}

static double since_start(const struct cw_dispatcher *d, uint64_t at_ns)
{
    return (double)(at_ns - d->start_ns) / 1e9;
}

json_t *cw_dp_history_now(const struct job *j)
{
    json_t *o = j->now.at_ns != 0 && j->state < JOB_DONE ? json_object() : json_null();
    for (size_t i = 0; json_is_object(o) && i < CW_COUNT_OF(columns); i++)
        if (json_object_set_new(o, columns[i].name, value_of(&j->now, i)) < 0) {
            json_decref(o);
            return NULL;
        }
    return o;
}

static json_t *column_json(const struct history *h, size_t column)
{
    json_t *list = json_array();
    size_t first = h->n_points - CW_MIN(h->n_points, (size_t)DP_POINTS);
    for (size_t i = first; list && i < h->n_points; i++)
        if (json_array_append_new(list, value_of(&h->points[i % DP_POINTS], column)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *times_json(const struct cw_dispatcher *d, const struct history *h)
{
    json_t *list = json_array();
    size_t first = h->n_points - CW_MIN(h->n_points, (size_t)DP_POINTS);
    for (size_t i = first; list && i < h->n_points; i++)
        if (json_array_append_new(list, json_real(since_start(d, h->points[i % DP_POINTS].at_ns))) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *marks_json(const struct cw_dispatcher *d, const struct history *h)
{
    static const struct {
        const char *kind, *which;
    } words[] = {[MARK_WORKER_GONE] = {"worker-gone", "worker"}, [MARK_RANK_GONE] = {"rank-gone", "rank"}};

    json_t *list = json_array();
    size_t first = h->n_marks - CW_MIN(h->n_marks, (size_t)DP_MARKS);
    for (size_t i = first; list && i < h->n_marks; i++) {
        const struct mark *m = &h->marks[i % DP_MARKS];
        if (json_array_append_new(list, json_pack("{s:f, s:s, s:I}", "t", since_start(d, m->at_ns), "kind",
                                                  words[m->kind].kind, words[m->kind].which,
                                                  (json_int_t)m->which)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *cw_dp_history_json(const struct cw_dispatcher *d, const struct job *j)
{
    static const struct history none;
    const struct history *h = j->history ? j->history : &none;
    json_t *o = json_pack("{s:f, s:f, s:o, s:o}", "uptime_s", since_start(d, d->now_ns), "interval_s",
                          (double)DP_POINT_NS / 1e9, "t", times_json(d, h), "events", marks_json(d, h));
    for (size_t i = 0; o && i < CW_COUNT_OF(columns); i++)
        if (json_object_set_new(o, columns[i].name, column_json(h, i)) < 0) {
            json_decref(o);
            return NULL;
        }
    return o;
}
