/* Tries remedies: runs the changed pipeline, or the pipeline with another option, for some seconds, and
 * compares the rate with the predicted one. */
#include "explain/explain.h"

#include <string.h>

#include "cache/cache.h"
#include "explain/measure.h"
#include "explain/probe.h"
#include "session/report.h"
#include "explain/rewrite.h"

#define FILL_PASSES 3   /* epochs to fill a cache: its write queue may refuse some elements in one epoch */
#define LEAST_BATCHES 8 /* least batches of a shortened epoch: with fewer, its beginning and end dominate */

struct trial { /* a changed pipeline that is run; owns all its fields */
    struct cw_local local;
    struct cw_measure_options mo;
    json_t *root;    /* the pipeline as JSON */
    bool cached;     /* the trial has a cache; only then the fields below are used */
    size_t at;       /* index of the cache point in the list of operators */
    char *dir;       /* of the cache */
    uint64_t enough; /* elements after which an endless epoch counts as cached */
    double hits;     /* part of the elements that came from the cache */
};

static double json_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* ---- what is tried ---- */

/* Returns the number of positions that are computed in `seconds` at the measured rate: whole batches, at
 * least LEAST_BATCHES. */
static uint64_t positions_within(const json_t *facts, const struct cw_local *l, double seconds)
{
    const json_t *costs = json_object_get(facts, "costs");
    double rows = 0;
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(costs, "stages"), i, o) for (unsigned k = 0;
                                                                    k < l->compiled->n_programs; k++)
        rows += (unsigned)json_number(o, "position") == l->compiled->programs[k].ops[0]->position
                    ? json_number(o, "rows")
                    : 0;
    uint64_t size = l->compiled->batch_size,
             n = (uint64_t)(json_number(costs, "elements_per_s") * rows * seconds);
    return CW_MAX(n / size, LEAST_BATCHES) * size;
}

static int trial_change_root(struct trial *t, const json_t *change, struct cw_error *err)
{
    json_t *root = change ? cw_change_apply(t->root, change) : NULL;
    if (!root)
        return cw_error_nomem(err, 0, "a pipeline");
    json_decref(t->root);
    t->root = root;
    return 0;
}

/* Limits the epoch to the elements that can be computed in the time of a measurement, since a cache is useful
 * only once it has all elements of an epoch. */
static int trial_shorten(struct trial *t, const json_t *facts, const struct cw_local *l, struct cw_error *err)
{
    uint64_t n = positions_within(facts, l, t->mo.seconds);
    /* an endless epoch: twice as many, since a shuffle may take elements from further on */
    t->enough = l->sequence->n_positions >= CW_ENDLESS ? 2 * n : UINT64_MAX;
    if (n >= l->sequence->n_positions)
        return 0;
    json_auto_t *take = json_pack("{s:{s:s, s:I}, s:i}", "insert", "op", "take", "count", (json_int_t)n, "at",
                                  1);
    int r = trial_change_root(t, take, err);
    t->at++;
    return r;
}

/* Returns the index of a cache point in the list of operators. */
static size_t pipeline_place_of(const struct cw_local *l, const struct cw_pipeline *p, int64_t number)
{
    for (size_t i = 0; i < p->chain.n; i++)
        for (unsigned k = 0; k < l->compiled->programs[0].n_cache_points; k++) {
            const struct cw_cache_point *m = &l->compiled->programs[0].cache_points[k];
            if (m->number == number && m->op->position == p->chain.nodes[i].position)
                return i;
        }
    return 0;
}

/* Sets up the pipeline and the options of a trial with a change (cw_remedy.change; NULL: none). */
static int trial_change(struct trial *t, const json_t *facts, const struct cw_local *l, const json_t *change,
                        struct cw_error *err)
{
    const char *option = json_string_value(json_object_get(change, "option"));
    json_int_t value = json_integer_value(json_object_get(change, "value"));
    if (!(t->root = cw_local_root_as_run(l)))
        return cw_error_nomem(err, 0, "a pipeline");
    if (!change)
        return 0;
    if (json_object_get(change, "insert")) {
        t->cached = true;
        t->at = (size_t)json_integer_value(json_object_get(change, "at"));
    } else if (option && strcmp(option, "cache") == 0) {
        t->cached = true;
        t->at = pipeline_place_of(l, l->pipeline, value);
    } else if (option && strcmp(option, "threads") == 0) {
        t->mo.threads = (unsigned)value;
    } else if (option && strcmp(option, "memory") == 0) {
        t->mo.memory = (size_t)value;
    } else if (option && strcmp(option, "limit-rate") == 0) {
        t->mo.rate = (double)value;
    }
    int r = option ? 0 : trial_change_root(t, change, err);
    return r >= 0 && t->cached ? trial_shorten(t, facts, l, err) : r;
}

/* ---- trying it ---- */

static int trial_open_cache(struct trial *t, const struct cw_explain_options *o, struct cw_error *err)
{
    unsigned position = t->local.pipeline->chain.nodes[t->at].position;
    int r = cw_scratch_dir(o->cache_dir, &t->dir, err);
    if (r < 0)
        return r;
    const struct cw_cache_options options = {.dir = t->dir};
    for (unsigned k = 0; k < t->local.compiled->programs[0].n_cache_points; k++)
        if (t->local.compiled->programs[0].cache_points[k].op->position == position)
            t->mo.cache_point = t->local.compiled->programs[0].cache_points[k].number;
    return cw_cache_open(&options, &t->local.cache, err);
}

/* Runs an epoch, which fills the cache. */
static int trial_pass(struct trial *t, struct cw_error *err)
{
    struct cw_local *l = &t->local;
    const struct cw_iterator_options io = {
        .seed = t->mo.seed,
        .epochs = 1,
        .world_size = 1,
        .runner = {.threads = t->mo.threads,
                   .memory = t->mo.memory,
                   .optimize = t->mo.optimize,
                   .cache = l->cache,
                   .cache_point = t->mo.cache_point},
    };
    int r = cw_iterator_new(l->sequence, &io, NULL, &l->iterator, err);
    struct cw_batch *b;
    uint64_t n = 0;
    while (r == 0 && n < t->enough && (r = cw_measure_next(l, &t->mo, &b, err)) == 0) {
        n += b->n;
        cw_iterator_release(l->iterator, b);
    }
    l->iterator = cw_iterator_free(l->iterator);
    return r < 0 ? r : cw_cache_flush(l->cache, err);
}

/* Fills the cache, and then reads it once. Written data bypass the page cache, so the first epoch that reads
 * them is slower than later ones. The trial measures the later ones. */
static int trial_fill_cache(struct trial *t, struct cw_error *err)
{
    struct cw_cache_facts before = {0}, now = {0};
    int r = 0;
    for (int i = 0; i < FILL_PASSES && r >= 0; i++) {
        before = now;
        r = trial_pass(t, err);
        cw_cache_facts(t->local.cache, &now);
        if (now.skipped == before.skipped)
            break;
    }
    return r < 0 ? r : trial_pass(t, err);
}

static int trial_run(struct trial *t, const struct cw_local *l, const struct cw_explain_options *o,
                     struct cw_measurement *m, struct cw_error *err)
{
    struct cw_cache_facts before = {0}, now = {0};
    int r = cw_local_compile(&t->local, t->root, l->pipeline->base_dir, err);
    t->local.data_roots = l->data_roots;
    t->local.n_data_roots = l->n_data_roots;
    t->local.interrupt = l->interrupt;
    if (r >= 0)
        r = cw_local_open(&t->local, o->index_dir, t->mo.threads, t->mo.memory, err);
    if (r >= 0 && t->cached)
        r = trial_open_cache(t, o, err);
    if (r >= 0 && t->cached)
        r = trial_fill_cache(t, err);
    if (r >= 0 && t->cached)
        cw_cache_facts(t->local.cache, &before);
    if (r >= 0)
        r = cw_measure(&t->local, &t->mo, m, err);
    if (r >= 0 && t->cached) {
        cw_cache_facts(t->local.cache, &now);
        double hits = (double)(now.hits - before.hits), misses = (double)(now.misses - before.misses);
        t->hits = hits > 0 ? hits / (hits + misses) : 0;
    }
    return r;
}

/* ---- as JSON ---- */

static json_t *trial_json(const json_t *facts, const json_t *remedy, double seconds)
{
    double rate = json_number(json_object_get(facts, "run"), "elements_per_s");
    if (!remedy)
        return json_pack("{s:s, s:s, s:f, s:f}", "kind", "unchanged", "what", "the unchanged pipeline",
                         "seconds", seconds, "predicted", rate);
    return json_pack("{s:O, s:O, s:f, s:f, s:f}", "kind", json_object_get(remedy, "kind"), "what",
                     json_object_get(remedy, "what"), "seconds", seconds, "predicted",
                     json_number(remedy, "elements_per_s"), "predicted_gain", json_number(remedy, "gain"));
}

/* Adds the gain of each remedy over the unchanged pipeline. That pipeline runs before and after the remedies,
 * and its mean rate is used, because the load of a shared machine changes meanwhile. */
static void trials_add_gains(json_t *list)
{
    double sum = 0, n = 0;
    size_t i;
    json_t *o;
    json_array_foreach(list, i,
                       o) if (!json_object_get(o, "predicted_gain") && json_object_get(o, "measured"))
    {
        sum += json_number(o, "measured");
        n++;
    }
    json_array_foreach(list, i, o) if (json_object_get(o, "predicted_gain") &&
                                       json_object_get(o, "measured") && sum > 0)
        json_object_set_new(o, "gain", json_real(json_number(o, "measured") * n / sum - 1));
}

/* Tries one remedy (NULL: the unchanged pipeline) and adds the result to `list`. A failure is added too, and
 * ends only this trial. Interruption and lack of memory are returned. */
static int trial_try(const struct cw_local *l, const struct cw_explain_options *o, const json_t *facts,
                     const json_t *remedy, json_t *list, struct cw_error *err)
{
    struct trial t = {.mo = o->run};
    struct cw_measurement m = {0};
    struct cw_error own = {0};
    json_t *trial = trial_json(facts, remedy, o->run.seconds);
    t.mo.settle = t.mo.seconds * CW_MEASURE_SETTLE;
    t.mo.seconds -= t.mo.settle;
    double predicted = json_number(trial, "predicted");
    int r = trial_change(&t, facts, l, json_object_get(remedy, "change"), &own);
    if (r >= 0)
        r = trial_run(&t, l, o, &m, &own);
    if (r >= 0) {
        double measured = cw_measurement_rate(&m);
        json_object_update_new(trial, json_pack("{s:f, s:f}", "measured", measured, "error",
                                                predicted > 0 ? measured / predicted - 1 : 0.0));
        if (t.cached)
            json_object_set_new(trial, "hits", json_real(t.hits));
    } else {
        json_object_set_new(trial, "failed", cw_report_text(own.message));
    }
    json_array_append_new(list, trial);
    cw_measurement_deinit(&m);
    cw_local_deinit(&t.local);
    json_decref(t.root);
    if (t.dir)
        cw_scratch_remove(t.dir);
    free(t.dir);
    return r == CW_E_INTERRUPTED || r == CW_E_MEMORY ? cw_error_copy(err, &own) : 0;
}

int cw_explain_check(const struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                     struct cw_error *err)
{
    json_t *list = json_array(), *remedy;
    size_t i;
    int r = trial_try(l, o, facts, NULL, list, err);
    json_array_foreach(json_object_get(facts, "remedies"), i, remedy)
    {
        if (r >= 0 && json_is_true(json_object_get(remedy, "here")))
            r = trial_try(l, o, facts, remedy, list, err);
    }
    if (r >= 0 && json_array_size(list) > 1)
        r = trial_try(l, o, facts, NULL, list, err);
    trials_add_gains(list);
    json_object_set_new(facts, "checks", list);
    return r;
}
