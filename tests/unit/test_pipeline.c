/* Pipelines as written: attributes and their defaults, nesting, fingerprints; errors name operator,
 * attribute, value and what is expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "base/text.h"
#include "ops/table.h"
#include "pipeline/program.h"

static int parse(const char *text, struct cw_pipeline **ret, struct cw_error *err)
{
    *ret = NULL;
    *err = (struct cw_error){0};
    return cw_pipeline_parse(cw_ops(), text, strlen(text), NULL, ret, err);
}

/* The text of a pipeline with this chain. */
static const char *chain(const char *text)
{
    static char buf[1000];
    snprintf(buf, sizeof(buf), "{\"cachew\": 1, \"pipeline\": [%s]}", text);
    return buf;
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void refused(const char *text, const char *op, const char *attribute, const char *value,
                    const char *expected, const char *message)
{
    struct cw_pipeline *p = NULL;
    struct cw_compiled *c = NULL;
    struct cw_error err;
    int r = parse(text, &p, &err);
    if (r >= 0)
        r = cw_compile(p, &c, &err);
    if (r != CW_E_PIPELINE)
        fail_msg("%s: result %d (%s)", text, r, err.message);
    if (op)
        assert_string_equal(err.op, op);
    if (attribute)
        assert_string_equal(err.attribute, attribute);
    if (value)
        assert_string_equal(err.value, value);
    if (expected)
        assert_contains(err.expected, expected);
    assert_contains(err.message, message);
    assert_null(c);
    cw_pipeline_unref(p);
}

static void test_defaults_are_filled_in(void **state)
{
    (void)state;
    struct cw_pipeline *p;
    struct cw_error err;
    assert_int_equal(
        parse(chain("{\"op\": \"range\", \"stop\": 10}, {\"op\": \"batch\", \"size\": 3}"), &p, &err), 0);
    assert_int_equal(p->n_ops, 2);
    assert_int_equal(p->on_error, CW_ON_ERROR_RAISE);
    assert_true(p->default_seed == -1 && p->default_epochs == -1);
    const struct cw_node *range = &p->chain.nodes[0], *batch = &p->chain.nodes[1];
    assert_int_equal(json_integer_value(json_object_get(range->attrs, "start")), 0);
    assert_int_equal(json_integer_value(json_object_get(range->attrs, "step")), 1);
    assert_true(json_is_false(json_object_get(batch->attrs, "drop_remainder")));
    assert_null(json_object_get(batch->attrs, "op"));
    cw_pipeline_unref(p);
    assert_int_equal(parse("{\"cachew\": 1, \"on_error\": \"replace\", \"defaults\": {\"seed\": 7, "
                           "\"epochs\": 3}, \"pipeline\": [{\"op\": \"range\", \"stop\": 1}]}",
                           &p, &err),
                     0);
    assert_true(p->on_error == CW_ON_ERROR_REPLACE && p->default_seed == 7 && p->default_epochs == 3);
    cw_pipeline_unref(p);
}

static void test_occurrences_count_depth_first(void **state)
{
    (void)state;
    struct cw_pipeline *p;
    struct cw_error err;
    assert_int_equal(
        parse(
            chain(
                "{\"op\": \"concat\", \"inputs\": [[{\"op\": \"range\", \"stop\": 5}, {\"op\": \"shuffle\"}],"
                "[{\"op\": \"range\", \"stop\": 5}, {\"op\": \"shuffle\"}]]}, {\"op\": \"shuffle\"}"),
            &p, &err),
        0);
    const struct cw_node *concat = &p->chain.nodes[0];
    assert_int_equal(concat->inputs[0].nodes[1].occurrence, 0);
    assert_int_equal(concat->inputs[1].nodes[1].occurrence, 1);
    assert_int_equal(p->chain.nodes[1].occurrence, 2);
    assert_int_equal(concat->inputs[0].nodes[0].position, 0);
    assert_int_equal(concat->inputs[1].nodes[1].position, 3);
    assert_int_equal(concat->position, 4);
    assert_int_equal(p->chain.nodes[1].position, 5);
    cw_pipeline_unref(p);
}

static void test_suggestions(void **state)
{
    (void)state;
    refused(chain("{\"op\": \"rnage\", \"stop\": 5}"), "rnage", "op", "rnage", NULL,
            "did you mean \"range\"?");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"bacth\", \"size\": 3}"), "bacth", "op",
            "bacth", NULL, "did you mean \"batch\"?");
    refused(chain("{\"op\": \"frobnicate\"}"), "frobnicate", "op", "frobnicate", NULL, "cachew ops");
    refused(chain("{\"op\": \"range\", \"stpo\": 5}"), "range", "stpo", "5", "stop, start, step",
            "did you mean \"stop\"?");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"shuffle\", \"buffer_size\": 9}"), "shuffle",
            "buffer_size", "9", NULL, "it has: by, window, reshuffle, seed; there is no buffer to size");
    refused(chain("{\"op\": \"synthetic\", \"count\": 5, \"fill\": \"radnom\"}"), "synthetic", "fill",
            "\"radnom\"", "random", "did you mean \"random\"?");
    refused("{\"cachew\": 1, \"pipelin\": []}", NULL, NULL, NULL, NULL, "did you mean \"pipeline\"?");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"cast\", \"component\": \"valeu\", \"dtype\": "
                  "\"int8\"}"),
            "cast", NULL, NULL, NULL, "value");
}

static void test_wrong_values(void **state)
{
    (void)state;
    refused(chain("{\"op\": \"range\"}"), "range", "stop", "missing", "an integer",
            "range: stop is missing: expected an integer");
    refused(chain("{\"op\": \"range\", \"stop\": \"5\"}"), "range", "stop", "\"5\"", "an integer",
            "range: stop is \"5\": expected an integer");
    refused(chain("{\"op\": \"range\", \"stop\": 5.5}"), "range", "stop", "5.5", "an integer",
            "expected an integer");
    refused(chain("{\"op\": \"range\", \"stop\": null}"), "range", "stop", "null", "an integer",
            "expected an integer");
    refused(chain("{\"op\": \"range\", \"stop\": 5, \"step\": 0}"), "range", "step", "0", "other than 0",
            "range: step is 0");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"batch\", \"size\": 0}"), "batch", "size", "0",
            "from 1 to", "batch: size is 0");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"batch\", \"size\": -1}"), "batch", "size",
            "-1", "from 1 to", "batch: size is -1");
    refused(
        chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"batch\", \"size\": 2, \"drop_remainder\": 1}"),
        "batch", "drop_remainder", "1", "true or false", "batch");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"take\", \"count\": -1}"), "take", "count",
            "-1", NULL, "take: count is -1");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"cast\", \"component\": \"value\", \"dtype\": "
                  "\"int\"}"),
            "cast", "dtype", "\"int\"", "a dtype", "cast: dtype is \"int\"");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"cast\", \"component\": \"value\", \"dtype\": "
                  "\"bytes\"}"),
            "cast", "dtype", "\"bytes\"", "a dtype", "cast: dtype");
    refused(
        chain(
            "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"cast\", \"component\": \"\", \"dtype\": \"int8\"}"),
        "cast", "component", "\"\"", NULL, "cast: component");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"select\", \"components\": [1]}"), "select",
            "components", "[1]", "strings", "select: components");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"filter\", \"where\": \"value +\"}"), "filter",
            NULL, NULL, NULL, "filter");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"filter\", \"where\": 1}"), "filter", "where",
            "1", "an expression", "filter: where is 1");
    refused(chain("{\"op\": \"tfrecord\", \"files\": \"a\\u0000b\"}"), NULL, NULL, NULL, NULL,
            "not valid JSON");
}

static void test_wrong_structure(void **state)
{
    (void)state;
    refused("", NULL, NULL, NULL, NULL, "not valid JSON");
    refused("[]", NULL, NULL, NULL, NULL, "not a JSON object");
    refused("{\"cachew\": 1}", NULL, NULL, NULL, NULL, "not a list");
    refused("{\"cachew\": 1, \"pipeline\": {}}", NULL, NULL, NULL, NULL, "not a list");
    refused("{\"cachew\": 1, \"pipeline\": []}", NULL, NULL, NULL, NULL, "empty");
    refused("{\"cachew\": 1, \"pipeline\": [5]}", NULL, NULL, NULL, NULL, "operator 0 is 5");
    refused("{\"cachew\": 1, \"pipeline\": [{}]}", NULL, NULL, NULL, NULL, "no \"op\"");
    refused("{\"cachew\": 1, \"pipeline\": [{\"op\": 5}]}", NULL, NULL, NULL, NULL, "no \"op\"");
    refused("{\"pipeline\": [{\"op\": \"range\", \"stop\": 5}]}", NULL, "cachew", "missing", "1",
            "expected 1");
    refused("{\"cachew\": 2, \"pipeline\": [{\"op\": \"range\", \"stop\": 5}]}", NULL, "cachew", "2", "1",
            "\"cachew\" is 2");
    refused("{\"cachew\": 1, \"cachew\": 1, \"pipeline\": []}", NULL, NULL, NULL, NULL, "not valid JSON");
    refused("{\"cachew\": 1, \"on_error\": \"ignore\", \"pipeline\": [{\"op\": \"range\", \"stop\": 5}]}",
            NULL, "on_error", "\"ignore\"", "skip", "on_error is \"ignore\"");
    refused("{\"cachew\": 1, \"defaults\": {\"seed\": -1}, \"pipeline\": [{\"op\": \"range\", \"stop\": 5}]}",
            NULL, NULL, NULL, NULL, "defaults");
    refused(
        "{\"cachew\": 1, \"defaults\": {\"threads\": 1}, \"pipeline\": [{\"op\": \"range\", \"stop\": 5}]}",
        NULL, NULL, NULL, NULL, "\"threads\"");
    refused(chain("{\"op\": \"shuffle\"}"), "shuffle", NULL, NULL, NULL, "is the first operator");
    refused(chain("{\"op\": \"range\", \"stop\": 5}, {\"op\": \"range\", \"stop\": 5}"), "range", NULL, NULL,
            NULL, "operator 1 of a chain");
    refused(chain("{\"op\": \"concat\", \"inputs\": []}"), NULL, NULL, NULL, NULL, "inputs is empty");
    refused(chain("{\"op\": \"concat\", \"inputs\": [{\"op\": \"range\", \"stop\": 5}]}"), NULL, NULL, NULL,
            NULL, "not a list");
    refused(chain("{\"op\": \"range\", \"stop\": 5, \"inputs\": []}"), "range", "inputs", NULL, NULL,
            "no attribute \"inputs\"");
}

/* What may stand where: docs/semantics.md, section 2. */
#define TOKENS "{\"op\": \"synthetic\", \"count\": 5, \"shape\": [3], \"dtype\": \"int32\"}"
#define NUMBERED ", {\"op\": \"enumerate\"}"
#define PACK "{\"op\": \"pack\", \"component\": \"data\", \"length\": 4}"

static void test_wrong_order(void **state)
{
    (void)state;
    static const char *const chains[] = {
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"batch\", \"size\": 2}, {\"op\": \"filter\", \"where\": "
        "\"value > 1\"}",
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"batch\", \"size\": 2}, {\"op\": \"shuffle\"}",
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"batch\", \"size\": 2}, {\"op\": \"batch\", \"size\": "
        "2}",
        "{\"op\": \"concat\", \"inputs\": [[{\"op\": \"range\", \"stop\": 5}, {\"op\": \"batch\", \"size\": "
        "2}]]}",
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"filter\", \"where\": \"value > 1\"}, {\"op\": "
        "\"take\", \"count\": 2}, {\"op\": \"shuffle\"}",
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"bucket_by_length\", \"length\": \"value\", "
        "\"boundaries\": [2], \"sizes\": [1, 1]}, {\"op\": \"assign\", \"set\": {\"x\": \"value\"}}",
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"bucket_by_length\", \"length\": \"value\", "
        "\"boundaries\": [2], \"sizes\": [1]}",
        "{\"op\": \"concat\", \"inputs\": [[{\"op\": \"range\", \"stop\": 5}], [{\"op\": \"synthetic\", "
        "\"count\": 5}]]}",
        "{\"op\": \"zip\", \"inputs\": [[{\"op\": \"range\", \"stop\": 5}], [{\"op\": \"range\", \"stop\": "
        "5}]]}",
        "{\"op\": \"zip\", \"inputs\": [[{\"op\": \"range\", \"stop\": 5}, {\"op\": \"filter\", \"where\": "
        "\"value > 1\"}]]}",
        "{\"op\": \"zip\", \"inputs\": [[{\"op\": \"range\", \"stop\": 5}, {\"op\": \"cache\"}]]}",
        "{\"op\": \"zip\", \"inputs\": [[{\"op\": \"concat\", \"inputs\": [[{\"op\": \"range\", \"stop\": "
        "5}]]}]]}",
        "{\"op\": \"zip\", \"inputs\": [[{\"op\": \"range\", \"stop\": 5}, {\"op\": \"batch\", \"size\": "
        "2}]]}",
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"pack\", \"component\": \"value\", \"length\": 4}",
        TOKENS ", {\"op\": \"pack\", \"component\": \"other\", \"length\": 4}",
        TOKENS ", " PACK ", " PACK,
        TOKENS ", " PACK ", {\"op\": \"shuffle\"}",
        TOKENS ", " PACK ", {\"op\": \"repeat\", \"count\": 2}",
        TOKENS ", {\"op\": \"batch\", \"size\": 2}, " PACK,
        TOKENS
        ", {\"op\": \"filter\", \"where\": \"max(data) > 1\"}, {\"op\": \"take\", \"count\": 2}, " PACK,
        "{\"op\": \"concat\", \"inputs\": [[" TOKENS NUMBERED "], [" TOKENS NUMBERED "]]}, " PACK,
        "{\"op\": \"concat\", \"inputs\": [[" TOKENS ", " PACK "]]}",
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"drop\", \"components\": [\"other\"]}",
        "{\"op\": \"range\", \"stop\": 5}, {\"op\": \"decode_image\", \"component\": \"value\"}",
    };
    for (size_t i = 0; i < CW_COUNT_OF(chains); i++) {
        struct cw_pipeline *p = NULL;
        struct cw_compiled *c = NULL;
        struct cw_error err;
        int r = parse(chain(chains[i]), &p, &err);
        if (r >= 0)
            r = cw_compile(p, &c, &err);
        if (r != CW_E_PIPELINE || !err.op[0] || !err.message[0])
            fail_msg("%s: result %d, operator \"%s\": %s", chains[i], r, err.op, err.message);
        cw_pipeline_unref(p);
    }
}

/* Chains within chains: refused before they use up the stack, however deep; and lists without end. */
static void test_nesting(void **state)
{
    (void)state;
    for (int depth = 8; depth <= 100000; depth *= depth < 64 ? 2 : 40) {
        struct cw_text t = {0};
        cw_text_add(&t, "{\"cachew\": 1, \"pipeline\": ");
        for (int i = 0; i < depth; i++)
            cw_text_add(&t, "[{\"op\": \"concat\", \"inputs\": [");
        cw_text_add(&t, "[{\"op\": \"range\", \"stop\": 5}]");
        for (int i = 0; i < depth; i++)
            cw_text_add(&t, "]}]");
        cw_text_add(&t, "}");
        struct cw_pipeline *p;
        struct cw_error err;
        int r = parse(t.data, &p, &err);
        if (depth < 32)
            assert_int_equal(r, 0);
        else if (depth > 32)
            assert_int_equal(r, CW_E_PIPELINE);
        cw_pipeline_unref(p);
        cw_text_deinit(&t);
    }
    struct cw_text t = {0};
    cw_text_add(&t, "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 5}");
    for (int i = 0; i < 100000; i++)
        cw_text_add(&t, ", {\"op\": \"shuffle\"}");
    cw_text_add(&t, "]}");
    refused(t.data, NULL, NULL, NULL, NULL, "more than");
    cw_text_deinit(&t);
}

static struct cw_hash128 fingerprint(const char *text)
{
    struct cw_pipeline *p;
    struct cw_error err;
    if (parse(text, &p, &err) < 0)
        fail_msg("%s", err.message);
    struct cw_hash128 f = p->fingerprint;
    cw_pipeline_unref(p);
    return f;
}

static void test_fingerprints(void **state)
{
    (void)state;
    const char *base = "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 10}, {\"op\": "
                       "\"batch\", \"size\": 3}]}";
    static const char *const equal[] = {
        "{\"pipeline\": [{\"stop\": 10, \"op\": \"range\"}, {\"op\":\"batch\",\"size\":3}], \"cachew\":1}",
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 10, \"start\": 0}, {\"op\": \"batch\", "
        "\"size\": 3, \"drop_remainder\": false}]}",
        "{\"cachew\": 1, \"on_error\": \"raise\", \"defaults\": {\"seed\": 5}, \"pipeline\": [{\"op\": "
        "\"range\", \"stop\": 10}, {\"op\": \"batch\", \"size\": 3}]}",
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 10, \"keep_position\": true}, {\"op\": "
        "\"batch\", \"size\": 3}]}",
    };
    static const char *const other[] = {
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 11}, {\"op\": \"batch\", \"size\": "
        "3}]}",
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 10}, {\"op\": \"batch\", \"size\": "
        "4}]}",
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 10}, {\"op\": \"shuffle\"}, {\"op\": "
        "\"batch\", \"size\": 3}]}",
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"concat\", \"inputs\": [[{\"op\": \"range\", \"stop\": "
        "10}]]}, {\"op\": \"batch\", \"size\": 3}]}",
        "{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 10}, {\"op\": "
        "\"batch\", \"size\": 3}]}",
    };
    struct cw_hash128 f = fingerprint(base);
    for (size_t i = 0; i < CW_COUNT_OF(equal); i++) {
        struct cw_hash128 g = fingerprint(equal[i]);
        assert_true(f.lo == g.lo && f.hi == g.hi);
    }
    for (size_t i = 0; i < CW_COUNT_OF(other); i++) {
        struct cw_hash128 g = fingerprint(other[i]);
        assert_false(f.lo == g.lo && f.hi == g.hi);
    }
}

static void test_the_table(void **state)
{
    (void)state;
    const struct cw_op_table *table = cw_ops();
    assert_true(table->n >= 30);
    for (size_t i = 0; i < table->n; i++) {
        const struct cw_op_desc *d = table->ops[i];
        assert_ptr_equal(cw_op_find(table, d->name), d);
        if (i)
            assert_true(strcmp(table->ops[i - 1]->name, d->name) < 0);
        assert_non_null(d->summary);
        for (const struct cw_attr_def *a = d->attrs; a && a->name; a++) {
            char buf[256];
            if (!a->doc || !a->doc[0])
                fail_msg("%s: %s has no doc", d->name, a->name);
            assert_true(strlen(cw_attr_allowed(a, buf)) > 0);
            if (!a->def)
                continue;
            json_t *def = json_loads(a->def, JSON_DECODE_ANY, NULL);
            if (!def)
                fail_msg("%s: the default of %s is not JSON: %s", d->name, a->name, a->def);
            json_decref(def);
        }
    }
    assert_null(cw_op_find(table, "nothing"));
    json_t *json = cw_op_table_json(table);
    assert_int_equal(json_array_size(json_object_get(json, "ops")), table->n);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_filled_in),
        cmocka_unit_test(test_occurrences_count_depth_first),
        cmocka_unit_test(test_suggestions),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_wrong_structure),
        cmocka_unit_test(test_wrong_order),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_fingerprints),
        cmocka_unit_test(test_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
