/* Slabs: reuse, trimming, accounting against the budget, sealing, several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "data/slab.h"

#define MIB ((size_t)1 << 20)

struct fixture {
    struct cw_budget budget;
    struct cw_slab_pool pool;
};

static int setup(void **state)
{
    static struct fixture f;
    struct cw_error err;
    cw_budget_init(&f.budget, 64 * MIB);
    *state = &f;
    return cw_slab_pool_init(&f.pool, true, &f.budget, &err);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->pool.n_out, 0);
    cw_slab_pool_deinit(&f->pool);
    assert_int_equal(f->budget.used, 0);
    return 0;
}

static struct cw_slab *get(struct fixture *f, size_t size)
{
    struct cw_slab *s = NULL;
    struct cw_error err = {0};
    if (cw_slab_get(&f->pool, size, &s, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(s->size >= size);
    assert_int_equal((uintptr_t)s->data % 4096, 0);
    return s;
}

static void test_charge_is_what_is_taken(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0,     1,      4095,    4096,          4097,     32768,
                                   32769, 100000, 1 << 20, (1 << 20) + 1, 19267584, 20 << 20};
    size_t before = 0;
    for (size_t i = 0; i < CW_COUNT_OF(sizes); i++) {
        size_t charge = cw_slab_charge(sizes[i]);
        assert_true(charge >= sizes[i] && charge >= before && charge % 4096 == 0);
        /* at most an eighth is lost */
        assert_true(charge <= 4096 || charge <= sizes[i] + sizes[i] / 8 + 4096);
        before = charge;
        struct cw_slab *s = get(f, sizes[i]);
        assert_int_equal(s->size, charge);
        assert_int_equal(f->budget.used, charge);
        memset(s->data, 0x5a, s->size);
        cw_slab_put(s);
        assert_int_equal(f->budget.used, charge); /* its pages are still there */
        assert_int_equal(cw_slab_trim(&f->pool), charge);
        assert_int_equal(f->budget.used, 0);
    }
}

static void test_reuse(void **state)
{
    struct fixture *f = *state;
    struct cw_slab *a = get(f, MIB), *b = get(f, MIB);
    assert_ptr_not_equal(a->data, b->data);
    uint8_t *data = a->data;
    memset(a->data, 1, a->size);
    cw_slab_put(a);
    struct cw_slab *c = get(f, MIB - 5000); /* the same class of sizes */
    assert_ptr_equal(c->data, data);
    assert_int_equal(c->data[17], 1); /* as it was left: nothing is cleared */
    assert_int_equal(f->budget.used, 2 * cw_slab_charge(MIB));
    cw_slab_put(b);
    cw_slab_put(c);
    assert_int_equal(cw_slab_trim(&f->pool), 2 * cw_slab_charge(MIB));
    assert_int_equal(cw_slab_trim(&f->pool), 0);
    struct cw_slab *d = get(f, MIB);
    assert_int_equal(d->data[17], 0); /* its pages were given back */
    cw_slab_put(d);
}

static void test_budget_refuses(void **state)
{
    struct fixture *f = *state;
    struct cw_slab *s = NULL, *held[8];
    struct cw_error err = {0};
    for (int i = 0; i < 8; i++)
        held[i] = get(f, 8 * MIB);
    assert_int_equal(f->budget.used, 64 * MIB);
    assert_int_equal(cw_slab_get(&f->pool, 1, &s, &err), CW_E_BUDGET);
    assert_int_equal(err.status, CW_E_BUDGET);
    assert_null(s);
    assert_int_equal(f->budget.used, 64 * MIB);
    cw_slab_put(held[7]);
    assert_int_equal(cw_slab_get(&f->pool, 1, &s, &err), CW_E_BUDGET); /* free, but its pages are there */
    assert_int_equal(cw_slab_trim(&f->pool), 8 * MIB);
    held[7] = get(f, 1);
    for (int i = 0; i < 8; i++)
        cw_slab_put(held[i]);
    assert_int_equal(f->budget.peak, 64 * MIB);
}

static void test_sizes_beyond_all_reason(void **state)
{
    struct fixture *f = *state;
    struct cw_slab *s = NULL;
    struct cw_error err = {0};
    assert_true(cw_slab_get(&f->pool, SIZE_MAX, &s, &err) < 0);
    assert_true(cw_slab_get(&f->pool, SIZE_MAX / 2, &s, &err) < 0);
    assert_true(cw_slab_get(&f->pool, (size_t)1 << 46, &s, &err) < 0);
    assert_null(s);
    assert_int_equal(f->budget.used, 0);
}

static void test_disowned_slabs_leave_the_budget(void **state)
{
    struct fixture *f = *state;
    struct cw_slab *s = get(f, 16 * MIB), *others[4];
    s->data[0] = 1;
    cw_slab_disown(s);
    assert_int_equal(f->budget.used, 0);
    cw_slab_disown(s);
    assert_int_equal(f->budget.used, 0);
    for (int i = 0; i < 4; i++)
        others[i] = get(f, 16 * MIB);
    cw_slab_put(s); /* no room for it: its pages go back */
    assert_int_equal(f->budget.used, 64 * MIB);
    for (int i = 0; i < 4; i++)
        cw_slab_put(others[i]);
    cw_slab_trim(&f->pool);
    struct cw_slab *t = get(f, 16 * MIB);
    cw_slab_disown(t);
    cw_slab_put(t); /* room for it: it stays, and counts */
    assert_int_equal(f->budget.used, cw_slab_charge(16 * MIB));
}

/* Another process may still read it: neither reused nor emptied, however short memory is. */
static void test_retired_slabs_are_left_alone(void **state)
{
    struct fixture *f = *state;
    struct cw_slab *s = get(f, 16 * MIB), *t = get(f, 16 * MIB);
    memset(s->data, 7, 16 * MIB);
    memset(t->data, 8, 16 * MIB);
    const uint8_t *seven = s->data, *eight = t->data;
    cw_slab_disown(s);
    cw_slab_retire(s);
    cw_slab_retire(t);
    cw_slab_put(s);
    cw_slab_put(t);
    cw_slab_trim(&f->pool);
    struct cw_slab *others[3];
    for (int i = 0; i < 3; i++) {
        others[i] = get(f, 16 * MIB);
        memset(others[i]->data, 9, 16 * MIB);
    }
    for (size_t i = 0; i < 16 * MIB; i += 4096)
        assert_true(seven[i] == 7 && eight[i] == 8);
    for (int i = 0; i < 3; i++)
        cw_slab_put(others[i]);
}

static void test_memfds_are_sealed_and_few(void **state)
{
    struct fixture *f = *state;
    struct cw_slab *held[50];
    for (size_t i = 0; i < CW_COUNT_OF(held); i++) {
        held[i] = get(f, 100000);
        assert_int_equal(held[i]->fd, held[0]->fd);
        memset(held[i]->data, (int)i, held[i]->size);
    }
    int fd = held[0]->fd, seals = fcntl(fd, F_GET_SEALS);
    assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_true(ftruncate(fd, 0) < 0 && errno == EPERM);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_true((size_t)st.st_size >= held[49]->offset + held[49]->size);
    /* What another process would map is what was written here. */
    uint8_t *mapped = mmap(NULL, held[49]->size, PROT_READ, MAP_SHARED, fd, (off_t)held[49]->offset);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    assert_int_equal(mapped[99999], 49);
    munmap(mapped, held[49]->size);
    for (size_t i = 0; i < CW_COUNT_OF(held); i++)
        cw_slab_put(held[i]);
}

/* Where no file may be so large, memory is private: all the same, but for being given away. */
static void test_without_memfds(void **state)
{
    struct fixture *f = *state;
    struct rlimit was, small;
    struct cw_error why = {0};
    struct cw_slab *s[3];
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = (struct rlimit){.rlim_cur = 20 * MIB, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    s[0] = get(f, 12 * MIB); /* in a memfd as large as they may be */
    small.rlim_cur = MIB;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    s[1] = get(f, 12 * MIB);
    s[2] = get(f, 2 * MIB);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_false(cw_slab_is_private(s[0], &why));
    for (size_t i = 1; i < 3; i++) {
        assert_true(cw_slab_is_private(s[i], &why));
        assert_non_null(strstr(why.message, "files of this size are not allowed (ulimit -f)"));
        memset(s[i]->data, 1, s[i]->size);
    }
    for (size_t i = 0; i < 3; i++)
        cw_slab_put(s[i]);
    assert_true(cw_slab_trim(&f->pool) > 24 * MIB);
    s[0] = get(f, 2 * MIB);
    assert_int_equal(s[0]->data[0] | s[0]->data[2 * MIB - 1], 0); /* its pages were given back */
    cw_slab_put(s[0]);
}

/* A child may have what users had at the fork, whatever becomes of it here, and nothing else. */
static void test_a_child_keeps_what_users_had(void **state)
{
    struct fixture *f = *state;
    struct cw_slab_pool pool;
    struct cw_slab *users, *own, *later;
    unsigned char there;
    int go[2], status;
    char c;
    assert_int_equal(cw_slab_pool_init(&pool, false, &f->budget, NULL), 0);
    assert_int_equal(cw_slab_get(&pool, MIB, &own, NULL), 0);
    assert_int_equal(cw_slab_get(&pool, MIB, &users, NULL), 0);
    assert_true(cw_slab_is_private(users, &(struct cw_error){0}));
    memset(own->data, 1, MIB);
    memset(users->data, 2, MIB);
    cw_slab_disown(users);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        bool good = read(go[0], &c, 1) == 1 && mincore(own->data, 4096, &there) < 0 && errno == ENOMEM;
        for (size_t i = 0; i < MIB; i++)
            good &= users->data[i] == 2;
        memset(users->data, 4, MIB);
        /* it may have pools of its own */
        if (cw_slab_pool_init(&pool, false, &f->budget, NULL) < 0 ||
            cw_slab_get(&pool, MIB, &later, NULL) < 0)
            good = false;
        _exit(good ? 0 : 1);
    }
    cw_slab_put(users);
    assert_int_equal(cw_slab_get(&pool, MIB, &later, NULL), 0);
    assert_ptr_equal(later, users);
    memset(later->data, 3, MIB);
    assert_int_equal(write(go[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(later->data[MIB - 1], 3);
    assert_int_equal(own->data[0], 1);
    close(go[0]);
    close(go[1]);
    cw_slab_put(later);
    cw_slab_put(own);
    assert_int_equal(cw_slab_trim(&pool), 2 * MIB);
    assert_int_equal(cw_slab_get(&pool, MIB, &later, NULL), 0);
    assert_int_equal(later->data[0], 0); /* its pages were given back */
    cw_slab_put(later);
    cw_slab_pool_deinit(&pool);
}

static void *churn(void *arg)
{
    struct fixture *f = arg;
    uint64_t x = (uint64_t)(uintptr_t)&x;
    for (int i = 0; i < 2000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        struct cw_slab *s;
        if (cw_slab_get(&f->pool, (size_t)(x >> 40) % (2 * MIB), &s, NULL) < 0) {
            cw_slab_trim(&f->pool);
            continue;
        }
        s->data[0] = s->data[s->size - 1] = (uint8_t)i;
        if (i % 3 == 0)
            cw_slab_disown(s);
        assert_int_equal(s->data[0], s->data[s->size - 1]);
        cw_slab_put(s);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, f), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(f->budget.peak <= f->budget.limit);
    cw_slab_trim(&f->pool);
    assert_int_equal(f->budget.used, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_charge_is_what_is_taken),
        TEST(test_reuse),
        TEST(test_budget_refuses),
        TEST(test_sizes_beyond_all_reason),
        TEST(test_disowned_slabs_leave_the_budget),
        TEST(test_retired_slabs_are_left_alone),
        TEST(test_memfds_are_sealed_and_few),
        TEST(test_without_memfds),
        TEST(test_a_child_keeps_what_users_had),
        TEST(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
