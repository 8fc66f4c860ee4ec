/* Plug-ins: what is checked when one is loaded, and the table while others read it. usage: test_plugin
 * SOLARIZE.so */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cachew/plugin.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ops/plugin/plugin.h"
#include "ops/table.h"

static const char *negative_path;

static int good_bind(struct cachew_bind *b, void **state)
{
    (void)state;
    return cachew_bind_read(b, "value", NULL);
}

static int good_run(const void *state, struct cachew_row *row)
{
    (void)state;
    (void)row;
    return CACHEW_OK;
}

static const struct cachew_attr good_attrs[] = {
    {.name = "x", .kind = CACHEW_ATTR_INT, .def = "1", .doc = "a number"}, {0}};
#define GOOD_OPERATOR(n) \
    {.name = n, \
     .summary = "for tests", \
     .kind = CACHEW_MAP, \
     .attrs = good_attrs, \
     .bind = good_bind, \
     .run = good_run}

static int add(const struct cachew_operator *op, const char *version, struct cw_error *err)
{
    const struct cachew_operator *const operators[] = {op, NULL};
    const struct cachew_plugin plugin = {
        .abi = CACHEW_PLUGIN_ABI, .version = version, .operators = operators};
    *err = (struct cw_error){0};
    return cw_plugin_add(&plugin, "/somewhere/bad.so.1", err);
}

/* ---- descriptors ---- */

static void assert_refused(const struct cachew_operator *op, const char *what, const char *expected)
{
    struct cw_error err;
    size_t before = cw_ops()->n;
    int r = add(op, "1", &err);
    if (r != CW_E_OPTION || !strstr(err.message, what) || !strstr(err.message, expected) ||
        !strstr(err.message, "bad.so"))
        fail_msg("result %d, \"%s\": expected \"%s\" and \"%s\" in it", r, err.message, what, expected);
    assert_true(err.attribute[0] && err.expected[0] && err.file[0]);
    assert_int_equal(cw_ops()->n, before);
}

static void test_wrong_operators(void **unused)
{
    (void)unused;
    static const char *const names[] = {
        NULL,       "",           "Upper",
        "9lives",   "with space", "with-dash",
        "\xc3\xa4", "_x",         "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeee"};
    for (size_t i = 0; i < CW_COUNT_OF(names); i++)
        assert_refused(&(struct cachew_operator)GOOD_OPERATOR(names[i]), "the name of an operator",
                       "a letter first");
    struct cachew_operator op = GOOD_OPERATOR("unit_wrong");
#define WRONG(field, value, what, expected) \
    do { \
        struct cachew_operator wrong = op; \
        wrong.field = value; \
        assert_refused(&wrong, "operator unit_wrong: " what, expected); \
    } while (0)
    WRONG(summary, NULL, "summary is NULL", "a line of UTF-8");
    WRONG(summary, "", "summary", "a line of UTF-8");
    WRONG(summary, "two\nlines", "summary is two lines", "a line of UTF-8");
    WRONG(summary, "\xff\xfe", "summary is ??", "a line of UTF-8");
    WRONG(doc, "\xff", "doc", "NULL, or UTF-8");
    WRONG(kind, (enum cachew_operator_kind)0, "kind is 0", "CACHEW_MAP or CACHEW_FILTER");
    WRONG(kind, (enum cachew_operator_kind)7, "kind is 7", "CACHEW_MAP or CACHEW_FILTER");
    WRONG(bind, NULL, "bind is NULL", "a function");
    WRONG(run, NULL, "run is NULL", "a function");
#undef WRONG
}

static void test_wrong_attributes(void **unused)
{
    (void)unused;
    static const char *const choices[] = {"a", "b", NULL}, *const bad_choices[] = {"a", "\xff", NULL};
#define ATTR(...) \
    { \
        .doc = "a line", __VA_ARGS__ \
    }

    const struct {
        struct cachew_attr attr;
        const char *what, *expected;
    } cases[] = {
        {ATTR(.name = "Upper", .kind = CACHEW_ATTR_INT), "the name of an attribute is Upper",
         "a letter first"},
        {ATTR(.name = "op", .kind = CACHEW_ATTR_INT), "the name of an attribute is op", "not op"},
        {ATTR(.name = "inputs", .kind = CACHEW_ATTR_INT), "the name of an attribute is inputs", "not inputs"},
        {ATTR(.name = "y"), "attribute y: kind is 0", "CACHEW_ATTR_"},
        {ATTR(.name = "y", .kind = (enum cachew_attr_kind)10), "attribute y: kind is 10", "CACHEW_ATTR_"},
        {{.name = "y", .kind = CACHEW_ATTR_INT}, "attribute y: doc is NULL", "a line"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INT, .min = 2, .max = 1), "max is 1", "at least min"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_FLOAT, .max = NAN), "max is nan", "finite"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_FLOAT, .min = -INFINITY, .max = 1), "min is -inf", "finite"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_STRING, .max = 3), "max is 3", "not a number"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_BOOL, .min = -3), "min is -3", "not a number"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INT, .len_min = 1), "len_min is 1", "not a list"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INTS, .len_min = -1), "len_min is -1", "at least 0"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INTS, .len_min = 3, .len_max = 2), "len_max is 2",
         "at least len_min"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INT, .scalar_too = 1), "scalar_too is 1", "not a list"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INT, .choices = choices), "choices", "neither a string"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_STRING, .choices = bad_choices), "a choice is ?", "UTF-8"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INT, .def = "{"), "def is {", "JSON"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_STRING, .def = "a"), "def is a", "quotation marks"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_STRING, .def = "\"c\"", .choices = choices), "def is \"c\"",
         "one of \"a\", \"b\""},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INT, .def = "3", .min = 4, .max = 9), "def is 3",
         "from 4 to 9"},
        {ATTR(.name = "y", .kind = CACHEW_ATTR_INTS, .def = "3"), "def is 3", "a list of integers"},
        {ATTR(.name = "x", .kind = CACHEW_ATTR_INT), "attribute x: its name is x", "no other attribute"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        const struct cachew_attr attrs[] = {good_attrs[0], cases[i].attr, {0}};
        struct cachew_operator op = GOOD_OPERATOR("unit_wrong");
        op.attrs = attrs;
        assert_refused(&op, cases[i].what, cases[i].expected);
    }
    struct cachew_attr many[66] = {0}; /* the end is not looked for for ever */
    for (size_t i = 0; i < 65; i++)
        many[i] = good_attrs[0];
    struct cachew_operator op = GOOD_OPERATOR("unit_wrong");
    op.attrs = many;
    assert_refused(&op, "attrs is too long", "at most 64");
}

static void test_wrong_plugins(void **unused)
{
    (void)unused;
    struct cw_error err = {0};
    const struct cachew_operator op = GOOD_OPERATOR("unit_wrong"), *const none[] = {NULL},
                                 *const one[] = {&op, NULL};
    static const char *const versions[] = {NULL, "", "1 2", "v\n",
                                           "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeee"};
    for (size_t i = 0; i < CW_COUNT_OF(versions); i++) {
        assert_int_equal(add(&op, versions[i], &err), CW_E_OPTION);
        assert_non_null(strstr(err.message, "has the version"));
    }
    assert_int_equal(
        cw_plugin_add(&(struct cachew_plugin){.abi = CACHEW_PLUGIN_ABI, .version = "1", .operators = none},
                      "x.so", &err),
        CW_E_OPTION);
    assert_non_null(strstr(err.message, "number of operators is 0: expected 1 to 256"));
    assert_int_equal(
        cw_plugin_add(&(struct cachew_plugin){.abi = CACHEW_PLUGIN_ABI, .version = "1"}, "x.so", &err),
        CW_E_OPTION);
    /* Nothing but the number may be looked at when it is another one. */
    _Alignas(struct cachew_plugin) const uint32_t later = CACHEW_PLUGIN_ABI + 1;
    assert_int_equal(cw_plugin_add((const struct cachew_plugin *)(const void *)&later, "x.so", &err),
                     CW_E_OPTION);
    assert_non_null(strstr(err.message, "has ABI version 2: expected version 1"));
    assert_int_equal(
        cw_plugin_add(&(struct cachew_plugin){.abi = CACHEW_PLUGIN_ABI, .version = "1", .operators = one},
                      "\xff.so", &err),
        CW_E_OPTION);
    assert_non_null(strstr(err.message, "a name in UTF-8"));
    assert_null(cw_op_find(cw_ops(), "unit_wrong"));
}

static void test_names_are_taken_once(void **unused)
{
    (void)unused;
    static const struct cachew_operator a = GOOD_OPERATOR("unit_first"), b = GOOD_OPERATOR("unit_second"),
                                        resize = GOOD_OPERATOR("resize");
    static const struct cachew_operator *const both[] = {&b, &a, NULL}, *const twice[] = {&b, &b, NULL};
    static const struct cachew_plugin plugin = {
        .abi = CACHEW_PLUGIN_ABI, .version = "2.1", .operators = both};
    static const struct cachew_plugin doubled = {
        .abi = CACHEW_PLUGIN_ABI, .version = "1", .operators = twice};
    struct cw_error err = {0};
    const struct cw_op_table *before = cw_ops();
    size_t n = before->n;
    assert_int_equal(add(&resize, "1", &err), CW_E_OPTION);
    assert_non_null(strstr(err.message, "\"resize\" already, built in"));
    assert_int_equal(cw_plugin_add(&doubled, "/plug/doubled.so", &err), CW_E_OPTION);
    assert_int_equal(cw_ops()->n, n);
    assert_int_equal(cw_plugin_add(&plugin, "/plug/libunit.so.3", &err), 0);
    assert_int_equal(add(&a, "1", &err), CW_E_OPTION);
    assert_non_null(strstr(err.message, "\"unit_first\" already, of plug-in libunit 2.1"));
    /* Who holds the old table may go on with it. */
    const struct cw_op_table *after = cw_ops();
    assert_int_equal(before->n, n);
    assert_int_equal(after->n, n + 2);
    assert_null(cw_op_find(before, "unit_first"));
    assert_ptr_equal(cw_op_find(before, "resize"), cw_op_find(after, "resize"));
    assert_string_equal(cw_op_find(after, "unit_second")->plugin, "libunit 2.1");
    for (size_t i = 1; i < after->n; i++)
        assert_true(strcmp(after->ops[i - 1]->name, after->ops[i]->name) < 0);
}

/* ---- threads ---- */

#define N_THREADS 4
#define N_EACH 25
static struct cachew_operator threaded[N_THREADS][N_EACH];
static char threaded_names[N_THREADS][N_EACH][32];

static void *add_many(void *arg)
{
    size_t t = *(size_t *)arg, failed = 0;
    for (size_t i = 0; i < N_EACH; i++) {
        const struct cachew_operator *const operators[] = {&threaded[t][i], NULL};
        const struct cachew_plugin plugin = {
            .abi = CACHEW_PLUGIN_ABI, .version = "1", .operators = operators};
        failed += cw_plugin_add(&plugin, "threads.so", NULL) < 0;
        const struct cw_op_table *table = cw_ops();
        failed += !cw_op_find(table, threaded_names[t][i]) || !cw_op_find(table, "resize");
        failed += cw_plugin_load(negative_path, NULL) < 0; /* the same for all */
    }
    return failed ? arg : NULL;
}

static void test_threads_add_and_read(void **unused)
{
    (void)unused;
    pthread_t threads[N_THREADS];
    size_t ids[N_THREADS], n = cw_ops()->n;
    for (size_t t = 0; t < N_THREADS; t++)
        for (size_t i = 0; i < N_EACH; i++) {
            snprintf(threaded_names[t][i], sizeof(threaded_names[t][i]), "unit_thread_%zu_%zu", i, t);
            threaded[t][i] = (struct cachew_operator)GOOD_OPERATOR(threaded_names[t][i]);
        }
    for (size_t t = 0; t < N_THREADS; t++) {
        ids[t] = t;
        assert_int_equal(pthread_create(&threads[t], NULL, add_many, &ids[t]), 0);
    }
    for (size_t t = 0; t < N_THREADS; t++) {
        void *failed;
        pthread_join(threads[t], &failed);
        assert_null(failed);
    }
    assert_int_equal(cw_ops()->n, n + N_THREADS * N_EACH + 2); /* negative has two */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_operators),      cmocka_unit_test(test_wrong_attributes),
        cmocka_unit_test(test_wrong_plugins),        cmocka_unit_test(test_names_are_taken_once),
        cmocka_unit_test(test_threads_add_and_read),
    };
    negative_path = argc > 1 ? argv[1] : "negative.so";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
