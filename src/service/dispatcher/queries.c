/* Answers queries of the dispatcher's state as JSON (cw_dispatcher_query in core.h). Changes nothing. pages.c
 * and admin.c call it. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/bottleneck.h"
#include "service/dispatcher/caching.h"
#include "service/dispatcher/held.h"
#include "service/dispatcher/json_list.h"
#include "service/dispatcher/state.h"

static json_t *query_integer(uint64_t v)
{
    return json_integer((json_int_t)CW_MIN(v, (uint64_t)INT64_MAX));
}

static json_t *query_hex(const uint8_t id[16])
{
    char t[33];
    return json_string(cw_dp_hex(id, t));
}

/* Sets members of an object from pairs of a name and a new value; NULL ends the list. Returns the object;
 * NULL: no memory. */
static __attribute__((sentinel)) json_t *query_set(json_t *o, ...)
{
    const char *name;
    va_list ap;
    va_start(ap, o);
    while ((name = va_arg(ap, const char *)))
        cw_dp_json_set(&o, name, va_arg(ap, json_t *));
    va_end(ap);
    return o;
}

/* ---- jobs ---- */

/* Returns the job's epoch: that of the unfinished rank that is furthest behind. */
static uint64_t query_job_epoch(const struct job *j)
{
    uint64_t least = UINT64_MAX, most = 0;
    DP_RANKS_EACH (r, j) {
        if (!r->finished)
            least = CW_MIN(least, r->from.epoch);
        most = CW_MAX(most, r->from.epoch);
    }
    return CW_MIN(least == UINT64_MAX ? most : least, j->terms.epochs - 1);
}

static json_t *query_job_ranks(const struct job *j)
{
    json_t *ranks = json_array();
    DP_RANKS_EACH (r, j) {
        cw_dp_json_append(
            &ranks,
            query_set(json_object(), "rank", query_integer(r->number), "g", query_integer(r->progress.g),
                      "attached", json_boolean(r->client != NULL), "finished", json_boolean(r->finished),
                      "batches", query_integer(r->progress.n_batches), "wait_s",
                      json_real((double)r->progress.wait_ns / 1e9), "step_s",
                      r->pace.now.n > 0 ? json_real(r->pace.now.step_s / r->pace.now.n) : json_null(), "late",
                      query_integer((uint64_t)r->pace.now.late), "waited",
                      r->client && !isnan(r->pace.waited) ? json_real(r->pace.waited) : json_null(), "client",
                      r->client ? cw_dp_json_text(r->client->name) : json_null(), NULL));
    }
    return ranks;
}

static json_t *query_job_digest(const struct job *j)
{
    struct cw_hash128 sum = {0};
    char t[33];
    DP_RANKS_EACH (r, j)
        sum = cw_hash128_add(sum,
                             (struct cw_hash128){.lo = r->progress.digest_lo, .hi = r->progress.digest_hi});
    if (sum.lo == 0 && sum.hi == 0)
        return json_null();
    cw_hash128_print(sum, t);
    return json_string(t);
}

static json_t *query_job_scaling(const struct cw_dispatcher *d, const struct job *j)
{
    static const char *const phases[] = {[SCALING_MEASURES] = "measuring",
                                         [SCALING_STARTS] = "starting",
                                         [SCALING_PASSES] = "settling",
                                         [SCALING_DRAWS_OFF] = "settling"};
    const struct scaling *x = &j->scaling;
    return json_pack("{s:i, s:i, s:i, s:s, s:f, s:i, s:i, s:s, s:f}", "wanted", x->claim.want, "granted",
                     x->claim.share, "running", j->stream ? cw_dp_worker_set_running(j->stream) : 0, "phase",
                     phases[x->phase], "weight", x->claim.weight, "priority", x->claim.priority, "quota",
                     x->claim.quota, "objective",
                     cw_dp_scaling_objective(d, j) == CW_OBJECTIVE_COST ? "cost" : "time",
                     "client_price_per_h", cw_dp_scaling_client_price(d, j));
}

static json_t *query_job(const struct cw_dispatcher *d, const struct job *j)
{
    bool at_most_once = j->terms.guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE;
    char held[800] = "";
    json_t *o = query_set(
        json_object(), "name", cw_dp_json_text(j->name), "stream", query_hex(j->stream_id), "pipeline",
        query_hex(j->terms.fingerprint), "state", json_string(cw_dp_job_state(j)), "epoch",
        query_integer(query_job_epoch(j)), "epochs", query_integer(j->terms.epochs), "world_size",
        query_integer(j->terms.world_size), "order",
        json_string(j->terms.order == CACHEW__ORDER__ORDER_ANY ? "any" : "exact"), "guarantee",
        json_string(at_most_once ? "at-most-once" : "exactly-once"), "ranks", query_job_ranks(j), "workers",
        query_integer(j->stream ? j->stream->assignments.n_ready : 0), "now", cw_dp_history_now(j),
        "bottleneck", cw_dp_bottleneck_json(d, j), NULL);
    if (d->scaler.enabled)
        cw_dp_json_set(&o, "scaling", query_job_scaling(d, j));
    cw_dp_json_set(&o, "digest_so_far", query_job_digest(j));
    if (at_most_once)
        cw_dp_json_set(&o, "lost_ranges", query_integer(cw_dp_job_lost(j)));
    if (j->stream)
        cw_dp_held_why(d, j, held, sizeof(held));
    if (*held)
        cw_dp_json_set(&o, "held", cw_dp_json_text(held));
    if (j->why)
        cw_dp_json_set(&o, "why", cw_dp_json_text(j->why));
    return o;
}

/* ---- workers ---- */

static json_t *query_worker_cache(json_t *o, const struct worker *w)
{
    return query_set(o, "cache_used", query_integer(w->cache.used), "cache_quota", json_real(w->cache.bound),
                     "cache_bad", query_integer(w->cache.bad), "cache_late", query_integer(w->cache.late),
                     "cache_refused", query_integer(w->cache.refused), "cache_skipped",
                     query_integer(w->cache.skipped), "cache_hits_per_s",
                     json_real(w->rates.cache_hits_per_s), "cache_part",
                     isnan(w->rates.cache_part) ? json_null() : json_real(w->rates.cache_part), NULL);
}

static json_t *query_worker(const struct worker *w)
{
    json_t *unfit = json_array();
    json_t *o = query_set(
        json_object(), "id", query_integer(w->id), "pid", query_integer(w->info->pid), "name",
        cw_dp_json_text(w->last_peer->name), "host", cw_dp_json_text(w->last_peer->host), "address",
        cw_dp_json_text(cw_dp_worker_place(w)), "http", cw_dp_json_text(w->info->http), "pool",
        cw_dp_json_text(w->info->pool), "serves", query_integer(w->n_worker_sets), "state",
        json_string(!w->peer     ? "gone"
                    : w->leaving ? "draining"
                                 : "ready"),
        "leases", query_integer(w->n_held), "cpu_budget", query_integer(w->info->cpu_budget), "memory",
        query_integer(w->info->memory), "memory_in_use", query_integer(w->usage.memory_bytes), "cpu_s",
        json_real((double)w->usage.cpu_ns / 1e9), "batches", query_integer(w->usage.n_batches), "bytes",
        query_integer(w->usage.n_bytes), "cpus", json_real(w->rates.cpus), "batches_per_s",
        json_real(w->rates.batches_per_s), "bytes_per_s", json_real(w->rates.bytes_per_s), "cache_hits",
        query_integer(w->cache.hits), "cache_misses", query_integer(w->cache.misses), NULL);
    if (w->cache.bound > 0)
        o = query_worker_cache(o, w);
    CW_LIST_EACH_OF (t, const struct assignment, by_worker, &w->assignments) {
        if (t->state != ASSIGNMENT_UNFIT)
            continue;
        cw_dp_json_append(&unfit, query_set(json_object(), "stream", query_hex(t->stream->id), "why",
                                            cw_dp_json_text(t->why), NULL));
    }
    cw_dp_json_set(&o, "unfit", unfit);
    return o;
}

/* Returns the HTTP address of a connected worker, in the format of Prometheus' HTTP service discovery. */
static json_t *query_target(const struct worker *w)
{
    json_t *targets = json_array();
    char id[24];
    snprintf(id, sizeof(id), "%" PRIu64, w->id);
    cw_dp_json_append(&targets, cw_dp_json_text(w->info->http));
    json_t *labels = query_set(json_object(), "worker", json_string(id), "pool",
                               cw_dp_json_text(w->info->pool), NULL);
    return query_set(json_object(), "targets", targets, "labels", labels, NULL);
}

/* ---- streams ---- */

static json_t *query_stream(const struct stream *s)
{
    json_t *jobs = json_array();
    uint64_t held = 0, complete = 0;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list) {
        held += t->n_held;
        complete += t->n_complete;
    }
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        cw_dp_json_append(&jobs, cw_dp_json_text(j->name));
    json_t *o = query_set(json_object(), "stream", query_hex(s->id), "fingerprint",
                          query_hex(s->pipeline->fingerprint), "seed", query_integer(s->seed), "state",
                          json_string(!s->data                  ? "preparing"
                                      : cw_list_empty(&s->jobs) ? "idle"
                                                                : "ready"),
                          NULL);
    if (s->data) {
        char snapshot[17];
        Cachew__Place at = cw_dp_stream_place(s, s->ranges.state != RANGES_UNPLACED ? s->ranges.base : 0);
        snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, s->data->plan->snapshot);
        o = query_set(o, "snapshot", json_string(snapshot), "positions",
                      s->data->plan->n_positions >= DP_ENDLESS ? json_null()
                                                               : query_integer(s->data->plan->n_positions),
                      "epoch", query_integer(at.epoch), "position", query_integer(at.position), "ranges",
                      query_integer(s->ranges.n), NULL);
    }
    o = query_set(o, "leased", query_integer(held), "finished", query_integer(complete), "completed",
                  query_integer(s->n_completed), "workers", query_integer(s->assignments.n_ready),
                  "computing", cw_compute_stats_json(&s->computed), "caching", cw_dp_caching_json(s), "jobs",
                  jobs, NULL);
    return o;
}

/* Returns the policy as it is written in the option --policy. */
static json_t *query_policy(const struct cw_policy *p)
{
    bool takes_number = p->name[strlen(p->name) - 1] == ':';
    return takes_number ? json_sprintf("%s%.0f", p->name, p->parameter) : json_string(p->name);
}

static json_t *query_status(const struct cw_dispatcher *d)
{
    size_t n_workers = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list)
        n_workers += w->peer != NULL;
    json_t *o = query_set(json_object(), "role", json_string("dispatcher"), "name", cw_dp_json_text(d->name),
                          "software", json_string("cachew " CACHEW_VERSION), "pid", query_integer(d->pid),
                          "uptime_s", json_real((double)(d->now_ns - d->start_ns) / 1e9), "connections",
                          query_integer(d->peers.n), "workers", query_integer(n_workers), "jobs",
                          query_integer(d->jobs.n - d->jobs.n_over), "streams", query_integer(d->streams.n),
                          "completed", query_integer(d->leases.n_completed), "late",
                          query_integer(d->leases.n_late), "moved", query_integer(d->leases.n_moved), NULL);
    if (d->scaler.enabled)
        cw_dp_json_set(&o, "policy", query_policy(&d->scaler.policy));
    if (d->scaler.currency)
        cw_dp_json_set(&o, "currency", cw_dp_json_text(d->scaler.currency));
    cw_dp_json_set(&o, "journal",
                   d->journal.retry_ns != 0 ? cw_dp_json_text(d->journal.error.message) : json_string("ok"));
    return o;
}

/* ---- histories ---- */

#define HISTORY_S 900 /* seconds of a history whose query names no range */

/* Sets *ret to a time of a query, in ns, from seconds since the dispatcher's start. */
static bool query_time(const struct cw_dispatcher *d, const char *text, const char **end, uint64_t *ret)
{
    char *behind;
    double s = strtod(text, &behind);
    *end = behind;
    if (behind == text || !isfinite(s))
        return false;
    *ret = d->start_ns + (uint64_t)(1e9 * CW_MIN(CW_MAX(s, 0), 1e9)); /* 1e9 s: 30 years */
    return true;
}

/* Reads "?from=S&to=S", of which each part may be absent. */
static bool query_range(const struct cw_dispatcher *d, const char *text, uint64_t *from_ns, uint64_t *to_ns)
{
    uint64_t since_start_ns = d->now_ns - d->start_ns;
    *from_ns = d->now_ns - CW_MIN(since_start_ns, HISTORY_S * UINT64_C(1000000000));
    *to_ns = UINT64_MAX;
    for (char before = '?'; *text; before = '&') {
        bool from = strncmp(text + 1, "from=", 5) == 0, to = strncmp(text + 1, "to=", 3) == 0;
        if (*text != before || !(from || to))
            return false;
        if (!query_time(d, text + (from ? 6 : 4), &text, from ? from_ns : to_ns))
            return false;
    }
    return true;
}

/* Returns the history of a job or worker, or the decisions of a job; `what` is jobs/NAME/decisions,
 * jobs/NAME/history or workers/ID/history, with a range after a history. 0: it is none of these. */
static int query_one(struct cw_dispatcher *d, const char *what, json_t **ret, struct cw_error *err)
{
    bool of_job = strncmp(what, "jobs/", 5) == 0, of_worker = strncmp(what, "workers/", 8) == 0;
    const char *name = what + (of_job ? 5 : 8), *behind = of_job || of_worker ? strrchr(name, '/') : NULL;
    static const char history_word[] = "/history";
    uint64_t from_ns, to_ns;
    bool decisions = behind && of_job && strcmp(behind, "/decisions") == 0,
         history = behind && strncmp(behind, history_word, strlen(history_word)) == 0 &&
                   query_range(d, behind + strlen(history_word), &from_ns, &to_ns);
    if (!decisions && !history)
        return 0;
    int size = (int)CW_MIN(behind - name, DP_NAME + 1); /* job names are not longer */
    _cleanup_free_ char *copy = strndup(name, (size_t)size);
    char *end = copy;
    uint64_t id = copy && of_worker ? strtoull(copy, &end, 10) : 0;
    const struct worker *w = copy && of_worker && *copy && !*end ? cw_dp_worker_find(d, id) : NULL;
    const struct job *j = copy && of_job ? cw_dp_job_find(d, copy) : NULL;
    if (of_job && !j)
        return cw_error_set(
            err, CW_E_OPTION,
            "there is no job \"%.*s\": expected a job that runs, or ended within the last hour",
            CW_MIN(size, DP_NAME), name);
    if (of_worker && !w)
        return cw_error_set(
            err, CW_E_OPTION,
            "there is no worker \"%.*s\": expected the id of a worker that is connected, or was within the "
            "last ten minutes",
            CW_MIN(size, 24), name);
    *ret = decisions ? cw_dp_scaling_decisions(d, j)
           : of_job  ? cw_dp_history_json(d, j, from_ns, to_ns)
                     : cw_dp_worker_history_json(d, w, from_ns, to_ns);
    return 1;
}

/* ---- queries ---- */

#define PRECISION 9 /* digits of measurements; further digits are noise */

int cw_dispatcher_query(struct cw_dispatcher *d, const char *what, uint64_t now_ns, char **ret,
                        struct cw_error *err)
{
    json_auto_t *answer = NULL;
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    int r = query_one(d, what, &answer, err);
    if (r < 0)
        return r;
    if (r > 0) {
        /* answered */
    } else if (strcmp(what, "jobs") == 0) {
        answer = json_array();
        CW_LIST_EACH_OF (j, const struct job, link, &d->jobs.list)
            cw_dp_json_append(&answer, query_job(d, j));
    } else if (strcmp(what, "workers") == 0) {
        answer = json_array();
        CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list)
            if (!w->awaited)
                cw_dp_json_append(&answer, query_worker(w));
    } else if (strcmp(what, "targets") == 0) {
        answer = json_array();
        CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list)
            if (w->peer && *w->info->http)
                cw_dp_json_append(&answer, query_target(w));
    } else if (strcmp(what, "streams") == 0) {
        answer = json_array();
        CW_LIST_EACH_OF (s, const struct stream, link, &d->streams.list)
            cw_dp_json_append(&answer, query_stream(s));
    } else if (strcmp(what, "pools") == 0) {
        answer = cw_dp_pools_json(d);
    } else if (strcmp(what, "status") == 0) {
        answer = query_status(d);
    } else {
        return cw_error_set(err, CW_E_OPTION,
                            "there is no query \"%.64s\": expected jobs, workers, streams, pools, status, "
                            "targets, jobs/NAME/decisions, jobs/NAME/history or workers/ID/history, the "
                            "last two with ?from=S&to=S",
                            what);
    }
    *ret = answer ? json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(PRECISION)) : NULL;
    return *ret ? 0 : cw_error_nomem(err, 0, "an answer");
}
