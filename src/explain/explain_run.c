/* Runs a pipeline for some seconds, and adds to the facts where its time goes, what limits its rate, and what
 * would raise it. */
#include "explain/explain.h"

#include <math.h>
#include <string.h>

#include "base/machine.h"
#include "base/text.h"
#include "explain/remedies.h"
#include "session/report.h"
#include "session/tuning.h"

/* ---- the bottleneck ---- */

static json_t *bottleneck_text(const struct cw_bottleneck *b, const struct cw_costs *c)
{
    if (strcmp(b->kind, "calls") == 0)
        return json_sprintf("%s (operator %u): the thread that takes the batches makes its calls itself, one "
                            "after the other, and waits for them %.0f %% of the time",
                            b->op->op, b->op->position, b->share * 100);
    if (b->op)
        return json_sprintf("%s (operator %u): %s for %.0f %% of the threads' time", b->op->op,
                            b->op->position, b->says, b->share * 100);
    if (b->says)
        return json_sprintf("%s: %.0f %% of the threads' time", b->says, b->share * 100);
    char speed[32];
    if (strcmp(b->kind, "storage") == 0)
        return json_sprintf(
            "storage: files that are not in memory are read at %s/s, of which the run uses %.0f %%",
            cw_text_bytes(c->storage_bytes_per_s, speed), b->share * 100);
    if (strcmp(b->kind, "planning") == 0)
        return json_sprintf("planning (choosing the records to read), which only one thread can do at a "
                            "time: it takes %.0f %% of the time",
                            b->share * 100);
    return json_string(
        "the consumer (the program that takes the batches): batches are ready before it takes them");
}

static json_t *bottleneck_json(const struct cw_costs *c)
{
    struct cw_bottleneck b = cw_costs_bottleneck(c);
    json_t *o = json_pack("{s:s, s:f, s:o}", "kind", b.kind, "share", b.share, "says",
                          bottleneck_text(&b, c));
    if (o && b.op) {
        json_object_set_new(o, "op", json_string(b.op->op));
        json_object_set_new(o, "position", json_integer(b.op->position));
    }
    return o;
}

/* ---- advice without numbers ---- */

/* Whether an operator was fused with another one. */
static bool facts_in_fused(const json_t *facts, json_int_t position)
{
    size_t i, k;
    json_t *group, *member;
    json_array_foreach(json_object_get(facts, "fused"), i, group)
        json_array_foreach(group, k, member) if (json_integer_value(member) == position) return true;
    return false;
}

/* Returns sentences for users about changes whose gain can't be predicted, and about limits that no change of
 * options lifts. */
static json_t *advice_json(const struct cw_local *l, const struct cw_measurement *m, const struct cw_costs *c,
                           const json_t *facts)
{
    json_t *list = json_array();
    double occupied = cw_costs_occupied(c);
    if (cw_costs_wants_larger_batches(c))
        json_array_append_new(list, json_sprintf("the operators take little time, so batches of %.0f "
                                                 "elements are small: larger batches would raise the rate",
                                                 (double)m->elements / (double)CW_MAX(m->batches, 1)));
    if (c->emit_s > 0.2 * occupied &&
        json_array_size(json_object_get(json_object_get(facts, "batch"), "varying")))
        json_array_append_new(list,
                              json_string("components whose size varies are copied into batches; components "
                                          "of fixed size (crop or resize images before batch) are computed "
                                          "directly in the batch"));
    for (unsigned i = 0; i < c->n_ops; i++)
        if (strcmp(c->ops[i].op, "decode_image") == 0 && c->ops[i].busy_s > 0.3 * occupied &&
            !facts_in_fused(facts, i))
            json_array_append_new(
                list, json_string("decode_image is not fused with a crop: if a crop of the same component "
                                  "came directly after it, only the pixels that the crop needs would be "
                                  "decoded"));
    if (c->delay_s > 0.2 * c->cpu_s)
        json_array_append_new(list,
                              json_sprintf("threads waited for a CPU %.2g times as long as they computed: "
                                           "other processes use the CPUs, or there are more threads than "
                                           "CPUs",
                                           c->delay_s / c->cpu_s));
    if (l->compiled->sequential)
        json_array_append_new(list, json_string("with this pipeline, a service runs each epoch on one "
                                                "worker, so an epoch can use the CPUs of only one machine"));
    return list;
}

/* ---- all of it ---- */

/* Returns the number of records for which a cache would have entries: repeated records share one entry. */
static double sequence_records(const struct cw_local *l)
{
    double n = 0;
    for (unsigned i = 0; i < l->compiled->n_programs; i++)
        n += l->sequence->sources[i]->n_records >= CW_ENDLESS ? INFINITY
                                                              : (double)l->sequence->sources[i]->n_records;
    return l->sequence->n_positions >= CW_ENDLESS ? n : fmin(n, (double)l->sequence->n_positions);
}

/* Whether each epoch has a different order. A cache is then read in scattered order, since its entries lie in
 * the order of the epoch that wrote them. */
static bool chain_shuffles(const struct cw_chain *chain)
{
    bool any = false;
    for (size_t i = 0; i < chain->n && !any; i++) {
        any = chain->nodes[i].desc->index && chain->nodes[i].desc->index->permutes;
        for (size_t k = 0; k < chain->nodes[i].n_inputs; k++)
            any |= chain_shuffles(&chain->nodes[i].inputs[k]);
    }
    return any;
}

static int facts_add_remedies(const struct cw_local *l, const struct cw_explain_options *o,
                              const struct cw_measurement *m, const struct cw_costs *c, json_t *facts,
                              struct cw_error *err)
{
    struct cw_cache_speed speed;
    struct cw_error unfit = {0};
    _cleanup_free_ struct cw_place *places = NULL;
    _cleanup_free_ struct cw_move *moves = NULL;
    struct cw_remedy *list = NULL;
    size_t n_places = 0, n_moves = 0, n = 0, total = cw_memory_total();
    bool probed = false;
    int r = cw_places_find(l, &m->profile, &places, &n_places, err);
    if (r >= 0)
        r = cw_moves_find(l, c, &m->profile, &moves, &n_moves, err);
    if (r >= 0 && n_places) {
        int fit = cw_probe_cache(o->cache_dir, chain_shuffles(&l->pipeline->chain), o->run.interrupt, &speed,
                                 &unfit);
        if (fit == CW_E_INTERRUPTED)
            return cw_error_set(err, fit, "%s", unfit.message);
        probed = fit >= 0;
        json_object_set_new(facts, "cache_speed",
                            probed ? json_pack("{s:f, s:f, s:f, s:f}", "entry_s", speed.entry_s, "byte_s",
                                               speed.byte_s, "cold_entry_s", speed.cold_entry_s,
                                               "cold_byte_s", speed.cold_byte_s)
                                   : json_pack("{s:o}", "unknown", cw_report_text(unfit.message)));
    }
    const struct cw_remedy_options options = {.speed = probed ? &speed : NULL,
                                              .elements = sequence_records(l),
                                              .page_cache = (double)(total - CW_MIN(total, o->run.memory)),
                                              .memory_total = total};
    if (r >= 0)
        r = cw_remedies_find(c, places, n_places, moves, n_moves, &options, &list, &n, err);
    if (r >= 0)
        json_object_set_new(facts, "remedies", cw_remedies_json(c, list, n));
    cw_remedies_free(list, n);
    return r;
}

static int facts_add_run(const struct cw_local *l, const struct cw_explain_options *o,
                         const struct cw_measurement *m, json_t *facts, struct cw_error *err)
{
    struct cw_costs c;
    json_t *run = cw_measurement_json(m), *profile = cw_report_profile_of(l, &m->profile);
    json_object_set(run, "bottleneck", json_object_get(profile, "bottleneck"));
    json_object_set(run, "operators", json_object_get(profile, "operators"));
    json_object_set_new(facts, "run", run);
    json_object_set_new(facts, "tuning", cw_tuning_json(l));
    json_decref(profile);
    int r = cw_costs_init(&c, l, m, err);
    if (r == 0) {
        json_object_set_new(run, "advice", advice_json(l, m, &c, facts));
        json_object_set_new(facts, "costs", cw_costs_json(&c));
        json_object_set_new(facts, "bottleneck", bottleneck_json(&c));
        r = facts_add_remedies(l, o, m, &c, facts, err);
    }
    cw_costs_deinit(&c);
    return r < 0 ? r : 0;
}

int cw_explain_run(struct cw_local *l, const struct cw_explain_options *o, json_t *facts,
                   struct cw_error *err)
{
    struct cw_measurement m;
    struct cw_measure_options mo = o->run;
    mo.detail = true;
    mo.settle = mo.seconds * CW_MEASURE_SETTLE;
    mo.seconds -= mo.settle;
    int r = cw_measure(l, &mo, &m, err); /* leaves its iterator in l, to be queried */
    if (r >= 0)
        r = facts_add_run(l, o, &m, facts, err);
    cw_measurement_deinit(&m);
    return r;
}
