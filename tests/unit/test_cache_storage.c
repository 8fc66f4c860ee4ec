/* Storage that is slow or does not answer: what waits for it, and what is compressed for its sake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>

#include "base/cost_clock.h"
#include "cache_dir.h"
#include "storage/throttle.h"

/* ---- storage that does not answer ---- */

#define SECOND_NS UINT64_C(1000000000)
#define SOON_NS (SECOND_NS / 20)
#define LONG_NS (3600 * SECOND_NS) /* only ends a hang */
#define LARGE ((size_t)3000000)    /* read in several pieces */

static void set_speed(const char *path, const char *speeds)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(speeds, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static uint64_t late(const struct cw_cache *c)
{
    struct cw_cache_facts f;
    cw_cache_facts(c, &f);
    return f.late;
}

static bool in_use(void)
{
    struct cw_cache_list l;
    struct cw_error err = {0};
    assert_int_equal(cw_cache_list(dir, NULL, &l, &err), 0);
    bool used = l.sets[0].used;
    cw_cache_list_deinit(&l);
    return used;
}

/* Who asked goes away, and what comes late is not written to its memory; when it has come, reading goes on. A
 * cache can be closed meanwhile. */
static void storage_that_hangs_is_left(void **state)
{
    (void)state;
    char speed[64];
    cw_cost_model(NULL); /* it is left after a while, by the real clock */
    snprintf(speed, sizeof(speed), "%s.speed", dir);
    set_speed(speed, "-1 0");
    assert_int_equal(setenv("CACHEW_STORE", speed, 1), 0);
    if (cw_throttle_read_at_once(CW_THROTTLE_STORE, 0)) { /* only test builds have such storage */
        (void)unlink(speed);
        struct cw_cache *c = open_cache(0, 0);
        cw_cache_set_unref(open_set(c));
        cw_cache_close(c);
        skip();
    }
    set_speed(speed, "0 0");
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    for (uint64_t i = 0; i < 2; i++)
        assert_true(put(s, i, LARGE, 0));
    flush(c);
    assert_int_equal(get_within(s, 0, LARGE, LONG_NS), 0);
    set_speed(speed, "-1 0");
    cw_cost_model(NULL); /* its limits are in real time */
    assert_int_equal(get_within(s, 0, LARGE, CW_CACHE_AT_ONCE), 1);
    assert_int_equal(get_within(s, 0, LARGE, SOON_NS), 3);
    assert_int_equal(get_within(s, 1, LARGE, LONG_NS), 3); /* nobody else waits */
    assert_int_equal(get_within(s, 1, LARGE, CW_CACHE_AT_ONCE), 3);
    assert_int_equal(late(c), 3);
    set_speed(speed, "0 0");
    while (get_within(s, 0, LARGE, LONG_NS) != 0)
        ;
    set_speed(speed, "-1 0");
    assert_int_equal(get_within(s, 1, LARGE, SOON_NS), 3);
    cw_cache_set_unref(s);
    cw_cache_close(c);
    assert_true(in_use());
    set_speed(speed, "0 0");
    while (in_use())
        ;
    (void)unsetenv("CACHEW_STORE");
    (void)unlink(speed);
}

/* A read whose deadline passes before its thread begins comes back like any other: later reads are not
 * refused. */
static void reads_left_before_they_begin_come_back(void **state)
{
    (void)state;
    cw_cost_model(NULL);
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    assert_true(put(s, 0, LARGE, 0));
    flush(c);
    for (int i = 0; i < 20; i++) {
        int r = get_within(s, 0, LARGE, 1);
        assert_true(r == 0 || r == 3);
        while (get_within(s, 0, LARGE, LONG_NS) != 0)
            ;
    }
    cw_cache_set_unref(s);
    cw_cache_close(c);
    assert_false(in_use());
}

/* ---- what is compressed ---- */

#define TEXT_BYTES ((size_t)20000)

static bool put_text(struct cw_cache_set *s, uint64_t row)
{
    const struct cw_cache_key key = {.file_key = 9, .row = row};
    struct cw_cache_slot slot;
    char *to = cw_cache_reserve(s, &key, TEXT_BYTES, false, 1000, &slot);
    if (!to)
        return false;
    for (size_t i = 0; i < TEXT_BYTES; i++)
        to[i] = "much the same "[(i + row) % 14];
    cw_cache_commit(&slot);
    return true;
}

static int get_text(struct cw_cache_set *s, uint64_t row, uint32_t *ret_stored)
{
    struct cw_cache_get g = {.key = {.file_key = 9, .row = row}};
    struct cw_budget budget;
    struct cw_arena arena;
    struct cw_error err = {0};
    char text[TEXT_BYTES];
    struct iovec v[3] = {{text, 1}, {text + 1, 7000}, {text + 7001, TEXT_BYTES - 7001}};
    if (cw_cache_find(s, &g.key, 1, &g.place) == 0)
        return -1;
    *ret_stored = g.place.stored;
    g.v = v;
    g.n_v = 3;
    cw_budget_init(&budget, 1 << 20);
    cw_arena_init(&arena, &budget);
    int r = cw_cache_read(s, &g, 1, &arena, CW_CACHE_FOREVER, &err);
    for (size_t i = 0; r == 0 && i < TEXT_BYTES; i++)
        assert_int_equal(text[i], "much the same "[(i + row) % 14]);
    cw_arena_deinit(&arena);
    return r;
}

/* One that could not read anything counted as the second that said so, with the speed of the first. */
static void a_probe_that_reads_nothing_is_none(void **state)
{
    (void)state;
    struct cw_cache c = {0};
    struct cw_cache_set s = {.cache = &c, .dir_fd = AT_FDCWD};
    char name[] = "/tmp/cachew-test-XXXXXX";
    int fd = mkstemp(name);
    assert_int_equal(write(fd, name, sizeof(name)), sizeof(name));
    close(fd);
    cw_cache_probe(&s, name);
    uint64_t probed_ns = c.probes.last_ns;
    assert_true(probed_ns > 0 && c.probes.last.bytes == sizeof(name));
    unlink(name);
    s.packing.unsure_ns = probed_ns; /* it is to be looked at again */
    cw_cache_probe(&s, name);
    assert_true(c.probes.last_ns == probed_ns);
}

/* On a store of 20 MB/s, where it pays, once the store is known: of a set of a few MB too, none of which was.
 * Of noise nothing is compressed there either. */
static void what_is_compressed_comes_back(void **state)
{
    (void)state;
    char speed[64];
    struct cw_cache_facts f;
    struct cw_cache_list l;
    struct cw_error err = {0};
    uint64_t n = 0;
    uint32_t stored = 0;
    snprintf(speed, sizeof(speed), "%s.speed", dir);
    set_speed(speed, "20000000 20000000");
    assert_int_equal(setenv("CACHEW_STORE", speed, 1), 0);
    bool slow = !cw_throttle_read_at_once(CW_THROTTLE_STORE, 0); /* only in test builds */
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c), *noise = open_other(c, (struct cw_hash128){.lo = 3});
    do {
        assert_true(put_text(s, n++));
        assert_true(put(noise, n, 20000, 1000));
        flush(c);
        cw_cache_facts(c, &f);
    } while (slow && f.bytes_stored == f.bytes_written);
    assert_in_range(f.bytes_written, 0, 1 << 20);
    cw_cache_set_unref(s);
    cw_cache_set_unref(noise);
    cw_cache_close(c);
    (void)unsetenv("CACHEW_STORE");
    (void)unlink(speed);
    c = open_cache(0, 0);
    s = open_set(c);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(get_text(s, i, &stored), 0);
    assert_true(!slow || stored < TEXT_BYTES / 20); /* of the last one */
    cw_cache_set_unref(s);
    cw_cache_close(c);
    assert_int_equal(cw_cache_list(dir, NULL, &l, &err), 0);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.sets[0].stored, l.sets[0].content);
    assert_true(!slow || l.sets[1].stored < l.sets[1].content);
    for (size_t i = 0; i < l.n; i++) {
        struct cw_cache_verified v = {0};
        assert_int_equal(cw_cache_verify(&l.sets[i], false, &v, &err), 0);
        assert_int_equal(v.bad_segments, 0);
        assert_int_equal(v.entries, n);
    }
    cw_cache_list_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_probe_that_reads_nothing_is_none),
        cmocka_unit_test_setup_teardown(what_is_compressed_comes_back, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(storage_that_hangs_is_left, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(reads_left_before_they_begin_come_back, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
