/* Parses a pipeline and computes its fingerprint when a pipeline is loaded. The result is immutable. */
#include "pipeline/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "pipeline/content.h"

/* Deeper nesting of chains is a mistake, or an attempt to overflow the stack. */
#define MAX_NESTING 32
#define MAX_OPERATORS 4096

const struct cw_op_desc *cw_op_find(const struct cw_op_table *table, const char *name)
{
    for (size_t i = 0; i < table->n; i++)
        if (strcmp(table->ops[i]->name, name) == 0)
            return table->ops[i];
    return NULL;
}

struct parse {
    const struct cw_op_table *table;
    unsigned *seen; /* by index in the table: how often the operator has occurred so far */
    unsigned position;
    struct cw_pipeline *pipeline; /* the pipeline that is being parsed */
    struct cw_error *err;
};

static void chain_deinit(struct cw_chain *c)
{
    for (size_t i = 0; i < c->n; i++) {
        for (size_t k = 0; k < c->nodes[i].n_inputs; k++)
            chain_deinit(&c->nodes[i].inputs[k]);
        free(c->nodes[i].inputs);
        json_decref(c->nodes[i].attrs);
    }
    free(c->nodes);
    *c = (struct cw_chain){0};
}

static int pipeline_unknown_op(const struct parse *p, const char *name)
{
    _cleanup_free_ const char **names = calloc(p->table->n, sizeof(*names));
    if (!names)
        return cw_error_nomem(p->err, 0, "names");
    for (size_t i = 0; i < p->table->n; i++)
        names[i] = p->table->ops[i]->name;
    const char *near = cw_nearest(name, names, p->table->n);
    cw_error_op(p->err, name);
    return cw_error_value(p->err, CW_E_PIPELINE, "op", name, "an operator that `cachew ops` lists",
                          "there is no operator \"%.60s\"%s%s%s (`cachew ops` lists all operators)", name,
                          near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* identity: NULL: the operator runs nothing in hosts. */
static int pipeline_add_function(struct parse *p, const char *identity)
{
    struct cw_pipeline *to = p->pipeline;
    if (!identity)
        return 0;
    uint64_t *grown = realloc(to->functions, (to->n_functions + 1) * sizeof(*grown));
    if (!grown)
        return cw_error_nomem(p->err, (to->n_functions + 1) * sizeof(*grown), "functions");
    to->functions = grown;
    to->functions[to->n_functions++] = cw_hash64(identity, strlen(identity));
    return 0;
}

/* Checks that attributes with a value for each input have one. */
static int pipeline_check_per_input(const struct parse *p, const struct cw_node *node)
{
    for (const struct cw_attr_def *a = node->desc->attrs; a && a->name; a++) {
        const json_t *list = json_object_get(node->attrs, a->name);
        if (!a->per_input || json_array_size(list) == node->n_inputs)
            continue;
        _cleanup_free_ char *shown = json_dumps(list, JSON_COMPACT);
        char expected[64];
        snprintf(expected, sizeof(expected), "%zu, one for each input", node->n_inputs);
        cw_error_op(p->err, node->desc->name);
        return cw_error_value(p->err, CW_E_PIPELINE, a->name, shown ? shown : "", expected,
                              "%s: %s has %zu values: expected %s", node->desc->name, a->name,
                              json_array_size(list), expected);
    }
    return 0;
}

static int pipeline_parse_chain(struct parse *p, const json_t *list, int depth, struct cw_chain *ret);

static int pipeline_parse_node(struct parse *p, const json_t *object, int depth, struct cw_node *node)
{
    if (!json_is_object(object)) {
        _cleanup_free_ char *shown = json_dumps(object, JSON_COMPACT | JSON_ENCODE_ANY);
        return cw_error_set(p->err, CW_E_PIPELINE, "operator %u is %.80s: expected an object with \"op\"",
                            p->position, shown ? shown : "?");
    }
    const json_t *name = json_object_get(object, "op");
    if (!json_is_string(name))
        return cw_error_set(p->err, CW_E_PIPELINE,
                            "operator %u has no \"op\": expected the name of an operator", p->position);
    node->desc = cw_op_find(p->table, json_string_value(name));
    if (!node->desc)
        return pipeline_unknown_op(p, json_string_value(name));
    int r = cw_attrs_check(node->desc, object, &node->attrs, p->err);
    if (r >= 0)
        r = pipeline_add_function(
            p, json_string_value(json_object_get(json_object_get(node->attrs, "function"), "identity")));
    for (const struct cw_attr_def *a = node->desc->attrs; r >= 0 && a && a->name; a++)
        if (a->content && *json_string_value(json_object_get(node->attrs, a->name))) {
            r = cw_content_note(p->pipeline, node->desc, a->name, node->attrs, p->err);
            if (r >= 0 && node->desc->function)
                r = pipeline_add_function(p, cw_content_hash(node->attrs, a->name));
        }
    if (r < 0)
        return r;
    const json_t *inputs = json_object_get(object, "inputs");
    if (inputs) {
        size_t n = json_array_size(inputs);
        if (n == 0)
            return cw_error_set(p->err, CW_E_PIPELINE, "%s: inputs is empty: expected at least one chain",
                                node->desc->name);
        node->inputs = calloc(n, sizeof(*node->inputs));
        if (!node->inputs)
            return cw_error_nomem(p->err, n * sizeof(*node->inputs), "inputs");
        node->n_inputs = n;
        for (size_t i = 0; i < n; i++) {
            r = pipeline_parse_chain(p, json_array_get(inputs, i), depth + 1, &node->inputs[i]);
            if (r < 0)
                return r;
        }
    }
    r = pipeline_check_per_input(p, node);
    if (r < 0)
        return r;
    for (size_t i = 0; i < p->table->n; i++)
        if (p->table->ops[i] == node->desc)
            node->occurrence = p->seen[i]++;
    node->position = node->written = p->position++;
    if (p->position > MAX_OPERATORS)
        return cw_error_set(p->err, CW_E_PIPELINE, "the pipeline has more than %d operators", MAX_OPERATORS);
    return 0;
}

static int pipeline_parse_chain(struct parse *p, const json_t *list, int depth, struct cw_chain *ret)
{
    if (depth > MAX_NESTING)
        return cw_error_set(p->err, CW_E_PIPELINE,
                            "chains (lists of operators) are nested more than %d deep in the pipeline",
                            MAX_NESTING);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return cw_error_set(p->err, CW_E_PIPELINE,
                            "a chain is %s: expected a list of operators that begins with a source",
                            json_is_array(list) ? "empty" : "not a list");
    size_t n = json_array_size(list);
    ret->nodes = calloc(n, sizeof(*ret->nodes));
    if (!ret->nodes)
        return cw_error_nomem(p->err, n * sizeof(*ret->nodes), "operators");
    for (size_t i = 0; i < n; i++) {
        ret->n = i + 1;
        int r = pipeline_parse_node(p, json_array_get(list, i), depth, &ret->nodes[i]);
        if (r < 0)
            return r;
        const struct cw_node *node = &ret->nodes[i];
        bool starts = node->desc->kind == CW_OP_SOURCE || node->n_inputs > 0;
        if (starts != (i == 0)) {
            cw_error_op(p->err, node->desc->name);
            return cw_error_set(
                p->err, CW_E_PIPELINE,
                i == 0 ? "%s is the first operator of a chain: expected a source, concat, zip or mix"
                       : "%s is operator %zu of a chain (counted from 0): expected a source, concat, zip or "
                         "mix only as the first one",
                node->desc->name, i);
        }
    }
    return 0;
}

static struct cw_hash128 pipeline_chain_fingerprint(const struct cw_chain *chain, struct cw_error *err,
                                                    int *r)
{
    XXH128_hash_t fp = {0, 0};
    for (size_t i = 0; i < chain->n && *r == 0; i++) {
        const struct cw_node *node = &chain->nodes[i];
        struct cw_text t = {0};
        json_t *identity = cw_attrs_identity(node->desc, node->attrs);
        _cleanup_free_ char *attrs = identity ? json_dumps(identity, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
        json_decref(identity);
        if (!attrs)
            *r = cw_error_nomem(err, 0, "a fingerprint");
        cw_text_add(&t, "%016llx%016llx %s %s", (unsigned long long)fp.high64, (unsigned long long)fp.low64,
                    node->desc->name, attrs ? attrs : "");
        if (node->desc->plugin)
            cw_text_add(&t, " plug-in %s", node->desc->plugin);
        for (size_t k = 0; k < node->n_inputs; k++) {
            struct cw_hash128 in = pipeline_chain_fingerprint(&node->inputs[k], err, r);
            cw_text_add(&t, " %016llx%016llx", (unsigned long long)in.hi, (unsigned long long)in.lo);
        }
        if (t.failed)
            *r = cw_error_nomem(err, 0, "a fingerprint");
        else
            fp = XXH3_128bits(t.data, t.size);
        cw_text_deinit(&t);
    }
    return (struct cw_hash128){.lo = fp.low64, .hi = fp.high64};
}

static int pipeline_parse_defaults(const json_t *v, struct cw_pipeline *p, struct cw_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return cw_error_set(err, CW_E_PIPELINE,
                            "defaults is not an object: expected {\"seed\": .., \"epochs\": ..}");
    json_object_foreach((json_t *)v, key, value)
    {
        int64_t *to = strcmp(key, "seed") == 0     ? &p->default_seed
                      : strcmp(key, "epochs") == 0 ? &p->default_epochs
                                                   : NULL;
        if (!to || !json_is_integer(value) || json_integer_value(value) < 0)
            return cw_error_set(
                err, CW_E_PIPELINE,
                "defaults: \"%.60s\": expected \"seed\" or \"epochs\" with an integer of at least 0", key);
        *to = json_integer_value(value);
    }
    return 0;
}

static int pipeline_parse_on_error(const json_t *v, struct cw_pipeline *p, struct cw_error *err)
{
    static const char *const names[] = {"raise", "skip", "replace"};
    for (unsigned i = 0; json_is_string(v) && i < 3; i++)
        if (strcmp(json_string_value(v), names[i]) == 0) {
            p->on_error = (enum cw_on_error)i;
            return 0;
        }
    _cleanup_free_ char *shown = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    return cw_error_value(
        err, CW_E_PIPELINE, "on_error", shown ? shown : "", "\"raise\", \"skip\" or \"replace\"",
        "on_error is %.60s: expected \"raise\", \"skip\" or \"replace\"", shown ? shown : "?");
}

/* Raise this number when the order `relaxed` of some pipeline changes. */
#define RELAXED_VERSION 1

const char *const cw_operator_order_names[] = {
    [CW_ORDER_STRICT] = "strict", [CW_ORDER_RELAXED] = "relaxed", [CW_ORDER_WRITTEN] = "written", NULL};

static int pipeline_parse_order(const json_t *v, struct cw_pipeline *p, struct cw_error *err)
{
    for (unsigned i = 0; json_is_string(v) && cw_operator_order_names[i]; i++)
        if (strcmp(json_string_value(v), cw_operator_order_names[i]) == 0) {
            p->order = (enum cw_operator_order)i;
            return 0;
        }
    _cleanup_free_ char *shown = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    return cw_error_value(
        err, CW_E_PIPELINE, "order", shown ? shown : "", "\"strict\", \"relaxed\" or \"written\"",
        "order is %.60s: expected \"strict\", \"relaxed\" or \"written\"", shown ? shown : "?");
}

static int pipeline_parse_root(const struct cw_op_table *table, const json_t *root, struct cw_pipeline *p,
                               struct cw_error *err)
{
    static const char *const keys[] = {"cachew", "pipeline", "on_error", "order", "defaults"};
    const char *key;
    json_t *value;
    int r;
    if (!json_is_object(root))
        return cw_error_set(
            err, CW_E_PIPELINE,
            "the pipeline file is not a JSON object: expected {\"cachew\": 1, \"pipeline\": [...]}");
    json_object_foreach((json_t *)root, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < CW_COUNT_OF(keys); i++)
            known |= strcmp(key, keys[i]) == 0;
        if (!known) {
            const char *near = cw_nearest(key, keys, CW_COUNT_OF(keys));
            return cw_error_set(err, CW_E_PIPELINE,
                                "the pipeline file has an unknown key \"%.60s\"%s%s%s: expected \"cachew\", "
                                "\"pipeline\", \"on_error\", \"order\", \"defaults\"",
                                key, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
        }
    }
    const json_t *version = json_object_get(root, "cachew"), *v;
    if (!json_is_integer(version) || json_integer_value(version) != 1) {
        _cleanup_free_ char *shown = version ? json_dumps(version, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        return cw_error_value(err, CW_E_PIPELINE, "cachew", shown ? shown : "missing", "1",
                              "\"cachew\" is %.60s: expected 1, the version of the format",
                              shown ? shown : "missing");
    }
    if ((v = json_object_get(root, "on_error")) && (r = pipeline_parse_on_error(v, p, err)) < 0)
        return r;
    if ((v = json_object_get(root, "order")) && (r = pipeline_parse_order(v, p, err)) < 0)
        return r;
    if ((v = json_object_get(root, "defaults")) && (r = pipeline_parse_defaults(v, p, err)) < 0)
        return r;
    _cleanup_free_ unsigned *seen = calloc(table->n + 1, sizeof(*seen));
    if (!seen)
        return cw_error_nomem(err, 0, "a pipeline");
    struct parse parse = {.table = table, .seen = seen, .pipeline = p, .err = err};
    r = pipeline_parse_chain(&parse, json_object_get(root, "pipeline"), 0, &p->chain);
    if (r < 0)
        return r;
    p->n_ops = parse.position;
    r = 0;
    p->fingerprint = pipeline_chain_fingerprint(&p->chain, err, &r);
    p->fingerprint.lo += p->on_error;
    if (p->order == CW_ORDER_RELAXED)
        p->fingerprint.lo += 16 * RELAXED_VERSION;
    return r;
}

int cw_pipeline_from_json(const struct cw_op_table *table, const json_t *root, const char *base_dir,
                          struct cw_pipeline **ret, struct cw_error *err)
{
    struct cw_pipeline *p = calloc(1, sizeof(*p));
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "a pipeline");
    p->refs = 1;
    p->default_seed = p->default_epochs = -1;
    p->base_dir = strdup(base_dir ? base_dir : ".");
    int r = p->base_dir ? pipeline_parse_root(table, root, p, err) : cw_error_nomem(err, 0, "a pipeline");
    if (r < 0) {
        cw_pipeline_unref(p);
        return r;
    }
    *ret = p;
    return 0;
}

int cw_pipeline_parse(const struct cw_op_table *table, const char *text, size_t size, const char *base_dir,
                      struct cw_pipeline **ret, struct cw_error *err)
{
    json_error_t je;
    json_auto_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return cw_error_set(err, CW_E_PIPELINE, "the pipeline is not valid JSON: line %d, column %d: %s",
                            je.line, je.column, je.text);
    return cw_pipeline_from_json(table, root, base_dir, ret, err);
}

static void chain_number(struct cw_chain *chain, unsigned *position)
{
    for (size_t i = 0; i < chain->n; i++) {
        for (size_t k = 0; k < chain->nodes[i].n_inputs; k++)
            chain_number(&chain->nodes[i].inputs[k], position);
        chain->nodes[i].position = (*position)++;
    }
}

int cw_pipeline_permute(struct cw_pipeline *p, const unsigned *from, struct cw_error *err)
{
    struct cw_chain *chain = &p->chain;
    struct cw_node *nodes = calloc(chain->n, sizeof(*nodes));
    if (!nodes)
        return cw_error_nomem(err, chain->n * sizeof(*nodes), "operators");
    for (size_t i = 0; i < chain->n; i++)
        nodes[i] = chain->nodes[from[i]];
    free(chain->nodes);
    chain->nodes = nodes;
    unsigned position = 0;
    chain_number(chain, &position);
    return 0;
}

struct cw_pipeline *cw_pipeline_ref(struct cw_pipeline *p)
{
    __atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
    return p;
}

struct cw_pipeline *cw_pipeline_unref(struct cw_pipeline *p)
{
    if (p && __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        chain_deinit(&p->chain);
        free(p->functions);
        free(p->base_dir);
        free(p);
    }
    return NULL;
}
