/* storage/mapped.h: what is in memory is copied, and what can't be had ends no process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macro.h"
#include "data_files.h"
#include "storage/mapped.h"

#define BYTES ((size_t)8 << 20)
#define PAGE ((size_t)64 << 10) /* as large as pages are anywhere */

/* It calls handlers itself, everything blocked; and it maps memory of its own all the time, and ends where it
 * can't. */
#define THREAD_SANITIZER false
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef THREAD_SANITIZER
#define THREAD_SANITIZER true
#endif
#endif
/* AddressSanitizer of clang 19, unlike that of 14, maps shadow memory in each mmap, and ends the process
 * where it can't. */
#define SHADOW_IS_MAPPED THREAD_SANITIZER
#if defined(__clang_major__) && __clang_major__ > 14
#if __has_feature(address_sanitizer)
#undef SHADOW_IS_MAPPED
#define SHADOW_IS_MAPPED true
#endif
#endif

/* A program has its own handler: it comes first, and goes on being asked. */
static atomic_int n_asked, n_otherwise; /* otherwise blocked than it wants */
static sigjmp_buf out;
static volatile sig_atomic_t jumps;

static void own_handler(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    if (!THREAD_SANITIZER && (sigismember(&now, SIGBUS) || !sigismember(&now, SIGUSR1)))
        atomic_fetch_add(&n_otherwise, 1);
    atomic_fetch_add(&n_asked, 1);
    if (jumps)
        siglongjmp(out, 1);
}

static void put_handler(void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESETHAND};
    sigaddset(&a.sa_mask, SIGUSR1);
    assert_int_equal(sigaction(SIGBUS, &a, NULL), 0);
}

/* The test library puts in handlers of its own before each test. */
static struct sigaction ours;

static void guard(void)
{
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
}

static uint8_t *letters(size_t n)
{
    uint8_t *data = malloc(n);
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(1 + i % 251); /* no zeros */
    return data;
}

static struct cw_mapped *map(const char *path, size_t size, int *ret_fd)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    struct cw_mapped *m = cw_mapped_new(fd, size);
    assert_non_null(m);
    if (ret_fd)
        *ret_fd = fd;
    else
        close(fd);
    return m;
}

static bool copied(struct cw_mapped *m, uint64_t offset, const struct iovec *v, int n_v, size_t length)
{
    return cw_mapped_resident(m, offset, length) && cw_mapped_copy(m, offset, v, n_v, length);
}

static void copies_what_is_in_memory(void **state)
{
    (void)state;
    guard();
    uint8_t *data = letters(100000), *to = calloc(1, 100000);
    struct cw_mapped *m = map(temp_file("a", (const char *)data, 100000), 100000, NULL);
    const size_t at[][2] = {{0, 100000}, {0, 1}, {99999, 1}, {100000, 0}, {4095, 2}, {1, 99998}, {50000, 0}};
    for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
        size_t offset = at[i][0], n = at[i][1];
        const struct iovec v[] = {{to, n / 3}, {NULL, 0}, {to + n / 3, n - n / 3}};
        memset(to, 0, 100000);
        assert_true(copied(m, offset, v, 3, n));
        assert_memory_equal(to, data + offset, n);
    }
    const struct iovec v = {to, 2};
    assert_false(copied(m, 99999, &v, 1, 2)); /* past its end */
    assert_false(copied(m, UINT64_MAX, &v, 1, 2));
    assert_null(cw_mapped_free(m));
    assert_null(cw_mapped_free(NULL));
    free(data);
    free(to);
}

static void what_is_not_in_memory_is_not_waited_for(void **state)
{
    (void)state;
    guard();
    uint8_t *data = letters(BYTES), byte = 0;
    int fd;
    struct cw_mapped *m = map(temp_file("b", (const char *)data, BYTES), BYTES, &fd);
    const struct iovec v = {&byte, 1};
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    if (!copied(m, BYTES / 2, &v, 1, 1)) {
        /* where the file system has its files in memory for good, it can */
        assert_int_equal(byte, 0);
        assert_int_equal(pread(fd, &byte, 1, (off_t)BYTES / 2), 1);
        assert_true(copied(m, BYTES / 2, &v, 1, 1));
    }
    assert_int_equal(byte, data[BYTES / 2]);
    cw_mapped_free(m);
    close(fd);
    free(data);
}

static void what_cannot_be_mapped(void **state)
{
    (void)state;
    guard();
    int fd = open(temp_file("c", "0123", 4), O_RDONLY | O_CLOEXEC), ends[2];
    assert_null(cw_mapped_new(fd, 0));
    assert_null(cw_mapped_new(fd, 5)); /* it is another file by now */
    close(fd);
    assert_int_equal(pipe(ends), 0);
    assert_null(cw_mapped_new(ends[0], 4));
    close(ends[0]);
    close(ends[1]);
    if (geteuid() != 0)
        return;
    fd = open(temp_path("c"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(fchown(fd, 12345, (gid_t)-1), 0);
    assert_null(cw_mapped_new(fd, 4)); /* of it the kernel would say that all is in memory */
    close(fd);
}

/* A cache of 750 MB took all of ulimit -v 600000, and memory for batches could not be had any more: the run
 * ended. */
static void limited_address_space_is_left_to_batches(void **state)
{
    (void)state;
    guard();
    struct rlimit was, limited;
    int fd = open(temp_file("h", "0123", 4), O_RDONLY | O_CLOEXEC);
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    limited = was;
    limited.rlim_cur = CW_MIN(RLIM_INFINITY - 1, was.rlim_max); /* more than any process has */
    assert_int_equal(setrlimit(RLIMIT_AS, &limited), 0);
    struct cw_mapped *m = cw_mapped_new(fd, 4);
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
    assert_null(m);
    m = cw_mapped_new(fd, 4);
    assert_true(m || was.rlim_cur != RLIM_INFINITY);
    cw_mapped_free(m);
    close(fd);
}

/* 0: all is as it should be in a forked child. */
static int look_around(struct cw_mapped *m, uintptr_t page, int fd)
{
    unsigned char there, data[4];
    const struct iovec v = {data, 4};
    /* NOLINT(performance-no-int-to-ptr): nothing is there */
    if (mincore((void *)page, 1, &there) == 0 || errno != ENOMEM)
        return 1;
    struct cw_mapped *own = cw_mapped_new(fd, 4);
    if (copied(m, 0, &v, 1, 4))
        return 2;
    cw_mapped_free(m); /* frees nothing: neither what the parent has there, nor the child's own */
    return own && own != m && copied(own, 0, &v, 1, 4) && memcmp(data, "0123", 4) == 0 ? 0 : 3;
}

/* A child of a fork held the space of all files that were mapped, removed since or not, for as long as it
 * lived. */
static void a_forked_child_has_none_of_it(void **state)
{
    (void)state;
    guard();
    int fd = open(temp_file("i", "0123", 4), O_RDONLY | O_CLOEXEC), status;
    uint8_t data[4];
    const struct iovec v = {data, 4};
    struct cw_mapped *m = cw_mapped_new(fd, 4);
    assert_non_null(m);
    uintptr_t page = *(const uintptr_t *)(const void *)m; /* its first member: where it lies */
    pid_t child = fork();
    if (child == 0)
        _exit(look_around(m, page, fd));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(copied(m, 0, &v, 1, 4)); /* here it is as it was */
    cw_mapped_free(m);
    close(fd);
}

struct cutting {
    int fd;
    const uint8_t *data;
    atomic_bool stop;
};

static void *cut(void *arg)
{
    struct cutting *c = arg;
    while (!atomic_load(&c->stop)) {
        if (ftruncate(c->fd, PAGE) < 0 || pwrite(c->fd, c->data, BYTES, 0) != (ssize_t)BYTES)
            abort();
    }
    return NULL;
}

/* Until a page was missing in the middle of copying. */
static void what_goes_away_meanwhile_is_zeros(void **state)
{
    (void)state;
    guard();
    uint8_t *data = letters(BYTES), *to = malloc(BYTES);
    struct cutting c = {.data = data};
    pthread_t thread;
    struct cw_mapped *m = map(temp_file("d", (const char *)data, BYTES), BYTES, &c.fd);
    const struct iovec v = {to, BYTES};
    uint64_t end_ns = cw_now_ns() + UINT64_C(3600000000000);
    int asked = atomic_load(&n_asked);
    bool zeros = false;
    assert_int_equal(pthread_create(&thread, NULL, cut, &c), 0);
    while (!zeros && cw_now_ns() < end_ns) {
        if (!copied(m, 0, &v, 1, BYTES))
            continue;
        for (size_t i = 0; i < BYTES; i++) {
            if (to[i] != 0 && to[i] != data[i])
                fail_msg("byte %zu is %d, which is neither 0 nor %d", i, to[i], data[i]);
            zeros |= to[i] == 0;
        }
    }
    atomic_store(&c.stop, true);
    pthread_join(thread, NULL);
    assert_true(zeros);
    assert_int_equal(atomic_load(&n_asked), asked); /* it was ours */
    cw_mapped_free(m);
    close(c.fd);
    free(data);
    free(to);
}

/* The kernel may keep a page behind the new end as a part of a larger one, say that it is there, and fault
 * when it is read. */
static void what_was_cut_off_is_not_read(void **state)
{
    (void)state;
    guard();
    uint8_t *data = letters(BYTES), byte = 1;
    int fd;
    struct cw_mapped *m = map(temp_file("e", (const char *)data, BYTES), BYTES, &fd);
    const struct iovec v = {&byte, 1};
    assert_true(copied(m, 3 * PAGE, &v, 1, 1));
    assert_int_equal(ftruncate(fd, PAGE), 0);
    bool zero = copied(m, 3 * PAGE, &v, 1, 1);
    assert_true(!zero || byte == 0);
    /* what was zeros once is not trusted any more; else the rest is there still */
    assert_int_equal(copied(m, 0, &v, 1, 1), !zero);
    cw_mapped_free(m);
    close(fd);
    free(data);
}

/* -1: our own handler was asked. */
static int byte_at(const volatile uint8_t *at)
{
    volatile int byte = -1;
    jumps = 1;
    if (sigsetjmp(out, 1) == 0)
        byte = *at;
    jumps = 0;
    return byte;
}

/* Where this process has a file mapped. */
static volatile uint8_t *place(const char *path)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[4096];
    unsigned long from = 0;
    assert_non_null(f);
    while (!from && fgets(line, sizeof(line), f))
        if (strstr(line, path))
            from = strtoul(line, NULL, 16);
    fclose(f);
    assert_true(from != 0);
    return (volatile uint8_t *)from; /* NOLINT(performance-no-int-to-ptr): it is one */
}

/* So many pieces that there can't be another one; all of them are in what is returned. NULL: so many are
 * allowed that it would take long, or it can't be done here. */
static uint8_t *map_all_there_may_be(size_t bytes)
{
    FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
    long most = 0;
    if (!f || fscanf(f, "%ld", &most) != 1)
        most = LONG_MAX;
    if (f)
        fclose(f);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (SHADOW_IS_MAPPED || (size_t)most > bytes / page - 2)
        return NULL;
    uint8_t *pieces = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pieces != MAP_FAILED);
    for (size_t at = page; at + page < bytes && mprotect(pieces + at, page, PROT_READ) == 0; at += 2 * page)
        ;
    return pieces;
}

/* A page of its own would have been one mapping more: the process ended. */
static void what_goes_away_is_zeros_where_nothing_more_can_be_mapped(void **state)
{
    (void)state;
    guard();
    uint8_t *data = letters(BYTES);
    const size_t bytes = (size_t)1 << 30;
    const char *path = temp_file("h", (const char *)data, BYTES);
    int fd, asked = atomic_load(&n_asked);
    struct cw_mapped *m = map(path, BYTES, &fd);
    volatile uint8_t *at = place(path);
    struct iovec v = {data, 1};
    assert_int_equal(at[BYTES / 2], data[BYTES / 2]);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    uint8_t *pieces = map_all_there_may_be(bytes);
    int byte = byte_at(at + BYTES / 2);
    if (pieces)
        munmap(pieces, bytes);
    assert_int_equal(atomic_load(&n_asked), asked);
    assert_int_equal(byte, 0);
    assert_false(copied(m, 0, &v, 1, 1)); /* it is not trusted any more */
    cw_mapped_free(m);
    close(fd);
    free(data);
}

static bool nobody_handles(void)
{
    struct sigaction a;
    return sigaction(SIGBUS, NULL, &a) == 0 && a.sa_handler == SIG_DFL;
}

/* One that was put in to be asked once, and returned for the process to end, was asked again and again; one
 * that faults itself ended the process. */
static void another_s_fault_is_another_s(void **state)
{
    (void)state;
    guard();
    int fd, asked = atomic_load(&n_asked);
    uint8_t *data = letters(2 * PAGE), byte = 0;
    struct cw_mapped *m = map(temp_file("f", (const char *)data, 2 * PAGE), 2 * PAGE, &fd);
    volatile uint8_t *own = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    const struct iovec v = {&byte, 1};
    assert_true(own != MAP_FAILED);
    assert_int_equal(raise(SIGBUS), 0); /* sent by a process */
    assert_int_equal(atomic_load(&n_asked), asked + 1);
    assert_true(nobody_handles()); /* it wants to be asked once */
    guard();
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_int_equal(byte_at(own + PAGE), -1);
    assert_int_equal(atomic_load(&n_asked), asked + 2);
    assert_true(nobody_handles());
    assert_int_equal(atomic_load(&n_otherwise), 0);

    put_handler(own_handler); /* somebody takes its place: nothing guards what is copied */
    assert_false(copied(m, 0, &v, 1, 1));
    guard();
    assert_true(copied(m, 0, &v, 1, 1));
    assert_int_equal(munmap((void *)own, 2 * PAGE), 0);
    cw_mapped_free(m);
    close(fd);
    free(data);
}

static void many_come_and_go(void **state)
{
    (void)state;
    guard();
    uint8_t *data = letters(4096), byte;
    const struct iovec v = {&byte, 1};
    static struct cw_mapped *m[5000];
    int fd = open(temp_file("g", (const char *)data, 4096), O_RDONLY | O_CLOEXEC), n = 0;
    for (int round = 0; round < 2; round++) {
        n = 0;
        while (n < 5000 && (m[n] = cw_mapped_new(fd, 4096)))
            n++;
        assert_int_equal(n, 4096); /* there is an end to it */
        assert_true(copied(m[4095], 7, &v, 1, 1) && byte == data[7]);
        for (int i = 0; i < n; i++)
            cw_mapped_free(m[i]);
    }
    close(fd);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_what_is_in_memory),
        cmocka_unit_test(what_is_not_in_memory_is_not_waited_for),
        cmocka_unit_test(what_cannot_be_mapped),
        cmocka_unit_test(what_goes_away_meanwhile_is_zeros),
        cmocka_unit_test(what_was_cut_off_is_not_read),
        cmocka_unit_test(what_goes_away_is_zeros_where_nothing_more_can_be_mapped),
        cmocka_unit_test(another_s_fault_is_another_s),
        cmocka_unit_test(many_come_and_go),
        cmocka_unit_test(limited_address_space_is_left_to_batches),
        cmocka_unit_test(a_forked_child_has_none_of_it),
    };
    int fd = open(program_invocation_name, O_RDONLY | O_CLOEXEC);
    struct stat st;
    put_handler(own_handler);
    if (fd < 0 || fstat(fd, &st) < 0)
        return 1;
    cw_mapped_free(cw_mapped_new(fd, (uint64_t)st.st_size)); /* puts it in */
    close(fd);
    (void)sigaction(SIGBUS, NULL, &ours);
    return cmocka_run_group_tests_name("mapped", tests, temp_make, temp_remove);
}
