/* What `cachew jobs | workers | top` ask, and steer. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "service/dispatcher/internal.h"

static json_t *integer(uint64_t v)
{
    return json_integer((json_int_t)CW_MIN(v, (uint64_t)INT64_MAX));
}

/* Names and reasons come from peers: what is not UTF-8 is shown as such. */
static json_t *text_json(const char *t)
{
    return t && cw_text_utf8(t, strlen(t)) ? json_string(t) : json_string(t ? "(not UTF-8)" : "");
}

static json_t *hex(const uint8_t id[16])
{
    char t[33];
    return json_string(cw_dp_hex(id, t));
}

/* Pairs of a name and a new value, then NULL. Jansson's setters take NULL for a failure: at the end one look
 * tells. */
static void __attribute__((sentinel)) set(json_t *object, bool *failed, ...)
{
    const char *name;
    va_list ap;
    va_start(ap, failed);
    while ((name = va_arg(ap, const char *)))
        *failed |= json_object_set_new(object, name, va_arg(ap, json_t *)) < 0;
    va_end(ap);
}

static void append(json_t *array, json_t *value, bool *failed)
{
    if (json_array_append_new(array, value) < 0)
        *failed = true;
}

/* ---- jobs ---- */

static uint64_t job_epoch(const struct job *j)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < j->n_ranks; i++) {
        if (!j->ranks[i]->finished)
            least = CW_MIN(least, j->ranks[i]->from.epoch);
        most = CW_MAX(most, j->ranks[i]->from.epoch);
    }
    return CW_MIN(least == UINT64_MAX ? most : least, j->epochs - 1);
}

static json_t *job_ranks(const struct job *j, bool *failed)
{
    json_t *ranks = json_array();
    for (size_t i = 0; i < j->n_ranks; i++) {
        const struct rank *r = j->ranks[i];
        json_t *o = json_object();
        set(o, failed, "rank", integer(r->number), "g", integer(r->progress.g), "attached",
            json_boolean(r->client != NULL), "finished", json_boolean(r->finished), "batches",
            integer(r->progress.n_batches), "wait_s", json_real((double)r->progress.wait_ns / 1e9), "step_s",
            r->pace.n > 0 ? json_real(r->pace.step_s / r->pace.n) : json_null(), "late",
            integer((uint64_t)r->pace.late), "waited",
            r->client && !isnan(r->waited) ? json_real(r->waited) : json_null(), NULL);
        append(ranks, o, failed);
    }
    return ranks;
}

static json_t *job_digest(const struct job *j)
{
    struct cw_hash128 sum = {0};
    char t[33];
    for (size_t i = 0; i < j->n_ranks; i++)
        sum = cw_hash128_add(sum, (struct cw_hash128){.lo = j->ranks[i]->progress.digest_lo,
                                                      .hi = j->ranks[i]->progress.digest_hi});
    if (sum.lo == 0 && sum.hi == 0)
        return json_null();
    cw_hash128_print(sum, t);
    return json_string(t);
}

static json_t *job_scaling(const struct cw_dispatcher *d, const struct job *j)
{
    static const char *const phases[] = {[SCALE_MEASURES] = "measuring",
                                         [SCALE_STARTS] = "starting",
                                         [SCALE_PASSES] = "settling",
                                         [SCALE_DRAWS_OFF] = "settling"};
    const struct scaling *x = &j->scaling;
    return json_pack("{s:i, s:i, s:i, s:s, s:f, s:i, s:i, s:s, s:f}", "wanted", x->claim.want, "granted",
                     x->claim.share, "running", j->stream ? cw_dp_worker_set_running(j->stream) : 0, "phase",
                     phases[x->phase], "weight", x->claim.weight, "priority", x->claim.priority, "quota",
                     x->claim.quota, "objective",
                     cw_dp_scale_objective(d, j) == CW_OBJECTIVE_COST ? "cost" : "time", "client_price_per_h",
                     cw_dp_scale_client_price(d, j));
}

static json_t *job_json(const struct cw_dispatcher *d, const struct job *j, bool *failed)
{
    json_t *o = json_object();
    bool at_most_once = j->guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE;
    char held[800] = "";
    set(o, failed, "name", text_json(j->name), "stream", hex(j->stream_id), "state",
        json_string(cw_dp_job_state(j)), "epoch", integer(job_epoch(j)), "epochs", integer(j->epochs),
        "world_size", integer(j->world_size), "order",
        json_string(j->order == CACHEW__ORDER__ORDER_ANY ? "any" : "exact"), "guarantee",
        json_string(at_most_once ? "at-most-once" : "exactly-once"), "ranks", job_ranks(j, failed), "workers",
        integer(j->stream ? j->stream->n_ready : 0), "now", cw_dp_history_now(j), NULL);
    if (d->scales)
        set(o, failed, "scaling", job_scaling(d, j), NULL);
    set(o, failed, "digest_so_far", job_digest(j), NULL);
    if (at_most_once)
        set(o, failed, "lost_ranges", integer(cw_dp_job_lost(j)), NULL);
    if (j->stream)
        cw_dp_held_why(d, j, held, sizeof(held));
    if (*held)
        set(o, failed, "held", text_json(held), NULL);
    if (j->why)
        set(o, failed, "why", text_json(j->why), NULL);
    return o;
}

/* ---- workers ---- */

static void worker_cache(json_t *o, const struct worker *w, bool *failed)
{
    set(o, failed, "cache_used", integer(w->cache.used), "cache_quota", json_real(w->cache.bound),
        "cache_bad", integer(w->cache.bad), "cache_late", integer(w->cache.late), "cache_refused",
        integer(w->cache.refused), "cache_skipped", integer(w->cache.skipped), "cache_hits_per_s",
        json_real(w->cache_hits_per_s), "cache_part",
        isnan(w->cache_part) ? json_null() : json_real(w->cache_part), NULL);
}

static json_t *worker_json(const struct worker *w, bool *failed)
{
    json_t *o = json_object(), *unfit = json_array();
    set(o, failed, "id", integer(w->id), "pid", integer(w->pid), "name", text_json(w->name), "host",
        text_json(w->host), "address", text_json(w->n_addresses > 0 ? w->addresses[0] : w->unix_path), "http",
        text_json(w->http), "pool", text_json(w->pool), "serves", integer(w->n_worker_sets), "state",
        json_string(!w->peer      ? "gone"
                    : w->draining ? "draining"
                                  : "ready"),
        "leases", integer(w->n_held), "cpu_budget", integer(w->cpu_budget), "memory", integer(w->memory),
        "memory_in_use", integer(w->memory_bytes), "cpu_s", json_real((double)w->cpu_ns / 1e9), "batches",
        integer(w->n_batches), "bytes", integer(w->n_bytes), "cpus", json_real(w->cpus), "batches_per_s",
        json_real(w->batches_per_s), "bytes_per_s", json_real(w->bytes_per_s), "cache_hits",
        integer(w->cache.hits), "cache_misses", integer(w->cache.misses), NULL);
    if (w->cache.bound > 0)
        worker_cache(o, w, failed);
    CW_LIST_EACH_OF (t, const struct assignment, by_worker, &w->assignments) {
        if (t->state != ASSIGNMENT_UNFIT)
            continue;
        json_t *u = json_object();
        set(u, failed, "stream", hex(t->stream->id), "why", text_json(t->why), NULL);
        append(unfit, u, failed);
    }
    set(o, failed, "unfit", unfit, NULL);
    return o;
}

/* What Prometheus' discovery over HTTP reads: where workers that are there answer. */
static json_t *target_json(const struct worker *w, bool *failed)
{
    json_t *o = json_object(), *targets = json_array(), *labels = json_object();
    char id[24];
    snprintf(id, sizeof(id), "%" PRIu64, w->id);
    append(targets, text_json(w->http), failed);
    set(labels, failed, "worker", json_string(id), "pool", text_json(w->pool), NULL);
    set(o, failed, "targets", targets, "labels", labels, NULL);
    return o;
}

/* ---- streams ---- */

static json_t *stream_json(const struct stream *s, bool *failed)
{
    json_t *o = json_object(), *jobs = json_array();
    uint64_t held = 0, complete = 0;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments) {
        held += t->n_held;
        complete += t->n_complete;
    }
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        append(jobs, text_json(j->name), failed);
    set(o, failed, "stream", hex(s->id), "fingerprint", hex(s->pipeline->fingerprint), "seed",
        integer(s->seed), "state",
        json_string(!s->data                  ? "preparing"
                    : cw_list_empty(&s->jobs) ? "idle"
                                              : "ready"),
        NULL);
    if (s->data) {
        char snapshot[17];
        uint64_t epoch = 0, position = 0;
        snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, s->data->plan->snapshot);
        cw_dp_stream_place(s, s->based ? s->base : 0, &epoch, &position);
        set(o, failed, "snapshot", json_string(snapshot), "positions",
            s->data->plan->n_positions >= DP_ENDLESS ? json_null() : integer(s->data->plan->n_positions),
            "epoch", integer(epoch), "position", integer(position), "ranges", integer(s->n_ranges), NULL);
    }
    set(o, failed, "leased", integer(held), "finished", integer(complete), "completed",
        integer(s->n_completed), "workers", integer(s->n_ready), "computing", cw_computed_json(&s->computed),
        "caching", cw_dp_caching_json(s), "jobs", jobs, NULL);
    return o;
}

/* As in --policy. */
static json_t *policy_json(const struct cw_policy *p)
{
    bool takes_number = p->name[strlen(p->name) - 1] == ':';
    return takes_number ? json_sprintf("%s%.0f", p->name, p->parameter) : json_string(p->name);
}

static json_t *status_json(const struct cw_dispatcher *d, bool *failed)
{
    json_t *o = json_object();
    size_t n_workers = 0;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers)
        n_workers += w->peer != NULL;
    set(o, failed, "role", json_string("dispatcher"), "name", text_json(d->name), "software",
        text_json(d->software), "pid", integer(d->pid), "uptime_s",
        json_real((double)(d->now_ns - d->start_ns) / 1e9), "connections", integer(d->n_peers), "workers",
        integer(n_workers), "jobs", integer(d->n_jobs - d->n_over), "streams", integer(d->n_streams),
        "completed", integer(d->n_completed), "late", integer(d->n_late), "moved", integer(d->n_moved), NULL);
    if (d->scales)
        set(o, failed, "policy", policy_json(&d->policy), NULL);
    set(o, failed, "journal", d->retry_ns != 0 ? text_json(d->journal_error.message) : json_string("ok"),
        NULL);
    return o;
}

/* ---- questions ---- */

#define PRECISION 9 /* digits of what was measured: more of them would be noise */
#define DECISIONS "/decisions"
#define HISTORY "/history"

/* "jobs/NAME" and this: the job, if that is the question. */
static struct job *job_of_question(struct cw_dispatcher *d, const char *what, const char *behind)
{
    static const char before[] = "jobs/";
    size_t size = strlen(what), around = sizeof(before) - 1 + strlen(behind);
    char name[DP_NAME + 1];
    if (strncmp(what, before, sizeof(before) - 1) != 0 || size < around ||
        strcmp(what + size - strlen(behind), behind) != 0)
        return NULL;
    size -= around;
    if (size > DP_NAME)
        return NULL;
    memcpy(name, what + sizeof(before) - 1, size);
    name[size] = '\0';
    return cw_dp_job_find(d, name);
}

static json_t *answer_to(struct cw_dispatcher *d, const char *what, bool *failed)
{
    const struct job *asked = job_of_question(d, what, DECISIONS);
    if (asked)
        return cw_dp_scale_decisions(d, asked);
    if ((asked = job_of_question(d, what, HISTORY)))
        return cw_dp_history_json(d, asked);
    if (strcmp(what, "pools") == 0)
        return cw_dp_pools_json(d);
    json_t *list = json_array();
    if (strcmp(what, "status") == 0) {
        json_decref(list);
        return status_json(d, failed);
    }
    if (strcmp(what, "jobs") == 0)
        CW_LIST_EACH_OF (j, struct job, link, &d->jobs)
            append(list, job_json(d, j, failed), failed);
    else if (strcmp(what, "workers") == 0)
        CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
            if (!w->awaited)
                append(list, worker_json(w, failed), failed);
        }
    else if (strcmp(what, "targets") == 0)
        CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
            if (w->peer && *w->http)
                append(list, target_json(w, failed), failed);
        }
    else if (strcmp(what, "streams") == 0)
        CW_LIST_EACH_OF (s, struct stream, link, &d->streams)
            append(list, stream_json(s, failed), failed);
    return list;
}

static int no_such_question(const char *what, struct cw_error *err)
{
    const char *behind = strncmp(what, "jobs/", 5) == 0 ? strrchr(what, '/') : NULL;
    if (behind && behind > what + 4 && (strcmp(behind, DECISIONS) == 0 || strcmp(behind, HISTORY) == 0))
        return cw_error_set(err, CW_E_OPTION,
                            "there is no job \"%.*s\": expected one that is there, or was lately",
                            (int)CW_MIN(behind - (what + 5), DP_NAME), what + 5);
    return cw_error_set(err, CW_E_OPTION,
                        "there is no question \"%.64s\": expected jobs, workers, streams, pools, status, "
                        "targets, or jobs/NAME/decisions or jobs/NAME/history",
                        what);
}

int cw_dispatcher_query(struct cw_dispatcher *d, const char *what, uint64_t now_ns, char **ret,
                        struct cw_error *err)
{
    static const char *const known[] = {"jobs", "workers", "streams", "pools", "status", "targets"};
    bool failed = false, found = false;
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    for (size_t i = 0; i < CW_COUNT_OF(known); i++)
        found |= strcmp(what, known[i]) == 0;
    if (!found && !job_of_question(d, what, DECISIONS) && !job_of_question(d, what, HISTORY))
        return no_such_question(what, err);
    json_auto_t *answer = answer_to(d, what, &failed);
    char *text = answer && !failed ? json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(PRECISION)) : NULL;
    if (!text)
        return cw_error_nomem(err, 0, "an answer");
    *ret = text;
    return 0;
}

static int query(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const char *what,
                 struct cw_error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = cw_dispatcher_query(d, what, d->now_ns, &text, err);
    if (r < 0)
        return r;
    Cachew__Answer a = {CW_MESSAGE(answer), .json = text};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = id, .of_case = CACHEW__ENVELOPE__OF_ANSWER,
                          .answer = &a};
    cw_dp_send(d, p, &m);
    return 0;
}

/* ---- steering ---- */

static int drain_worker(struct cw_dispatcher *d, const char *name, struct cw_error *err)
{
    char *end;
    uint64_t id = strtoull(name, &end, 10);
    struct worker *w = *name && !*end ? cw_dp_worker_find(d, id) : NULL;
    if (!w || !w->peer)
        return cw_error_set(err, CW_E_OPTION,
                            "there is no worker \"%.64s\": expected an id that `cachew workers` shows", name);
    cw_dp_worker_drain(d, w, true);
    return 0;
}

static int steer_job(struct cw_dispatcher *d, struct job *j, const char *verb, struct cw_error *err)
{
    struct cw_error why = {0};
    if (strcmp(verb, "cancel-job") == 0) {
        cw_error_set(&why, CW_E_SERVICE, "job \"%s\" was cancelled", j->name);
        cw_dp_job_over(d, j, JOB_CANCELLED, &why);
        return 0;
    }
    bool before = j->paused;
    j->paused = strcmp(verb, "pause-job") == 0;
    int r = j->durable || j->writing > 0 ? cw_dp_journal_job(d, j, NULL, err) : 0;
    if (r < 0)
        j->paused = before;
    cw_dp_tell_held(d, j);
    cw_dp_stream_dirty(d, j->stream);
    cw_dp_worker_sets_later(d);
    return r;
}

/* What a job may have of the workers; what was not said stays as it is. */
static int share_job(struct cw_dispatcher *d, struct job *j, const Cachew__Steer *m, struct cw_error *err)
{
    struct cw_claim *claim = &j->scaling.claim, before = *claim;
    bool weight = m->has_weight_case != CACHEW__STEER__HAS_WEIGHT__NOT_SET,
         quota = m->has_quota_case != CACHEW__STEER__HAS_QUOTA__NOT_SET;
    if (weight && !(m->weight >= CW_WEIGHT_LEAST && m->weight <= CW_WEIGHT_MOST))
        return cw_error_set(err, CW_E_OPTION, "job \"%s\": weight %g: expected %g to %g", j->name, m->weight,
                            CW_WEIGHT_LEAST, CW_WEIGHT_MOST);
    if (quota && m->quota > DP_WORKERS)
        return cw_error_set(err, CW_E_OPTION, "job \"%s\": quota %u: expected 1 to %d workers, or 0 for none",
                            j->name, m->quota, DP_WORKERS);
    if (weight)
        claim->weight = m->weight;
    if (m->has_priority_case != CACHEW__STEER__HAS_PRIORITY__NOT_SET)
        claim->priority = m->priority;
    if (quota)
        claim->quota = (int)m->quota;
    int r = j->durable || j->writing > 0 ? cw_dp_journal_job(d, j, NULL, err) : 0;
    if (r < 0)
        *claim = before;
    cw_dp_worker_sets_later(d);
    return r;
}

/* What the policy is to look for; what was not said stays as it is. */
static int aim_job(struct cw_dispatcher *d, struct job *j, const Cachew__Steer *m, struct cw_error *err)
{
    struct scaling *x = &j->scaling;
    int objective = x->objective;
    double price = x->client_price_per_h;
    bool time = strcmp(m->objective, "time") == 0, cost = strcmp(m->objective, "cost") == 0,
         priced = m->has_price_case != CACHEW__STEER__HAS_PRICE__NOT_SET;
    if (!(time || cost || !*m->objective))
        return cw_error_set(err, CW_E_OPTION, "job \"%s\": objective \"%.64s\": expected time or cost",
                            j->name, m->objective);
    if (priced &&
        !(m->client_price_per_h >= CW_CLIENT_PRICE_LEAST && m->client_price_per_h <= CW_CLIENT_PRICE_MOST))
        return cw_error_set(err, CW_E_OPTION, "job \"%s\": price %g: expected %g to %g, per hour", j->name,
                            m->client_price_per_h, CW_CLIENT_PRICE_LEAST, CW_CLIENT_PRICE_MOST);
    if (*m->objective)
        x->objective = 1 + (cost ? CW_OBJECTIVE_COST : CW_OBJECTIVE_TIME);
    if (priced)
        x->client_price_per_h = m->client_price_per_h;
    int r = j->durable || j->writing > 0 ? cw_dp_journal_job(d, j, NULL, err) : 0;
    if (r < 0) {
        x->objective = objective;
        x->client_price_per_h = price;
    }
    return r;
}

static int steer(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Steer *m,
                 struct cw_error *err)
{
    struct action then = {.kind = ACTION_DONE, .peer = p, .re = id};
    bool shares = strcmp(m->verb, "share-job") == 0, aims = strcmp(m->verb, "aim-job") == 0;
    bool job = shares || aims || strcmp(m->verb, "cancel-job") == 0 || strcmp(m->verb, "pause-job") == 0 ||
               strcmp(m->verb, "resume-job") == 0;
    struct job *j = job ? cw_dp_job_find(d, m->name) : NULL;
    int r;
    if (strcmp(m->verb, "drain-worker") == 0)
        r = drain_worker(d, m->name, err);
    else if (!job)
        r = cw_error_set(err, CW_E_OPTION,
                         "there is no verb \"%.64s\": expected drain-worker, cancel-job, pause-job, "
                         "resume-job, share-job or aim-job",
                         m->verb);
    else if (!j || j->state >= JOB_DONE)
        r = cw_error_set(err, CW_E_OPTION, "there is no job \"%.255s\" that runs", m->name);
    else
        r = shares ? share_job(d, j, m, err) : aims ? aim_job(d, j, m, err) : steer_job(d, j, m->verb, err);
    return r < 0 ? r : cw_dp_journal_then(d, &then, err);
}

int cw_dp_admin_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                        struct cw_error *err)
{
    struct cw_error refused = {0};
    int r;
    if (m->of_case == CACHEW__ENVELOPE__OF_QUERY)
        r = query(d, p, m->id, m->query->what, &refused);
    else if (m->of_case == CACHEW__ENVELOPE__OF_STEER)
        r = steer(d, p, m->id, m->steer, &refused);
    else
        return cw_error_set(err, CW_E_SERVICE,
                            "an admin client does not say this (field %d of Envelope) to a dispatcher",
                            (int)m->of_case);
    if (r < 0)
        cw_dp_fail(d, p, m->id, &refused);
    return 0;
}
