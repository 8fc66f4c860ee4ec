/* Segments that were damaged, torn, made up or removed: nothing of them is delivered, and nothing stays of
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "cache_dir.h"

#define BLOCK 4096 /* entries begin there */

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

/* Its table has all its checksums, and two entries in one place: reading both together read past the end of
 * what was read. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_never_reached_the_disk_is_computed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_gave_way_is_let_go, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(no_changed_byte_gets_through, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_table_of_entries_that_overlap_is_none, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(torn_segments_are_none, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
