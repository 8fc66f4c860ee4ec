/* The operators after a cut, on batches that a worker may have sent: good ones, and such as no worker sends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/tail.h"
#include "ops/table.h"

/* Elements of "x" are int32 arrays of one dimension, whose size varies. */
static const char chain[] =
    "{\"cachew\": 1, \"pipeline\": [{\"op\": \"jsonl\", \"files\": \"none\", \"features\": {\"x\": "
    "{\"dtype\": \"int32\", \"variable\": true}}}, {\"op\": \"pad\", \"component\": \"x\", \"to\": 3, "
    "\"value\": 9}, {\"op\": \"batch\", \"size\": 2}]}";

struct world {
    json_t *root;
    struct cw_pipeline *pipeline;
    struct cw_compiled *compiled;
    struct cw_cut_point *cut;
    struct cw_budget budget;
    struct cw_slab_pool slabs;
    struct cw_tail tail;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct cw_error err = {0};
    assert_non_null(w);
    w->root = json_loads(chain, 0, NULL);
    cw_budget_init(&w->budget, SIZE_MAX / 2);
    assert_int_equal(cw_pipeline_from_json(cw_ops(), w->root, ".", &w->pipeline, &err), 0);
    assert_int_equal(cw_compile(w->pipeline, &w->compiled, &err), 0);
    assert_int_equal(cw_cut_point_named(w->compiled, w->root, "jsonl", &w->cut, &err), 0);
    assert_int_equal(cw_slab_pool_init(&w->slabs, false, &w->budget, &err), 0);
    assert_int_equal(cw_tail_init(&w->tail, w->compiled, w->cut, &w->slabs, &w->budget, &err), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    cw_tail_deinit(&w->tail);
    cw_slab_pool_deinit(&w->slabs);
    assert_int_equal(atomic_load(&w->budget.used), 0);
    cw_cut_point_free(w->cut);
    cw_compiled_free(w->compiled);
    cw_pipeline_unref(w->pipeline);
    json_decref(w->root);
    free(w);
    return 0;
}

/* Runs the tail on a batch of n equal elements, whose bytes are `size` bytes of data. */
static int run(struct world *w, const void *data, size_t size, uint32_t n, struct cw_assembly **ret,
               struct cw_error *err)
{
    struct cw_op_profile ops[3] = {0};
    struct cw_record_id ids[3] = {{.row = 1}, {.row = 2}, {.row = 3}};
    uint64_t lengths[3] = {size, size, size};
    _Alignas(64) uint8_t memory[3 * 128];
    assert_true(n <= 3 && size <= 128);
    for (uint32_t i = 0; i < n; i++)
        memcpy(memory + i * size, data, size);
    struct cw_batch_component c = {.name = "x",
                                   .dtype = CW_BYTES,
                                   .ndim = 1,
                                   .dims = {n},
                                   .data = memory,
                                   .size = n * size,
                                   .lengths = lengths};
    const struct cw_batch in = {.n = n, .leading = true, .n_components = 1, .components = &c, .ids = ids};
    *ret = NULL;
    return cw_tail_run(&w->tail, &in, 0, 0, NULL, NULL, ops, ret, err);
}

static void test_good(void **state)
{
    const struct {
        int64_t ndim, size;
        int32_t values[2];
    } element = {1, 2, {5, 6}};

    static const int32_t expected[] = {5, 6, 9, 5, 6, 9};
    struct cw_assembly *a;
    struct cw_error err = {0};
    assert_int_equal(run(*state, &element, sizeof(element), 2, &a, &err), 0);
    assert_int_equal(a->batch->n, 2);
    assert_int_equal(a->batch->components[0].size, sizeof(expected));
    assert_memory_equal(a->batch->components[0].data, expected, sizeof(expected));
    assert_int_equal(a->batch->ids[1].row, 2);
    cw_assembly_free(a);
}

static void test_bad(void **state)
{
    static const struct {
        int64_t words[4]; /* number of dimensions, their sizes, values */
        size_t size;
    } cases[] = {
        {{1, 2, 0}, 0},              /* nothing */
        {{1, 2, 0}, 20},             /* no multiple of 8 */
        {{1, 2, 0}, 8},              /* the size is missing */
        {{1, 2, 0}, 16},             /* values are missing */
        {{1, 2, 0}, 32},             /* there are too many */
        {{0, 2, 0}, 24},             /* of another number of dimensions */
        {{2, 1, 2}, 32},             /* so, too */
        {{-1, 2, 0}, 24},            /* a negative one */
        {{INT64_MAX, 2, 0}, 24},     /* too large */
        {{1, -2, 0}, 24},            /* a negative size */
        {{1, INT64_MAX / 2, 0}, 24}, /* whose bytes overflow */
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct cw_assembly *a;
        struct cw_error err = {0};
        assert_int_equal(run(*state, cases[i].words, cases[i].size, 2, &a, &err), CW_E_SERVICE);
        assert_null(a);
        assert_non_null(strstr(err.message, "as a value of component \"x\""));
    }
}

static void test_too_many(void **state)
{
    static const int64_t empty[] = {1, 0};
    struct cw_assembly *a;
    struct cw_error err = {0};
    assert_int_equal(run(*state, empty, sizeof(empty), 3, &a, &err), CW_E_SERVICE);
    assert_non_null(strstr(err.message, "a batch of 3 elements: expected at most 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
