/* Handles messages of admin clients. */
#include "service/dispatcher/admin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "service/dispatcher/held.h"
#include "service/dispatcher/job_life.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/worker_life.h"

static int admin_query(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const char *what,
                       struct cw_error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = cw_dispatcher_query(d, what, d->now_ns, &text, err);
    if (r < 0)
        return r;
    Cachew__Answer a = {CW_MESSAGE(answer), .json = text};
    cw_dp_peer_send(d, p,
                    &(Cachew__Envelope){CW_MESSAGE(envelope), .re = id,
                                        .of_case = CACHEW__ENVELOPE__OF_ANSWER, .answer = &a});
    return 0;
}

static int admin_drain_worker(struct cw_dispatcher *d, const char *name, struct cw_error *err)
{
    char *end;
    uint64_t id = strtoull(name, &end, 10);
    struct worker *w = *name && !*end ? cw_dp_worker_find(d, id) : NULL;
    if (!w || !w->peer)
        return cw_error_set(err, CW_E_OPTION,
                            "there is no connected worker \"%.64s\": expected the id of a worker, as `cachew "
                            "workers` shows it",
                            name);
    cw_dp_worker_drain(d, w, WORKER_RELEASED);
    return 0;
}

/* Updates the job's journal entry, if it has one. */
static int admin_journal_job(struct cw_dispatcher *d, const struct job *j, struct cw_error *err)
{
    return cw_dp_job_journalled(j) ? cw_dp_journal_job(d, j, NULL, err) : 0;
}

/* Cancels, pauses or resumes the job. */
static int admin_steer_job(struct cw_dispatcher *d, struct job *j, const char *verb, struct cw_error *err)
{
    struct cw_error why = {0};
    if (strcmp(verb, "cancel-job") == 0) {
        cw_error_set(&why, CW_E_SERVICE, "job \"%s\" was cancelled", j->name);
        cw_dp_job_end(d, j, JOB_CANCELLED, &why);
        return 0;
    }
    bool before = j->paused;
    j->paused = strcmp(verb, "pause-job") == 0;
    int r = admin_journal_job(d, j, err);
    if (r < 0)
        j->paused = before;
    cw_dp_held_notify(d, j);
    cw_dp_stream_dirty(d, j->stream);
    cw_dp_scaling_due(d);
    return r;
}

/* Sets weight, priority and quota, each if the message contains it. */
static int admin_share_job(struct cw_dispatcher *d, struct job *j, const Cachew__Steer *m,
                           struct cw_error *err)
{
    struct cw_claim *claim = &j->scaling.claim, before = *claim;
    bool weight = m->has_weight_case != CACHEW__STEER__HAS_WEIGHT__NOT_SET,
         quota = m->has_quota_case != CACHEW__STEER__HAS_QUOTA__NOT_SET;
    if (weight && !(m->weight >= CW_WEIGHT_LEAST && m->weight <= CW_WEIGHT_MOST))
        return cw_error_set(err, CW_E_OPTION, "job \"%s\": weight %g: expected %g to %g", j->name, m->weight,
                            CW_WEIGHT_LEAST, CW_WEIGHT_MOST);
    if (quota && m->quota > DP_WORKERS)
        return cw_error_set(err, CW_E_OPTION,
                            "job \"%s\": quota %u: expected 1 to %d workers, or 0 for no limit", j->name,
                            m->quota, DP_WORKERS);
    if (weight)
        claim->weight = m->weight;
    if (m->has_priority_case != CACHEW__STEER__HAS_PRIORITY__NOT_SET)
        claim->priority = m->priority;
    if (quota)
        claim->quota = (int)m->quota;
    int r = admin_journal_job(d, j, err);
    if (r < 0)
        *claim = before;
    cw_dp_scaling_due(d);
    return r;
}

/* Sets objective and price, each if the message contains it. */
static int admin_aim_job(struct cw_dispatcher *d, struct job *j, const Cachew__Steer *m, struct cw_error *err)
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
    int r = admin_journal_job(d, j, err);
    if (r < 0) {
        x->objective = objective;
        x->client_price_per_h = price;
    }
    return r;
}

static int admin_steer(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Steer *m,
                       struct cw_error *err)
{
    bool shares = strcmp(m->verb, "share-job") == 0, aims = strcmp(m->verb, "aim-job") == 0;
    bool job = shares || aims || strcmp(m->verb, "cancel-job") == 0 || strcmp(m->verb, "pause-job") == 0 ||
               strcmp(m->verb, "resume-job") == 0;
    struct job *j = job ? cw_dp_job_find(d, m->name) : NULL;
    int r;
    if (strcmp(m->verb, "drain-worker") == 0)
        r = admin_drain_worker(d, m->name, err);
    else if (!job)
        r = cw_error_set(err, CW_E_OPTION,
                         "there is no verb \"%.64s\": expected drain-worker, cancel-job, pause-job, "
                         "resume-job, share-job or aim-job",
                         m->verb);
    else if (!j || cw_dp_job_over(j))
        r = cw_error_set(err, CW_E_OPTION, "there is no running job \"%.255s\"", m->name);
    else
        r = shares ? admin_share_job(d, j, m, err)
            : aims ? admin_aim_job(d, j, m, err)
                   : admin_steer_job(d, j, m->verb, err);
    return r < 0 ? r : cw_dp_journal_then(d, &(struct action){.kind = ACTION_DONE, .peer = p, .re = id}, err);
}

int cw_dp_admin_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                        struct cw_error *err CW_UNUSED)
{
    struct cw_error refused = {0};
    int r;
    if (m->of_case == CACHEW__ENVELOPE__OF_QUERY)
        r = admin_query(d, p, m->id, m->query->what, &refused);
    else if (m->of_case == CACHEW__ENVELOPE__OF_STEER)
        r = admin_steer(d, p, m->id, m->steer, &refused);
    else
        return 1;
    if (r < 0)
        cw_dp_peer_fail(d, p, m->id, &refused);
    return 0;
}
