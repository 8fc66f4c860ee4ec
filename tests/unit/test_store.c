/* The store: what is there after what, and that kill -9, a log cut off anywhere and a full disk lose nothing
 * acknowledged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "service/dispatcher/store.h"
#include "net/loop.h"

static char dir[64], copy[80];

static void remove_all(const char *path)
{
    char file[400];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        unlink(file);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/cachew-store-XXXXXX");
    assert_non_null(mkdtemp(dir));
    rmdir(dir);
    snprintf(copy, sizeof(copy), "%s%s-copy", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             dir + strlen("/tmp"));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_all(dir);
    remove_all(copy);
    return 0;
}

/* ---- rows, and commits ---- */

static void put(struct cw_store_batch *b, const char *key, const void *value, size_t size)
{
    assert_int_equal(
        cw_store_batch_add(
            b, &(struct cw_store_op){CW_STORE_PUT, (const uint8_t *)key, value, strlen(key), size}, NULL),
        0);
}

static void put_text(struct cw_store_batch *b, const char *key, const char *value)
{
    put(b, key, value, strlen(value));
}

static void delete(struct cw_store_batch *b, const char *key)
{
    assert_int_equal(
        cw_store_batch_add(
            b, &(struct cw_store_op){CW_STORE_DELETE, (const uint8_t *)key, NULL, strlen(key), 0}, NULL),
        0);
}

static void delete_range(struct cw_store_batch *b, const char *from, const char *to)
{
    assert_int_equal(cw_store_batch_add(b,
                                        &(struct cw_store_op){CW_STORE_DELETE_RANGE, (const uint8_t *)from,
                                                              (const uint8_t *)to, strlen(from), strlen(to)},
                                        NULL),
                     0);
}

struct rows {
    char text[4096];
    size_t n;
    uint64_t sum;
};

/* "key=value " after each other; long values by their size. */
static int on_row(void *user, const void *key, size_t key_size, const void *value, size_t value_size,
                  struct cw_error *err)
{
    struct rows *r = user;
    size_t at = strlen(r->text);
    (void)err;
    r->n++;
    if (at < sizeof(r->text) - 200) {
        if (value_size < 64)
            snprintf(r->text + at, sizeof(r->text) - at, "%.*s=%.*s ", (int)key_size, (const char *)key,
                     (int)value_size, (const char *)value);
        else
            snprintf(r->text + at, sizeof(r->text) - at, "%.*s=(%zu) ", (int)key_size, (const char *)key,
                     value_size);
    }
    return 0;
}

static struct rows rows_at(const char *where)
{
    struct rows r = {0};
    struct cw_store_file *f = NULL;
    struct cw_error err = {0};
    if (cw_store_file_open(where, &f, &err) < 0 || cw_store_file_read(f, on_row, &r, &err) < 0)
        fail_msg("%s", err.message);
    cw_store_file_close(f);
    return r;
}

struct waiter {
    struct cw_loop *loop;
    struct cw_store_batch batch;
    bool done;
    struct cw_error why;
};

static void on_done(void *arg, const struct cw_error *why)
{
    struct waiter *w = arg;
    w->done = true;
    w->why = why ? *why : (struct cw_error){0};
    cw_loop_stop(w->loop);
}

/* Returns what it came to. */
static int commit(struct cw_store *s, struct waiter *w)
{
    w->done = false;
    cw_store_commit(s, &w->batch, on_done, w);
    assert_false(w->done); /* never from within */
    cw_loop_run(w->loop);
    assert_true(w->done);
    return w->why.status;
}

/* ---- tests ---- */

static void test_batches(void **state)
{
    (void)state;
    struct cw_store_batch b = {0};
    struct cw_store_op op;
    size_t at = 0;
    char long_key[CW_STORE_KEY_MAX + 2];
    put_text(&b, "a", "1");
    delete(&b, "b");
    put_text(&b, "c", "");
    assert_int_equal(b.n, 3);
    assert_true(cw_store_batch_next(&b, &at, &op) && op.kind == CW_STORE_PUT && op.key_size == 1 &&
                op.value_size == 1 && op.value[0] == '1');
    assert_true(cw_store_batch_next(&b, &at, &op) && op.kind == CW_STORE_DELETE && op.key[0] == 'b');
    assert_true(cw_store_batch_next(&b, &at, &op) && op.value_size == 0);
    assert_false(cw_store_batch_next(&b, &at, &op));
    memset(long_key, 'k', sizeof(long_key));
    assert_int_equal(cw_store_batch_add(&b,
                                        &(struct cw_store_op){CW_STORE_PUT, (uint8_t *)long_key, NULL,
                                                              CW_STORE_KEY_MAX + 1, 0},
                                        NULL),
                     CW_E_BUG);
    assert_int_equal(b.n, 3);
    cw_store_batch_clear(&b);
    at = 0;
    assert_false(cw_store_batch_next(&b, &at, &op));
    cw_store_batch_deinit(&b);
}

/* Rows are ordered by bytes; later operations see earlier ones, in a batch and between them; big values come
 * back whole. */
static void test_rows(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_store_file *f = NULL;
    struct cw_store_batch b = {0}, c = {0};
    size_t size = (size_t)5 << 20;
    uint8_t *big = malloc(size);
    memset(big, 'x', size);
    assert_int_equal(cw_store_file_open(dir, &f, &err), 0);
    put_text(&b, "b", "1");
    put_text(&b, "a\xff", "2");
    put_text(&b, "b", "3");
    put_text(&b, "d1", "4");
    put_text(&b, "d2", "5");
    put_text(&b, "d3", "6");
    put_text(&c, "empty", "");
    put(&c, "big", big, size);
    delete_range(&c, "d1", "d3");
    delete(&c, "nothing");
    assert_int_equal(cw_store_file_apply(f, &b, &err), 0);
    assert_int_equal(cw_store_file_apply(f, &c, &err), 0);
    cw_store_file_close(f);
    assert_string_equal(rows_at(dir).text, "a\xff=2 b=3 big=(5242880) d3=6 empty= ");
    struct stat st;
    char path[100];
    snprintf(path, sizeof(path), "%s/journal.db", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600); /* pipelines are nobody else's business */
    cw_store_batch_deinit(&b);
    cw_store_batch_deinit(&c);
    free(big);
}

/* One that has it open keeps others out; what is no journal is left alone. */
static void test_not_ours(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_store_file *f = NULL, *g = NULL;
    char path[100], text[] = "this is not a database, but long enough to be looked at as one, as SQLite "
                             "reads the first hundred bytes or so of it.......";
    assert_int_equal(cw_store_file_open(dir, &f, &err), 0);
    assert_int_equal(cw_store_file_open(dir, &g, &err), CW_E_SERVICE);
    assert_non_null(strstr(err.message, "another process uses the file"));
    cw_store_file_close(f);
    snprintf(path, sizeof(path), "%s/journal.db", dir);
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
    close(fd);
    err = (struct cw_error){0};
    assert_int_equal(cw_store_file_open(dir, &f, &err), CW_E_DATA);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, "the dispatcher's journal is damaged (file is not a database): "
                                        "restore the file from a copy; or move it"));
    err = (struct cw_error){0};
    assert_int_equal(cw_store_file_open("/proc/nothing/here", &f, &err), CW_E_IO);
    assert_non_null(strstr(err.message, "/proc/nothing/here"));
}

/* A file that is cut, or in which a page is not what it was, is an error, and never read as if something had
 * been deleted. */
static void test_damaged_files_are_errors(void **state)
{
    (void)state;
    struct cw_store_batch b = {0};
    struct cw_store_file *f = NULL;
    struct cw_error err = {0};
    char path[100];
    static uint8_t value[300];
    snprintf(path, sizeof(path), "%s/journal.db", dir);
    assert_int_equal(cw_store_file_open(dir, &f, &err), 0);
    for (int i = 0; i < 200; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%04d", i);
        put(&b, key, value, sizeof(value));
    }
    assert_int_equal(cw_store_file_apply(f, &b, &err), 0);
    cw_store_file_close(f);
    cw_store_batch_deinit(&b);
    int fd = open(path, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *whole = malloc((size_t)size);
    assert_int_equal(pread(fd, whole, (size_t)size, 0), size);
    for (off_t cut = 4096; cut <= size; cut += 4096) {
        /* of the last round the whole file, with a page that has one entry less */
        assert_int_equal(pwrite(fd, whole, (size_t)size, 0), size);
        if (cut == size)
            assert_int_equal(pwrite(fd, "\0\1", 2, size - 4096 + 3), 2);
        else
            assert_int_equal(ftruncate(fd, cut), 0);
        struct rows r = {0};
        err = (struct cw_error){0};
        f = NULL;
        int result = cw_store_file_open(dir, &f, &err);
        if (result == 0)
            result = cw_store_file_read(f, on_row, &r, &err);
        assert_int_equal(result, CW_E_DATA);
        assert_non_null(strstr(err.message, "journal.db: the dispatcher's journal is damaged"));
        cw_store_file_close(f);
    }
    close(fd);
    free(whole);
}

/* One after the other, with a file and in memory alike. */
static void test_commits(void **state)
{
    (void)state;
    for (int memory = 0; memory < 2; memory++) {
        struct cw_error err = {0};
        struct cw_store *s = NULL;
        struct waiter w = {0};
        assert_int_equal(cw_loop_new(&w.loop, &err), 0);
        assert_int_equal(cw_store_open(memory ? NULL : dir, w.loop, &s, &err), 0);
        for (int i = 0; i < 100; i++) {
            char key[16];
            snprintf(key, sizeof(key), "%04d", i);
            cw_store_batch_clear(&w.batch);
            put_text(&w.batch, key, "v");
            assert_int_equal(commit(s, &w), 0);
        }
        cw_store_close(s);
        cw_loop_free(w.loop);
        cw_store_batch_deinit(&w.batch);
        if (!memory)
            assert_int_equal(rows_at(dir).n, 100);
    }
}

/* What was committed is there when the store is closed, said or not. */
static void test_close_writes(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_store *s = NULL;
    struct waiter w = {0};
    assert_int_equal(cw_loop_new(&w.loop, &err), 0);
    assert_int_equal(cw_store_open(dir, w.loop, &s, &err), 0);
    put_text(&w.batch, "k", "v");
    cw_store_commit(s, &w.batch, on_done, &w);
    cw_store_close(s);
    cw_loop_free(w.loop);
    assert_false(w.done);
    assert_string_equal(rows_at(dir).text, "k=v ");
    cw_store_batch_deinit(&w.batch);
}

/* Writes one row after the other and says each that was acknowledged; ends by being killed. */
struct writer {
    struct cw_loop *loop;
    struct cw_store *store;
    struct cw_store_batch batch;
    int fd;
    uint32_t n;
};

static void writer_next(struct writer *w);

static void on_written(void *arg, const struct cw_error *why)
{
    struct writer *w = arg;
    if (why || write(w->fd, &w->n, sizeof(w->n)) != sizeof(w->n))
        _exit(1);
    w->n++;
    writer_next(w);
}

static void writer_next(struct writer *w)
{
    char key[16], value[256];
    cw_store_batch_clear(&w->batch);
    for (int half = 0; half < 2; half++) { /* both, or neither */
        snprintf(key, sizeof(key), "%c%08" PRIu32, 'a' + half, w->n);
        snprintf(value, sizeof(value), "%0200" PRIu32, w->n);
        put_text(&w->batch, key, value);
    }
    cw_store_commit(w->store, &w->batch, on_written, w);
}

static void test_kill(void **state)
{
    (void)state;
    uint32_t total = 0;
    for (int round = 0; round < 12; round++) {
        int fds[2];
        uint32_t n, acknowledged = 0;
        assert_int_equal(pipe(fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct writer w = {.fd = fds[1], .n = total};
            struct cw_error err = {0};
            close(fds[0]);
            if (cw_loop_new(&w.loop, &err) < 0 || cw_store_open(dir, w.loop, &w.store, &err) < 0)
                _exit(1);
            writer_next(&w);
            cw_loop_run(w.loop);
            _exit(1);
        }
        close(fds[1]);
        /* then at any instruction */
        while (acknowledged < 20u + 7u * (uint32_t)round && read(fds[0], &n, sizeof(n)) == sizeof(n))
            acknowledged++;
        kill(pid, SIGKILL);
        while (read(fds[0], &n, sizeof(n)) == sizeof(n)) /* what it said before it died */
            acknowledged++;
        close(fds[0]);
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        struct rows r = rows_at(dir);
        assert_int_equal(r.n % 2, 0);
        /* the one under way may be there, whole */
        assert_true(r.n / 2 == total + acknowledged || r.n / 2 == total + acknowledged + 1);
        total = (uint32_t)(r.n / 2);
    }
}

static size_t copy_file(const char *name, size_t limit)
{
    char from[120], to[120];
    static uint8_t data[1 << 20];
    snprintf(from, sizeof(from), "%s/%s", dir, name);
    snprintf(to, sizeof(to), "%s/%s", copy, name);
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(in >= 0 && out >= 0);
    ssize_t n = read(in, data, sizeof(data));
    assert_true(n >= 0 && (size_t)n < sizeof(data));
    assert_int_equal(write(out, data, CW_MIN((size_t)n, limit)), CW_MIN((size_t)n, limit));
    close(in);
    close(out);
    return (size_t)n;
}

/* The log, cut at every byte of its last transaction: it opens, all before is there, and of the last one all
 * or nothing. */
static void test_cut_log(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_store_file *f = NULL;
    struct cw_store_batch b = {0};
    assert_int_equal(cw_store_file_open(dir, &f, &err), 0);
    mkdir(copy, 0700);
    put_text(&b, "a", "1");
    assert_int_equal(cw_store_file_apply(f, &b, &err), 0);
    cw_store_batch_clear(&b);
    put_text(&b, "b", "2");
    assert_int_equal(cw_store_file_apply(f, &b, &err), 0);
    size_t before = copy_file("journal.db-wal", SIZE_MAX);
    cw_store_batch_clear(&b);
    put_text(&b, "c", "3");
    delete(&b, "a");
    assert_int_equal(cw_store_file_apply(f, &b, &err), 0);
    size_t after = copy_file("journal.db-wal", SIZE_MAX);
    assert_true(after > before);
    for (size_t cut = before; cut <= after; cut++) {
        copy_file("journal.db", SIZE_MAX);
        copy_file("journal.db-wal", cut);
        assert_string_equal(rows_at(copy).text, cut < after ? "a=1 b=2 " : "b=2 c=3 ");
    }
    cw_store_file_close(f);
    cw_store_batch_deinit(&b);
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* No room: said so, nothing half; and once there is room again, it goes on. */
static void test_full(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_store *s = NULL;
    static uint8_t big[1 << 20];
    struct waiter w = {0};
    struct rlimit old, small;
    signal(SIGXFSZ, on_alarm);
    assert_int_equal(cw_loop_new(&w.loop, &err), 0);
    assert_int_equal(cw_store_open(dir, w.loop, &s, &err), 0);
    put_text(&w.batch, "a", "1");
    assert_int_equal(commit(s, &w), 0);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 256 << 10;
    setrlimit(RLIMIT_FSIZE, &small);
    cw_store_batch_clear(&w.batch);
    put(&w.batch, "b", big, sizeof(big));
    put_text(&w.batch, "c", "3");
    assert_int_equal(commit(s, &w), CW_E_IO);
    assert_non_null(strstr(w.why.message, "journal.db"));
    assert_int_equal(commit(s, &w), CW_E_IO);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(commit(s, &w), 0);
    cw_store_close(s);
    cw_loop_free(w.loop);
    assert_string_equal(rows_at(dir).text, "a=1 b=(1048576) c=3 ");
    cw_store_batch_deinit(&w.batch);
    signal(SIGXFSZ, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_files_are_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_commits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_log, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
