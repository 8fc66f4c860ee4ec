/* Chooses where a pipeline is cut, when its job is opened: at the place that the job has already, or where
 * the fewest bytes cross the network. */
#include "remote/auto_cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/conn.h"
#include "remote/admin_client.h"

#define QUERY_NS UINT64_C(5000000000) /* longest wait for an answer of the dispatcher */
/* Operators run in the client only if at most this part of the bytes crosses then: they take the training
 * host's CPU time. */
#define WORTH(bytes) ((bytes) / 4 * 3)

/* Returns the dispatcher's answer, new; NULL: there is none. */
static json_t *autocut_query(const struct cw_remote_options *o, const char *what)
{
    const struct cw_admin_client_options options = {
        .service = o->service,
        .token = o->token,
        .tls = o->tls,
        .timeout_ns = o->timeout_ns ? CW_MIN(o->timeout_ns, QUERY_NS) : QUERY_NS};
    struct cw_error err = {0};
    _cleanup_free_ char *text = NULL;
    return cw_observe(&options, what, &text, &err) < 0 ? NULL : json_loads(text, 0, NULL);
}

/* Sets *ret to the fingerprint of the pipeline that the workers of the job run. False: it does not run. */
static bool autocut_of_job(const struct cw_remote_options *o, char ret[33])
{
    json_auto_t *jobs = autocut_query(o, "jobs");
    const json_t *job;
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        const char *name = json_string_value(json_object_get(job, "name")),
                   *state = json_string_value(json_object_get(job, "state")),
                   *pipeline = json_string_value(json_object_get(job, "pipeline")),
                   *ended[] = {"done", "failed", "cancelled"};
        bool over = !state;
        for (size_t k = 0; k < CW_COUNT_OF(ended) && state; k++)
            over |= strcmp(state, ended[k]) == 0;
        if (!name || strcmp(name, o->job) != 0 || over || !pipeline)
            continue;
        snprintf(ret, 33, "%s", pipeline);
        return true;
    }
    return false;
}

/* Whether all batches come through memory that workers share with this process. */
static bool autocut_all_here(const struct cw_remote_options *o)
{
    char host[80];
    json_auto_t *workers = autocut_query(o, "workers");
    const json_t *worker;
    size_t i, n = 0, here = 0;
    cw_host_identity(host);
    json_array_foreach(workers, i, worker)
    {
        const char *of = json_string_value(json_object_get(worker, "host")),
                   *state = json_string_value(json_object_get(worker, "state"));
        bool ready = state && strcmp(state, "ready") == 0;
        n += ready;
        here += ready && of && strcmp(of, host) == 0;
    }
    return n > 0 && here == n && o->transport != CW_TRANSPORT_TCP;
}

/* Whether a component whose size varies crosses wherever the pipeline is cut: it is one of the last ones. */
static bool autocut_crosses_anyway(const struct cw_compiled *c, const struct cw_cut_input *in,
                                   const char *name)
{
    unsigned n;
    const struct cw_component *last = cw_delivered(c, &n);
    bool delivered = false, same = false;
    for (unsigned k = 0; k < n; k++)
        delivered |= strcmp(last[k].name, name) == 0;
    for (unsigned k = 0; k < c->programs[0].n_outputs; k++)
        same |= in && c->programs[0].outputs[k].value == in->value;
    return delivered && same;
}

/* Sets *ret to the bytes of an element that cross at a cut point (NULL: workers run all operators), without
 * components that cross anyway and whose size varies. False: not known. */
static bool autocut_bytes(const struct cw_compiled *c, const struct cw_cut_point *p, uint64_t *ret)
{
    unsigned n;
    const struct cw_component *sent = cw_delivered(p ? p->workers : c, &n);
    *ret = 0;
    for (unsigned k = 0; k < n; k++)
        if (cw_type_fixed(&sent[k].type))
            *ret += cw_type_bytes(&sent[k].type);
        else if (p && !autocut_crosses_anyway(c, p->inputs ? &p->inputs[k] : NULL, sent[k].name))
            return false;
    return true;
}

static bool autocut_is(const struct cw_pipeline *p, const char *fingerprint)
{
    const uint8_t *bytes = (const uint8_t *)&p->fingerprint;
    char hex[33];
    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return strcmp(hex, fingerprint) == 0;
}

int cw_auto_cut(const struct cw_compiled *c, const json_t *root, const struct cw_remote_options *o,
                struct cw_cut_point **ret, struct cw_error *err)
{
    struct cw_cut_point *p = NULL, *best = NULL;
    char job[33];
    bool joins = autocut_of_job(o, job), found = false;
    uint64_t bytes = 0, most = 0; /* most bytes at a place that is chosen; 0: none is */
    int r = 0;
    *ret = NULL;
    if (joins && autocut_is(c->pipeline, job))
        return 0;
    if (!autocut_all_here(o) && autocut_bytes(c, NULL, &bytes))
        most = WORTH(bytes);
    for (unsigned at = cw_cut_point_first(c); !found; at++) {
        if ((r = cw_cut_point_new(c, root, at, &p, err)) < 0 || !p)
            break;
        at = p->at; /* it is the same cut point up to there */
        found = joins && autocut_is(p->workers->pipeline, job);
        if (found || (most > 0 && autocut_bytes(c, p, &bytes) && bytes <= most)) {
            cw_cut_point_free(best);
            best = CW_STEAL(p);
            most = bytes;
        }
        cw_cut_point_free(p);
    }
    *ret = r < 0 ? cw_cut_point_free(best) : best;
    return r;
}
