/*
 * Ranges as a worker runs them. Those that are ended early (cw_runner_shorten), whenever that is, give what a range of these positions gives.
 * Rows by key are there as soon as they are computed, where memory is so small that the engine waits for them to be taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "client/local.h"
#include "data/batch.h"
#include "sample.h"

#include "data_files.h"

#define MAX_BATCHES 1000
#define END 3000
#define HANG_NS UINT64_C(60000000000)

static uint64_t drawn;

static uint64_t draw(uint64_t n)
{
    uint64_t v = 0x9e3779b97f4a7c15u * ++drawn;
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return (v ^ (v >> 31)) % n;
}

struct given {
    size_t n;
    struct cw_hash128 batches[MAX_BATCHES];
    uint64_t elements;
};

/* Takes what a range gives, and ends it early when `take` batches were taken; UINT64_MAX: it is not. Returns its end. */
static uint64_t run_range(struct cw_runner *r, uint64_t begin, uint64_t end, bool rows, uint64_t take, struct given *ret)
{
    struct cw_error err = {0};
    struct cw_range *s;
    struct cw_assembly *a;
    int status = 0;
    const struct cw_range_options o = {.seed = 3, .from.position = begin, .end = end, .rows = rows};
    ret->n = 0;
    assert_int_equal(cw_runner_open(r, &o, &s, &err), 0);
    for (uint64_t shorter = 0; status != 1; ret->n++) {
        if (ret->n >= take && !shorter && (shorter = cw_runner_shorten(r, s)))
            end = shorter;
        if (rows)
            while ((status = cw_runner_part(r, s, 0, 8 * ret->n, 8, &a, &err)) == 2)
                usleep(100);
        else
            status = cw_runner_next(r, s, 0, &a, &err);
        if (status < 0)
            fail_msg("%s", err.message);
        if (status == 1)
            break;
        assert_true(ret->n < MAX_BATCHES);
        assert_int_equal(cw_runner_finish(r, a, 3, 0, 0, &err), 0);
        struct cw_batch *b = cw_runner_take_batch(r, a);
        ret->batches[ret->n] = cw_batch_hash(b);
        cw_runner_release(r, b);
    }
    ret->elements = 0;
    if (rows)
        assert_int_equal(cw_runner_summary(r, s, &ret->elements, &err), 0);
    cw_runner_close(r, s);
    return end;
}

static void test_a_range_that_is_ended_early(void **state)
{
    (void)state;
    static const struct { const char *chain; bool rows; unsigned align; } cases[] = {
        {"{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 8}", false, 8},
        /* Begins and ends inside batches: a range of which nothing was begun lost the rest of its first batch. */
        {"{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 8}", false, 1},
        {"{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"delay\", \"us\": 50, \"where\": \"value % 16 == 0\"}, {\"op\": \"batch\", \"size\": 8}", false, 8},
        {"{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"shuffle\"}, {\"op\": \"filter\", \"where\": \"value % 3 != 0\"}, {\"op\": \"batch\", \"size\": 8}", true, 1},
        {"{\"op\": \"range\", \"stop\": 300}, {\"op\": \"repeat\", \"count\": 10}, {\"op\": \"fail\", \"where\": \"value % 5 == 2\"}, {\"op\": \"filter\", \"where\": \"value != 3\"}, {\"op\": \"batch\", \"size\": 8}", true, 1},
    };
    unsigned n_shorter = 0;
    for (size_t k = 0; k < CW_COUNT_OF(cases); k++) {
        struct cw_local local = {0};
        struct cw_runner *r;
        struct cw_error err = {0};
        char text[1000];
        snprintf(text, sizeof(text), "{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [%s]}", cases[k].chain);
        const struct cw_runner_options o = {.threads = 2, .memory = (size_t)64 << 20};
        if (cw_local_parse(&local, text, strlen(text), temp_dir, &err) < 0 || cw_local_open(&local, temp_dir, 1, &err) < 0 ||
            cw_runner_new(local.sequence, &o, &r, &err) < 0)
            fail_msg("%s", err.message);
        for (unsigned i = 0; i < sample_size(100); i++) {
            static struct given got, wanted;
            uint64_t n = CW_MIN(local.sequence->n_positions, (uint64_t)END), align = cases[k].align;
            uint64_t begin = draw(n) / align * align, length = (1 + draw(n)) / align * align + align, end = CW_MIN(begin + length, n);
            uint64_t shorter = run_range(r, begin, end, cases[k].rows, draw(3) * draw(20), &got);
            assert_true(shorter > begin && shorter <= end && (shorter % align == 0 || shorter == end));
            n_shorter += shorter < end;
            assert_int_equal(run_range(r, begin, shorter, cases[k].rows, UINT64_MAX, &wanted), shorter);
            assert_int_equal(got.n, wanted.n);
            assert_int_equal(got.elements, wanted.elements);
            assert_memory_equal(got.batches, wanted.batches, got.n * sizeof(got.batches[0]));
        }
        cw_runner_free(r);
        cw_local_deinit(&local);
    }
    assert_true(n_shorter > 0);
}

#define WIDE_ROWS 26
#define WIDE_BATCH 6

/* Takes the rows from `from` on, a full batch at a time, as a client does whose batches begin in an earlier range. */
static void take_wide_rows(struct cw_runner *r, uint64_t from)
{
    struct cw_error err = {0};
    struct cw_range *s;
    struct cw_assembly *a;
    const struct cw_range_options o = {.seed = 3, .end = WIDE_ROWS, .rows = true};
    assert_int_equal(cw_runner_open(r, &o, &s, &err), 0);
    for (; from + WIDE_BATCH <= WIDE_ROWS; from += WIDE_BATCH) {
        int status;
        cw_runner_drop_rows(r, s, 0, from);
        for (uint64_t start = cw_now_ns(); (status = cw_runner_part(r, s, 0, from, WIDE_BATCH, &a, &err)) == 2; usleep(100))
            if (cw_now_ns() - start > HANG_NS)
                fail_msg("rows from %d on were not there after 60 s", (int)from);
        if (status != 0)
            fail_msg("%s", err.message);
        cw_runner_drop(r, a);
    }
    cw_runner_close(r, s);
}

/* Stood still twice: the engine waited for rows to be taken that it didn't give, as the batch with the last of them was not
 * full yet; and it began nothing new because of memory that the consumer had got meanwhile. */
static void test_rows_in_little_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"cachew\": 1, \"pipeline\": [{\"op\": \"synthetic\", \"count\": 26, \"shape\": [1000000], \"dtype\": \"uint8\"}, "
                               "{\"op\": \"filter\", \"where\": \"length(data) > 0\"}, {\"op\": \"batch\", \"size\": 6}]}";
    struct cw_local local = {0};
    struct cw_runner *r;
    struct cw_error err = {0};
    if (cw_local_parse(&local, text, strlen(text), temp_dir, &err) < 0 || cw_local_open(&local, temp_dir, 1, &err) < 0)
        fail_msg("%s", err.message);
    for (size_t mib = 19; mib <= 28; mib += 3) { /* from what two batches with rows take, and the one that they are copied to */
        const struct cw_runner_options o = {.threads = 2, .memory = mib << 20};
        if (cw_runner_new(local.sequence, &o, &r, &err) < 0)
            fail_msg("%s", err.message);
        for (uint64_t from = 0; from < WIDE_BATCH; from++)
            take_wide_rows(r, from);
        cw_runner_free(r);
    }
    cw_local_deinit(&local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_range_that_is_ended_early),
        cmocka_unit_test(test_rows_in_little_memory),
    };
    return cmocka_run_group_tests(tests, temp_make, temp_remove);
}
