/*
 * Ranges as a worker runs them. Those that are ended early (cw_runner_shorten), whenever that is, give what a
 * range of these positions gives. Rows by key are there as soon as they are computed, where memory is so
 * small that the engine waits for them to be taken, and the bytes are those that ample memory gives.
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
#include "base/hash.h"
#include "session/local.h"
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

/* Takes what a range gives, and ends it early when `take` batches were taken; UINT64_MAX: it is not. Returns
 * its end. */
static uint64_t run_range(struct cw_runner *r, uint64_t begin, uint64_t end, bool rows, uint64_t take,
                          struct given *ret)
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

    static const struct {
        const char *chain;
        bool rows;
        unsigned align;
    } cases[] = {
        {"{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 8}",
         false, 8},
        /* Begins and ends inside batches: a range of which nothing was begun lost the rest of its first
           batch. */
        {"{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"shuffle\"}, {\"op\": \"batch\", \"size\": 8}",
         false, 1},
        {"{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"delay\", \"us\": 50, \"where\": \"value % 16 == "
         "0\"}, {\"op\": \"batch\", \"size\": 8}",
         false, 8},
        {"{\"op\": \"range\", \"stop\": 3000}, {\"op\": \"shuffle\"}, {\"op\": \"filter\", \"where\": "
         "\"value % 3 != 0\"}, {\"op\": \"batch\", \"size\": 8}",
         true, 1},
        {"{\"op\": \"range\", \"stop\": 300}, {\"op\": \"repeat\", \"count\": 10}, {\"op\": \"fail\", "
         "\"where\": \"value % 5 == 2\"}, {\"op\": \"filter\", \"where\": \"value != 3\"}, {\"op\": "
         "\"batch\", \"size\": 8}",
         true, 1},
    };

    unsigned n_shorter = 0;
    for (size_t k = 0; k < CW_COUNT_OF(cases); k++) {
        struct cw_local local = {0};
        struct cw_runner *r;
        struct cw_error err = {0};
        char text[1000];
        snprintf(text, sizeof(text), "{\"cachew\": 1, \"on_error\": \"skip\", \"pipeline\": [%s]}",
                 cases[k].chain);
        const struct cw_runner_options o = {.threads = 2, .memory = (size_t)64 << 20};
        if (cw_local_parse(&local, text, strlen(text), temp_dir, &err) < 0 ||
            cw_local_open(&local, temp_dir, 1, 0, &err) < 0 ||
            cw_runner_new(local.sequence, &o, &r, &err) < 0)
            fail_msg("%s", err.message);
        for (unsigned i = 0; i < sample_size(100); i++) {
            static struct given got, wanted;
            uint64_t n = CW_MIN(local.sequence->n_positions, (uint64_t)END), align = cases[k].align;
            uint64_t begin = draw(n) / align * align, length = (1 + draw(n)) / align * align + align,
                     end = CW_MIN(begin + length, n);
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

static void open_wide(struct cw_local *local, unsigned rows, const char *chain)
{
    struct cw_error err = {0};
    char text[1000];
    *local = (struct cw_local){0};
    snprintf(text, sizeof(text),
             "{\"cachew\": 1, \"pipeline\": [{\"op\": \"synthetic\", \"count\": %u, \"shape\": [250000], "
             "\"dtype\": \"float32\"}, %s]}",
             rows, chain);
    if (cw_local_parse(local, text, strlen(text), temp_dir, &err) < 0 ||
        cw_local_open(local, temp_dir, 1, 0, &err) < 0)
        fail_msg("%s", err.message);
}

static struct cw_runner *wide_runner(const struct cw_local *local, unsigned threads, size_t mib)
{
    const struct cw_runner_options o = {.threads = threads, .memory = mib << 20};
    struct cw_error err = {0};
    struct cw_runner *r;
    if (cw_runner_new(local->sequence, &o, &r, &err) < 0)
        fail_msg("%s", err.message);
    return r;
}

static struct cw_range *wide_range(struct cw_runner *r, uint64_t begin, uint64_t end)
{
    const struct cw_range_options o = {.seed = 3, .from.position = begin, .end = end, .rows = true};
    struct cw_error err = {0};
    struct cw_range *s;
    assert_int_equal(cw_runner_open(r, &o, &s, &err), 0);
    return s;
}

/* Whether these rows are there now; the caller drops *ret. */
static bool rows_now(struct cw_runner *r, struct cw_range *s, uint64_t from, uint64_t n,
                     struct cw_assembly **ret)
{
    struct cw_error err = {0};
    int status = cw_runner_part(r, s, 0, from, n, ret, &err);
    if (status != 0 && status != 2)
        fail_msg("%s", err.message);
    return status == 0;
}

/* Takes the rows from `from` on, a full batch at a time, as a client does whose batches begin in an earlier
 * range. */
static void take_wide_rows(struct cw_runner *r, uint64_t from)
{
    struct cw_range *s = wide_range(r, 0, WIDE_ROWS);
    struct cw_assembly *a;
    for (; from + WIDE_BATCH <= WIDE_ROWS; from += WIDE_BATCH) {
        cw_runner_drop_rows(r, s, 0, from);
        for (uint64_t start = cw_now_ns(); !rows_now(r, s, from, WIDE_BATCH, &a); usleep(100))
            if (cw_now_ns() - start > HANG_NS)
                fail_msg("rows from %d on were not there after 60 s", (int)from);
        cw_runner_drop(r, a);
    }
    cw_runner_close(r, s);
}

/* Stood still twice: the engine waited for rows to be taken that it didn't give, as the batch with the last
 * of them was not full yet; and it began nothing new because of memory that the consumer had got meanwhile.
 */
static void test_rows_in_little_memory(void **state)
{
    (void)state;
    struct cw_local local;
    open_wide(&local, WIDE_ROWS,
              "{\"op\": \"filter\", \"where\": \"length(data) > 0\"}, {\"op\": \"batch\", \"size\": 6}");
    for (size_t mib = 19; mib <= 28; mib += 3) {
        /* from what two batches with rows take, and the one that they are copied to */
        struct cw_runner *r = wide_runner(&local, 2, mib);
        for (uint64_t from = 0; from < WIDE_BATCH; from++)
            take_wide_rows(r, from);
        cw_runner_free(r);
    }
    cw_local_deinit(&local);
}

#define MANY_ROWS 60
#define MOST_KEYS 4
#define MOST_RANGES 4

static const char *const row_chains[] = {
    "{\"op\": \"filter\", \"where\": \"length(data) > 0\"}, {\"op\": \"batch\", \"size\": 12}",
    "{\"op\": \"filter\", \"where\": \"int64(min(data) * 1e9) % 3 != 0\"}, {\"op\": \"batch\", \"size\": 5}",
    ("{\"op\": \"bucket_by_length\", \"length\": \"int64(min(data) * 1e9) % 4\", "
     "\"boundaries\": [1, 2, 3], \"sizes\": [2, 3, 6, 4]}"),
};

struct rows_of_keys {
    uint64_t n[MOST_KEYS], hash[MOST_KEYS][MANY_ROWS];
};

struct taking {
    struct cw_range *range; /* NULL: all was taken */
    struct rows_of_keys rows;
};

/* Takes up to n rows of a key, if they are there; of the first range, as soon as there is memory for them.
 * Returns whether any came. */
static bool take_rows(struct cw_runner *r, struct taking *t, bool first, unsigned key, uint64_t n)
{
    uint64_t elements[MOST_KEYS], *from = &t->rows.n[key];
    struct cw_error err = {0};
    struct cw_assembly *a;
    int status = cw_runner_summary(r, t->range, elements, &err);
    if (status == 0)
        n = CW_MIN(n, elements[key] - *from);
    if (status >= 0 && n > 0)
        for (uint64_t start = cw_now_ns();
             (status = cw_runner_part(r, t->range, key, *from, n, &a, &err)) == 2; usleep(100))
            if (!first || !cw_runner_part_there(r, t->range, key, *from, n) || cw_now_ns() - start > HANG_NS)
                break;
    if (status < 0)
        fail_msg("%s", err.message);
    if (status != 0 || n == 0)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        struct cw_tensor row;
        cw_assembly_row(a, 0, i, &row);
        t->rows.hash[key][(*from)++] = cw_hash64(row.data, row.size);
    }
    cw_runner_drop(r, a);
    cw_runner_drop_rows(r, t->range, key, *from);
    return true;
}

static bool all_taken(struct cw_runner *r, const struct taking *t, unsigned n_keys)
{
    uint64_t elements[MOST_KEYS];
    struct cw_error err = {0};
    return cw_runner_summary(r, t->range, elements, &err) == 0 &&
           memcmp(elements, t->rows.n, n_keys * sizeof(elements[0])) == 0;
}

/* Cuts all positions into ranges and takes their rows in parts, both at random: from whichever range has
 * rows, now and then after a while. */
static void take_at_random(struct cw_runner *r, const struct cw_compiled *c, unsigned n_ranges,
                           struct rows_of_keys *ret)
{
    static struct taking takings[MOST_RANGES];
    const unsigned n_keys = CW_MAX(c->n_buckets, 1u);
    unsigned left = n_ranges;
    memset(takings, 0, sizeof(takings));
    for (uint64_t i = 0, begin = 0, end; i < n_ranges; begin = end, i++) {
        end = i + 1 == n_ranges ? MANY_ROWS : begin + 1 + draw(MANY_ROWS - begin - (n_ranges - i) + 1);
        takings[i].range = wide_range(r, begin, end);
    }
    for (uint64_t since = cw_now_ns(); left > 0;) {
        struct taking *t = &takings[draw(n_ranges)], *first = takings;
        unsigned key = (unsigned)draw(n_keys);
        usleep((unsigned)(draw(2) * draw(1500)));
        while (!first->range)
            first++;
        if (t->range &&
            take_rows(r, t, t == first, key, 1 + draw(c->n_buckets ? c->bucket_sizes[key] : c->batch_size)))
            since = cw_now_ns();
        if (t->range && all_taken(r, t, n_keys)) {
            cw_runner_close(r, CW_STEAL(t->range));
            left--;
        }
        if (cw_now_ns() - since > HANG_NS)
            fail_msg("no rows of %u ranges came for 60 s", left);
    }
    memset(ret, 0, sizeof(*ret));
    for (unsigned i = 0; i < n_ranges; i++)
        for (unsigned k = 0; k < n_keys; k++) {
            memcpy(ret->hash[k] + ret->n[k], takings[i].rows.hash[k],
                   takings[i].rows.n[k] * sizeof(uint64_t));
            ret->n[k] += takings[i].rows.n[k];
        }
}

/* Gave other bytes, or crashed: a block of an earlier range that lacked memory took that of rows which the
 * consumer was copying. */
static void test_rows_at_random_in_little_memory(void **state)
{
    (void)state;
    static struct rows_of_keys wanted, got;
    for (size_t k = 0; k < CW_COUNT_OF(row_chains); k++) {
        struct cw_local local;
        open_wide(&local, MANY_ROWS, row_chains[k]);
        struct cw_runner *r = wide_runner(&local, 1, 256);
        take_at_random(r, local.compiled, 1, &wanted);
        cw_runner_free(r);
        for (unsigned i = 0; i < sample_size(20); i++) {
            r = wide_runner(&local, 1 + (unsigned)draw(8), 37 + draw(8));
            take_at_random(r, local.compiled, 1 + (unsigned)draw(MOST_RANGES), &got);
            cw_runner_free(r);
            assert_memory_equal(&got, &wanted, sizeof(wanted));
        }
        cw_local_deinit(&local);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_range_that_is_ended_early),
        cmocka_unit_test(test_rows_in_little_memory),
        cmocka_unit_test(test_rows_at_random_in_little_memory),
    };
    return cmocka_run_group_tests(tests, temp_make, temp_remove);
}
