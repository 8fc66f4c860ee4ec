/* The C interface, as a program uses it. usage: test_api SOLARIZE.so */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cachew/cachew.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "data_files.h"

static const char *negative_path; /* examples/plugin */

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

static struct cachew_pipeline *parse(const char *text)
{
    struct cachew_pipeline *p;
    struct cachew_error *err = NULL;
    int r = cachew_pipeline_parse(text, NULL, &p, &err);
    if (r < 0)
        fail_msg("%s", cachew_error_message(err));
    return p;
}

static struct cachew_iterator *open_iterator(const struct cachew_pipeline *p, const struct cachew_options *o)
{
    struct cachew_iterator *it;
    struct cachew_error *err = NULL;
    int r = cachew_iterator_open(p, o, &it, &err);
    if (r < 0)
        fail_msg("%s", cachew_error_message(err));
    return it;
}

/* Adds the hashes of up to n batches to *sum. How many there were. */
static uint64_t pull(struct cachew_iterator *it, uint64_t n, struct cachew_hash *sum)
{
    struct cachew_batch *b;
    uint64_t i = 0;
    for (; i < n; i++) {
        int r = cachew_iterator_next(it, -1, &b, NULL);
        if (r == 1)
            break;
        assert_int_equal(r, 0);
        if (!(cachew_batch_flags(b) & CACHEW_PADDING))
            *sum = cachew_hash_add(*sum, cachew_batch_hash(b));
        cachew_batch_release(b);
    }
    return i;
}

static struct cachew_hash digest(const struct cachew_pipeline *p, const struct cachew_options *o)
{
    struct cachew_hash sum = {0, 0};
    struct cachew_iterator *it = open_iterator(p, o);
    pull(it, UINT64_MAX, &sum);
    cachew_iterator_free(it);
    return sum;
}

#define SMALL \
    "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 1000}, {\"op\": \"assign\", \"set\": " \
    "{\"half\": \"value * 0.5\"}}, " \
    "{\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 32}]}"

static void names(void **state)
{
    (void)state;
    assert_string_equal(cachew_dtype_name(CACHEW_BFLOAT16), "bfloat16");
    assert_int_equal(cachew_dtype_size(CACHEW_FLOAT64), 8);
    assert_null(cachew_dtype_name((enum cachew_dtype)99));
    assert_non_null(strchr(cachew_version(), '.'));
    char *ops = cachew_operators_json();
    assert_non_null(strstr(ops, "\"random_resized_crop\""));
    cachew_free(ops);
    cachew_error_free(NULL);
    cachew_pipeline_free(NULL);
    cachew_schema_free(NULL);
    cachew_iterator_free(NULL);
    cachew_batch_release(NULL);
}

static void schema_needs_no_data(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"tfrecord\", \"files\": \"/nowhere/*\"}, {\"op\": "
        "\"parse_example\", \"features\": "
        "{\"image\": \"bytes\", \"label\": \"int64\"}}, {\"op\": \"decode_image\", \"component\": "
        "\"image\"}, {\"op\": \"batch\", \"size\": 7}]}");
    struct cachew_schema *s;
    struct cachew_iterator *it;
    struct cachew_error *err = NULL;
    assert_int_equal(cachew_pipeline_schema(p, &s, NULL), 0);
    assert_int_equal(cachew_schema_count(s), 2);
    assert_int_equal(cachew_schema_batch_size(s), 7);
    assert_string_equal(cachew_schema_name(s, 0), "image");
    assert_int_equal(cachew_schema_dtype(s, 0), CACHEW_UINT8);
    assert_int_equal(cachew_schema_ndim(s, 0), 3);
    assert_int_equal(cachew_schema_dim(s, 0, 0), CACHEW_VARIES);
    assert_int_equal(cachew_schema_dim(s, 0, 2), 3);
    assert_int_equal(cachew_schema_dtype(s, 1), CACHEW_INT64);
    assert_int_equal(cachew_schema_ndim(s, 1), 0);
    for (size_t i = 2; i < SIZE_MAX / 2; i *= 1000) { /* there are but two */
        assert_null(cachew_schema_name(s, i));
        assert_null(cachew_dtype_name(cachew_schema_dtype(s, i)));
        assert_int_equal(cachew_schema_ndim(s, i), CACHEW_VARIES);
        assert_int_equal(cachew_schema_dim(s, i, 0), CACHEW_VARIES);
    }
    cachew_schema_free(s);
    assert_true(cachew_iterator_open(p, NULL, &it, &err) < 0);
    assert_non_null(strstr(cachew_error_message(err), "/nowhere/*"));
    cachew_error_free(err);
    cachew_pipeline_free(p);
}

static void builds_the_same_as_text(void **state)
{
    (void)state;
    struct cachew_pipeline *text = parse(SMALL), *p = cachew_pipeline_new(NULL);
    assert_int_equal(cachew_pipeline_add(p, "range", "{\"stop\": 1000}", NULL), 0);
    assert_int_equal(cachew_pipeline_add(p, "assign", "{\"set\": {\"half\": \"value * 0.5\"}}", NULL), 0);
    assert_int_equal(cachew_pipeline_add(p, "shuffle", NULL, NULL), 0);
    assert_int_equal(cachew_pipeline_add(p, "batch", "{\"size\": 32}", NULL), 0);
    assert_int_equal(cachew_pipeline_check(p, NULL), 0);
    struct cachew_hash a = digest(text, NULL), b = digest(p, NULL);
    assert_memory_equal(&a, &b, sizeof(a));
    char *json = cachew_pipeline_json(p);
    struct cachew_pipeline *again = parse(json);
    b = digest(again, NULL);
    assert_memory_equal(&a, &b, sizeof(a));
    free(json);
    cachew_pipeline_free(again);
    cachew_pipeline_free(p);
    cachew_pipeline_free(text);
}

/* What is foretold is what comes, for every rank. */
static void counts_batches(void **state)
{
    (void)state;
    static const char *const pipelines[] = {
        "{\"op\": \"range\", \"stop\": 0}, {\"op\": \"batch\", \"size\": 4}",
        "{\"op\": \"range\", \"stop\": 7}",
        "{\"op\": \"range\", \"stop\": 100}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 32}",
        "{\"op\": \"range\", \"stop\": 100}, {\"op\": \"batch\", \"size\": 32, \"drop_remainder\": true}",
        "{\"op\": \"range\", \"stop\": 100}, {\"op\": \"batch\", \"size\": 7}, {\"op\": \"skip\", \"count\": "
        "2}, {\"op\": \"take\", \"count\": 8}",
        "{\"op\": \"range\", \"stop\": 10}, {\"op\": \"batch\", \"size\": 5}, {\"op\": \"repeat\", "
        "\"count\": 3}",
        "{\"op\": \"range\", \"stop\": 10}, {\"op\": \"batch\", \"size\": 4, \"drop_remainder\": true}, "
        "{\"op\": \"repeat\", \"count\": 3}",
    };
    for (size_t i = 0; i < sizeof(pipelines) / sizeof(pipelines[0]); i++)
        for (unsigned ranks = 1; ranks <= 3; ranks++)
            for (unsigned rank = 0; rank < ranks; rank++) {
                char text[512];
                snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s]}", pipelines[i]);
                struct cachew_options o = CACHEW_OPTIONS_INIT;
                o.rank = rank;
                o.world_size = ranks;
                o.threads = 2;
                struct cachew_pipeline *p = parse(text);
                struct cachew_iterator *it = open_iterator(p, &o);
                struct cachew_batch *b;
                uint64_t n, seen = 0, rows = 0;
                for (; cachew_iterator_next(it, -1, &b, NULL) == 0; seen++) {
                    rows += cachew_batch_records(b);
                    cachew_batch_release(b);
                }
                assert_int_equal(cachew_pipeline_batches(p, &o, &n, NULL), 0);
                assert_int_equal(n, seen);
                assert_int_equal(cachew_pipeline_elements(p, &o, &n, NULL), 0);
                assert_true(ranks > 1 || n == rows);
                cachew_iterator_free(it);
                cachew_pipeline_free(p);
            }
    struct cachew_pipeline *p = parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 9}, "
                                      "{\"op\": \"filter\", \"where\": \"value > 3\"}]}");
    uint64_t n;
    assert_int_equal(cachew_pipeline_batches(p, NULL, &n, NULL), 1);
    assert_int_equal(cachew_pipeline_elements(p, NULL, &n, NULL), 1);
    cachew_pipeline_free(p);
    p = parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 9}, {\"op\": \"repeat\", "
              "\"count\": -1}]}");
    assert_int_equal(cachew_pipeline_batches(p, NULL, &n, NULL), 0);
    assert_true(n == UINT64_MAX);
    assert_int_equal(cachew_pipeline_elements(p, NULL, &n, NULL), 0);
    assert_true(n == UINT64_MAX);
    cachew_pipeline_free(p);
}

/* Epochs [1, 3) are the second and third of three. */
static void begins_at_an_epoch(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(SMALL);
    struct cachew_hash sum = {0}, whole;
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        struct cachew_options o = CACHEW_OPTIONS_INIT;
        o.first_epoch = epoch;
        o.epochs = epoch + 1;
        sum = cachew_hash_add(sum, digest(p, &o));
    }
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    o.epochs = 3;
    whole = digest(p, &o);
    assert_memory_equal(&sum, &whole, sizeof(sum));
    struct cachew_error *err = NULL;
    struct cachew_iterator *it;
    o.first_epoch = -1;
    assert_int_equal(cachew_iterator_open(p, &o, &it, &err), CACHEW_E_OPTION);
    assert_string_equal(cachew_error_attribute(err), "first_epoch");
    cachew_error_free(err);
    cachew_pipeline_free(p);
}

/* In both orders, from the beginning and from the middle; and a state that does not fit is found out. */
static void the_place_of_an_iterator_is_known_without_one(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(SMALL),
                           *other = parse(
                               "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 9}]}");
    struct cachew_error *err = NULL;
    char *text;
    for (int order = 0; order < 2; order++) {
        struct cachew_options o = CACHEW_OPTIONS_INIT;
        char *begin, *later;
        o.first_epoch = 2;
        o.epochs = 5;
        o.order = order ? "any" : "exact";
        struct cachew_iterator *it = open_iterator(p, &o);
        struct cachew_hash sum = {0};
        begin = cachew_iterator_state(it);
        assert_int_equal(pull(it, 1, &sum), 1);
        later = cachew_iterator_state(it);
        cachew_iterator_free(it);
        assert_int_equal(cachew_pipeline_state(p, &o, &text, NULL), 0);
        assert_string_equal(text, begin);
        cachew_free(text);
        o.state = later;
        assert_int_equal(cachew_pipeline_state(p, &o, &text, NULL), 0);
        assert_string_equal(text, later);
        cachew_free(text);
        assert_int_equal(cachew_pipeline_state(other, &o, &text, NULL), CACHEW_E_STATE);
        o.service = "127.0.0.1:1";
        assert_int_equal(cachew_pipeline_state(p, &o, &text, &err), CACHEW_E_OPTION);
        assert_string_equal(cachew_error_attribute(err), "service");
        cachew_error_free(err);
        cachew_free(begin);
        cachew_free(later);
    }
    cachew_pipeline_free(p);
    cachew_pipeline_free(other);
}

/* Without end, but not for ever where nothing comes. */
static void an_empty_epoch_ends_it(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 9}, "
                                      "{\"op\": \"filter\", \"where\": \"value > 30\"}]}");
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    o.epochs = INT64_MAX;
    struct cachew_iterator *it = open_iterator(p, &o);
    struct cachew_batch *b;
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 1);
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 1);
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
}

static void explains(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(SMALL);
    struct cachew_error *err = NULL;
    char *text;
    assert_int_equal(cachew_pipeline_explain(p, NULL, 0, 0, &text, NULL), 0);
    assert_non_null(strstr(text, "half: float64"));
    assert_null(strstr(text, "bottleneck"));
    cachew_free(text);
    assert_int_equal(cachew_pipeline_explain(p, NULL, 0.05, 1, &text, NULL), 0);
    assert_non_null(strstr(text, "\"bottleneck\""));
    cachew_free(text);
    const int now = 1;
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    o.interrupt = &now;
    assert_int_equal(cachew_pipeline_explain(p, &o, 60, 0, &text, &err), CACHEW_E_INTERRUPTED);
    cachew_error_free(err);
    cachew_pipeline_free(p);
}

static void joins_inputs(void **state)
{
    (void)state;
    struct cachew_pipeline *parts[2], *p = cachew_pipeline_new(NULL);
    for (int i = 0; i < 2; i++) {
        parts[i] = cachew_pipeline_new(NULL);
        assert_int_equal(
            cachew_pipeline_add(parts[i], "range", i ? "{\"start\": 5, \"stop\": 8}" : "{\"stop\": 5}", NULL),
            0);
    }
    assert_int_equal(
        cachew_pipeline_add_inputs(p, "concat", NULL, (const struct cachew_pipeline *const *)parts, 2, NULL),
        0);
    assert_int_equal(cachew_pipeline_add(p, "batch", "{\"size\": 8}", NULL), 0);
    cachew_pipeline_free(parts[0]);
    cachew_pipeline_free(parts[1]);
    struct cachew_iterator *it = open_iterator(p, NULL);
    cachew_pipeline_free(p); /* the iterator has what it needs */
    struct cachew_batch *b;
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 0);
    const struct cachew_component *c = cachew_batch_find(b, "value");
    assert_non_null(c);
    assert_null(cachew_batch_find(b, "none"));
    assert_null(cachew_batch_component(b, 1));
    assert_int_equal(c->dtype, CACHEW_INT64);
    assert_int_equal(c->ndim, 1);
    assert_int_equal(c->dims[0], 8);
    assert_int_equal(c->size, 64);
    assert_null(c->lengths);
    for (int i = 0; i < 8; i++)
        assert_int_equal(((int64_t *)c->data)[i], i);
    char id[64];
    size_t length = cachew_batch_record_id(b, 6, id, sizeof(id));
    assert_int_equal(length, strlen(id));
    assert_non_null(strstr(id, ":1"));
    assert_int_equal(cachew_batch_records(b), 8);
    assert_int_equal(cachew_batch_epoch(b) + cachew_batch_g(b) + cachew_batch_flags(b), 0);
    cachew_batch_release(b);
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 1);
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 1);
    cachew_iterator_free(it);
}

static void errors_name_facts(void **state)
{
    (void)state;
    struct cachew_pipeline *p = cachew_pipeline_new(NULL), *none;
    struct cachew_error *err = NULL;
    assert_int_equal(cachew_pipeline_add(p, "rnage", NULL, &err), CACHEW_E_PIPELINE);
    assert_int_equal(cachew_error_status(err), CACHEW_E_PIPELINE);
    assert_string_equal(cachew_error_kind(err), "pipeline");
    assert_string_equal(cachew_error_operator(err), "rnage");
    assert_non_null(strstr(cachew_error_message(err), "\"range\""));
    assert_null(cachew_error_record(err));
    assert_int_equal(cachew_error_errno(err), 0);
    assert_null(cachew_error_detail(err));
    cachew_error_free(err);
    assert_true(cachew_pipeline_load("/nowhere/file.json", &none, &err) < 0);
    assert_int_equal(cachew_error_errno(err), ENOENT);
    cachew_error_free(err);
    assert_int_equal(cachew_pipeline_add(p, "range", "{\"stop\": \"x\"}", &err), CACHEW_E_PIPELINE);
    assert_string_equal(cachew_error_operator(err), "range");
    assert_string_equal(cachew_error_attribute(err), "stop");
    assert_string_equal(cachew_error_value(err), "\"x\"");
    assert_non_null(strstr(cachew_error_expected(err), "integer"));
    cachew_error_free(err);
    assert_int_equal(cachew_pipeline_add(p, "range", "{\"stop\": 3", &err), CACHEW_E_PIPELINE);
    assert_non_null(strstr(cachew_error_message(err), "range: attributes are not valid JSON"));
    cachew_error_free(err);
    /* what failed left no trace */
    assert_int_equal(cachew_pipeline_add(p, "range", "{\"stop\": 3}", NULL), 0);
    assert_int_equal(cachew_pipeline_add(p, "range", "{\"stop\": 3}", NULL), CACHEW_E_PIPELINE);
    /* types come later */
    assert_int_equal(cachew_pipeline_add(p, "assign", "{\"set\": {\"a\": \"vlaue + 1\"}}", NULL), 0);
    assert_int_equal(cachew_pipeline_check(p, &err), CACHEW_E_PIPELINE);
    assert_string_equal(cachew_error_operator(err), "assign");
    cachew_error_free(err);
    assert_int_equal(cachew_pipeline_set_on_error(p, "ignore", &err), CACHEW_E_PIPELINE);
    assert_string_equal(cachew_error_value(err), "ignore");
    cachew_error_free(err);
    assert_int_equal(cachew_pipeline_load("/nowhere/p.json", &none, &err), CACHEW_E_OPTION);
    assert_string_equal(cachew_error_file(err), "/nowhere/p.json");
    cachew_error_free(err);
    assert_int_equal(cachew_pipeline_parse("[1", NULL, &none, NULL), CACHEW_E_PIPELINE);
    cachew_pipeline_free(p);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(SMALL);
    struct cachew_options good = CACHEW_OPTIONS_INIT,
                          bad[9] = {good, good, good, good, good, good, good, good, good};
    static const char *const expect[] = {"seed",   "rank",    "threads",  "size", NULL,
                                         "memory", "tls_key", "tls_cert", NULL};
    static const int status[] = {CACHEW_E_OPTION, CACHEW_E_OPTION, CACHEW_E_OPTION,
                                 CACHEW_E_OPTION, CACHEW_E_STATE,  CACHEW_E_BUDGET,
                                 CACHEW_E_OPTION, CACHEW_E_OPTION, CACHEW_E_OPTION};
    bad[0].seed = -2;
    bad[1].rank = 1;
    bad[2].threads = 5000;
    bad[3].size = 0;
    bad[4].state = "{\"cachew_state\":";
    bad[5].memory = 1000;
    for (size_t i = 6; i < 9; i++)
        bad[i].service = "127.0.0.1:1";
    bad[6].tls_cert = "client.pem"; /* and no key */
    bad[7].tls_key = "client-key.pem";
    bad[8].tls_ca = "/nowhere/ca.pem";
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct cachew_iterator *it;
        struct cachew_error *err = NULL;
        assert_int_equal(cachew_iterator_open(p, &bad[i], &it, &err), status[i]);
        if (expect[i])
            assert_string_equal(cachew_error_attribute(err), expect[i]);
        cachew_error_free(err);
    }
    cachew_pipeline_free(p);
}

/* Whatever the stopping point, threads, memory and number of ranks, the parts add up; so do the ranks. */
static void state_goes_round(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(SMALL);
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    o.epochs = 2;
    o.seed = 7;
    struct cachew_hash whole = digest(p, &o);
    for (uint64_t stop = 0; stop <= 65; stop += 13) {
        struct cachew_hash sum = {0, 0};
        o.threads = 1;
        o.optimize = 1;
        o.state = NULL;
        struct cachew_iterator *it = open_iterator(p, &o);
        pull(it, stop, &sum);
        char *text = cachew_iterator_state(it);
        assert_true(strlen(text) < 1024);
        cachew_iterator_free(it);
        o.state = text;
        o.threads = 3;
        o.optimize = 0;
        for (o.world_size = 1; o.world_size <= 4; o.world_size += 3) {
            struct cachew_hash parts = sum;
            for (o.rank = 0; o.rank < o.world_size; o.rank++) {
                it = open_iterator(p, &o);
                pull(it, UINT64_MAX, &parts);
                cachew_iterator_free(it);
            }
            assert_memory_equal(&parts, &whole, sizeof(parts));
        }
        o.rank = 0;
        o.world_size = 1;
        cachew_free(text);
    }
    struct cachew_hash sum = {0, 0};
    o.state = NULL;
    o.world_size = 3;
    for (o.rank = 0; o.rank < 3; o.rank++)
        sum = cachew_hash_add(sum, digest(p, &o));
    assert_memory_equal(&sum, &whole, sizeof(sum));
    cachew_pipeline_free(p);
}

static void state_of_another_pipeline(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(SMALL),
                           *q = parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 5}]}");
    struct cachew_iterator *it = open_iterator(p, NULL);
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cachew_error *err = NULL;
    char *text = cachew_iterator_state(it);
    cachew_iterator_free(it);
    o.state = text;
    assert_int_equal(cachew_iterator_open(q, &o, &it, &err), CACHEW_E_STATE);
    assert_string_equal(cachew_error_attribute(err), "pipeline");
    cachew_error_free(err);
    free(text);
    cachew_pipeline_free(p);
    cachew_pipeline_free(q);
}

static void *release_all(void *arg)
{
    struct cachew_batch **held = arg;
    for (size_t i = 0; held[i]; i++)
        cachew_batch_release(held[i]);
    return NULL;
}

/* More batches than the memory budget holds; they outlive the iterator and are released by another thread. */
static void holds_many(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 100000}, "
                                      "{\"op\": \"batch\", \"size\": 1000}]}");
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cachew_batch *held[101] = {NULL};
    o.memory = (uint64_t)2 << 20;
    o.threads = 2;
    struct cachew_iterator *it = open_iterator(p, &o);
    for (int i = 0; i < 100; i++)
        assert_int_equal(cachew_iterator_next(it, -1, &held[i], NULL), 0);
    struct cachew_batch *none;
    assert_int_equal(cachew_iterator_next(it, -1, &none, NULL), 1);
    assert_int_equal(cachew_iterator_held(it), 100);
    char *profile = cachew_iterator_profile(it);
    assert_non_null(strstr(profile, "\"batches_held\":100"));
    assert_non_null(strstr(profile, "\"op\":\"range\""));
    cachew_free(profile);
    for (int i = 0; i < 100; i++) {
        int64_t *v = cachew_batch_component(held[i], 0)->data;
        for (int k = 0; k < 1000; k++)
            if (v[k] != i * 1000 + k)
                fail_msg("batch %d, record %d is %lld", i, k, (long long)v[k]);
        v[0] = -1; /* they are the caller's */
    }
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
    pthread_t thread;
    assert_int_equal(((int64_t *)cachew_batch_component(held[99], 0)->data)[999], 99999);
    assert_int_equal(pthread_create(&thread, NULL, release_all, held), 0);
    pthread_join(thread, NULL);
}

static void *interrupt(void *arg)
{
    cachew_iterator_interrupt(arg, 1);
    return NULL;
}

/* Returns an iterator whose first wait was interrupted, with the interrupt still on. A batch that is there
 * already is handed out all the same: then another iterator is opened. */
static struct cachew_iterator *open_interrupted(const struct cachew_pipeline *p,
                                                const struct cachew_options *o)
{
    for (;;) {
        struct cachew_batch *b;
        struct cachew_iterator *it = open_iterator(p, o);
        cachew_iterator_interrupt(it, 1);
        int r = cachew_iterator_next(it, -1, &b, NULL);
        if (r == CACHEW_E_INTERRUPTED)
            return it;
        assert_int_equal(r, 0);
        cachew_batch_release(b);
        cachew_iterator_free(it);
    }
}

/* An interrupt ends the wait for a batch that never comes; what comes after it is as if nothing had been. */
static void interrupts(void **state)
{
    (void)state;
    struct cachew_pipeline
        *p = parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 200}, "
                   "{\"op\": \"fail\", \"kind\": \"hang\"}, {\"op\": \"batch\", \"size\": 200}]}"),
        *q = parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 10}, {\"op\": \"delay\", "
                   "\"us\": 20000}, {\"op\": \"batch\", \"size\": 10}]}");
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cachew_batch *b;
    struct cachew_error *err = NULL;
    o.threads = 1;
    struct cachew_iterator *it = open_iterator(p, &o);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupt, it), 0);
    assert_int_equal(cachew_iterator_next(it, -1, &b, &err), CACHEW_E_INTERRUPTED);
    assert_string_equal(cachew_error_kind(err), "interrupted");
    cachew_error_free(err);
    pthread_join(thread, NULL);
    cachew_iterator_interrupt(it, 0);
    assert_int_equal(cachew_iterator_next(it, 0.01, &b, &err), CACHEW_E_DEADLINE);
    cachew_error_free(err);
    cachew_iterator_free(it);

    it = open_interrupted(q, &o);
    cachew_iterator_interrupt(it, 0);
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 0);
    assert_int_equal(cachew_batch_records(b), 10);
    cachew_batch_release(b);
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 1);
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
    cachew_pipeline_free(q);
}

/* A wait that ends loses nothing, wherever it ends: for a batch, for memory to join parts in, or to finish
 * what was joined. */
static void short_waits_lose_nothing(void **state)
{
    char text[512];
    struct bytes file = {0};
    assert_int_equal(temp_make(state), 0);
    for (uint32_t i = 0; i < 2500; i++)
        bytes_add_numbered(&file, i, i * 2654435761u % 16000);
    snprintf(
        text, sizeof(text),
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"tfrecord\", \"files\": \"%s\"}, {\"op\": \"shuffle\"}, "
        "{\"op\": \"bucket_by_length\", "
        "\"length\": \"length(record)\", \"boundaries\": [4000, 8000, 12000], \"sizes\": [8, 8, 8, 8]}]}",
        temp_file("a.tfrecord", file.data, file.size));
    bytes_free(&file);
    struct cachew_pipeline *p = parse(text);
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    o.index_dir = temp_path("index");
    o.epochs = 2;
    struct cachew_hash whole = digest(p, &o);
    o.memory = (uint64_t)2 << 20;
    unsigned deadlines = 0;
    for (unsigned us = 1; us <= 100; us = us == 100 && deadlines == 0 ? 1 : us * 10)
        for (o.threads = 1; o.threads <= 3; o.threads++) {
            struct cachew_hash sum = {0, 0};
            struct cachew_iterator *it = open_iterator(p, &o);
            for (;;) {
                struct cachew_batch *b;
                struct cachew_error *err = NULL;
                int r = cachew_iterator_next(it, us * 1e-6, &b, &err);
                if (r == 1)
                    break;
                if (r == CACHEW_E_DEADLINE) {
                    deadlines++;
                    cachew_error_free(err);
                    continue;
                }
                if (r < 0)
                    fail_msg("%u us, %u threads: %s", us, o.threads, cachew_error_message(err));
                sum = cachew_hash_add(sum, cachew_batch_hash(b));
                cachew_batch_release(b);
            }
            cachew_iterator_free(it);
            assert_memory_equal(&sum, &whole, sizeof(sum));
        }
    assert_true(deadlines > 0);
    cachew_pipeline_free(p);
    assert_int_equal(temp_remove(state), 0);
}

static void orders_and_guarantees(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 100}, "
                                      "{\"op\": \"batch\", \"size\": 4}]}");
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cachew_error *err = NULL;
    struct cachew_iterator *it;
    struct cachew_batch *b;
    bool seen[100] = {false};
    o.world_size = 3;
    o.order = "any";
    for (o.rank = 0; o.rank < 3; o.rank++) {
        it = open_iterator(p, &o);
        for (uint64_t n = 0; cachew_iterator_next(it, -1, &b, NULL) == 0; n++) {
            const int64_t *values = cachew_batch_component(b, 0)->data;
            assert_int_equal(cachew_batch_g(b), o.rank + 3 * n);
            for (uint32_t i = 0; i < cachew_batch_records(b) && !(cachew_batch_flags(b) & CACHEW_PADDING);
                 i++) {
                assert_false(seen[values[i]]);
                seen[values[i]] = true;
            }
            cachew_batch_release(b);
        }
        cachew_iterator_free(it);
    }
    for (int i = 0; i < 100; i++)
        assert_true(seen[i]);
    o.rank = 0;
    o.world_size = 1;

    static const struct {
        const char *order, *guarantee, *attribute;
    } wrong[] = {{"some", NULL, "order"}, {NULL, "never", "guarantee"}, {"exact", "at-most-once", "order"}};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        o.order = wrong[i].order;
        o.guarantee = wrong[i].guarantee;
        o.service = i == 2 ? "127.0.0.1:1" : NULL; /* that is found before anybody is asked */
        assert_int_equal(cachew_iterator_open(p, &o, &it, &err), CACHEW_E_OPTION);
        assert_string_equal(cachew_error_attribute(err), wrong[i].attribute);
        cachew_error_free(err);
        err = NULL;
    }
    cachew_pipeline_free(p);
}

/* The rank without a batch in the last round repeats one; that takes longer than a wait, but each wait gets
 * further. */
static void padding_comes_after_short_waits(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(
        "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 60}, {\"op\": \"delay\", \"us\": "
        "5000}, {\"op\": \"batch\", \"size\": 4}]}");
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cachew_batch *b;
    o.threads = 1;
    o.world_size = 30;
    o.rank = 29; /* 15 batches: it gets the last one */
    struct cachew_iterator *it = open_interrupted(p, &o);
    cachew_iterator_interrupt(it, 0);
    int r;
    while ((r = cachew_iterator_next(it, 0.01, &b, NULL)) == CACHEW_E_DEADLINE)
        ; /* the test's time-out ends it if waits get no further */
    assert_int_equal(r, 0);
    assert_true(cachew_batch_flags(b) & CACHEW_PADDING);
    assert_int_equal(((int64_t *)cachew_batch_component(b, 0)->data)[0], 56);
    cachew_batch_release(b);
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 1);
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
}

#define JOINED \
    "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 9000}, {\"op\": \"shuffle\"}, {\"op\": " \
    "\"filter\", \"where\": \"value % 3 != 0\"}, " \
    "{\"op\": \"batch\", \"size\": 700}]}"

/* Who lost a batch that was offered goes on from the state that there is, and gets it. */
static void a_batch_that_is_offered_moves_nothing(void **state)
{
    (void)state;

    static const struct {
        const char *pipeline, *order;
        unsigned rank, world_size;
    } cases[] = {
        {SMALL, "exact", 0, 1},  {SMALL, "any", 0, 1},  {SMALL, "exact", 2, 3},  {SMALL, "any", 2, 3},
        {JOINED, "exact", 0, 1}, {JOINED, "any", 0, 1}, {JOINED, "exact", 4, 5}, {SMALL, "exact", 39, 40},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct cachew_pipeline *p = parse(cases[i].pipeline);
        struct cachew_options o = CACHEW_OPTIONS_INIT;
        struct cachew_batch *b, *again;
        o.epochs = 2;
        o.order = cases[i].order;
        o.rank = cases[i].rank;
        o.world_size = cases[i].world_size;
        struct cachew_iterator *it = open_iterator(p, &o);
        struct cachew_hash offered = {0, 0}, taken = digest(p, &o);
        while (cachew_iterator_offer(it, -1, &b, NULL) == 0) {
            char *before = cachew_iterator_state(it);
            o.state = before;
            struct cachew_iterator *resumed = open_iterator(p, &o);
            o.state = NULL;
            assert_int_equal(cachew_iterator_next(resumed, -1, &again, NULL), 0);
            assert_int_equal(cachew_batch_g(again), cachew_batch_g(b));
            assert_int_equal(cachew_batch_hash(again).low, cachew_batch_hash(b).low);
            cachew_batch_release(again);
            cachew_iterator_free(resumed);
            if (!(cachew_batch_flags(b) & CACHEW_PADDING))
                offered = cachew_hash_add(offered, cachew_batch_hash(b));
            cachew_batch_release(b);
            cachew_iterator_accept(it);
            cachew_iterator_accept(it); /* it is accepted once */
            char *after = cachew_iterator_state(it);
            assert_string_not_equal(before, after);
            cachew_free(before);
            cachew_free(after);
        }
        assert_int_equal(offered.low, taken.low);
        assert_int_equal(offered.high, taken.high);
        cachew_iterator_free(it);
        it = open_iterator(p, &o); /* one that is offered when it ends */
        assert_int_equal(cachew_iterator_offer(it, -1, &b, NULL), 0);
        cachew_iterator_free(it);
        cachew_batch_release(b);
        cachew_pipeline_free(p);
    }
}

#define FAILING \
    "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 40}, {\"op\": \"fail\", \"where\": " \
    "\"value % 10 == 3\"}, {\"op\": \"batch\", \"size\": 8}]}"

static void records_that_fail(void **state)
{
    (void)state;
    struct cachew_pipeline *p = parse(FAILING);
    struct cachew_error *err = NULL, *again = NULL;
    struct cachew_hash sum = {0, 0};
    struct cachew_batch *b;
    uint64_t skipped = 0, replaced = 0;
    struct cachew_iterator *it = open_iterator(p, NULL);
    assert_int_equal(cachew_iterator_next(it, -1, &b, &err), CACHEW_E_RECORD);
    assert_string_equal(cachew_error_operator(err), "fail");
    assert_non_null(strstr(cachew_error_record(err), ":3"));
    assert_string_equal(cachew_error_detail(err), "{\"epoch\":0,\"position\":3}");
    assert_int_equal(cachew_iterator_next(it, -1, &b, &again), CACHEW_E_RECORD); /* it stays failed */
    assert_string_equal(cachew_error_message(err), cachew_error_message(again));
    cachew_error_free(err);
    cachew_error_free(again);
    cachew_iterator_free(it);

    assert_int_equal(cachew_pipeline_set_on_error(p, "skip", NULL), 0);
    it = open_iterator(p, NULL);
    pull(it, UINT64_MAX, &sum);
    char *list = cachew_iterator_quarantine(it, &skipped, &replaced);
    assert_int_equal(skipped, 4);
    assert_int_equal(replaced, 0);
    assert_non_null(strstr(list, "\"action\":\"skipped\""));
    assert_non_null(strstr(list, ":33\""));
    cachew_free(list);
    cachew_iterator_free(it);

    assert_int_equal(cachew_pipeline_set_on_error(p, "replace", NULL), 0);
    it = open_iterator(p, NULL);
    unsigned flagged = 0;
    while (cachew_iterator_next(it, -1, &b, NULL) == 0) {
        assert_int_equal(cachew_batch_records(b), 8);
        for (uint32_t i = 0; i < 8; i++)
            flagged += cachew_batch_record_flags(b, i) == CACHEW_REPLACEMENT;
        cachew_batch_release(b);
    }
    list = cachew_iterator_quarantine(it, NULL, &replaced);
    assert_int_equal(flagged, 4);
    assert_int_equal(replaced, 4);
    assert_non_null(strstr(list, "\"by\":"));
    free(list);
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
}

static void reads_bytes(void **state)
{
    (void)state;
    char dir[] = "/tmp/cachew-api-XXXXXX", path[64], text[256];
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%d.txt", dir, i);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%.*s", i, "ab");
        fclose(f);
    }
    snprintf(path, sizeof(path), "%s/p.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"cachew\": 1, \"pipeline\": [{\"op\": \"files\", \"files\": \"*.txt\"}, {\"op\": "
               "\"batch\", \"size\": 3}]}");
    fclose(f);
    struct cachew_pipeline *p;
    struct cachew_batch *b;
    assert_int_equal(cachew_pipeline_load(path, &p, NULL), 0);
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    o.index_dir = dir;
    struct cachew_iterator *it = open_iterator(p, &o);
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 0);
    const struct cachew_component *c = cachew_batch_find(b, "data");
    assert_int_equal(c->dtype, CACHEW_BYTES);
    assert_int_equal(c->size, 3);
    assert_memory_equal(c->data, "aab", 3);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(c->lengths[i], i);
    cachew_batch_release(b);
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
    snprintf(text, sizeof(text), "rm -r %s", dir);
    assert_int_equal(system(text), 0);
}

static void loads_a_plugin(void **unused)
{
    (void)unused;
    struct cachew_error *err = NULL;
    struct cachew_pipeline *p;
    struct cachew_iterator *it;
    struct cachew_batch *b;
    assert_int_equal(cachew_load_plugin("/nowhere/x.so", &err), CACHEW_E_OPTION);
    assert_non_null(strstr(cachew_error_message(err), "plug-in /nowhere/x.so can't be opened: No such file"));
    assert_string_equal(cachew_error_attribute(err), "plugin");
    assert_string_equal(cachew_error_file(err), "/nowhere/x.so");
    cachew_error_free(err);
    assert_int_equal(cachew_load_plugin(negative_path, NULL), 0);
    assert_int_equal(cachew_load_plugin(negative_path, NULL), 0);
    char *ops = cachew_operators_json();
    assert_non_null(strstr(ops, "\"plugin\":\"negative 1\""));
    cachew_free(ops);
    assert_int_equal(cachew_pipeline_parse("{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": "
                                           "256}, {\"op\": \"cast\", \"component\": \"value\", "
                                           "\"dtype\": \"uint8\"}, {\"op\": \"negative\", \"component\": "
                                           "\"value\"}, {\"op\": \"batch\", \"size\": 256}]}",
                                           NULL, &p, NULL),
                     0);
    assert_int_equal(cachew_iterator_open(p, NULL, &it, NULL), 0);
    assert_int_equal(cachew_iterator_next(it, -1, &b, NULL), 0);
    const uint8_t *value = cachew_batch_find(b, "value")->data;
    for (int i = 0; i < 256; i++)
        assert_int_equal(value[i], i < 128 ? i : 255 - i);
    cachew_batch_release(b);
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(schema_needs_no_data),
        cmocka_unit_test(builds_the_same_as_text),
        cmocka_unit_test(counts_batches),
        cmocka_unit_test(begins_at_an_epoch),
        cmocka_unit_test(the_place_of_an_iterator_is_known_without_one),
        cmocka_unit_test(an_empty_epoch_ends_it),
        cmocka_unit_test(explains),
        cmocka_unit_test(joins_inputs),
        cmocka_unit_test(errors_name_facts),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(state_goes_round),
        cmocka_unit_test(state_of_another_pipeline),
        cmocka_unit_test(holds_many),
        cmocka_unit_test(interrupts),
        cmocka_unit_test(short_waits_lose_nothing),
        cmocka_unit_test(orders_and_guarantees),
        cmocka_unit_test(padding_comes_after_short_waits),
        cmocka_unit_test(a_batch_that_is_offered_moves_nothing),
        cmocka_unit_test(records_that_fail),
        cmocka_unit_test(reads_bytes),
        cmocka_unit_test(loads_a_plugin),
    };
    negative_path = argc > 1 ? argv[1] : "negative.so";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
