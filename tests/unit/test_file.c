/* storage/file.h: reading ranges, files that change, descriptors, patterns, atomic writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "data_files.h"

static void reads_ranges(void **state)
{
    (void)state;
    struct cw_file *f = open_file(temp_file("a", "0123456789", 10));
    char buffer[16] = {0};
    assert_int_equal(cw_file_read(f, 3, buffer, 4, false, NULL), 0);
    assert_string_equal(buffer, "3456");
    assert_int_equal(cw_file_read(f, 10, buffer, 0, false, NULL), 0);
    int r = cw_file_read(f, 0, buffer, 10, true, NULL);
    assert_true(r == 0 || r == 1); /* just written: in memory, where the file system can tell */
    assert_int_equal(cw_file_read(f, 0, buffer, 10, false, NULL), 0);
    assert_memory_equal(buffer, "0123456789", 10);
    struct cw_error err = {0};
    assert_int_equal(cw_file_read(f, 8, buffer, 3, false, &err), CW_E_DATA);
    assert_contains(err.message, "the file ends at byte");
    assert_int_equal(cw_file_read(f, UINT64_MAX, buffer, 3, false, NULL), CW_E_DATA);
    cw_file_free(f);
    assert_null(cw_file_free(NULL));
}

static void notices_changes(void **state)
{
    (void)state;
    char buffer[16];
    struct cw_error err = {0};
    struct cw_file *f = open_file(temp_file("grown", "0123", 4));
    temp_file("grown", "01234", 5);
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, &err), CW_E_DATA);
    assert_contains(err.message, "changed since it was indexed");
    assert_contains(err.file, "/grown");
    cw_file_free(f);

    f = open_file(temp_file("touched", "0123", 4));
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000, .tv_nsec = 5}};
    assert_int_equal(utimensat(AT_FDCWD, temp_path("touched"), times, 0), 0);
    err = (struct cw_error){0};
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, &err), CW_E_DATA);
    assert_contains(err.message, "modification time");
    cw_file_free(f);

    f = open_file(temp_file("gone", "0123", 4));
    unlink(temp_path("gone"));
    err = (struct cw_error){0};
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, &err), CW_E_DATA);
    assert_contains(err.message, "was deleted since it was indexed");
    cw_file_free(f);

    f = open_file(temp_file("shrinks", "0123", 4)); /* while it is open */
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, NULL), 0);
    assert_int_equal(truncate(temp_path("shrinks"), 2), 0);
    err = (struct cw_error){0};
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, &err), CW_E_DATA);
    assert_contains(err.message, "ends at byte 2");
    cw_file_free(f);
}

/* Writes over a file's first bytes and restores its modification time. */
static void change_in_place(const char *path, const char *text, const struct cw_stat *was)
{
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = was->mtime_ns / 1000000000, .tv_nsec = was->mtime_ns % 1000000000}};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void notices_what_is_written_in_place(void **state)
{
    (void)state;
    char buffer[16];
    struct cw_error err = {0};
    struct cw_stat was, now;
    struct cw_file *f;
    const char *path = temp_file("same", "0123", 4);
    assert_int_equal(cw_stat_settled(path, &was, NULL), 0);
    assert_int_equal(cw_file_new(path, &was, &f, NULL), 0);
    uint64_t stamp = cw_file_stamp(f);
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, NULL), 0);
    assert_int_equal(cw_file_check(f, cw_now_ns(), false, NULL), 0);
    assert_true(cw_file_unchanged(f, 7, true));
    change_in_place(path, "4567", &was);
    assert_true(cw_file_unchanged(f, 7, true)); /* looked at before in this turn */
    assert_false(cw_file_unchanged(f, 8, true));
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, NULL), 0); /* it is open */
    assert_int_equal(cw_file_check(f, 0, false, NULL), 0);           /* looked at since then */
    assert_int_equal(cw_file_check(f, cw_now_ns(), false, &err), CW_E_DATA);
    assert_contains(err.message, "changed since it was indexed: its change time");
    assert_contains(err.file, "/same");
    assert_int_equal(cw_file_verdict(f, CW_E_IO, &err), CW_E_DATA); /* whatever came of reading it */
    cw_file_free(f);

    assert_int_equal(cw_stat_settled(path, &now, NULL), 0);
    assert_int_equal(now.mtime_ns, was.mtime_ns);
    assert_int_equal(cw_file_new(path, &now, &f, NULL), 0);
    assert_int_not_equal(cw_file_stamp(f), stamp);
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, NULL), 0);
    temp_file("new", "89ab", 4);
    assert_int_equal(rename(temp_path("new"), path), 0);
    assert_int_equal(cw_file_check(f, cw_now_ns(), false, &err), CW_E_DATA);
    assert_contains(err.message, "its change time");
    assert_int_equal(cw_file_verdict(f, 0, NULL), CW_E_DATA);
    cw_file_free(f);
}

/* An index that knows of each file its first byte. */
struct firsts {
    char bytes[3];
    atomic_int compared;
};

static int same_first(const void *index, size_t i, struct cw_file *f, bool *ret, struct cw_error *err)
{
    struct firsts *x = (struct firsts *)index;
    char byte;
    atomic_fetch_add(&x->compared, 1);
    int r = cw_file_read(f, 0, &byte, 1, false, err);
    *ret = r == 0 && byte == x->bytes[i];
    return cw_file_verdict(f, r, err);
}

static struct cw_file *compared_file(const char *path, const struct firsts *x)
{
    struct cw_stat was;
    struct cw_file *f;
    char buffer[4];
    assert_int_equal(cw_stat_settled(path, &was, NULL), 0);
    assert_int_equal(cw_file_new(path, &was, &f, NULL), 0);
    cw_file_compare_by(f, same_first, x, 1);
    assert_int_equal(cw_file_read(f, 0, buffer, 4, false, NULL), 0);
    return f;
}

static void *check_now(void *f)
{
    return cw_file_check(f, cw_now_ns(), false, NULL) == 0 ? NULL : f;
}

static void what_moved_its_change_time_alone_is_compared_once(void **state)
{
    (void)state;
    struct firsts x = {.bytes = "-0"};
    const char *path = temp_file("mode", "0123", 4);
    struct cw_file *f = compared_file(path, &x);
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(cw_file_check(f, cw_now_ns(), true, NULL), 1); /* takes reading */
    assert_int_equal(atomic_load(&x.compared), 0);
    assert_false(cw_file_unchanged(f, 1, false));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, check_now, f), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(atomic_load(&x.compared), 1);
    assert_true(cw_file_unchanged(f, 1, false));
    assert_false(cw_file_unchanged(f, 2, true));
    assert_int_equal(unlink(path), 0); /* it stays open */
    assert_int_equal(cw_file_check(f, cw_now_ns(), false, NULL), 0);
    assert_int_equal(atomic_load(&x.compared), 2);
    cw_file_free(f);
}

static void what_was_written_in_place_is_compared_and_is_another(void **state)
{
    (void)state;
    struct firsts x = {.bytes = "-0"};
    struct cw_error err = {0};
    struct cw_stat was;
    const char *path = temp_file("rewritten", "0123", 4);
    struct cw_file *f = compared_file(path, &x);
    assert_int_equal(cw_stat(path, &was, NULL), 0);
    change_in_place(path, "4567", &was);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cw_file_check(f, cw_now_ns(), false, &err), CW_E_DATA);
    assert_contains(err.message, "changed since it was indexed: its content differs");
    assert_contains(err.file, "/rewritten");
    change_in_place(path, "0", &was); /* and back */
    assert_int_equal(cw_file_check(f, cw_now_ns(), false, NULL), 0);
    cw_file_free(f);
}

/* The kernel's change times have the grain of its tick: two changes within one look alike. */
static void a_file_just_written_is_waited_for(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct cw_stat first, second;
        const char *path = temp_file("young", "0123", 4);
        assert_int_equal(cw_stat_settled(path, &first, NULL), 0);
        change_in_place(path, "4567", &first);
        assert_int_equal(cw_stat(path, &second, NULL), 0);
        assert_int_not_equal(first.ctime_ns, second.ctime_ns);
        assert_false(cw_stat_same(&first, &second));
    }
    struct cw_error err = {0};
    struct cw_stat st;
    assert_int_equal(cw_stat_settled(temp_path("absent"), &st, &err), CW_E_IO);
}

#define MANY 600
static struct cw_file *many[MANY];

static void *read_many(void *arg)
{
    unsigned x = *(unsigned *)arg;
    for (int i = 0; i < 3000; i++) {
        uint32_t v = 0;
        x = x * 1664525 + 1013904223;
        unsigned k = (x >> 8) % MANY;
        if (cw_file_read(many[k], 0, &v, 4, false, NULL) < 0 || v != k)
            return "wrong";
    }
    return NULL;
}

static size_t n_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    size_t n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void make_many(void)
{
    for (uint32_t i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%u", i);
        many[i] = open_file(temp_file(name, &i, 4));
    }
}

static void bounds_descriptors(void **state)
{
    (void)state;
    make_many();
    pthread_t threads[4];
    unsigned seeds[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, read_many, &seeds[i]);
    for (int i = 0; i < 4; i++) {
        void *r;
        pthread_join(threads[i], &r);
        assert_null(r);
    }
    size_t open_now = n_open();
    assert_true(open_now <= 256 + 16);
    for (int i = 0; i < MANY; i++)
        cw_file_free(many[i]);
    assert_true(n_open() < 16);
}

static void link_name(const char *to)
{
    unlink(temp_path("name"));
    assert_int_equal(symlink(to, temp_path("name")), 0);
}

/* Before it is looked at after reading, its descriptor is closed, for those of others: the look would be at
 * what has the name by then. */
/* 0: all is as it should be in a forked child. */
static int look_around(struct cw_file *f)
{
    char name[64], path[4096], byte;
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, path, sizeof(path) - 1);
        path[CW_MAX(n, 0)] = 0;
        if (strcmp(path, temp_path("inherited")) == 0)
            return 1;
    }
    return cw_file_read(f, 1, &byte, 1, false, NULL) == 0 && byte == '1' ? 0 : 2;
}

/* It held the space of files that were removed since, for as long as it lived. */
static void a_forked_child_has_no_files_open(void **state)
{
    (void)state;
    struct cw_file *f = open_file(temp_file("inherited", "0123", 4));
    char byte;
    int status;
    assert_int_equal(cw_file_read(f, 0, &byte, 1, false, NULL), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(look_around(f));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(unlink(temp_path("inherited")), 0);
    assert_int_equal(cw_file_read(f, 2, &byte, 1, false, NULL), 0); /* here it is open still */
    assert_int_equal(byte, '2');
    cw_file_free(f);
}

static void what_has_its_name_for_a_moment_is_not_read(void **state)
{
    (void)state;
    uint32_t v;
    struct cw_error err = {0};
    temp_file("right", "0123", 4);
    temp_file("wrong", "4567", 4);
    link_name("right");
    struct cw_file *f = open_file(temp_path("name"));
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, temp_path("wrong"), times, 0), 0);
    link_name("wrong");
    int r = cw_file_read(f, 0, &v, 4, false, &err);
    make_many();
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(cw_file_read(many[i], 0, &v, 4, false, NULL), 0);
    link_name("right");
    r = r == 0 ? cw_file_check(f, cw_now_ns(), false, &err) : r;
    assert_int_equal(r, CW_E_DATA);
    assert_contains(err.message, "modification time");
    for (int i = 0; i < MANY; i++)
        cw_file_free(many[i]);
    cw_file_free(f);
}

static void matches_patterns(void **state)
{
    (void)state;
    struct cw_paths p;
    size_t prefix;
    struct cw_error err = {0};
    mkdir(temp_path("d"), 0777);
    mkdir(temp_path("d/e1"), 0777);
    mkdir(temp_path("d/e2"), 0777);
    mkdir(temp_path("d/e1/x-dir"), 0777);
    mkdir(temp_path("odd*[dir"), 0777);
    temp_file("d/e2/x-1", "", 0);
    temp_file("d/e1/x-2", "", 0);
    temp_file("d/e1/x-10", "", 0);
    temp_file("odd*[dir/y", "", 0);
    temp_file("d/x[1]", "", 0);

    assert_int_equal(cw_glob(temp_dir, "d/e*/x-*", &p, &prefix, NULL), 0);
    assert_int_equal(p.n, 3);
    assert_string_equal(p.paths[0] + prefix, "e1/x-10");
    assert_string_equal(p.paths[1] + prefix, "e1/x-2");
    assert_string_equal(p.paths[2] + prefix, "e2/x-1");
    cw_paths_deinit(&p);

    assert_int_equal(cw_glob(temp_dir, "d/e1/x-2", &p, &prefix, NULL), 0); /* one file */
    assert_int_equal(p.n, 1);
    assert_string_equal(p.paths[0] + prefix, "x-2");
    cw_paths_deinit(&p);

    assert_int_equal(cw_glob(temp_path("odd*[dir"), "*", &p, &prefix, NULL), 0); /* the base is no pattern */
    assert_int_equal(p.n, 1);
    assert_string_equal(p.paths[0] + prefix, "y");
    cw_paths_deinit(&p);

    assert_int_equal(cw_glob(temp_dir, "odd\\*\\[dir/?", &p, &prefix, NULL), 0); /* quoted */
    assert_string_equal(p.paths[0] + prefix, "y");
    cw_paths_deinit(&p);

    assert_int_equal(cw_glob("/nowhere", temp_path("d/x[[]1]"), &p, &prefix, NULL), 0); /* absolute */
    assert_string_equal(p.paths[0] + prefix, "x[1]");
    cw_paths_deinit(&p);

    assert_int_equal(cw_glob(temp_dir, "d/none-*", &p, &prefix, &err), CW_E_PIPELINE);
    assert_contains(err.message, "d/none-*");
    /* a directory is not a file */
    assert_int_equal(cw_glob(temp_dir, "d/e1", &p, &prefix, NULL), CW_E_PIPELINE);
    assert_int_equal(cw_glob(temp_dir, "absent", &p, &prefix, NULL), CW_E_PIPELINE);
}

/* Checks that a pattern stands for these patterns, one per line of `expected`. */
static void expect_patterns(const char *pattern, const char *expected)
{
    struct cw_paths p;
    size_t prefix;
    char got[400] = "";
    assert_int_equal(cw_patterns(temp_dir, pattern, &p, &prefix, NULL), 0);
    for (size_t i = 0, at = 0; i < p.n && at < sizeof(got); i++)
        at += (size_t)snprintf(got + at, sizeof(got) - at, "%s%s", i ? "\n" : "", p.paths[i]);
    cw_paths_deinit(&p);
    assert_string_equal(got, expected);
}

static void expands_braces_and_home_directories(void **state)
{
    (void)state;
    struct cw_paths p;
    size_t prefix;
    struct cw_error err = {0};
    expect_patterns("x-{008..011}.tar", "x-008.tar\nx-009.tar\nx-010.tar\nx-011.tar");
    expect_patterns("{8..10}", "8\n9\n10");
    expect_patterns("{1..-1}", "1\n0\n-1");
    expect_patterns("{-01..1}", "-01\n000\n001"); /* as bash */
    expect_patterns("{a,b{1,2},}/c", "a/c\nb1/c\nb2/c\n/c");
    expect_patterns("{a,b}{0..1}", "a0\na1\nb0\nb1");
    expect_patterns("{x{1,2}y}", "{x1y}\n{x2y}");
    expect_patterns("{a}{b..c}{1..}{,\\{d,e\\}", "{a}{b..c}{1..}{,\\{d,e\\}"); /* no lists, no ranges */
    expect_patterns("{a\\,b,c}", "a\\,b\nc");
    assert_int_equal(cw_patterns(temp_dir, "{0..999}{0..999}{0..9}", &p, &prefix, &err), CW_E_PIPELINE);
    assert_contains(err.message, "{0..999}{0..999}{0..9}: the braces stand for more than 1000000 names");
    char braces[70 * 4 + 1] = "";
    for (int i = 0; i < 70; i++)
        strcat(braces, "{a,}");
    assert_int_equal(cw_patterns(temp_dir, braces, &p, &prefix, &err), CW_E_PIPELINE);
    assert_contains(err.message, "{a,}: the braces stand for");

    setenv("HOME", "/home of/me{1,2}*", 1);
    expect_patterns("~/x", "/home of/me\\{1,2}\\*/x");
    expect_patterns("~", "/home of/me\\{1,2}\\*");
    expect_patterns("a~", "a~");
    expect_patterns("~root/{a,b}", "/root/a\n/root/b");
    expect_patterns("~no such user/x", "~no such user/x");

    temp_file("y-{1,2}", "", 0); /* files of these very names */
    mkdir(temp_path("~"), 0777);
    temp_file("~/f", "", 0);
    expect_patterns("y-{1,2}", "y-\\{1,2}");
    expect_patterns("~/f", "~/f");
    expect_patterns("~/g", "/home of/me\\{1,2}\\*/g");

    assert_int_equal(cw_patterns(temp_dir, "d/{e1,e2}/x", &p, &prefix, NULL), 0);
    assert_int_equal(prefix, strlen(temp_dir) + strlen("/d/")); /* the classes are part of relative paths */
    cw_paths_deinit(&p);
}

static void descends_directories(void **state)
{
    (void)state;
    struct cw_paths p;
    size_t prefix;
    mkdir(temp_path("r"), 0777);
    mkdir(temp_path("r/a"), 0777);
    mkdir(temp_path("r/a/b"), 0777);
    mkdir(temp_path("r/.hidden"), 0777);
    temp_file("r/x.jpg", "", 0);
    temp_file("r/a/y.jpg", "", 0);
    temp_file("r/a/b/z.jpg", "", 0);
    temp_file("r/a/b/z.txt", "", 0);
    temp_file("r/.hidden/h.jpg", "", 0);
    assert_int_equal(symlink("..", temp_path("r/a/up")), 0); /* a cycle */

    assert_int_equal(cw_glob(temp_dir, "r/**/*.jpg", &p, &prefix, NULL), 0);
    assert_int_equal(p.n, 3);
    assert_string_equal(p.paths[0] + prefix, "a/b/z.jpg");
    assert_string_equal(p.paths[1] + prefix, "a/y.jpg");
    assert_string_equal(p.paths[2] + prefix, "x.jpg");
    cw_paths_deinit(&p);
    assert_int_equal(cw_glob(temp_dir, "r/**/b/**/z*", &p, &prefix, NULL), 0);
    assert_int_equal(p.n, 2);
    cw_paths_deinit(&p);
    assert_int_equal(cw_glob(temp_dir, "r/**", &p, &prefix, NULL), 0);
    assert_int_equal(p.n, 4);
    cw_paths_deinit(&p);
    assert_int_equal(cw_glob(temp_dir, "r/**/**/*.jpg", &p, &prefix, NULL), 0); /* none twice */
    assert_int_equal(p.n, 3);
    cw_paths_deinit(&p);
    assert_int_equal(cw_glob(temp_dir, "r/**/none", &p, &prefix, NULL), CW_E_PIPELINE);
}

static void lists_directories(void **state)
{
    (void)state;
    struct cw_paths p;
    mkdir(temp_path("l"), 0777);
    temp_file("l/b", "", 0);
    temp_file("l/B", "", 0);
    temp_file("l/.h", "", 0);
    assert_int_equal(cw_list(temp_path("l"), &p, NULL), 0);
    assert_int_equal(p.n, 3);
    assert_string_equal(p.paths[0], ".h");
    assert_string_equal(p.paths[1], "B");
    assert_string_equal(p.paths[2], "b");
    cw_paths_deinit(&p);
    struct cw_error err = {0};
    assert_int_equal(cw_list(temp_path("none"), &p, &err), CW_E_IO);
    assert_contains(err.message, "/none");
}

static void writes_whole_files(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_stat st;
    assert_int_equal(cw_put(temp_path("put"), "first", 5, NULL), 0);
    assert_int_equal(cw_put(temp_path("put"), "second one", 10, NULL), 0);
    assert_int_equal(cw_stat(temp_path("put"), &st, NULL), 0);
    assert_int_equal(st.size, 10);
    assert_int_equal(cw_put(temp_path("no/such/dir"), "x", 1, &err), CW_E_IO);
    assert_contains(err.message, "no/such/dir");
    struct cw_paths p;
    size_t prefix;
    assert_int_equal(cw_glob(temp_dir, "put*", &p, &prefix, NULL), 0); /* no temporary file is left */
    assert_int_equal(p.n, 1);
    cw_paths_deinit(&p);
}

/* ---- what is on the disk, and when: this program's fsync and rename are those below ---- */

static struct {
    char text[96];
    bool fails;
} calls;

int fsync(int fd)
{
    struct stat st;
    bool directory = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    strncat(calls.text, directory ? "fsync directory; " : "fsync file; ",
            sizeof(calls.text) - strlen(calls.text) - 1);
    if (!calls.fails)
        return (int)syscall(SYS_fsync, fd);
    errno = EIO;
    return -1;
}

int rename(const char *from, const char *to)
{
    strncat(calls.text, "rename; ", sizeof(calls.text) - strlen(calls.text) - 1);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static void a_file_is_on_disk_before_it_replaces_another(void **state)
{
    (void)state;
    memset(&calls, 0, sizeof(calls));
    assert_int_equal(cw_put(temp_path("synced"), "old", 3, NULL), 0);
    assert_string_equal(calls.text, "fsync file; rename; fsync directory; ");
}

static void a_file_that_cannot_be_synced_does_not_replace_another(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_stat st;
    memset(&calls, 0, sizeof(calls));
    calls.fails = true;
    assert_int_equal(cw_put(temp_path("synced"), "the new one", 11, &err), CW_E_IO);
    calls.fails = false;
    assert_string_equal(calls.text, "fsync file; ");
    assert_contains(err.message, "/synced: can't be written");
    assert_int_equal(cw_stat(temp_path("synced"), &st, NULL), 0);
    assert_int_equal(st.size, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_ranges),
        cmocka_unit_test(notices_what_is_written_in_place),
        cmocka_unit_test(a_file_just_written_is_waited_for),
        cmocka_unit_test(notices_changes),
        cmocka_unit_test(bounds_descriptors),
        cmocka_unit_test(what_has_its_name_for_a_moment_is_not_read),
        cmocka_unit_test(what_moved_its_change_time_alone_is_compared_once),
        cmocka_unit_test(what_was_written_in_place_is_compared_and_is_another),
        cmocka_unit_test(matches_patterns),
        cmocka_unit_test(expands_braces_and_home_directories),
        cmocka_unit_test(descends_directories),
        cmocka_unit_test(lists_directories),
        cmocka_unit_test(writes_whole_files),
        cmocka_unit_test(a_file_is_on_disk_before_it_replaces_another),
        cmocka_unit_test(a_file_that_cannot_be_synced_does_not_replace_another),
        cmocka_unit_test(a_forked_child_has_no_files_open),
    };
    return cmocka_run_group_tests_name("file", tests, temp_make, temp_remove);
}
