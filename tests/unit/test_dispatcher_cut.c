/* How large ranges are cut: by the measured rate, within bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "service/dispatcher/cut.h"

#define MOST UINT64_MAX
#define FAR (UINT64_C(1) << 62)

static const struct cw_cut usual = {.positions_per_s = 1000,
                                    .n_measured = 1000,
                                    .n_workers = 4,
                                    .align = 1,
                                    .first = 1024,
                                    .most = MOST,
                                    .left = FAR};

/* Half a second of a worker's time; more where there are so many workers that they would ask too often. */
static void test_sizes_follow_the_rate(void **state)
{
    (void)state;

    static const struct {
        double rate;
        uint64_t n_workers, size;
    } cases[] = {{1000, 4, 500},    {10, 4, 5},          {0.1, 4, 1},   {1e6, 4, 500000},
                 {1000, 5000, 500}, {1000, 10000, 1000}, {1e30, 4, FAR}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cw_cut c = usual;
        c.positions_per_s = cases[i].rate;
        c.n_workers = cases[i].n_workers;
        assert_int_equal(cw_cut_size(&c), cases[i].size);
    }
}

static void test_sizes_are_multiples(void **state)
{
    (void)state;

    static const struct {
        uint64_t align, most, size;
    } cases[] = {{32, MOST, 512}, {512, MOST, 512}, {513, MOST, 513}, {32, 100, 96}, {32, 32, 32}, {1, 7, 7}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cw_cut c = usual;
        c.align = cases[i].align;
        c.most = cases[i].most;
        assert_int_equal(cw_cut_size(&c), cases[i].size);
    }
}

/* A window that takes twice as long as a range should is run by one worker; longer ones are divided. */
static void test_windows_are_whole(void **state)
{
    (void)state;

    static const struct {
        uint64_t window, position, size;
    } cases[] = {{1000, 0, 1000}, {1001, 0, 1001}, {1002, 0, 500},  {1002, 500, 502}, {400, 0, 400},
                 {100, 0, 500},   {100, 30, 470},  {400, 399, 401}, {1000, 999, 1},   {0, 3, 500}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cw_cut c = usual;
        c.window = cases[i].window;
        c.position = cases[i].position;
        assert_int_equal(cw_cut_size(&c), cases[i].size);
    }
    struct cw_cut c = usual;
    c.window = 1000;
    c.most = 700;
    assert_int_equal(cw_cut_size(&c), 700);
}

/* While no rate is known they are small, and each measurement lets them grow four times. */
static void test_sizes_grow_with_what_is_known(void **state)
{
    (void)state;
    struct cw_cut c = usual;
    c.align = c.first = 32;
    c.positions_per_s = 0;
    c.n_measured = 0;
    assert_int_equal(cw_cut_size(&c), 32);
    c.positions_per_s = 1e6;
    c.n_measured = 1;
    assert_int_equal(cw_cut_size(&c), 128);
    c.n_measured = 3;
    assert_int_equal(cw_cut_size(&c), 2048);
    c.n_measured = 1000000;
    assert_int_equal(cw_cut_size(&c), 500000);
    c.most = 40;
    assert_int_equal(cw_cut_size(&c), 32);
}

/* Near the end all workers get some, but nothing that is over in less than 20 ms; also while no rate is
 * known. */
static void test_sizes_near_the_end(void **state)
{
    (void)state;

    static const struct {
        uint64_t left, size;
    } cases[] = {{4000, 500}, {3999, 499}, {800, 100}, {81, 20}, {1, 20}};
    struct cw_cut c = usual;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        c.left = cases[i].left;
        assert_int_equal(cw_cut_size(&c), cases[i].size);
    }
    c.left = 810;
    c.align = 100;
    assert_int_equal(cw_cut_size(&c), 200); /* rounded up */
    c = usual;
    c.positions_per_s = 0;
    c.n_measured = 0;
    c.left = 1000;
    assert_int_equal(cw_cut_size(&c), 125);
    c.left = 3;
    assert_int_equal(cw_cut_size(&c), 1);
}

/* A batch is divided where it takes a worker more than a second, or nothing is known, into 32 at most. */
static void test_batches_are_divided(void **state)
{
    (void)state;

    static const struct {
        double rate;
        uint64_t align, position, left, size;
    } cases[] = {{1000, 1000, 0, FAR, 1000}, {999, 1000, 0, FAR, 499}, {10, 256, 250, FAR, 8},
                 {1, 16, 0, FAR, 1},         {0, 256, 0, FAR, 16},     {0, 16, 0, FAR, 16},
                 {0, 1024, 0, FAR, 32},      {100, 256, 0, 80, 10},    {100, 256, 0, 8, 8},
                 {1000, 300, 299, FAR, 601}, {1000, 300, 1, FAR, 599}, {1000, 300, 200, 1, 100}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cw_cut c = usual;
        c.divides = true;
        c.first = 16;
        c.positions_per_s = cases[i].rate;
        c.align = cases[i].align;
        c.position = cases[i].position;
        c.left = cases[i].left;
        assert_int_equal(cw_cut_size(&c), cases[i].size);
    }
}

/* Behind a range that ended inside a batch, the next one ends with a batch, and is not larger than memory
 * allows. */
static void test_sizes_end_with_batches(void **state)
{
    (void)state;
    struct cw_cut c = usual;
    c.align = 100;
    c.position = 30;
    assert_int_equal(cw_cut_size(&c), 570);
    c.most = 100;
    assert_int_equal(cw_cut_size(&c), 70);
    c.most = 170;
    assert_int_equal(cw_cut_size(&c), 170);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_follow_the_rate),  cmocka_unit_test(test_sizes_are_multiples),
        cmocka_unit_test(test_windows_are_whole),      cmocka_unit_test(test_sizes_grow_with_what_is_known),
        cmocka_unit_test(test_sizes_near_the_end),     cmocka_unit_test(test_batches_are_divided),
        cmocka_unit_test(test_sizes_end_with_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
