/* Writes the text for users from the JSON object that explain.c, explain_run.c and explain_check.c fill, so
 * that text and JSON agree. */
#include "explain/explain.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "session/tuning.h"

static const char *json_get_text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static double json_get_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void text_add_components(struct cw_text *t, const json_t *components)
{
    const char *name, *comma = "";
    json_t *type;
    json_object_foreach((json_t *)components, name, type)
    {
        cw_text_add(t, "%s%s: %s", comma, name, json_string_value(type));
        comma = ", ";
    }
}

static void text_add_operators(struct cw_text *t, const json_t *operators, int depth)
{
    size_t i, k;
    json_t *o, *in, *name;
    json_array_foreach((json_t *)operators, i, o)
    {
        json_array_foreach(json_object_get(o, "inputs"), k, in)
        {
            cw_text_add(t, "  %*sinput %zu:\n", depth * 2, "", k);
            text_add_operators(t, in, depth + 1);
        }
        cw_text_add(t, "  %*s%3d %-20s", depth * 2, "", (int)json_get_number(o, "position"),
                    json_get_text(o, "op"));
        const char *kind = json_get_text(o, "kind");
        const json_t *number = json_object_get(json_object_get(o, "attributes"),
                                               strcmp(kind, "index") == 0     ? "count"
                                               : strcmp(kind, "batcher") == 0 ? "size"
                                                                              : "");
        if (number)
            cw_text_add(t, " %" JSON_INTEGER_FORMAT, json_integer_value(number));
        if (json_object_size(json_object_get(o, "outputs"))) {
            cw_text_add(t, " -> ");
            text_add_components(t, json_object_get(o, "outputs"));
        }
        json_array_foreach(json_object_get(o, "removes"), k, name)
            cw_text_add(t, "%s%s", k ? ", " : " without ", json_string_value(name));
        if (json_object_get(o, "fused_into"))
            cw_text_add(t, "  (fused into %d)", (int)json_get_number(o, "fused_into"));
        if (json_object_get(o, "written"))
            cw_text_add(t, "  (operator %d as written)", (int)json_get_number(o, "written"));
        cw_text_add(t, "\n");
    }
}

static const char *json_count_text(const json_t *o, const char *key, char buf[32])
{
    if (json_is_null(json_object_get(o, key)))
        return "endlessly many";
    snprintf(buf, 32, "%.0f", json_get_number(o, key));
    return buf;
}

static const char *json_bytes_text(const json_t *o, const char *key, char buf[32])
{
    return cw_text_bytes(json_get_number(o, key), buf);
}

static void text_add_pipeline(const json_t *f, struct cw_text *t)
{
    char a[32], b[32], c[32];
    size_t i;
    json_t *source, *name, *cache_point, *shuffle;
    cw_text_add(t, "%s, fingerprint %s\n\noperators (what each writes, per element):\n",
                json_get_text(f, "pipeline"), json_get_text(f, "fingerprint"));
    text_add_operators(t, json_object_get(f, "operators"), 0);
    json_array_foreach(json_object_get(f, "cache_points"), i,
                       cache_point) if (json_object_get(cache_point, "inert"))
        cw_text_add(t, "%s (operator %d) can't cache anything: %s\n", json_get_text(cache_point, "op"),
                    (int)json_get_number(cache_point, "position"), json_get_text(cache_point, "inert"));
    cw_text_add(t, "batches hold: ");
    text_add_components(t, json_object_get(f, "outputs"));
    cw_text_add(t, "\n\nsequence:\n");
    json_array_foreach(json_object_get(f, "sources"), i, source) cw_text_add(
        t, "  source %zu: %s, %s records, %s in %.0f %s%s\n", i, json_get_text(source, "op"),
        json_count_text(source, "records", a), json_bytes_text(source, "bytes", b),
        json_get_number(source, "chunks"), json_get_number(source, "chunks") == 1 ? "chunk" : "chunks",
        json_is_true(json_object_get(source, "random_access")) ? "" : ", read chunk by chunk");
    json_array_foreach(json_object_get(f, "sources"), i, source) if (json_get_text(source, "says"))
        cw_text_add(t, "  source %zu: %s\n", i, json_get_text(source, "says"));
    cw_text_add(t, "  %s elements per epoch, counted before filters (positions)\n",
                json_count_text(f, "elements", a));
    cw_text_add(
        t, "  %s\n",
        json_is_true(json_object_get(f, "counted"))
            ? "counted: the elements of every batch are known before the run"
            : "not counted: which elements a batch has depends on how many elements earlier operators keep");
    if (json_get_text(f, "sequential_because"))
        cw_text_add(t, "  with this pipeline, a service runs each epoch on one worker: %s\n",
                    json_get_text(f, "sequential_because"));
    json_array_foreach(json_object_get(f, "by_chunk"), i, shuffle)
        cw_text_add(t, "  %s\n", json_get_text(shuffle, "says"));
    if (json_get_text(json_object_get(f, "reading"), "says"))
        cw_text_add(t, "  %s\n", json_get_text(json_object_get(f, "reading"), "says"));
    const json_t *batch = json_object_get(f, "batch");
    cw_text_add(
        t,
        "  batches of %.0f elements: %s of fixed size, in blocks of memory (slabs) of %s; memory budget %s\n",
        json_get_number(batch, "size"), json_bytes_text(batch, "bytes", a),
        json_bytes_text(batch, "slab_bytes", b), json_bytes_text(batch, "memory_budget_bytes", c));
    if (json_array_size(json_object_get(batch, "varying"))) {
        cw_text_add(t, "  components that are copied to the batch at the end, because their size varies:");
        json_array_foreach(json_object_get(batch, "varying"), i, name)
            cw_text_add(t, " %s", json_string_value(name));
        cw_text_add(t, "\n");
    }
}

static void text_add_parts(struct cw_text *t, const json_t *run)
{
    size_t i;
    json_t *o;
    cw_text_add(t, "  %-24s %9s %7s %12s\n", "part", "seconds", "share", "elements");
    json_array_foreach(json_object_get(run, "operators"), i, o)
    {
        const char *op = json_get_text(o, "op");
        char label[64];
        if (op)
            snprintf(label, sizeof(label), "%3.0f %s", json_get_number(o, "position"), op);
        else
            snprintf(label, sizeof(label), "    %s", json_get_text(o, "part"));
        if (json_get_number(o, "seconds") <= 0)
            continue;
        cw_text_add(t, "  %-24s %9.3f %6.1f%%", label, json_get_number(o, "seconds"),
                    json_get_number(o, "share") * 100);
        if (op)
            cw_text_add(t, " %12.0f", json_get_number(o, "elements"));
        cw_text_add(t, "\n");
    }
}

static void text_add_stages(struct cw_text *t, const json_t *costs)
{
    char a[32], b[32];
    size_t i;
    json_t *o;
    const json_t *storage = json_object_get(costs, "storage");
    cw_text_add(t, "\nan element costs:\n  %-24s %12s %10s %10s %12s\n", "operator", "elements/s", "CPU us",
                "waits us", "size after");
    json_array_foreach(json_object_get(costs, "stages"), i, o)
    {
        char label[64];
        snprintf(label, sizeof(label), "%3.0f %s", json_get_number(o, "position"), json_get_text(o, "op"));
        cw_text_add(t, "  %-24s %12.0f %10.1f %10.1f", label, json_get_number(o, "elements_per_s"),
                    json_get_number(o, "cpu_s") * 1e6, json_get_number(o, "wait_s") * 1e6);
        if (json_object_get(o, "bytes"))
            cw_text_add(t, " %12s", json_bytes_text(o, "bytes", a));
        cw_text_add(t, "\n");
    }
    if (json_get_number(costs, "calls_s") > 0)
        cw_text_add(
            t,
            "  calls that the program makes when it takes a batch: %.1f us per element, for which it waits\n",
            json_get_number(costs, "calls_s") * 1e6);
    cw_text_add(t, "  files: %s per element, %s/s at this rate",
                json_bytes_text(storage, "bytes_per_element", a),
                json_bytes_text(storage, "needed_bytes_per_s", b));
    if (json_is_real(json_object_get(storage, "had_bytes_per_s")))
        cw_text_add(t, "; files that are not in memory are read at %s/s",
                    json_bytes_text(storage, "had_bytes_per_s", b));
    cw_text_add(t, "\n");
}

static void text_add_remedies(struct cw_text *t, const json_t *facts)
{
    size_t i;
    json_t *o;
    const char *unknown = json_get_text(json_object_get(facts, "cache_speed"), "unknown");
    if (unknown)
        cw_text_add(t, "how fast a cache would be is not known: %s\n", unknown);
    if (json_array_size(json_object_get(facts, "remedies")) == 0) {
        cw_text_add(t, "remedies: none would raise the rate by 3 %% or more\n");
        return;
    }
    cw_text_add(t, "remedies, and the rate with each (now %.0f elements/s):\n",
                json_get_number(json_object_get(facts, "run"), "elements_per_s"));
    json_array_foreach(json_object_get(facts, "remedies"), i, o)
        cw_text_add(t, "  %8.0f (%.0f to %.0f)  %s%s\n", json_get_number(o, "elements_per_s"),
                    json_get_number(o, "low"), json_get_number(o, "high"), json_get_text(o, "what"),
                    json_is_true(json_object_get(o, "here")) ? "" : "; can't be tried here");
}

/* Adds the bottleneck of the run, the remedies, and advice. */
static void text_add_bottleneck(const json_t *facts, struct cw_text *t)
{
    size_t i;
    json_t *o;
    const json_t *run = json_object_get(facts, "run"), *bottleneck = json_object_get(facts, "bottleneck");
    cw_text_add(t, "bottleneck: %s\n",
                bottleneck ? json_get_text(bottleneck, "says") : json_get_text(run, "bottleneck"));
    if (bottleneck)
        text_add_remedies(t, facts);
    json_array_foreach(json_object_get(run, "advice"), i, o) cw_text_add(t, "%s\n", json_string_value(o));
    cw_text_add(t, "\n");
}

static void text_add_run(const json_t *facts, struct cw_text *t)
{
    char a[32], b[32];
    const json_t *run = json_object_get(facts, "run");
    cw_text_add(
        t, "\nran %.1f s on %.0f threads: %.0f elements/s, %.0f batches, %s/s, first batch after %.3f s\n",
        json_get_number(run, "seconds"), json_get_number(run, "threads"),
        json_get_number(run, "elements_per_s"), json_get_number(run, "batches"),
        json_bytes_text(run, "bytes_per_s", a), json_get_number(run, "first_batch_s"));
    cw_text_add(t,
                "  threads were idle %.0f %% of the time, and busy between operators %.0f %%; the consumer "
                "waited %.0f %%\n",
                json_get_number(run, "idle_share") * 100, json_get_number(run, "other_share") * 100,
                json_get_number(run, "wait_share") * 100);
    if (json_get_number(run, "padding_bytes") > 0)
        cw_text_add(t, "  %.1f %% of the bytes of the batches are padding\n",
                    json_get_number(run, "padding_bytes") / json_get_number(run, "bytes") * 100);
    cw_text_add(t, "  %s read from files, at most %s of the memory budget in use\n",
                json_bytes_text(run, "read_bytes", a), json_bytes_text(run, "memory_peak_bytes", b));
    text_add_parts(t, run);
    if (json_object_get(facts, "costs"))
        text_add_stages(t, json_object_get(facts, "costs"));
    cw_tuning_text(json_object_get(facts, "tuning"), t);
}

void cw_explain_text(const json_t *facts, struct cw_text *t)
{
    bool ran = json_get_text(json_object_get(facts, "run"), "bottleneck") != NULL; /* false: it failed */
    if (ran)
        text_add_bottleneck(facts, t);
    text_add_pipeline(facts, t);
    if (ran)
        text_add_run(facts, t);
}

void cw_explain_check_text(const json_t *facts, struct cw_text *t)
{
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(facts, "checks"), i, o)
    {
        if (i == 0)
            cw_text_add(t, "\nremedies tried, each for %.3g s:\n  %10s %10s %7s\n",
                        json_get_number(o, "seconds"), "predicted", "measured", "error");
        if (json_object_get(o, "failed"))
            cw_text_add(t, "  %10.0f %10s %7s  %s: %s\n", json_get_number(o, "predicted"), "-", "-",
                        json_get_text(o, "what"), json_get_text(o, "failed"));
        else
            cw_text_add(t, "  %10.0f %10.0f %+6.1f%%  %s", json_get_number(o, "predicted"),
                        json_get_number(o, "measured"), json_get_number(o, "error") * 100,
                        json_get_text(o, "what"));
        if (json_object_get(o, "gain"))
            cw_text_add(t, "; %.2f times as fast as the unchanged pipeline, predicted %.2f",
                        1 + json_get_number(o, "gain"), 1 + json_get_number(o, "predicted_gain"));
        if (!json_object_get(o, "failed"))
            cw_text_add(t, "\n");
    }
}
