/* cache/cache.h: entries in and out, what others published, a store that is behind, the quota. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "cache_dir.h"
#include "sample.h"

static void entries_come_back(void **state)
{
    (void)state;
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    const size_t sizes[] = {0, 1, 7, 8, 4096, 70000};
    for (uint64_t i = 0; i < 6; i++)
        assert_true(put(s, i, sizes[i], 0));
    const struct cw_cache_key gone = {.file_key = 9, .row = 77};
    struct cw_cache_slot slot;
    struct cw_cache_place place;
    assert_non_null(cw_cache_reserve(s, &gone, 0, true, 0, &slot));
    cw_cache_commit(&slot);
    flush(c);
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(get(s, i, sizes[i]), 0);
    assert_int_equal(get(s, 6, 0), -1);
    assert_int_equal(cw_cache_find(s, &gone, 1, &place), 1);
    assert_true(place.dropped);
    cw_cache_set_unref(s);
    cw_cache_close(c);
    c = open_cache(0, 0); /* and in another run */
    s = open_set(c);
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(get(s, i, sizes[i]), 0);
    cw_cache_set_unref(s);
    cw_cache_close(c);
}

#define MANY 400

static size_t size_of(uint64_t row)
{
    static const size_t sizes[] = {40000, 0, 10, 100, 3000, 9000, 150528, 33000, 8192, 100000};
    return sizes[(row / 5 + row % 3) % 10]; /* alike, for a while, and then others */
}

/* Rows, each of which may be there several times, in any order. */
static int get_many(struct cw_cache_set *s, const uint64_t *rows, size_t n, uint64_t patience_ns)
{
    struct cw_cache_get gets[MANY];
    struct iovec v[MANY];
    struct cw_budget budget;
    struct cw_arena arena;
    struct cw_error err = {0};
    uint8_t *to[MANY];
    for (size_t i = 0; i < n; i++) {
        to[i] = calloc(1, size_of(rows[i]) + 1);
        v[i] = (struct iovec){to[i], size_of(rows[i])};
        gets[i] = (struct cw_cache_get){.key = {.file_key = 9, .row = rows[i]}, .v = &v[i], .n_v = 1};
        assert_int_equal(cw_cache_find(s, &gets[i].key, 1, &gets[i].place), 1);
    }
    cw_budget_init(&budget, 64 << 20);
    cw_arena_init(&arena, &budget);
    int r = cw_cache_read(s, gets, n, &arena, patience_ns, &err);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; r == 0 && k < size_of(rows[i]); k++)
            if (to[i][k] != byte_of(rows[i], k))
                fail_msg("row %llu, byte %zu of %zu: %d instead of %d", (unsigned long long)rows[i], k,
                         size_of(rows[i]), to[i][k], byte_of(rows[i], k));
        free(to[i]);
    }
    cw_arena_deinit(&arena);
    return r;
}

/* Large and small ones, near each other and not, of several segments, in memory and not: what lies together
 * is looked at together. */
static void any_of_them_come_back_together(void **state)
{
    (void)state;
    struct cw_cache *c = NULL;
    struct cw_cache_set *s = NULL;
    uint64_t rows[MANY], random = 1;
    for (uint64_t i = 0; i < MANY; i++) {
        if (i % (MANY / 4) == 0) { /* a segment of its own */
            cw_cache_set_unref(s);
            cw_cache_close(c);
            c = open_cache(0, 0);
            s = open_set(c);
        }
        assert_true(put(s, i, size_of(i), 0));
        flush(c);
    }
    for (int round = 0; round < 50; round += 50 / (int)sample_size(50)) {
        size_t n = 0, wanted = 1 + (size_t)round * 7;
        while (n < wanted) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
            uint64_t first = (random >> 33) % MANY;
            /* some that lie one behind the other, or with gaps */
            for (uint64_t k = 0; n < wanted && k < 1 + (random >> 60) * 4; k += 1 + (random >> 59 & 1))
                rows[n++] = (first + k) % MANY;
        }
        int r = get_many(s, rows, n, CW_CACHE_AT_ONCE);
        assert_in_range(r, 0, 1);
        if (r == 1)
            assert_int_equal(get_many(s, rows, n, CW_CACHE_FOREVER), 0);
    }
    cw_cache_set_unref(s);
    cw_cache_close(c);
}

/* All that was published was gone where the directory's name was a relative one. */
static void a_program_that_changes_its_directory_keeps_its_cache(void **state)
{
    (void)state;
    _cleanup_free_ char *was = getcwd(NULL, 0), *whole = dir;
    assert_int_equal(chdir(whole), 0);
    dir = (char[]){"."};
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    assert_true(put(s, 0, 40, 0));
    flush(c);
    assert_int_equal(chdir(was), 0);
    dir = strdup(whole);
    assert_int_equal(get(s, 0, 40), 0);
    cw_cache_set_unref(s);
    cw_cache_close(c);
}

static void what_others_publish_is_seen(void **state)
{
    (void)state;
    struct cw_cache *a = open_cache(0, 0), *b = open_cache(0, 0);
    struct cw_cache_set *x = open_set(a), *y = open_set(b);
    assert_true(put(x, 5, 100, 0));
    flush(a);
    while (get(y, 5, 100) != 0) /* within half a second; the test's own limit ends it else */
        flush(b);
    cw_cache_set_unref(x);
    cw_cache_set_unref(y);
    cw_cache_close(a);
    cw_cache_close(b);
}

static void who_is_behind_keeps_less(void **state)
{
    (void)state;
    struct cw_cache *c = open_cache(0, 1 << 20);
    struct cw_cache_set *s = open_set(c);
    struct cw_cache_slot slots[64];
    unsigned n = 0;
    for (uint64_t i = 0; i < 64; i++) { /* nothing is written before it is committed */
        const struct cw_cache_key key = {.file_key = 9, .row = i};
        n += cw_cache_reserve(s, &key, 100000, false, 0, &slots[n]) != NULL;
    }
    assert_in_range(n, 1, 11);
    struct cw_cache_facts f;
    cw_cache_facts(c, &f);
    assert_int_equal(f.skipped, 64 - n);
    for (unsigned i = 0; i < n; i++)
        cw_cache_commit(&slots[i]);
    flush(c);
    assert_true(put(s, 99, 1000, 0)); /* there is room again */
    /* larger than the queue */
    assert_null(cw_cache_reserve(s, &(struct cw_cache_key){0}, 2 << 20, false, 0, slots));
    cw_cache_set_unref(s);
    cw_cache_close(c);
}

static void who_waits_for_storage_keeps_all(void **state)
{
    (void)state;
    const struct cw_cache_options o = {.dir = dir, .queue_bytes = 1 << 20, .waits = true};
    struct cw_cache *c = NULL;
    struct cw_error err = {0};
    struct cw_cache_facts f;
    assert_int_equal(cw_cache_open(&o, &c, &err), 0);
    struct cw_cache_set *s = open_set(c);
    for (uint64_t i = 0; i < 200; i++) /* twenty times what the queue takes */
        assert_true(put(s, i, 100000, 0));
    flush(c);
    cw_cache_facts(c, &f);
    assert_int_equal(f.kept, 200);
    assert_int_equal(f.skipped, 0);
    cw_cache_set_unref(s);
    cw_cache_close(c);
}

static uint64_t bytes_there(void)
{
    struct cw_cache_list l;
    struct cw_error err = {0};
    uint64_t bytes = 0;
    assert_int_equal(cw_cache_list(dir, NULL, &l, &err), 0);
    for (size_t i = 0; i < l.n; i++)
        bytes += l.sets[i].bytes;
    cw_cache_list_deinit(&l);
    return bytes;
}

static void the_quota_holds(void **state)
{
    (void)state;
    struct cw_cache *c = open_cache(1 << 20, 0);
    struct cw_cache_set *s = open_set(c);
    struct cw_cache_facts f;
    for (uint64_t i = 0; i < 300; i++) {
        (void)put(s, i, 10000, 1000000); /* all of one value: the first ones stay */
        if (i % 50 == 0)
            flush(c);
        assert_true(bytes_there() <= 1 << 20);
    }
    flush(c);
    cw_cache_facts(c, &f);
    assert_int_equal(f.evicted, 0);
    assert_true(f.refused > 0);
    assert_int_equal(get(s, 0, 10000), 0);
    cw_cache_set_unref(s);
    cw_cache_close(c);
    c = open_cache(1 << 20, 0);
    s = open_set(c);
    (void)put(s, 1000, 10000, 10000000); /* dearer: it pushes one of them out */
    flush(c);
    cw_cache_facts(c, &f);
    assert_true(f.evicted > 0);
    assert_int_equal(get(s, 1000, 10000), 0);
    assert_true(bytes_there() <= 1 << 20);
    cw_cache_set_unref(s);
    cw_cache_close(c);
}

struct worker {
    struct cw_cache_set *s;
    uint64_t from;
};

static void *put_and_get(void *arg)
{
    struct worker *w = arg;
    for (uint64_t i = 0; i < 200; i++) {
        (void)put(w->s, w->from + i % 150, 3000, 0);
        (void)get(w->s, i, 3000);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    pthread_t threads[4];
    struct worker w[4];
    for (unsigned i = 0; i < 4; i++) {
        w[i] = (struct worker){.s = s, .from = i * 100};
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_get, &w[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    flush(c);
    for (uint64_t i = 0; i < 450; i++)
        assert_int_equal(get(s, i, 3000), 0);
    cw_cache_set_unref(s);
    cw_cache_close(c);
}

static size_t n_sets(void)
{
    struct cw_cache_list l;
    struct cw_error err = {0};
    assert_int_equal(cw_cache_list(dir, NULL, &l, &err), 0);
    size_t n = l.n;
    cw_cache_list_deinit(&l);
    return n;
}

/* Without entries, after a month: unless it is pinned, or used. */
static void what_nobody_uses_goes(void **state)
{
    (void)state;
    struct cw_cache_list l;
    struct cw_error err = {0};
    char used[128];
    struct cw_cache *c = open_cache(0, 0);
    cw_cache_set_unref(open_set(c));
    cw_cache_close(c);
    assert_int_equal(cw_cache_list(dir, NULL, &l, &err), 0);
    snprintf(used, sizeof(used), "%s/used", l.sets[0].path);
    const struct timespec times[2] = {{.tv_sec = time(NULL) - 31 * 86400},
                                      {.tv_sec = time(NULL) - 31 * 86400}};
    cw_cache_close(open_cache(0, 0));
    assert_int_equal(n_sets(), 1);
    assert_int_equal(cw_cache_pin(&l.sets[0], true, &err), 0);
    assert_int_equal(utimensat(AT_FDCWD, used, times, 0), 0);
    cw_cache_close(open_cache(0, 0));
    assert_int_equal(n_sets(), 1);
    assert_int_equal(cw_cache_pin(&l.sets[0], false, &err), 0);
    c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    assert_int_equal(utimensat(AT_FDCWD, used, times, 0), 0);
    cw_cache_close(open_cache(0, 0));
    assert_int_equal(n_sets(), 1);
    cw_cache_set_unref(s);
    cw_cache_close(c);
    assert_int_equal(utimensat(AT_FDCWD, used, times, 0), 0);
    cw_cache_close(open_cache(0, 0));
    assert_int_equal(n_sets(), 0);
    cw_cache_list_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(entries_come_back, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(any_of_them_come_back_together, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_program_that_changes_its_directory_keeps_its_cache, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(what_others_publish_is_seen, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(who_is_behind_keeps_less, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(who_waits_for_storage_keeps_all, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_quota_holds, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(many_threads, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_nobody_uses_goes, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
