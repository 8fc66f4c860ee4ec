/* Facts about a pipeline whose sources are open: the numbers of batches and elements, and the report of
 * `explain`. */
#include "api/cachew_impl.h"

#include "base/machine.h"
#include "explain/explain.h"

/* Sets *ret to the number of batches of an epoch, over all ranks. Returns 1 if it is not known before the
 * run. */
static int pipeline_count_batches(const struct cw_local *l, uint64_t *ret)
{
    const struct cw_compiled *c = l->compiled;
    uint64_t n = l->sequence->n_positions;
    if (!c->counted)
        return 1;
    *ret = n >= CW_ENDLESS ? UINT64_MAX : n / c->batch_size + (!c->grouping.full_only && n % c->batch_size);
    return 0;
}

/* Sets *ret to the number of elements of an epoch's batches, over all ranks. Returns 1 if it is not known
 * before the run. */
static int pipeline_count_elements(const struct cw_local *l, uint64_t *ret)
{
    const struct cw_compiled *c = l->compiled;
    uint64_t n = l->sequence->n_positions;
    if (!c->elements_known)
        return 1;
    *ret = n >= CW_ENDLESS ? UINT64_MAX : n - (c->grouping.full_only ? n % c->batch_size : 0);
    return 0;
}

/* Opens the sources and calls `count`. Returns what it returns. */
static int pipeline_count(const struct cachew_pipeline *p, const struct cachew_options *o,
                          int (*count)(const struct cw_local *l, uint64_t *ret), uint64_t *ret,
                          struct cw_error *err)
{
    struct cw_local l = {0};
    unsigned threads;
    int r = cw_api_open(p, o, &l, &threads, err);
    if (r >= 0)
        r = count(&l, ret);
    cw_local_deinit(&l);
    return r;
}

int cachew_pipeline_elements(const struct cachew_pipeline *p, const struct cachew_options *options,
                             uint64_t *ret, struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    int r = cw_api_read_options(options, &o, &e);
    if (r >= 0)
        r = pipeline_count(p, &o, pipeline_count_elements, ret, &e);
    return r < 0 ? cw_api_fail(r, &e, err) : r;
}

int cachew_pipeline_batches(const struct cachew_pipeline *p, const struct cachew_options *options,
                            uint64_t *ret, struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    uint64_t n = 0;
    int r = cw_api_read_options(options, &o, &e);
    if (r >= 0)
        r = pipeline_count(p, &o, pipeline_count_batches, &n, &e);
    if (r < 0)
        return cw_api_fail(r, &e, err);
    if (r == 0) /* padding fills up the last round, so all ranks get the same number */
        *ret = n == UINT64_MAX ? n : n / o.world_size + (n % o.world_size != 0);
    return r;
}

/* Returns the report as JSON or as text for people, new; NULL: out of memory. */
static char *explanation_text(const json_t *facts, bool json)
{
    struct cw_text t = {0};
    if (json)
        return json_dumps(facts, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    cw_explain_text(facts, &t);
    if (t.failed)
        cw_text_deinit(&t);
    return t.data;
}

int cachew_pipeline_explain(const struct cachew_pipeline *p, const struct cachew_options *options,
                            double seconds, int json, char **ret, struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_local l = {0};
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cw_explain_options x = {.name = "pipeline", .run = {.seconds = seconds}};
    json_t *facts = json_object();
    int r = facts ? cw_api_read_options(options, &o, &e) : cw_error_nomem(&e, 0, "an explanation");
    if (r >= 0)
        r = cw_api_open(p, &o, &l, &x.run.threads, &e);
    if (r >= 0) {
        x.run.seed = (uint64_t)(o.seed >= 0 ? o.seed : CW_MAX(l.pipeline->default_seed, 0));
        x.run.memory = o.memory ? o.memory : cw_rank_share().memory;
        x.run.optimize = o.optimize != 0;
        x.run.interrupt = o.interrupt;
        x.cache_dir = o.cache_dir;
        cw_local_probe_reading(&l, x.run.memory);
        r = cw_explain_pipeline(&l, &x, facts, &e);
    }
    if (r >= 0 && seconds > 0)
        r = cw_explain_run(&l, &x, facts, &e);
    if (r >= 0 && !(*ret = explanation_text(facts, json != 0)))
        r = cw_error_nomem(&e, 0, "an explanation");
    json_decref(facts);
    cw_local_deinit(&l);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}
