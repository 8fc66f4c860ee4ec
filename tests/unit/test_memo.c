/* The memo: values are found as they were put, evicted when the file is full, and never wrong. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "sample.h"
#include "storage/memo.h"

#define LEVEL0 (UINT64_C(512) << 10) /* bytes */

static char dir[] = "/tmp/cachew-memo-XXXXXX", path[100];

static int set_up(void **state CW_UNUSED)
{
    snprintf(path, sizeof(path), "%s/m-%u", mkdtemp(dir), (unsigned)geteuid());
    return 0;
}

static int remove_file(void **state CW_UNUSED)
{
    unlink(path);
    return 0;
}

static int tear_down(void **state CW_UNUSED)
{
    return rmdir(dir);
}

static struct cw_memo *memo_make(uint64_t max_bytes)
{
    struct cw_memo *m;
    assert_int_equal(cw_memo_new(dir, "m", max_bytes, &m, NULL), 0);
    return m;
}

static struct cw_hash128 key_of(uint64_t i)
{
    XXH128_hash_t h = XXH3_128bits(&i, sizeof(i));
    return (struct cw_hash128){.lo = h.low64, .hi = h.high64};
}

/* The value of key i, in its n-th version. */
static size_t value_of(uint64_t i, uint64_t n, uint8_t *to)
{
    size_t size = 1 + (size_t)(key_of(i).hi % CW_MEMO_VALUE_MOST);
    if (i % 8)
        size = 1 + size % 1300;
    for (size_t k = 0; k < size; k++)
        to[k] = (uint8_t)(i * 7 + n * 31 + k);
    return size;
}

static void put(struct cw_memo *m, uint64_t i, uint64_t n)
{
    uint8_t value[CW_MEMO_VALUE_MOST];
    size_t size = value_of(i, n, value);
    cw_memo_put(m, key_of(i), value, size);
}

/* Returns whether key i is there; then it must be in one of the first n_versions versions. */
static bool found(struct cw_memo *m, uint64_t i, uint64_t n_versions)
{
    uint8_t value[CW_MEMO_VALUE_MOST], expected[CW_MEMO_VALUE_MOST];
    size_t size = 0;
    enum cw_memo_found r;
    for (int k = 0; k < 1000 && (r = cw_memo_get(m, key_of(i), value, &size)) == CW_MEMO_UNKNOWN; k++)
        ; /* the kernel reads it */
    if (r != CW_MEMO_FOUND)
        return false;
    for (uint64_t n = 0; n < n_versions; n++)
        if (size == value_of(i, n, expected) && memcmp(value, expected, size) == 0)
            return true;
    fail();
    return false;
}

static uint64_t file_bytes(void)
{
    struct stat s;
    return stat(path, &s) == 0 ? (uint64_t)s.st_size : 0;
}

static void test_values(void **state CW_UNUSED)
{
    struct cw_memo *m = memo_make(64 << 20), *other = memo_make(64 << 20);
    const uint64_t n = 6000;
    for (uint64_t i = 0; i < n; i++)
        put(i % 2 ? m : other, i, 0);
    for (uint64_t i = 0; i < n; i++)
        assert_true(found(m, i, 1));
    assert_false(found(m, n, 1));
    for (uint64_t i = 0; i < n; i += 3)
        put(other, i, 1);
    m = cw_memo_free(m);
    m = memo_make(64 << 20);
    uint8_t value[CW_MEMO_VALUE_MOST], expected[CW_MEMO_VALUE_MOST];
    size_t size;
    for (uint64_t i = 0; i < n; i++) { /* the last version */
        assert_int_equal(cw_memo_get(m, key_of(i), value, &size), CW_MEMO_FOUND);
        assert_int_equal(size, value_of(i, i % 3 ? 0 : 1, expected));
        assert_memory_equal(value, expected, size);
    }
    cw_memo_free(m);
    cw_memo_free(other);
}

/* The newest values stay; the file is bounded. */
static void test_bounded(void **state CW_UNUSED)
{
    struct cw_memo *m = memo_make(5 * LEVEL0);
    const uint64_t n = sample_size(30000);
    for (uint64_t i = 0; i < n; i++) {
        put(m, i, 0);
        assert_true(found(m, i, 1));
    }
    size_t kept = 0, kept_of_last = 0;
    for (uint64_t i = 0; i < n; i++) {
        bool is = found(m, i, 1);
        kept += is;
        kept_of_last += is && i + 500 >= n;
    }
    assert_true(file_bytes() <= 5 * LEVEL0);
    assert_in_range(kept, n / 12, 4000);
    assert_true(kept_of_last > 450);
    cw_memo_free(m);
}

static void test_damage(void **state CW_UNUSED)
{
    struct cw_memo *m = memo_make(4 << 20);
    size_t lost = 0;
    for (uint64_t i = 0; i < 300; i++)
        put(m, i, 0);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    for (uint64_t i = 0; i < 6000; i++) {
        uint64_t r = key_of(1000000 + i).lo;
        uint8_t byte = (uint8_t)(r >> 32);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(r % file_bytes())), 1);
        lost += !found(m, i % 300, 1);
        if (i % 7 == 0)
            put(m, i % 300, 0);
    }
    assert_true(lost > 0);
    assert_int_equal(ftruncate(fd, 10000), 0);
    put(m, 0, 0);
    assert_true(found(m, 0, 1));
    close(fd);
    cw_memo_free(m);
}

/* Files that others could have written are not used, and neither is what is no file. */
static void test_forged(void **state CW_UNUSED)
{
    struct cw_memo *m = memo_make(4 << 20);
    put(m, 1, 0);
    assert_true(found(m, 1, 1));
    cw_memo_free(m);
    assert_int_equal(chmod(path, 0620), 0);
    m = memo_make(4 << 20);
    put(m, 1, 0);
    assert_false(found(m, 1, 1));
    cw_memo_free(m);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    m = memo_make(4 << 20);
    put(m, 1, 0);
    assert_false(found(m, 1, 1));
    cw_memo_free(m);
    assert_int_equal(cw_memo_new("/dev/null/none", "m", 4 << 20, &m, NULL), 0);
    put(m, 1, 0);
    assert_false(found(m, 1, 1));
    cw_memo_free(m);
}

struct thread {
    pthread_t id;
    struct cw_memo *memo;
    uint64_t number;
    size_t found;
};

static void *work(void *arg)
{
    struct thread *t = arg;
    for (uint64_t i = 0; i < sample_size(8000); i++) {
        uint64_t key = key_of(t->number * 1000 + i).lo % 200;
        put(t->memo, key, i % 3);
        t->found += found(t->memo, key, 3);
    }
    return NULL;
}

/* Threads and two users of the file write to the same buckets at the same time. */
static void test_together(void **state CW_UNUSED)
{
    struct cw_memo *memos[2] = {memo_make(LEVEL0), memo_make(LEVEL0)};
    struct thread threads[4];
    for (unsigned i = 0; i < 4; i++) {
        threads[i] = (struct thread){.memo = memos[i % 2], .number = i};
        assert_int_equal(pthread_create(&threads[i].id, NULL, work, &threads[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i].id, NULL), 0);
    assert_true(threads[0].found > 0);
    cw_memo_free(memos[0]);
    cw_memo_free(memos[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_values, remove_file),
        cmocka_unit_test_teardown(test_bounded, remove_file),
        cmocka_unit_test_teardown(test_damage, remove_file),
        cmocka_unit_test_teardown(test_forged, remove_file),
        cmocka_unit_test_teardown(test_together, remove_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
