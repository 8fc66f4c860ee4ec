/* The scaling state of a job: defaults, journal, decisions. */
#include "service/dispatcher/job_scaling.h"

#include <stdlib.h>
#include <string.h>

#include "service/dispatcher/json_list.h"
#include "service/dispatcher/state.h"

void cw_dp_scaling_due(struct cw_dispatcher *d)
{
    d->scaler.worker_sets_due = d->scaler.enabled;
}

bool cw_dp_scaling_active(const struct job *j)
{
    return !cw_dp_job_over(j) && !j->paused && j->stream && j->stream->state == STREAM_ACTIVE;
}

enum cw_objective cw_dp_scaling_objective(const struct cw_dispatcher *d, const struct job *j)
{
    return j->scaling.objective ? (enum cw_objective)(j->scaling.objective - 1) : d->scaler.objective;
}

double cw_dp_scaling_client_price(const struct cw_dispatcher *d, const struct job *j)
{
    return j->scaling.client_price_per_h > 0 ? j->scaling.client_price_per_h : d->scaler.client_price_per_h;
}

void cw_dp_scaling_begin(struct cw_dispatcher *d, struct job *j)
{
    struct scaling *x = &j->scaling;
    x->claim.want = CW_MAX(x->claim.want, 1);
    x->claim.weight = x->claim.weight > 0 ? x->claim.weight : 1;
    x->began_ns = x->next_ns = x->phase_ns = d->now_ns;
    x->phase = SCALING_STARTS;
    cw_dp_scaling_due(d);
}

json_t *cw_dp_scaling_decisions(const struct cw_dispatcher *d, const struct job *j)
{
    const struct scaling *x = &j->scaling;
    json_t *list = json_array();
    for (size_t i = x->n_decisions - CW_MIN(x->n_decisions, (size_t)DP_DECISIONS); i < x->n_decisions; i++) {
        const struct decision *at = &x->decisions[i % DP_DECISIONS];
        cw_dp_json_append(&list, json_pack("{s:f, s:f, s:O}", "t", at->t, "ago_s",
                                           (double)(d->now_ns - at->at_ns) / 1e9, "record", at->record));
    }
    return list;
}

/* ---- the journal ---- */

char *cw_dp_scaling_memory(const struct cw_dispatcher *d, const struct job *j)
{
    json_auto_t *saved = d->scaler.enabled ? cw_policy_save(&d->scaler.policy, &j->scaling.memory) : NULL;
    _cleanup_free_ char *text = saved ? json_dumps(saved, JSON_COMPACT) : NULL;
    return text && strlen(text) <= DP_POLICY_BYTES ? CW_STEAL(text) : NULL;
}

/* If the entry was written with another policy, the policy's memory is ignored, and only the number of
 * workers is used. */
void cw_dp_scaling_restore(struct cw_dispatcher *d, struct job *j, const Cachew__Journal__Job *row)
{
    struct cw_claim *claim = &j->scaling.claim;
    claim->weight = row->weight >= CW_WEIGHT_LEAST && row->weight <= CW_WEIGHT_MOST ? row->weight : 1;
    claim->priority = row->priority;
    claim->quota = (int)CW_MIN(row->quota, (uint32_t)DP_WORKERS);
    /* the policy decides again on pools; until then workers of any pool count */
    claim->want = claim->share = (int)CW_MIN(row->workers, (uint32_t)DP_WORKERS);
    j->scaling.objective = row->objective <= 1 + CW_OBJECTIVE_COST ? (int)row->objective : 0;
    j->scaling.client_price_per_h = row->client_price_per_h >= CW_CLIENT_PRICE_LEAST &&
                                            row->client_price_per_h <= CW_CLIENT_PRICE_MOST
                                        ? row->client_price_per_h
                                        : 0;
    if (d->scaler.enabled && strcmp(row->policy, d->scaler.policy.name) == 0) {
        json_t *saved = json_loads(row->memory, 0, NULL);
        if (saved)
            cw_policy_load(&d->scaler.policy, saved, &j->scaling.memory);
        json_decref(saved);
    }
    cw_dp_scaling_begin(d, j);
}
