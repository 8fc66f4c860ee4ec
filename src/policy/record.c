/* Turns a decision into JSON, from which the command line, the log and the dashboard show it. */
#include "base/text.h"
#include "policy/policy.h"

const char *cw_bottleneck_name(enum cw_bottleneck limit)
{
    static const char *const names[] = {
        [CW_BOTTLENECK_UNKNOWN] = "unknown", [CW_BOTTLENECK_WORKERS] = "workers",
        [CW_BOTTLENECK_CLIENT] = "client",   [CW_BOTTLENECK_STORAGE] = "storage",
        [CW_BOTTLENECK_CACHE] = "cache",     [CW_BOTTLENECK_SCALING] = "scaling",
        [CW_BOTTLENECK_MAXIMUM] = "maximum",
    };
    return names[limit];
}

static const char *decision_cache_name(const struct cw_facts *facts, int cache_point)
{
    return cache_point >= 0 && cache_point < facts->n_cache_points ? facts->cache_points[cache_point].name
                                                                   : NULL;
}

static json_t *decision_cache_json(const struct cw_facts *facts, int cache_point)
{
    const char *name = decision_cache_name(facts, cache_point);
    return name ? json_string(name) : json_null();
}

static int decision_workers_before(const struct cw_facts *facts, int pool)
{
    return facts->pools[pool].running + facts->pools[pool].starting;
}

static void decision_add_place(struct cw_text *t, const char *name)
{
    cw_text_add(t, "%s%s", name ? "after " : "nowhere", name ? name : "");
}

/* Returns the decision in words, for example "4 workers, 1 before; cached after decode". New reference; NULL:
 * out of memory. */
static json_t *decision_what(const struct cw_decision *d, const struct cw_facts *facts)
{
    struct cw_text t = {0};
    int n = 0, before = 0;
    for (int i = 0; i < facts->n_pools; i++) {
        n += d->workers[i];
        before += decision_workers_before(facts, i);
    }
    if (!facts->fixed)
        cw_text_add(&t, "%d worker%s", n, n == 1 ? "" : "s");
    if (!facts->fixed && n == before)
        cw_text_add(&t, ", as before");
    else if (!facts->fixed && before > 0)
        cw_text_add(&t, ", %d before", before);
    if (facts->n_cache_points > 0 || facts->fixed) {
        cw_text_add(&t, facts->fixed ? "cached " : "; cached ");
        decision_add_place(&t, decision_cache_name(facts, d->cache_point));
    }
    if (facts->n_cache_points > 0 && d->cache_point != facts->cache_point) {
        cw_text_add(&t, ", ");
        decision_add_place(&t, decision_cache_name(facts, facts->cache_point));
        cw_text_add(&t, " before");
    }
    json_t *what = t.failed ? NULL : json_string(t.data);
    cw_text_deinit(&t);
    return what;
}

/* Workers by pool. */
static json_t *decision_pools(const struct cw_facts *facts, const int *workers)
{
    json_t *pools = json_object();
    for (int i = 0; i < facts->n_pools; i++)
        json_object_set_new(pools, facts->pools[i].name, json_integer(workers[i]));
    return pools;
}

static json_t *decision_alternative(const struct cw_facts *facts, const struct cw_alternative *a)
{
    json_t *o = json_pack("{s:i, s:o, s:f, s:f, s:f, s:f, s:f}", "workers", a->workers, "cache",
                          decision_cache_json(facts, a->cache_point), "batch_s", a->batch_s, "time_s",
                          a->time_s, "cost", a->cost, "held_s", a->held_s, "held_cost", a->held_cost);
    if (facts->n_pools > 1)
        json_object_set_new(o, "pools", decision_pools(facts, a->pools));
    return o;
}

json_t *cw_decision_json(const struct cw_decision *d, const struct cw_facts *facts)
{
    char why[sizeof(d->why)];
    json_t *alternatives = json_array();
    cw_text_show(why, sizeof(why), d->why); /* it contains names of pools, which may be cut */
    int before[CW_POLICY_POOLS] = {0};
    for (int i = 0; i < d->n_alternatives; i++)
        json_array_append_new(alternatives, decision_alternative(facts, &d->alternatives[i]));
    for (int i = 0; i < facts->n_pools; i++)
        before[i] = decision_workers_before(facts, i);
    const struct cw_seen *s = &d->seen;
    return json_pack(
        "{s:o, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:o, s:f, s:s}, s:o, s:{s:o, s:o}, s:{s:o, s:o}, "
        "s:s}",
        "what", decision_what(d, facts), "seen", "step_s", s->step_s, "wait_s", s->wait_s, "interval_s",
        s->interval_s, "compute_s", s->compute_s, "busy", s->busy, "error", s->error, "doubt", s->doubt,
        "workers", s->workers, "cache", decision_cache_json(facts, s->cache_point), "cached", s->cached,
        "limit", cw_bottleneck_name(s->limit), "alternatives", alternatives, "before", "workers",
        decision_pools(facts, before), "cache", decision_cache_json(facts, facts->cache_point), "chosen",
        "workers", decision_pools(facts, d->workers), "cache", decision_cache_json(facts, d->cache_point),
        "why", why);
}
