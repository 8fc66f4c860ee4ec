/*
 * Little memory. What an error names as enough is enough, whatever the seed, the number of threads and what
 * happens when; and a stream, whose elements come one after the other, is begun again where that is what it
 * takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "session/local.h"
#include "data_files.h"
#include "ops/table.h"
#include "dataset/sequence.h"
#include "pipeline/source.h"
#include "sample.h"

/* How often each budget is tried; CACHEW_REPEATS in the environment says otherwise. What ThreadSanitizer
 * sees, it sees at once, and all of it takes long with it. */
#define REPEATS 6
/* Budgets below what is enough that are tried. */
#define BUDGETS 16
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef REPEATS
#define REPEATS 1
#undef BUDGETS
#define BUDGETS 6
#endif
#endif
#define WAIT_NS UINT64_C(3600000000000) /* only ends a hang */

/* ---- a stream: numbers, each so many times over ---- */

struct ticks {
    struct cw_source base;
    int64_t n, fails_at;
    size_t width;
};

static int ticks_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type = {.dtype = CW_INT64, .ndim = 1, .dims = {cw_attr_int(op, "width")}};
    return cw_bind_write(b, "tick", &type, err);
}

static void ticks_free(struct cw_source *s)
{
    free(s);
}

static void ticks_ids(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out)
{
    (void)s;
    for (size_t i = 0; i < n; i++) {
        out[i].file_key = 1;
        out[i].row = rows[i];
    }
}

static int ticks_pull(struct cw_source *base, const struct cw_pull *q, struct cw_arena *arena,
                      struct cw_tensor *raw, size_t *ret_n, struct cw_error *err)
{
    const struct ticks *s = (const struct ticks *)base;
    uint64_t row = q->from;
    size_t there = (int64_t)row < s->n ? CW_MIN(q->n, (size_t)(s->n - (int64_t)row)) : 0,
           bytes = s->width * sizeof(int64_t);
    if (q->cancelled(q->cancel_arg))
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    if (s->fails_at >= 0 && (int64_t)(row + there) > s->fails_at)
        there = (int64_t)row < s->fails_at ? (size_t)(s->fails_at - (int64_t)row) : 0;
    if (there == 0 && s->fails_at >= 0)
        return cw_error_set(err, CW_E_DATA, "ticks: it stops at %lld", (long long)s->fails_at);
    int64_t *to = there ? cw_arena_alloc(arena, there * bytes, err) : NULL;
    if (there && !to)
        return err->status;
    for (size_t i = 0; i < there; i++, to += s->width) {
        for (size_t k = 0; k < s->width; k++)
            to[k] = (int64_t)(row + i);
        raw[i] = (struct cw_tensor){.data = to, .size = bytes};
    }
    *ret_n = there;
    return 0;
}

static int ticks_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                         struct cw_error *err)
{
    (void)s;
    int r = cw_block_dense(b, op->out[0].value, &op->out[0].type, err);
    for (size_t i = 0; i < b->n && r >= 0; i++)
        memcpy(b->columns[op->out[0].value].data + i * b->columns[op->out[0].value].stride, b->raw[i].data,
               b->raw[i].size);
    return r;
}

static const struct cw_source_ops ticks_ops = {
    .free = ticks_free, .ids = ticks_ids, .pull = ticks_pull, .produce = ticks_produce};

static int ticks_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                      struct cw_error *err)
{
    (void)env;
    (void)err;
    struct ticks *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    *s = (struct ticks){.base = {.ops = &ticks_ops,
                                 .n_records = CW_ENDLESS,
                                 .n_chunks = 1,
                                 .chunk_records = CW_ENDLESS,
                                 .snapshot = 1},
                        .n = cw_attr_int(op, "stop"),
                        .fails_at = cw_attr_int(op, "fails_at"),
                        .width = (size_t)cw_attr_int(op, "width")};
    *ret = &s->base;
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "stop", .kind = CW_ATTR_INT, .min = 0, .max = 1e9, .doc = "how many"},
    {.name = "width", .kind = CW_ATTR_INT, .def = "1", .min = 1, .max = 1e6, .doc = "how often each"},
    {.name = "fails_at",
     .kind = CW_ATTR_INT,
     .def = "-1",
     .min = -1,
     .max = 1e9,
     .doc = "where it stops with an error; -1: nowhere"},
    {0},
};
static const struct cw_op_desc ticks_op = {.name = "ticks",
                                           .summary = "a stream of numbers",
                                           .kind = CW_OP_SOURCE,
                                           .effects.state = CW_STATE_SEQUENTIAL,
                                           .attrs = attrs,
                                           .bind = ticks_bind,
                                           .open = ticks_open};

/* ---- an operator that makes much of little: a picture of one colour, of a size that is known or differs
 * ---- */

static int paint_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int64_t height = cw_attr_int(op, "height");
    int r = cw_bind_read(b, "value", &type, err);
    type = (struct cw_type){
        .dtype = CW_UINT8, .ndim = 3, .dims = {height ? height : CW_VARIES, cw_attr_int(op, "width"), 3}};
    return r < 0 ? r : cw_bind_write(b, "data", &type, err);
}

static int paint_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    int64_t height = cw_attr_int(op, "height"), value;
    int r = height ? cw_block_dense(b, out->value, &out->type, err) : cw_block_ragged(b, out->value, err);
    for (size_t i = 0; i < b->n && r >= 0; i++) {
        struct cw_tensor in = cw_block_row(b, op->in[0].value, i);
        memcpy(&value, in.data, sizeof(value));
        int64_t dims[] = {height ? height : 1 + value * 7919 % 90, cw_attr_int(op, "width"), 3};
        uint8_t *to = cw_block_row_out(b, out->value, &out->type, i, dims, 3, err);
        if (!to)
            return err->status;
        memset(to, (int)(value % 251), (size_t)(dims[0] * dims[1] * dims[2]));
    }
    return r;
}

static const struct cw_attr_def paint_attrs[] = {
    {.name = "height", .kind = CW_ATTR_INT, .def = "0", .min = 0, .max = 1e4, .doc = "0: it differs"},
    {.name = "width", .kind = CW_ATTR_INT, .min = 1, .max = 1e4, .doc = ""},
    {0}};
static const struct cw_op_desc paint_op = {.name = "paint",
                                           .summary = "pictures",
                                           .kind = CW_OP_MAP,
                                           .attrs = paint_attrs,
                                           .bind = paint_bind,
                                           .run = paint_run};

/* ---- runs ---- */

struct ran {
    int status; /* 1: it came to its end */
    struct cw_error err;
    struct cw_hash128 digest;
    uint64_t n;
};

static struct cw_local local;
static unsigned n_low_memory; /* runs in which memory was that short, as they said of themselves */

static void load(const char *chain)
{
    char text[1000];
    struct cw_error err = {0};
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s]}", chain);
    if (cw_local_parse(&local, text, strlen(text), temp_dir, &err) < 0 ||
        cw_local_open(&local, temp_dir, 1, 0, &err) < 0)
        fail_msg("%s", err.message);
}

/* What a run set by itself because memory was short: rows of a block, fewer than usual, or again as many. */
static void look_at_low_memory(const struct cw_iterator *it, size_t memory)
{
    struct cw_tuned_log log = {0};
    cw_iterator_tuned(it, &log);
    for (unsigned i = 0; i < log.n; i++) {
        const struct cw_tuned *t = &log.last[i];
        if (strcmp(t->what, "low_memory_rows") != 0)
            continue;
        n_low_memory++;
        assert_string_equal(t->seen[0].name, "memory_bytes");
        assert_true(t->seen[0].value == (double)memory);
        assert_true(t->chosen >= 1 && t->chosen <= t->others[0].value); /* as usual */
        /* ranges that it will be so for */
        assert_true((t->seen[1].value > 0) == (strstr(t->why, "one block at a time") != NULL));
    }
}

static struct ran run(uint64_t seed, unsigned threads, size_t memory)
{
    struct cw_iterator_options o = {.seed = seed,
                                    .epochs = 2,
                                    .world_size = 1,
                                    .runner = {.threads = threads, .memory = memory, .optimize = true}};
    struct ran ran = {0};
    struct cw_iterator *it;
    struct cw_batch *b;
    if ((ran.status = cw_iterator_new(local.sequence, &o, NULL, &it, &ran.err)) < 0)
        return ran;
    while ((ran.status = cw_iterator_next(it, WAIT_NS, &b, &ran.err)) == 0) {
        ran.digest = cw_hash128_add(ran.digest, cw_batch_hash(b));
        ran.n++;
        cw_iterator_release(it, b);
    }
    look_at_low_memory(it, memory);
    cw_iterator_free(it);
    return ran;
}

static unsigned n_repeats(void)
{
    const char *text = getenv("CACHEW_REPEATS");
    return text ? (unsigned)atoi(text) : (unsigned)sample_size(REPEATS);
}

static size_t named(const struct cw_error *err)
{
    unsigned long long n = 0;
    assert_int_equal(err->status, CW_E_BUDGET);
    assert_string_equal(err->attribute, "memory");
    assert_int_equal(sscanf(err->expected, "at least %llu bytes", &n), 1);
    assert_contains(err->message, "expected at least");
    return n;
}

static void expect_same(const struct ran *got, const struct ran *want, size_t memory, unsigned threads)
{
    if (got->status != want->status || got->n != want->n ||
        memcmp(&got->digest, &want->digest, sizeof(got->digest)) != 0)
        fail_msg("with %zu bytes and %u threads: %d after %llu of %llu batches: %s", memory, threads,
                 got->status, (unsigned long long)got->n, (unsigned long long)want->n, got->err.message);
}

/* ---- tests ---- */

#define NUMBERS(n) "{\"op\": \"range\", \"stop\": " #n "}, "
#define PAINT(height, width) "{\"op\": \"paint\", \"height\": " #height ", \"width\": " #width "}, "
#define SHUFFLE "{\"op\": \"shuffle\"}, "
#define FILTER(where) "{\"op\": \"filter\", \"where\": \"" where "\"}, "
#define BATCH(n) "{\"op\": \"batch\", \"size\": " #n "}"

/* Elements of fixed size, so that nothing is known only later. */
static const char *const FIXED[] = {
    NUMBERS(200) PAINT(50, 40) SHUFFLE BATCH(8),
    /* larger than what a block is given for a start */
    NUMBERS(24)
        PAINT(640, 640) "{\"op\": \"resize\", \"component\": \"data\", \"size\": [64, 64]}," SHUFFLE BATCH(4),
    NUMBERS(40) PAINT(400, 300) SHUFFLE
    "{\"op\": \"random_resized_crop\", \"component\": \"data\", \"size\": [96, 96]}, {\"op\": "
    "\"random_flip\", \"component\": \"data\"}, " BATCH(4),
    NUMBERS(100) PAINT(200, 200) SHUFFLE FILTER("value % 3 != 1") BATCH(7),
    NUMBERS(100) PAINT(640, 640) FILTER("max(data) != 17") SHUFFLE
    "{\"op\": \"random_crop\", \"component\": \"data\", \"size\": [200, 200]}, " BATCH(5),
    NUMBERS(60000) SHUFFLE FILTER("value % 3 != 1") BATCH(64),
    NUMBERS(80) PAINT(200, 200) FILTER("value % 5 != 1") "{\"op\": \"take\", \"count\": 50}, " BATCH(5),
    "{\"op\": \"ticks\", \"stop\": 300, \"width\": 3000}, "
    "{\"op\": \"shuffle\", \"window\": 64}, " BATCH(4),
};
/* Of differing size: elements that are larger than those before may need more. */
static const char *const VARYING[] = {
    NUMBERS(400) PAINT(0, 100) SHUFFLE "{\"op\": \"bucket_by_length\", \"length\": \"length(data)\", "
                                       "\"boundaries\": [30, 60], \"sizes\": [16, 8, 4]}",
    NUMBERS(400) PAINT(0, 100) "{\"op\": \"bucket_by_length\", \"length\": \"length(data)\", \"boundaries\": "
                               "[50], \"sizes\": [40, 40]}",
    NUMBERS(400) PAINT(0, 100) SHUFFLE
    "{\"op\": \"bucket_by_length\", \"length\": \"length(data)\", \"boundaries\": [50], "
    "\"sizes\": [8, 4], \"group\": 4}",
    NUMBERS(90)
        PAINT(0, 1500) "{\"op\": \"resize\", \"component\": \"data\", \"size\": [50, 60]}, " SHUFFLE BATCH(8),
    NUMBERS(150) PAINT(0, 300) "{\"op\": \"filter\", \"where\": \"length(data) > 20\"}",
};

/* From what an error names on, there is no error: no second number a moment later. */
static void what_is_named_is_enough(void **state)
{
    (void)state;
    static const unsigned threads[] = {1, 2, 8};
    const unsigned repeats = n_repeats();
    for (size_t i = 0; i < CW_COUNT_OF(FIXED); i++) {
        load(FIXED[i]);
        struct ran want[5], little = run(0, 2, 1);
        size_t enough = named(&little.err);
        for (size_t seed = 0; seed < CW_MIN(CW_COUNT_OF(want), repeats); seed++)
            want[seed] = run(seed, 3, (size_t)1 << 30);
        for (unsigned k = 0; k < repeats; k++) {
            size_t memory = enough + enough * k / 64, seed = k % CW_COUNT_OF(want);
            for (size_t t = 0; t < CW_COUNT_OF(threads); t++) {
                struct ran got = run(seed, threads[t], memory);
                expect_same(&got, &want[seed], memory, threads[t]);
            }
        }
        cw_local_deinit(&local);
    }
}

/* Runs with what the last one named, until that is enough: that it is so at once is for those of fixed size.
 * The number grows each time. */
static size_t until_enough(size_t memory, unsigned threads, uint64_t seed, unsigned most, struct ran *ret)
{
    for (unsigned tries = 0;; tries++) {
        *ret = run(seed, threads, memory);
        if (ret->status == 1)
            return memory;
        size_t next = named(&ret->err);
        if (tries == most || next <= memory)
            fail_msg("with %zu bytes, after %u other budgets: %s", memory, tries, ret->err.message);
        memory = next;
    }
}

/* The same, for what is known only later: once there is enough, for these elements, there always is. */
static void what_was_enough_is_enough(void **state)
{
    (void)state;
    const unsigned repeats = n_repeats();
    for (size_t i = 0; i < CW_COUNT_OF(VARYING); i++) {
        load(VARYING[i]);
        struct ran want = run(1, 3, (size_t)1 << 30), got;
        size_t enough = until_enough(1, 1, 1, 4, &got);
        expect_same(&got, &want, enough, 1);
        for (unsigned k = 0; k < repeats; k++)
            for (unsigned threads = 1; threads <= 8; threads = threads * 2 + threads / 2) {
                size_t memory = enough + enough * k / 64;
                got = run(1, threads, memory);
                expect_same(&got, &want, memory, threads);
            }
        cw_local_deinit(&local);
    }
}

/* Whatever there is, it is enough, or what is named is. */
static void what_is_named_later_is_enough_too(void **state)
{
    (void)state;
    const unsigned budgets = (unsigned)sample_size(BUDGETS);
    for (size_t i = 0; i < CW_COUNT_OF(FIXED); i++) {
        load(FIXED[i]);
        struct ran want = run(1, 3, (size_t)1 << 30), little = run(1, 2, 1);
        size_t enough = named(&little.err);
        for (unsigned k = 0; k < budgets; k++) {
            size_t memory = enough / budgets * k + 1;
            struct ran got;
            memory = until_enough(memory, 1 + k % 4, 1, 1, &got);
            expect_same(&got, &want, memory, 1 + k % 4);
        }
        cw_local_deinit(&local);
    }
    /* of all tests so far: in a single one of the sample's it may never have been that short */
    assert_true(n_low_memory > 0);
}

/* Others look at what a thread has planned, while it plans: for ThreadSanitizer. */
static void a_stream_is_the_same_for_any_number_of_threads(void **state)
{
    (void)state;
    load("{\"op\": \"ticks\", \"stop\": 5003}, {\"op\": \"shuffle\", \"window\": 128}, {\"op\": \"batch\", "
         "\"size\": 8}");
    struct ran want = run(3, 1, (size_t)64 << 20);
    assert_int_equal(want.status, 1);
    assert_int_equal(want.n, 2 * 626);
    for (unsigned threads = 2; threads <= 8; threads *= 2) {
        struct ran got = run(3, threads, (size_t)64 << 20);
        expect_same(&got, &want, (size_t)64 << 20, threads);
    }
    cw_local_deinit(&local);
}

/* Where a stream is begun again for lack of memory, what it failed with is not forgotten. */
static void a_stream_fails_where_it_fails(void **state)
{
    (void)state;
    load("{\"op\": \"ticks\", \"stop\": 4000, \"width\": 3000, \"fails_at\": 103}, {\"op\": \"filter\", "
         "\"where\": \"max(tick) >= 0\"}, {\"op\": \"batch\", \"size\": 4}");
    struct ran little = run(0, 2, 1);
    size_t enough = named(&little.err);
    for (unsigned k = 0; k < 40; k++) {
        struct ran got = run(0, 1 + k % 4, enough + enough * k / 20);
        assert_int_equal(got.status, CW_E_DATA);
        assert_string_equal(got.err.message, "ticks: it stops at 103");
        assert_int_equal(got.n, 25);
    }
    cw_local_deinit(&local);
}

static int setup(void **state)
{
    static const struct cw_op_desc *const ops[] = {&ticks_op, &paint_op};
    struct cw_error err = {0};
    return temp_make(state) < 0 || cw_ops_add(ops, 2, &err) < 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_named_is_enough),
        cmocka_unit_test(what_was_enough_is_enough),
        cmocka_unit_test(what_is_named_later_is_enough_too),
        cmocka_unit_test(a_stream_is_the_same_for_any_number_of_threads),
        cmocka_unit_test(a_stream_fails_where_it_fails),
    };
    return cmocka_run_group_tests(tests, setup, temp_remove);
}
