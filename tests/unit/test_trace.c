/* Traces: whole lines, also with several threads; the limit; what can't be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/trace.h"

#define THREADS 4
#define SPANS 5000

static const uint8_t stream[16] = {0xab, 0xcd, 0, 1};
static char path[] = "/tmp/cachew-test-trace-XXXXXX";

static int make_path(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void *write_spans(void *arg)
{
    for (uint64_t i = 0; i < SPANS; i++)
        cw_trace_span(arg, "batch", &(struct cw_traced){stream, 0, i, i % 2 ? CW_TRACE_RANGE : 7, 0},
                      cw_now_ns(), cw_now_ns());
    return NULL;
}

/* How many events of a phase the file has; all of it must be JSON. */
static size_t count(const char *phase, json_t **ret)
{
    json_error_t why;
    json_t *all = json_load_file(path, 0, &why), *event;
    size_t i, n = 0;
    assert_non_null(all);
    json_array_foreach(all, i, event)
        n += strcmp(json_string_value(json_object_get(event, "ph")), phase) == 0;
    *ret = all;
    return n;
}

static void test_threads(void **state)
{
    struct cw_trace *t;
    pthread_t threads[THREADS];
    json_t *all;
    (void)state;
    assert_int_equal(cw_trace_open(path, "a test", CW_TRACE_BYTES, &t, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_spans, t), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(cw_trace_close(t, NULL), 0);
    assert_int_equal(count("b", &all), THREADS * SPANS);
    json_decref(all);
    assert_int_equal(count("e", &all), THREADS * SPANS);
    const json_t *second = json_array_get(all, 1); /* behind the process's name */
    assert_string_equal(json_string_value(json_object_get(second, "id")), "abcd0001:0/0/7");
    json_decref(all);
}

static void test_limit(void **state)
{
    struct cw_trace *t;
    json_t *all;
    char expected[64];
    (void)state;
    assert_int_equal(cw_trace_open(path, "a test", 100000, &t, NULL), 0);
    write_spans(t);
    assert_int_equal(cw_trace_close(t, NULL), 0);
    size_t n = count("b", &all);
    assert_true(n > 100 && n < SPANS);
    snprintf(expected, sizeof(expected), "%zu spans left out", SPANS - n);
    const json_t *last = json_array_get(all, json_array_size(all) - 1);
    assert_string_equal(json_string_value(json_object_get(json_object_get(last, "args"), "labels")),
                        expected);
    json_decref(all);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    assert_true(ftell(f) <= 100000 + 512); /* and the last line */
    fclose(f);
}

static void test_full(void **state)
{
    struct cw_trace *t;
    struct cw_error err = {0};
    (void)state;
    assert_int_equal(cw_trace_open("/dev/full", "a test", CW_TRACE_BYTES, &t, &err), 0);
    write_spans(t);
    assert_int_equal(cw_trace_close(t, &err), CW_E_IO);
    assert_int_equal(cw_trace_open("/dev/null/x", "a test", CW_TRACE_BYTES, &t, &(struct cw_error){0}),
                     CW_E_OPTION);
    cw_trace_span(NULL, "batch", &(struct cw_traced){stream, 0, 0, 0, 0}, 0, 0); /* nothing is traced */
    assert_int_equal(cw_trace_close(NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
