/* A decision as JSON: what the command line, the log and the dashboard show. */
#include "policy/policy.h"

const char *cw_bottleneck_name(enum cw_bottleneck limit)
{
    static const char *const names[] = {
        [CW_BOTTLENECK_UNKNOWN] = "unknown", [CW_BOTTLENECK_WORKERS] = "workers", [CW_BOTTLENECK_CLIENT] = "client",   [CW_BOTTLENECK_STORAGE] = "storage",
        [CW_BOTTLENECK_CACHE] = "cache",     [CW_BOTTLENECK_SCALING] = "scaling", [CW_BOTTLENECK_MAXIMUM] = "maximum",
    };
    return names[limit];
}

static json_t *marker_json(const struct cw_facts *facts, int marker) { return marker >= 0 && marker < facts->n_markers ? json_string(facts->markers[marker].name) : json_null(); }

json_t *cw_decision_json(const struct cw_decision *d, const struct cw_facts *facts)
{
    json_t *alternatives = json_array(), *workers = json_object();
    for (int i = 0; i < d->n_alternatives; i++) {
        const struct cw_alternative *a = &d->alternatives[i];
        json_array_append_new(alternatives, json_pack("{s:i, s:o, s:f, s:f, s:f}", "workers", a->workers, "cache", marker_json(facts, a->marker), "batch_s", a->batch_s,
                                                      "time_s", a->time_s, "cost", a->cost));
    }
    for (int i = 0; i < facts->n_pools; i++)
        json_object_set_new(workers, facts->pools[i].name, json_integer(d->workers[i]));
    const struct cw_seen *s = &d->seen;
    return json_pack("{s:{s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:o, s:f, s:s}, s:o, s:{s:o, s:o}, s:s}", "seen", "step_s", s->step_s, "wait_s", s->wait_s, "interval_s",
                     s->interval_s, "compute_s", s->compute_s, "busy", s->busy, "error", s->error, "workers", s->workers, "cache", marker_json(facts, s->marker), "cached",
                     s->cached, "limit", cw_bottleneck_name(s->limit), "alternatives", alternatives, "chosen", "workers", workers, "cache",
                     marker_json(facts, d->marker), "why", d->why);
}
