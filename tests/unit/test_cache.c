/* cache/cache.h: entries in and out, what others published, damage, a store that is behind, the quota. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/admin.h"
#include "cache/internal.h"
#include "storage/throttle.h"
#include "data/budget.h"

#define BLOCK 4096 /* entries begin there */

static const struct cw_hash128 KEY = {.lo = 1, .hi = 2};
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
    assert_int_equal(cw_cache_list(dir, NULL, &l, &err), 0);
    for (size_t i = 0; i < l.n; i++)
        assert_int_equal(cw_cache_remove(dir, &l.sets[i], &err), 0);
    cw_cache_list_deinit(&l);
    snprintf(lock, sizeof(lock), "%s/lock", dir);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(rmdir(dir), 0);
    free(dir);
    return 0;
}

static struct cw_cache *open_cache(uint64_t quota, size_t queue)
{
    const struct cw_cache_options o = {.dir = dir, .quota = quota, .queue_bytes = queue};
    struct cw_cache *c = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_cache_open(&o, &c, &err), 0);
    return c;
}

static struct cw_cache_set *open_other(struct cw_cache *c, struct cw_hash128 key)
{
    struct cw_cache_set *s = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_cache_set_open(c, key, "{}", &s, &err), 0);
    return s;
}

static struct cw_cache_set *open_set(struct cw_cache *c) { return open_other(c, KEY); }

static void flush(struct cw_cache *c)
{
    struct cw_error err = {0};
    assert_int_equal(cw_cache_flush(c, &err), 0);
}

/* Nothing that can be compressed. */
static uint8_t byte_of(uint64_t row, size_t i)
{
    uint64_t x = (row << 32 | i) * UINT64_C(0xff51afd7ed558ccd);
    return (uint8_t)((x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53) >> 56);
}

static bool put(struct cw_cache_set *s, uint64_t row, size_t bytes, uint64_t cost_ns)
{
    const struct cw_cache_key key = {.file_key = 9, .row = row};
    struct cw_cache_slot slot;
    uint8_t *to = cw_cache_reserve(s, &key, bytes, false, cost_ns, &slot);
    if (!to)
        return false;
    for (size_t i = 0; i < bytes; i++)
        to[i] = byte_of(row, i);
    cw_cache_commit(&slot);
    return true;
}

/* 0: it is there, and right; else what cw_cache_read said, or -1: it is not there. */
static int get_within(struct cw_cache_set *s, uint64_t row, size_t bytes, uint64_t patience_ns)
{
    struct cw_cache_get g = {.key = {.file_key = 9, .row = row}};
    struct cw_budget budget;
    struct cw_arena arena;
    struct cw_error err = {0};
    if (cw_cache_find(s, &g.key, 1, &g.place) == 0)
        return -1;
    assert_int_equal(g.place.length, bytes);
    uint8_t *data = malloc(bytes + 1);
    struct iovec v[2] = {{.iov_base = data, .iov_len = bytes / 3}, {.iov_base = data + bytes / 3, .iov_len = bytes - bytes / 3}};
    g.v = v;
    g.n_v = 2;
    cw_budget_init(&budget, 1 << 20);
    cw_arena_init(&arena, &budget);
    int r = cw_cache_read(s, &g, 1, &arena, patience_ns, &err);
    for (size_t i = 0; r == 0 && i < bytes; i++)
        assert_int_equal(data[i], byte_of(row, i));
    cw_arena_deinit(&arena);
    free(data);
    return r;
}

static int get(struct cw_cache_set *s, uint64_t row, size_t bytes) { return get_within(s, row, bytes, CW_CACHE_FOREVER); }

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
                fail_msg("row %llu, byte %zu of %zu: %d instead of %d", (unsigned long long)rows[i], k, size_of(rows[i]), to[i][k], byte_of(rows[i], k));
        free(to[i]);
    }
    cw_arena_deinit(&arena);
    return r;
}

/* Large and small ones, near each other and not, of several segments, in memory and not: what lies together is looked at together. */
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
    for (int round = 0; round < 50; round++) {
        size_t n = 0, wanted = 1 + (size_t)round * 7;
        while (n < wanted) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
            uint64_t first = (random >> 33) % MANY;
            for (uint64_t k = 0; n < wanted && k < 1 + (random >> 60) * 4; k += 1 + (random >> 59 & 1)) /* some that lie one behind the other, or with gaps */
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

static char *only_segment(void)
{
    struct cw_cache_list l;
    struct cw_error err = {0};
    char *path = NULL;
    assert_int_equal(cw_cache_list(dir, NULL, &l, &err), 0);
    assert_int_equal(l.n, 1);
    DIR *d = opendir(l.sets[0].path);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".cws"))
            assert_true(asprintf(&path, "%s/%s", l.sets[0].path, e->d_name) > 0);
    closedir(d);
    cw_cache_list_deinit(&l);
    return path;
}

/* Entries 0 to 3, of 40 bytes; where they are. */
static char *segment_of_four(void)
{
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    for (uint64_t i = 0; i < 4; i++)
        assert_true(put(s, i, 40, 0));
    flush(c);
    cw_cache_set_unref(s);
    cw_cache_close(c);
    return only_segment();
}

/* Every byte of a segment is changed in turn: what is then read is right, or known to be wrong. */
static void no_changed_byte_gets_through(void **state)
{
    (void)state;
    char *path = segment_of_four();
    int fd = open(path, O_RDWR);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) {
        uint8_t byte, changed;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        if (byte == 0 && at % 61 != 0)
            continue; /* mostly what fills blocks up */
        changed = byte ^ 0x10;
        assert_int_equal(pwrite(fd, &changed, 1, at), 1);
        struct cw_cache *c = open_cache(1 << 20, 0);
        struct cw_cache_set *s = open_set(c);
        unsigned sound = 0;
        for (uint64_t i = 0; i < 4; i++)
            sound += get(s, i, 40) == 0; /* and then what it should be */
        struct cw_cache_facts f;
        cw_cache_facts(c, &f);
        assert_true(sound == 4 || f.bad > 0);
        cw_cache_set_unref(s);
        cw_cache_close(c);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    free(path);
}

/* Its table has all its checksums, and two entries in one place: reading both together read past the end of what was read. */
static void a_table_of_entries_that_overlap_is_none(void **state)
{
    (void)state;
    char *path = segment_of_four();
    struct cw_cache_trailer t;
    struct cw_cache_row rows[4];
    struct stat st;
    int fd = open(path, O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &t, sizeof(t), st.st_size - (off_t)sizeof(t)), sizeof(t));
    assert_int_equal(t.n, 4);
    assert_int_equal(pread(fd, rows, sizeof(rows), (off_t)t.table_offset), sizeof(rows));
    rows[0].length = rows[0].stored = rows[0].stored + 8;
    t.table_hash = cw_hash64(rows, sizeof(rows));
    t.hash = cw_hash64(&t, offsetof(struct cw_cache_trailer, hash));
    assert_int_equal(pwrite(fd, rows, sizeof(rows), (off_t)t.table_offset), sizeof(rows));
    assert_int_equal(pwrite(fd, &t, sizeof(t), st.st_size - (off_t)sizeof(t)), sizeof(t));
    close(fd);
    struct cw_cache *c = open_cache(1 << 20, 0);
    struct cw_cache_set *s = open_set(c);
    struct cw_cache_facts f;
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(get(s, i, 40), -1);
    cw_cache_facts(c, &f);
    assert_int_equal(f.bad, 1);
    cw_cache_set_unref(s);
    cw_cache_close(c);
    free(path);
}

static void torn_segments_are_none(void **state)
{
    (void)state;
    char *path = segment_of_four();
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t size = st.st_size - 1; size >= 0; size -= 7) {
        assert_int_equal(truncate(path, size), 0);
        struct cw_cache *c = open_cache(1 << 20, 0);
        struct cw_cache_set *s = open_set(c);
        for (uint64_t i = 0; i < 4; i++)
            assert_int_equal(get(s, i, 40), -1);
        cw_cache_set_unref(s);
        cw_cache_close(c);
    }
    free(path);
}

/* A machine went down: the name and the table are there, and not what was written before them. */
static void what_never_reached_the_disk_is_computed(void **state)
{
    (void)state;
    char *path = segment_of_four();
    struct stat st;
    struct cw_cache_facts f;
    const uint8_t zeros[256] = {0};
    assert_int_equal(stat(path, &st), 0);
    int fd = open(path, O_RDWR);
    for (off_t at = BLOCK; at < 2 * BLOCK; at += (off_t)sizeof(zeros))
        assert_int_equal(pwrite(fd, zeros, sizeof(zeros), at), sizeof(zeros));
    close(fd);
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(get(s, i, 40), 2);
    cw_cache_facts(c, &f);
    assert_int_equal(f.bad, 4);
    assert_true(put(s, 0, 40, 0)); /* and kept anew */
    flush(c);
    assert_int_equal(get(s, 0, 40), 0);
    cw_cache_set_unref(s);
    cw_cache_close(c);
    free(path);
}

/* A file that has no name any more, and is open here. */
static bool any_open_without_name(void)
{
    bool any = false;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char target[512];
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        any |= strstr(target, ".cws (deleted)") != NULL;
    }
    closedir(d);
    return any;
}

/* Else the disk is fuller than the quota says, for as long as somebody who read it runs. */
static void what_gave_way_is_let_go(void **state)
{
    (void)state;
    char *path = segment_of_four();
    struct cw_cache *c = open_cache(0, 0);
    struct cw_cache_set *s = open_set(c);
    assert_int_equal(get(s, 0, 40), 0);
    assert_int_equal(unlink(path), 0);
    assert_true(any_open_without_name());
    while (any_open_without_name()) /* for half a second; the test's own limit ends it else */
        flush(c);
    assert_int_equal(get(s, 0, 40), -1);
    cw_cache_set_unref(s);
    cw_cache_close(c);
    free(path);
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
    assert_null(cw_cache_reserve(s, &(struct cw_cache_key){0}, 2 << 20, false, 0, slots)); /* larger than the queue */
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

struct worker { struct cw_cache_set *s; uint64_t from; };

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
    const struct timespec times[2] = {{.tv_sec = time(NULL) - 31 * 86400}, {.tv_sec = time(NULL) - 31 * 86400}};
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

/* ---- storage that does not answer ---- */

#define SECOND_NS UINT64_C(1000000000)
#define SOON_NS (SECOND_NS / 20)
#define LARGE ((size_t)3000000) /* read in several pieces */

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

/* Who asked goes away, and what comes late is not written to its memory; when it has come, reading goes on. A cache can be closed meanwhile. */
static void storage_that_hangs_is_left(void **state)
{
    (void)state;
    char speed[64];
    snprintf(speed, sizeof(speed), "%s.speed", dir);
    set_speed(speed, "-1 0");
    assert_int_equal(setenv("CACHEW_STORE", speed, 1), 0);
    if (!cw_throttled(CW_THROTTLE_STORE)) { /* only test builds have such storage */
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
    assert_int_equal(get_within(s, 0, LARGE, 60 * SECOND_NS), 0);
    set_speed(speed, "-1 0");
    assert_int_equal(get_within(s, 0, LARGE, CW_CACHE_AT_ONCE), 1);
    assert_int_equal(get_within(s, 0, LARGE, SOON_NS), 3);
    assert_int_equal(get_within(s, 1, LARGE, 60 * SECOND_NS), 3); /* nobody else waits */
    assert_int_equal(get_within(s, 1, LARGE, CW_CACHE_AT_ONCE), 3);
    assert_int_equal(late(c), 3);
    set_speed(speed, "0 0");
    while (get_within(s, 0, LARGE, 60 * SECOND_NS) != 0)
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
    uint64_t probed_ns = c.probed_ns;
    assert_true(probed_ns > 0 && c.last_probe.bytes == sizeof(name));
    unlink(name);
    s.packing.unsure_ns = probed_ns; /* it is to be looked at again */
    cw_cache_probe(&s, name);
    assert_true(c.probed_ns == probed_ns);
}

/* On a store of 20 MB/s, where it pays, once the store is known: of a set of a few MB too, none of which was. Of noise nothing is compressed there either. */
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
    bool slow = cw_throttled(CW_THROTTLE_STORE); /* only in test builds */
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
        cmocka_unit_test_setup_teardown(what_never_reached_the_disk_is_computed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_gave_way_is_let_go, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(entries_come_back, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(any_of_them_come_back_together, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_program_that_changes_its_directory_keeps_its_cache, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_others_publish_is_seen, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(no_changed_byte_gets_through, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_table_of_entries_that_overlap_is_none, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(torn_segments_are_none, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(who_is_behind_keeps_less, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_quota_holds, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(many_threads, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_nobody_uses_goes, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(storage_that_hangs_is_left, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
