/*
 * cachew explain: what the compiler made of a pipeline, and, after running it for some seconds, where the time goes. Everything is first put
 * in one JSON object; the text for people is printed from that object, so that both say the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/text.h"
#include "cli/common.h"
#include "cli/measure.h"
#include "client/report.h"
#include "optimize/optimize.h"

struct explain {
    struct cli_common common;
    double run;
    json_t *facts;
};

/* ---- the pipeline as compiled ---- */

/* {component: type} after the first n operators of a chain. They are compiled as a pipeline of their own; NULL where that is none. */
static json_t *schema_after(const struct cw_pipeline *p, const struct cw_chain *chain, size_t n)
{
    struct cw_pipeline part = *p; /* borrows everything; the count of references keeps it from being freed */
    struct cw_compiled *c;
    struct cw_error ignored = {0};
    char text[160];
    part.refs = 1;
    part.chain = (struct cw_chain){.nodes = chain->nodes, .n = n};
    if (cw_compile(&part, &c, &ignored) < 0)
        return NULL;
    unsigned n_delivered;
    const struct cw_component *delivered = cw_delivered(c, &n_delivered);
    json_t *schema = json_object();
    for (unsigned i = 0; i < n_delivered; i++)
        json_object_set_new(schema, delivered[i].name, json_string(cw_type_print(&delivered[i].type, text)));
    cw_compiled_free(c);
    return schema;
}

/* What an operator writes (components that are new or have another type) and removes. */
static void describe_types(json_t *node, const json_t *before, const json_t *after)
{
    json_t *outputs = json_object(), *removed = json_array(), *value;
    const char *name;
    json_object_foreach((json_t *)after, name, value)
    {
        const json_t *old = json_object_get(before, name);
        if (!old || !json_equal(old, value))
            json_object_set(outputs, name, value);
    }
    json_object_foreach((json_t *)before, name, value)
    {
        if (!json_object_get(after, name))
            json_array_append_new(removed, json_string(name));
    }
    json_object_set_new(node, "outputs", outputs);
    if (json_array_size(removed))
        json_object_set(node, "removes", removed);
    json_decref(removed);
}

static json_t *describe_chain(const struct cw_compiled *c, const struct cw_chain *chain, const unsigned *into)
{
    static const char *const kinds[] = {[CW_OP_SOURCE] = "source", [CW_OP_MAP] = "map", [CW_OP_FILTER] = "filter", [CW_OP_FLAT_MAP] = "flat_map", [CW_OP_INDEX] = "index",
                                        [CW_OP_BATCHER] = "batcher", [CW_OP_BATCH_MAP] = "batch_map"};
    json_t *list = json_array(), *before = NULL;
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i];
        json_t *o = json_pack("{s:s, s:i, s:s}", "op", node->desc->name, "position", (int)node->position, "kind", kinds[node->desc->kind]);
        json_t *after = schema_after(c->pipeline, chain, i + 1);
        if (node->n_inputs) {
            json_t *inputs = json_array();
            for (size_t k = 0; k < node->n_inputs; k++)
                json_array_append_new(inputs, describe_chain(c, &node->inputs[k], into));
            json_object_set_new(o, "inputs", inputs);
        }
        describe_types(o, before, after);
        if (into[node->position] != node->position)
            json_object_set_new(o, "fused_into", json_integer(into[node->position]));
        if (node->desc->kind == CW_OP_INDEX)
            json_object_set_new(o, "counts_elements", json_boolean(c->is_limit[node->position]));
        json_object_set(o, "attributes", node->attrs);
        json_array_append_new(list, o);
        if (after) { /* what did not compile by itself says nothing about the next one */
            json_decref(before);
            before = after;
        }
    }
    json_decref(before);
    return list;
}

static int fused_into(const struct cw_compiled *c, bool optimize, unsigned *into, struct cw_error *err)
{
    unsigned n = c->pipeline->n_ops;
    for (unsigned i = 0; i < n; i++)
        into[i] = i;
    for (unsigned k = 0; k < c->n_programs; k++) {
        struct cw_optimized *o;
        int r = cw_optimize(&c->programs[k], c->n_limits, n, optimize, &o, err);
        if (r < 0)
            return r;
        for (unsigned i = 0; i < n; i++)
            if (o->fused_into[i] != i)
                into[i] = o->fused_into[i];
        cw_optimized_free(o);
    }
    return 0;
}

/* By position, for sentences. */
static const struct cw_node *find_node(const struct cw_chain *chain, unsigned position)
{
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i], *found = NULL;
        for (size_t k = 0; k < node->n_inputs && !found; k++)
            found = find_node(&node->inputs[k], position);
        if (found || node->position == position)
            return found ? found : node;
    }
    return NULL;
}

/* Why the epoch is one split: the first take or skip that has to count, and who makes it. */
static json_t *one_split_reason(const struct cw_compiled *c)
{
    const struct cw_chain *chain = &c->pipeline->chain;
    unsigned at = 0, from = UINT32_MAX;
    while (at < c->pipeline->n_ops && !c->is_limit[at])
        at++;
    for (unsigned i = 0; i < at && from == UINT32_MAX; i++) {
        const struct cw_node *node = find_node(chain, i);
        if (node->desc->kind == CW_OP_FILTER || node->desc->kind == CW_OP_FLAT_MAP || strcmp(node->desc->name, "bucket_by_length") == 0)
            from = i;
    }
    const struct cw_node *limit = find_node(chain, at), *cause = from == UINT32_MAX ? NULL : find_node(chain, from);
    if (!limit)
        return json_string("an operator keeps its state over the epoch");
    return json_sprintf("%s (operator %u) counts what arrives one after the other, because %s%s leaves open how much that is", limit->desc->name, at,
                        cause ? cause->desc->name : "an operator", " before it");
}

static json_t *fused_groups(const unsigned *into, unsigned n)
{
    json_t *groups = json_array();
    for (unsigned i = 0; i < n; i++) {
        json_t *group = json_array();
        for (unsigned k = 0; k < n; k++)
            if (into[k] == i)
                json_array_append_new(group, json_integer(k));
        if (json_array_size(group) > 1)
            json_array_append(groups, group);
        json_decref(group);
    }
    return groups;
}

static json_t *count_or_null(uint64_t n) { return n >= CW_ENDLESS ? json_null() : json_integer((json_int_t)n); }

/* What a batch takes: exact for components of fixed size; those that vary are counted when they are there. */
static int describe_batch(struct explain *x, struct cw_error *err)
{
    const struct cw_compiled *c = x->common.local.compiled;
    struct cw_budget budget;
    struct cw_layout layout;
    json_t *varying = json_array();
    cw_budget_init(&budget, x->common.memory);
    int r = cw_layout_init(&layout, c, &budget, err);
    for (unsigned k = 0; k < c->n_outputs && r >= 0; k++)
        if (layout.offset[k] == SIZE_MAX)
            json_array_append_new(varying, json_string(c->outputs[k].name));
    if (r >= 0) {
        json_t *o = json_pack("{s:I, s:b, s:I, s:I, s:O, s:I}", "size", (json_int_t)c->batch_size, "drop_remainder", c->drop_remainder, "bytes",
                              (json_int_t)layout.slab_bytes, "slab_bytes", (json_int_t)(layout.slab_bytes ? cw_slab_charge(layout.slab_bytes) : 0),
                              "varying", varying, "memory_budget_bytes", (json_int_t)x->common.memory);
        json_object_set_new(x->facts, "batch", o);
        cw_layout_deinit(&layout);
    }
    json_decref(varying);
    return r;
}

static int describe_pipeline(struct explain *x, struct cw_error *err)
{
    const struct cw_compiled *c = x->common.local.compiled;
    const struct cw_sequence *s = x->common.local.sequence;
    static const char *const on_error[] = {"raise", "skip", "replace"};
    unsigned n = c->pipeline->n_ops;
    char fingerprint[33], text[160];
    _cleanup_free_ unsigned *into = calloc(n + 1, sizeof(*into));
    if (!into)
        return cw_error_nomem(err, 0, "an explanation");
    int r = fused_into(c, !x->common.no_optimize, into, err);
    if (r < 0)
        return r;
    cw_hash128_print(c->pipeline->fingerprint, fingerprint);
    json_t *sources = json_array(), *outputs = json_object();
    for (unsigned i = 0; i < c->n_programs; i++) {
        const struct cw_source *source = s->sources[i];
        json_array_append_new(sources, json_pack("{s:s, s:i, s:o, s:I, s:I, s:b}", "op", c->programs[i].ops[0]->desc->name, "position",
                                                 (int)c->programs[i].ops[0]->position, "records", count_or_null(source->n_records), "bytes",
                                                 (json_int_t)source->source_bytes, "chunks", (json_int_t)source->n_chunks, "random_access",
                                                 (int)source->random_access));
    }
    unsigned n_delivered;
    const struct cw_component *delivered = cw_delivered(c, &n_delivered);
    for (unsigned i = 0; i < n_delivered; i++)
        json_object_set_new(outputs, delivered[i].name, json_string(cw_type_print(&delivered[i].type, text)));
    json_object_update_new(x->facts, json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:I, s:o}", "pipeline", cw_report_text(x->common.file), "fingerprint",
                                               fingerprint, "on_error", on_error[c->pipeline->on_error], "operators",
                                               describe_chain(c, &c->pipeline->chain, into), "outputs", outputs, "fused", fused_groups(into, n),
                                               "sources", sources, "counted", (int)c->counted, "one_split", (int)c->whole_epoch, "elements",
                                               count_or_null(s->n_positions), "split_size",
                                               (json_int_t)(c->whole_epoch ? CW_MIN(s->n_positions, INT64_MAX) : s->split_size), "splits",
                                               count_or_null(s->n_splits)));
    if (c->whole_epoch)
        json_object_set_new(x->facts, "one_split_because", one_split_reason(c));
    return describe_batch(x, err);
}

/* ---- running it ---- */

static int measure(struct explain *x, struct cw_error *err)
{
    struct cli_measurement m;
    struct cli_measure_options o = {
        .seed = x->common.seed,
        .threads = (unsigned)x->common.threads,
        .memory = x->common.memory,
        .optimize = !x->common.no_optimize,
        .seconds = x->run,
        .wait = x->common.wait,
    };
    int r = cli_measure(&x->common.local, &o, &m, err); /* leaves the iterator for its profile */
    if (r < 0)
        return r;
    json_t *run = cli_measurement_json(&m);
    json_t *profile = cw_report_profile(&x->common.local), *parts = json_object_get(profile, "operators");
    json_object_set(run, "bottleneck", json_object_get(profile, "bottleneck"));
    json_object_set(run, "operators", parts);
    json_decref(profile);
    json_object_set_new(run, "advice", cli_advice(&x->common.local, &m, parts, x->facts));
    json_object_set_new(x->facts, "run", run);
    return 0;
}

/* ---- for people ---- */

static const char *get_text(const json_t *o, const char *key) { return json_string_value(json_object_get(o, key)); }
static double get(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

static void print_components(const json_t *components)
{
    const char *name, *comma = "";
    json_t *type;
    json_object_foreach((json_t *)components, name, type)
    {
        printf("%s%s: %s", comma, name, json_string_value(type));
        comma = ", ";
    }
}

static void print_operators(const json_t *operators, int depth)
{
    size_t i, k;
    json_t *o, *in, *name;
    json_array_foreach((json_t *)operators, i, o)
    {
        json_array_foreach(json_object_get(o, "inputs"), k, in)
        {
            printf("  %*sinput %zu:\n", depth * 2, "", k);
            print_operators(in, depth + 1);
        }
        printf("  %*s%3d %-20s", depth * 2, "", (int)get(o, "position"), get_text(o, "op"));
        const json_t *attributes = json_object_get(o, "attributes"), *count = json_object_get(attributes, "count"), *size = json_object_get(attributes, "size");
        bool index = strcmp(get_text(o, "kind"), "index") == 0, batcher = strcmp(get_text(o, "kind"), "batcher") == 0;
        if (index && count)
            printf(" %" JSON_INTEGER_FORMAT, json_integer_value(count));
        if (batcher && size)
            printf(" %" JSON_INTEGER_FORMAT, json_integer_value(size));
        if (json_object_size(json_object_get(o, "outputs"))) {
            printf(" -> ");
            print_components(json_object_get(o, "outputs"));
        }
        json_array_foreach(json_object_get(o, "removes"), k, name)
            printf("%s%s", k ? ", " : " without ", json_string_value(name));
        if (json_object_get(o, "fused_into"))
            printf("  (fused into %d)", (int)get(o, "fused_into"));
        putchar('\n');
    }
}

static const char *count_text(const json_t *o, const char *key, char buf[32])
{
    if (json_is_null(json_object_get(o, key)))
        return "endlessly many";
    snprintf(buf, 32, "%.0f", get(o, key));
    return buf;
}

static const char *bytes_text(const json_t *o, const char *key, char buf[32])
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double v = get(o, key);
    unsigned unit = 0;
    for (; v >= 1000 && unit + 1 < CW_COUNT_OF(units); unit++)
        v /= 1000;
    snprintf(buf, 32, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
    return buf;
}

static void print_pipeline(const json_t *f)
{
    char a[32], b[32], c[32];
    size_t i;
    json_t *source, *name;
    printf("%s, fingerprint %s\n\noperators (what each writes, per element):\n", get_text(f, "pipeline"), get_text(f, "fingerprint"));
    print_operators(json_object_get(f, "operators"), 0);
    printf("batches hold: ");
    print_components(json_object_get(f, "outputs"));
    printf("\n\nsequence:\n");
    json_array_foreach(json_object_get(f, "sources"), i, source)
        printf("  source %zu: %s, %s records, %s in %.0f %s%s\n", i, get_text(source, "op"), count_text(source, "records", a), bytes_text(source, "bytes", b),
               get(source, "chunks"), get(source, "chunks") == 1 ? "chunk" : "chunks",
               json_is_true(json_object_get(source, "random_access")) ? "" : ", read chunk by chunk");
    printf("  N = %s elements (before filters), S = %.0f of them per split, %s %s per epoch\n", count_text(f, "elements", a), get(f, "split_size"),
           count_text(f, "splits", b), get(f, "splits") == 1 ? "split" : "splits");
    printf("  %s\n", json_is_true(json_object_get(f, "counted")) ? "counted: the place of every batch is known beforehand"
                                                                : "not counted: what is left over of a split joins that of the next ones");
    if (get_text(f, "one_split_because"))
        printf("  the epoch is one split: %s\n", get_text(f, "one_split_because"));
    const json_t *batch = json_object_get(f, "batch");
    printf("  batches of %.0f: %s of fixed size, in slabs of %s; memory budget %s\n", get(batch, "size"), bytes_text(batch, "bytes", a),
           bytes_text(batch, "slab_bytes", b), bytes_text(batch, "memory_budget_bytes", c));
    if (json_array_size(json_object_get(batch, "varying"))) {
        printf("  collected, then copied, because their size varies:");
        json_array_foreach(json_object_get(batch, "varying"), i, name)
            printf(" %s", json_string_value(name));
        putchar('\n');
    }
}

static void print_run(const json_t *run)
{
    char a[32], b[32];
    size_t i;
    json_t *o;
    printf("\nran %.1f s on %.0f threads: %.0f elements/s, %.0f batches, %s/s, first batch after %.3f s\n", get(run, "seconds"), get(run, "threads"),
           get(run, "elements_per_s"), get(run, "batches"), bytes_text(run, "bytes_per_s", a), get(run, "first_batch_s"));
    printf("  threads were idle %.0f %% and between operators %.0f %% of the time; who takes the batches waited %.0f %%\n", get(run, "idle_share") * 100,
           get(run, "other_share") * 100, get(run, "wait_share") * 100);
    printf("  %s read from files, at most %s of the memory budget in use\n", bytes_text(run, "read_bytes", a), bytes_text(run, "memory_peak_bytes", b));
    printf("  %-24s %9s %7s %12s\n", "part", "seconds", "share", "elements");
    json_array_foreach(json_object_get(run, "operators"), i, o)
    {
        const char *op = get_text(o, "op");
        char label[64];
        if (op)
            snprintf(label, sizeof(label), "%3.0f %s", get(o, "position"), op);
        else
            snprintf(label, sizeof(label), "    %s", get_text(o, "part"));
        if (get(o, "seconds") <= 0)
            continue;
        printf("  %-24s %9.3f %6.1f%%", label, get(o, "seconds"), get(o, "share") * 100);
        if (op)
            printf(" %12.0f", get(o, "elements"));
        putchar('\n');
    }
    printf("  bottleneck: %s\n\n", get_text(run, "bottleneck"));
    json_array_foreach(json_object_get(run, "advice"), i, o)
        printf("%s\n", json_string_value(o));
}

int cli_explain(int argc, char **argv)
{
    struct explain x = {.run = 3};
    struct cw_error err = {0};
    const struct cli_option options[] = {
        {"run", CLI_SECONDS, &x.run, "S", "run it for S seconds to see where the time goes (default 3; 0: don't)", 0, 0, NULL, NULL},
        CLI_COMMON_OPTIONS(&x.common, "compute threads"),
        {0},
    };
    cli_common_init(&x.common);
    int r = cli_common_parse(&x.common, "explain", options, argc, argv, &err), code = 0;
    if (r == 1)
        return 0;
    x.facts = json_object();
    if (r >= 0)
        r = cli_common_load(&x.common, &err);
    if (r >= 0)
        r = cli_common_open(&x.common, &err);
    if (r >= 0)
        r = describe_pipeline(&x, &err);
    if (r >= 0 && !x.common.json)
        print_pipeline(x.facts);
    if (r >= 0 && x.run > 0)
        r = measure(&x, &err);
    if (r < 0)
        code = cli_fail(&err, x.common.json, x.facts);
    else if (x.common.json)
        code = cli_print(json_incref(x.facts));
    else if (x.run > 0)
        print_run(json_object_get(x.facts, "run"));
    json_decref(x.facts);
    cli_common_deinit(&x.common);
    return code;
}
