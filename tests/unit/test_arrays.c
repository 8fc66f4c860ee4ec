/* Data sets in memory, through the C interface: what elements they give, ids, lifetimes, and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "arrays_run.h"
#include "data_files.h"

static void count_release(void *arg)
{
    (*(int *)arg)++;
}

static const float grid[3][2] = {{1, 2}, {3, 4}, {5, 6}};
static const int64_t labels[] = {7, 8, 9};
static const char text[] = "onetwothree";
static const uint64_t offsets[] = {0, 3, 6, 11};
static const char *const strings[] = {"one", "two", "three"};

static const struct cachew_array three[] = {
    {.name = "grid", .dtype = CACHEW_FLOAT32, .ndim = 1, .dims = (int64_t[]){2}, .data = grid},
    {.name = "label", .dtype = CACHEW_INT64, .data = labels},
    {.name = "text", .dtype = CACHEW_BYTES, .data = text, .offsets = offsets},
};

static void arrays_are_elements(void **state)
{
    (void)state;
    struct cachew_arrays *a;
    int released = 0;
    assert_int_equal(cachew_arrays_new(three, 3, 3, count_release, &released, &a, NULL), 0);
    assert_int_equal(strlen(cachew_arrays_id(a)), 32);
    assert_int_equal(cachew_arrays_count(a), 3);
    struct cachew_batch *b = all_of(a);
    expect_values(b, "grid", grid, sizeof(grid));
    expect_values(b, "label", labels, sizeof(labels));
    expect_strings(b, "text", strings, 3);
    assert_int_equal(cachew_batch_find(b, "grid")->ndim, 2);
    cachew_arrays_free(a);
    cachew_batch_release(b);
    assert_int_equal(released, 1);
}

static void data_are_released_when_nobody_uses_them(void **state)
{
    (void)state;
    struct cachew_arrays *a, *again;
    char id[33];
    int released = 0, released_again = 0;
    assert_int_equal(cachew_arrays_new(three, 3, 3, count_release, &released, &a, NULL), 0);
    assert_int_equal(cachew_arrays_new(three, 3, 3, count_release, &released_again, &again, NULL), 0);
    assert_string_equal(cachew_arrays_id(a), cachew_arrays_id(again)); /* the same data */
    snprintf(id, sizeof(id), "%s", cachew_arrays_id(a));
    cachew_arrays_free(again);
    assert_int_equal(released_again, 1);
    struct cachew_iterator *it = open_id(id, "");
    cachew_arrays_free(a);
    assert_int_equal(released, 0); /* the iterator reads them */
    struct cachew_batch *b = one_batch(it);
    cachew_iterator_free(it);
    cachew_batch_release(b);
    assert_int_equal(released, 1);
    cachew_arrays_free(NULL);

    struct cachew_pipeline *p; /* nobody has them any more */
    struct cachew_error *err = NULL;
    char json[200];
    snprintf(json, sizeof(json), "{\"cachew\": 1, \"pipeline\": [{\"op\": \"arrays\", \"data\": \"%s\"}]}",
             id);
    int r = cachew_pipeline_parse(json, NULL, &p, &err);
    if (r == 0) {
        r = cachew_pipeline_check(p, &err);
        cachew_pipeline_free(p);
    }
    assert_int_equal(r, CACHEW_E_PIPELINE);
    assert_contains(cachew_error_message(err), "the id of arrays that this process has");
    cachew_error_free(err);
}

static void ids_tell_data_apart(void **state)
{
    (void)state;
    static const int64_t other[] = {7, 8, 10}, dims1[] = {1}, dims3[] = {3};
    static const uint64_t shifted[] = {0, 2, 6, 11};

    const struct {
        struct cachew_array array;
        uint64_t n;
    } cases[] = {
        {{.name = "a", .dtype = CACHEW_INT64, .data = labels}, 3},
        {{.name = "b", .dtype = CACHEW_INT64, .data = labels}, 3},
        {{.name = "a", .dtype = CACHEW_UINT64, .data = labels}, 3},
        {{.name = "a", .dtype = CACHEW_INT64, .ndim = 1, .dims = dims1, .data = labels}, 3},
        {{.name = "a", .dtype = CACHEW_INT64, .ndim = 1, .dims = dims3, .data = labels}, 1},
        {{.name = "a", .dtype = CACHEW_INT64, .data = labels}, 2},
        {{.name = "a", .dtype = CACHEW_INT64, .data = other}, 3},
        {{.name = "a", .dtype = CACHEW_BYTES, .data = text, .offsets = offsets}, 3},
        {{.name = "a", .dtype = CACHEW_BYTES, .data = text, .offsets = shifted}, 3},
        {{.name = "a", .dtype = CACHEW_INT64}, 0},
    };
    struct cachew_arrays *a[COUNT_OF(cases)];
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(cachew_arrays_new(&cases[i].array, 1, cases[i].n, NULL, NULL, &a[i], NULL), 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(cachew_arrays_id(a[i]), cachew_arrays_id(a[k]));
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        cachew_arrays_free(a[i]);
}

static void unaligned_data_are_read(void **state)
{
    (void)state;
    char bytes[1 + sizeof(labels)];
    struct cachew_arrays *a;
    memcpy(bytes + 1, labels, sizeof(labels));
    const struct cachew_array array = {.name = "a", .dtype = CACHEW_INT64, .data = bytes + 1};
    assert_int_equal(cachew_arrays_new(&array, 1, 3, NULL, NULL, &a, NULL), 0);
    struct cachew_batch *b = all_of(a);
    expect_values(b, "a", labels, sizeof(labels));
    cachew_batch_release(b);
    cachew_arrays_free(a);
}

static void bad_arrays_are_refused(void **state)
{
    (void)state;
    static const uint64_t falling[] = {0, 3, 2, 11}, beyond[] = {0, 1, 2, UINT64_MAX};
    static const int64_t zero[] = {0}, varies[] = {-1}, huge[] = {INT64_MAX, INT64_MAX};

    static const struct {
        struct cachew_array arrays[2];
        size_t n;
        const char *part;
    } cases[] = {
        {{{0}}, 0, "at least one"},
        {{{.dtype = CACHEW_INT64, .data = labels}}, 1, "no name"},
        {{{.name = "x", .dtype = CACHEW_INT64, .data = labels},
          {.name = "x", .dtype = CACHEW_INT64, .data = labels}},
         2,
         "there are two"},
        {{{.name = "x", .dtype = (enum cachew_dtype)77, .data = labels}}, 1, "a known dtype"},
        {{{.name = "x", .dtype = CACHEW_INT64, .ndim = 7, .dims = labels, .data = labels}}, 1, "ndim is 7"},
        {{{.name = "x", .dtype = CACHEW_INT64, .ndim = 1, .data = labels}},
         1,
         "size of each dimension in dims"},
        {{{.name = "x", .dtype = CACHEW_INT64, .ndim = 1, .dims = zero, .data = labels}}, 1, "at least 1"},
        {{{.name = "x", .dtype = CACHEW_INT64, .ndim = 1, .dims = varies, .data = labels}}, 1, "at least 1"},
        {{{.name = "x", .dtype = CACHEW_INT64, .ndim = 2, .dims = huge, .data = labels}}, 1, "2^63"},
        {{{.name = "x", .dtype = CACHEW_INT64}}, 1, "its pointer is null"},
        {{{.name = "x", .dtype = CACHEW_BYTES, .data = text}}, 1, "offsets if its dtype is bytes"},
        {{{.name = "x", .dtype = CACHEW_INT64, .data = labels, .offsets = offsets}},
         1,
         "offsets if its dtype is bytes"},
        {{{.name = "x", .dtype = CACHEW_BYTES, .offsets = offsets}}, 1, "its pointer is null"},
        {{{.name = "x", .dtype = CACHEW_BYTES, .data = text, .offsets = falling}}, 1, "ascend"},
        {{{.name = "x", .dtype = CACHEW_BYTES, .data = text, .offsets = beyond}}, 1, "ascend"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct cachew_arrays *a;
        struct cachew_error *err = NULL;
        int released = 0;
        assert_int_equal(
            cachew_arrays_new(cases[i].arrays, cases[i].n, 3, count_release, &released, &a, &err),
            CACHEW_E_OPTION);
        assert_contains(cachew_error_message(err), cases[i].part);
        assert_int_equal(released, 0);
        cachew_error_free(err);
    }
}

static void shuffle_and_state_know_the_data(void **state)
{
    (void)state;
    static int64_t many[5000], others[5000];
    for (int i = 0; i < 5000; i++) {
        many[i] = i;
        others[i] = i + (i == 4999);
    }
    struct cachew_array array = {.name = "a", .dtype = CACHEW_INT64, .data = many};
    struct cachew_arrays *a, *other;
    assert_int_equal(cachew_arrays_new(&array, 1, 5000, NULL, NULL, &a, NULL), 0);
    array.data = others;
    assert_int_equal(cachew_arrays_new(&array, 1, 5000, NULL, NULL, &other, NULL), 0);
    struct cachew_iterator *it = open_id(cachew_arrays_id(a),
                                         ", {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 5000}");
    struct cachew_batch *b = one_batch(it);
    const int64_t *got = cachew_batch_find(b, "a")->data;
    int64_t sum = 0, moved = 0;
    for (int i = 0; i < 5000; i++) {
        sum += got[i];
        moved += got[i] / 1024 != i / 1024; /* record by record, not only chunk by chunk */
    }
    assert_int_equal(sum, 5000 * 4999 / 2);
    assert_true(moved > 3000);
    cachew_batch_release(b);
    cachew_iterator_free(it);

    it = open_id(cachew_arrays_id(a), ", {\"op\": \"batch\", \"size\": 100}");
    cachew_batch_release(one_batch(it));
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    char *position = cachew_iterator_state(it), json[200];
    o.state = position;
    cachew_iterator_free(it);
    struct cachew_pipeline *p;
    struct cachew_error *err = NULL;
    snprintf(json, sizeof(json),
             "{\"cachew\": 1, \"pipeline\": [{\"op\": \"arrays\", \"data\": \"%s\"}, {\"op\": \"batch\", "
             "\"size\": 100}]}",
             cachew_arrays_id(other));
    assert_int_equal(cachew_pipeline_parse(json, NULL, &p, NULL), 0);
    assert_int_equal(cachew_iterator_open(p, &o, &it, &err), CACHEW_E_STATE);
    cachew_error_free(err);
    cachew_pipeline_free(p);
    cachew_free(position);
    cachew_arrays_free(a);
    cachew_arrays_free(other);
}

/* Opening forgot the caller's interrupt before it looked at what a cache keeps. */
static void opening_with_a_cache_is_interrupted(void **state)
{
    (void)state;
    const int now = 1;
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cachew_arrays *a;
    struct cachew_pipeline *p;
    struct cachew_iterator *it;
    struct cachew_error *err = NULL;
    char json[200];
    assert_int_equal(cachew_arrays_new(three, 3, 3, NULL, NULL, &a, NULL), 0);
    snprintf(json, sizeof(json),
             "{\"cachew\": 1, \"pipeline\": [{\"op\": \"arrays\", \"data\": \"%s\"}, {\"op\": \"cache\"}, "
             "{\"op\": \"batch\", \"size\": 3}]}",
             cachew_arrays_id(a));
    assert_int_equal(cachew_pipeline_parse(json, NULL, &p, NULL), 0);
    o.cache_dir = temp_path("cache");
    o.interrupt = &now;
    assert_int_equal(cachew_iterator_open(p, &o, &it, &err), CACHEW_E_INTERRUPTED);
    cachew_error_free(err);
    cachew_pipeline_free(p);
    cachew_arrays_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_elements),
        cmocka_unit_test(data_are_released_when_nobody_uses_them),
        cmocka_unit_test(ids_tell_data_apart),
        cmocka_unit_test(unaligned_data_are_read),
        cmocka_unit_test(bad_arrays_are_refused),
        cmocka_unit_test(shuffle_and_state_know_the_data),
        cmocka_unit_test(opening_with_a_cache_is_interrupted),
    };
    return cmocka_run_group_tests_name("arrays", tests, temp_make, temp_remove);
}
