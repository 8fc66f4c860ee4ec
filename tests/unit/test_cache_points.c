/*
 * Cache points that come and go while a runner runs: batches, their order and their contents are those of a
 * run without a cache, with an empty, a half filled and a full one. What is measured of cache points, by
 * modelled costs where the build has them, and what a stored profile may say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cost_clock.h"
#include "cache/admin.h"
#include "cache/cache.h"
#include "policy/cache_stats.h"
#include "session/caching.h"
#include "session/local.h"

#define EPOCHS 3

/* Two cache points, one of them before a filter; operators that draw behind both. */
static const char COUNTED[] =
    "{\"cachew\": 1, \"pipeline\": [{\"op\": \"synthetic\", \"count\": 1500, \"shape\": [12, 12, 3], "
    "\"dtype\": \"uint8\"},"
    "{\"op\": \"assign\", \"set\": {\"data\": \"255 - data\"}}, {\"op\": \"autocache\"},"
    "{\"op\": \"resize\", \"component\": \"data\", \"size\": [9, 9]}, {\"op\": \"autocache\"},"
    "{\"op\": \"random_flip\", \"component\": \"data\"}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", "
    "\"size\": 8}]}";
static const char FILTERED[] =
    "{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [{\"op\": \"range\", \"stop\": 3000}, {\"op\": "
    "\"assign\", \"set\": {\"twice\": \"value * 2\"}}, {\"op\": \"autocache\"},"
    "{\"op\": \"fail\", \"where\": \"value % 97 == 5\"}, {\"op\": \"filter\", \"where\": \"value % 3 != "
    "1\"}, {\"op\": \"autocache\"},"
    "{\"op\": \"assign\", \"set\": {\"more\": \"twice + 1\"}}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", "
    "\"size\": 7}]}";

static char *dir;

static int make_dir(void **state)
{
    (void)state;
    char name[] = "/tmp/cachew-test-XXXXXX";
    dir = strdup(mkdtemp(name));
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    struct cw_cache_list l;
    struct cw_error err = {0};
    char lock[64];
    if (cw_cache_list(dir, NULL, &l, &err) == 0) {
        for (size_t i = 0; i < l.n; i++)
            assert_int_equal(cw_cache_remove(dir, &l.sets[i], &err), 0);
        cw_cache_list_deinit(&l);
        snprintf(lock, sizeof(lock), "%s/lock", dir);
        assert_int_equal(unlink(lock), 0);
    }
    assert_int_equal(rmdir(dir), 0);
    free(dir);
    return 0;
}

/* ---- runs ---- */

struct ran {
    struct cw_hash128 digest;
    uint64_t n;
    struct cw_cache_facts facts;
};

/* Somebody who never knows what to want. */
struct flipper {
    struct cw_runner *runner;
    pthread_t thread;
    sem_t began;
    atomic_bool stop;
    uint64_t flips, wrong;
};

static void *flip(void *arg)
{
    static const int32_t cache_points[] = {-1, 1, 2};
    struct flipper *f = arg;
    struct cw_cache_stats stats;
    struct cw_effort effort;
    uint32_t draws = 1;
    while (!atomic_load(&f->stop)) {
        draws = draws * 1664525u + 1013904223u;
        cw_runner_set_cache_point(f->runner, cache_points[(draws >> 16) % 3]);
        f->wrong += cw_runner_cache_point(f->runner) != cache_points[(draws >> 16) % 3];
        cw_runner_cache_stats(f->runner, &stats);
        f->wrong += stats.n != 3;
        cw_runner_effort(f->runner, &effort);
        if (f->flips++ == 0)
            (void)sem_post(&f->began);
        (void)usleep(100);
    }
    return NULL;
}

static void take_all(struct cw_local *l, struct ran *ret)
{
    struct cw_error err = {0};
    struct cw_batch *b;
    int r;
    while ((r = cw_iterator_next(l->iterator, 0, &b, &err)) == 0) {
        ret->digest = cw_hash128_add(ret->digest, cw_batch_hash(b));
        ret->n++;
        cw_iterator_release(l->iterator, b);
    }
    if (r != 1)
        fail_msg("%s", err.message);
}

static void open_pipeline(struct cw_local *l, const char *text)
{
    struct cw_error err = {0};
    if (cw_local_parse(l, text, strlen(text), "/", &err) < 0 || cw_local_open(l, dir, 2, 0, &err) < 0)
        fail_msg("%s", err.message);
}

static struct cw_iterator_options options(uint64_t epochs)
{
    return (struct cw_iterator_options){
        .seed = 3,
        .epochs = epochs,
        .world_size = 1,
        .runner = {.threads = 3, .memory = (size_t)64 << 20, .optimize = true}};
}

/* caching NULL: without a cache. */
static struct ran run(const char *text, const struct cw_caching *caching, uint64_t epochs, bool flips)
{
    struct cw_local l = {0};
    struct cw_iterator_options o = options(epochs);
    struct cw_error err = {0};
    struct ran ret = {0};
    open_pipeline(&l, text);
    if (caching && cw_caching_open(&l, caching, &o.runner, &err) < 0)
        fail_msg("%s", err.message);
    if (cw_iterator_new(l.sequence, &o, NULL, &l.iterator, &err) < 0)
        fail_msg("%s", err.message);
    struct flipper f = {.runner = cw_iterator_runner(l.iterator)};
    if (flips) {
        assert_int_equal(sem_init(&f.began, 0, 0), 0);
        assert_int_equal(pthread_create(&f.thread, NULL, flip, &f), 0);
        assert_int_equal(sem_wait(&f.began), 0); /* the run may be over sooner than a thread has a CPU */
    }
    take_all(&l, &ret);
    atomic_store(&f.stop, true);
    if (flips)
        pthread_join(f.thread, NULL);
    assert_int_equal(f.wrong, 0);
    if (l.cache)
        cw_cache_facts(l.cache, &ret.facts);
    cw_local_deinit(&l);
    return ret;
}

static void expect_same(const struct ran *a, const struct ran *b)
{
    assert_int_equal(a->n, b->n);
    assert_true(a->digest.lo == b->digest.lo && a->digest.hi == b->digest.hi);
}

static void flips_change_nothing(const char *text)
{
    const struct cw_caching caching = {.dir = dir};
    struct ran wanted = run(text, NULL, EPOCHS, false);
    for (int i = 0; i < 3; i++) { /* empty; half filled; full */
        struct ran got = run(text, &caching, EPOCHS, true);
        expect_same(&got, &wanted);
        assert_true(got.facts.hits + got.facts.misses > 0);
        assert_int_equal(got.facts.bad, 0);
    }
}

static void test_flips_with_known_counts(void **state)
{
    (void)state;
    flips_change_nothing(COUNTED);
}

static void test_flips_with_filters_and_failures(void **state)
{
    (void)state;
    flips_change_nothing(FILTERED);
}

/* Nothing is read or written where no cache point is chosen, and all is where one is. */
static void test_a_forced_cache_point_is_used_throughout(void **state)
{
    (void)state;
    const struct cw_caching second = {.dir = dir, .where = "1"};
    struct ran wanted = run(COUNTED, NULL, 1, false), first = run(COUNTED, &second, 1, false),
               again = run(COUNTED, &second, 1, false);
    expect_same(&first, &wanted);
    expect_same(&again, &wanted);
    assert_int_equal(first.facts.misses, 1500);
    assert_int_equal(again.facts.hits + again.facts.misses, 1500);
    assert_true(again.facts.hits >= 1500 - first.facts.skipped);
}

/* Takes batches until it is known what computing takes without a cache point and with the first: when that is
 * tried depends on the threads. */
static void take_until_probed(struct cw_local *l, struct cw_cache_stats *c)
{
    struct cw_error err = {0};
    struct cw_batch *b;
    do {
        assert_int_equal(cw_iterator_next(l->iterator, 0, &b, &err), 0);
        cw_iterator_release(l->iterator, b);
        cw_runner_cache_stats(cw_iterator_runner(l->iterator), c);
        assert_int_equal(c->n, 3);
    } while (!(c->variants[0].compute_s > 0) || !(c->variants[1].compute_s > 0) || !c->variants[2].was_read);
}

static void test_what_there_is_to_choose(void **state)
{
    (void)state;
    const struct cw_caching caching = {.dir = dir}, second = {.dir = dir, .where = "1"};
    struct cw_local l = {0};
    struct cw_iterator_options o = options(1000);
    struct cw_error err = {0};
    struct cw_cache_stats c;
    (void)run(COUNTED, &second, 1, false); /* so that there is something to be read */
    open_pipeline(&l, COUNTED);
    assert_int_equal(cw_caching_open(&l, &caching, &o.runner, &err), 0);
    assert_true(o.runner.adaptive);
    assert_int_equal(cw_iterator_new(l.sequence, &o, NULL, &l.iterator, &err), 0);
    struct cw_runner *r = cw_iterator_runner(l.iterator);
    assert_int_equal(cw_runner_cache_point(r), 2); /* the last one, to begin with */
    cw_runner_set_cache_point(r, 3);               /* there is none */
    assert_int_equal(cw_runner_cache_point(r), 2);
    take_until_probed(&l, &c);
    assert_int_equal(c.variants[0].cache_point, -1);
    assert_string_equal(c.variants[0].name, "");
    assert_int_equal(c.variants[1].cache_point, 1);
    assert_string_equal(c.variants[2].name, "autocache (operator 4)");
    assert_int_equal(c.variants[1].bytes, 12 * 12 * 3);
    assert_int_equal(c.variants[2].bytes, 9 * 9 * 3);
    cw_local_deinit(&l);
}

/* ---- what is stored ---- */

static void put_profiles(const char *text)
{
    struct cw_cache_list list;
    struct cw_error err = {0};
    assert_int_equal(cw_cache_list(dir, NULL, &list, &err), 0);
    assert_true(list.n > 0);
    for (size_t i = 0; i < list.n; i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/profile.json", list.sets[i].path);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(text, f);
        fclose(f);
    }
    cw_cache_list_deinit(&list);
}

static void test_a_profile_may_be_nonsense(void **state)
{
    (void)state;
    static const char *const nonsense[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"none\": 1}",
        "{\"none\": [1]}",
        "{\"none\": [-1, 0, 0], \"read\": [1e300, 1e300, 1e300]}",
        "{\"none\": [0, 0, 0], \"computed\": [\"a\", 1, 2], \"read\": [null, null, null], \"bytes\": [-5]}",
        ("{\"none\": [1, 1, 1e14], \"computed\": [1e-300, 0, 0], \"read\": [1e15, 1e15, 1e15], "
         "\"bytes\": [1e15]}"),
    };
    const struct cw_caching caching = {.dir = dir};
    struct ran wanted = run(COUNTED, NULL, 1, false), got = run(COUNTED, &caching, 1, false);
    expect_same(&got, &wanted);
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(*nonsense); i++) {
        put_profiles(nonsense[i]);
        got = run(COUNTED, &caching, 1, true);
        expect_same(&got, &wanted);
    }
}

static void test_a_profile_is_left_and_found(void **state)
{
    (void)state;
    const struct cw_caching caching = {.dir = dir}, second = {.dir = dir, .where = "1"};
    (void)run(COUNTED, &second, 1, false);
    struct cw_local l = {0};
    struct cw_iterator_options o = options(1000);
    struct cw_error err = {0};
    struct cw_cache_stats c;
    open_pipeline(&l, COUNTED);
    assert_int_equal(cw_caching_open(&l, &caching, &o.runner, &err), 0);
    assert_int_equal(cw_iterator_new(l.sequence, &o, NULL, &l.iterator, &err), 0);
    take_until_probed(&l, &c);
    cw_local_deinit(&l);
    l = (struct cw_local){0};
    o = options(1);
    open_pipeline(&l, COUNTED);
    assert_int_equal(cw_caching_open(&l, &caching, &o.runner, &err), 0);
    struct cw_runner *r;
    assert_int_equal(cw_runner_new(l.sequence, &o.runner, &r, &err), 0); /* it has done nothing */
    cw_runner_cache_stats(r, &c);
    assert_int_equal(c.n, 3);
    assert_true(c.variants[0].compute_s > 0 && c.variants[1].compute_s > 0 && c.variants[2].was_read);
    assert_int_equal(c.variants[2].bytes, 9 * 9 * 3);
    cw_runner_free(r);
    cw_local_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flips_with_known_counts, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_flips_with_filters_and_failures, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_forced_cache_point_is_used_throughout, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_what_there_is_to_choose, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_profile_may_be_nonsense, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_profile_is_left_and_found, make_dir, remove_dir),
    };
    cw_cost_model("modelled");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
