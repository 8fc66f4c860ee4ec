/* Operators on batches that take long: who waits for one may go away, and finds it where it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "session/local.h"
#include "data_files.h"
#include "ops/table.h"

#define SOON_NS UINT64_C(1000000)
#define SMALL ((size_t)2 << 20)
#define LARGE ((size_t)64 << 20)
/* Of the even ones of ten numbers there is one batch, and it is short: the consumer joins it. */
#define SHORT \
    "{\"op\": \"range\", \"stop\": 10}, {\"op\": \"filter\", \"where\": \"value % 2 == 0\"}, {\"op\": " \
    "\"batch\", \"size\": 8}, "
/* A batch of these is too large for SMALL. */
#define WIDE "{\"op\": \"gate\", \"width\": 65536}"

/* ---- an operator that waits until it is let through ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* guarded by mutex: */
    unsigned n_calls, n_over, n_cancelled; /* begun; ended, however; ended because they were cancelled */
    unsigned n_let;                        /* so many calls may pass, */
    bool fails;                            /* and then fail */
    unsigned n_notified;                   /* by a runner: there may be something new */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int gate_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_bind_read(b, "value", &type, err);
    type = (struct cw_type){.dtype = CW_INT64, .ndim = 1, .dims = {cw_attr_int(op, "width")}};
    if (r >= 0)
        r = cw_bind_write(b, "value", &type, err);
    return r < 0 ? r : 0;
}

/* Whether call number n may pass; else it was cancelled, which it has to look for now and then. */
static bool pass(unsigned n, int (*cancelled)(void *), void *arg)
{
    while (n > gate.n_let) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 2000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&gate.changed, &gate.mutex, &until);
        pthread_mutex_unlock(&gate.mutex);
        bool stop = cancelled(arg) != 0;
        pthread_mutex_lock(&gate.mutex);
        if (stop)
            return false;
    }
    return true;
}

/* Each value, plus 1, so many times over. */
static int gate_batch(const struct cw_op *op, const struct cw_batch *in, const uint64_t key[2],
                      int (*cancelled)(void *), void *arg, struct cw_batch_result *ret, struct cw_error *err)
{
    (void)key;
    pthread_mutex_lock(&gate.mutex);
    unsigned n = ++gate.n_calls;
    pthread_cond_broadcast(&gate.changed);
    bool passed = pass(n, cancelled, arg), fails = gate.fails;
    gate.n_cancelled += !passed;
    gate.n_over++;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
    if (!passed)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    if (fails)
        return cw_error_set(err, CW_E_RECORD, "gate: it fails");
    size_t width = (size_t)cw_attr_int(op, "width"), row = in->components[0].size / in->n;
    int64_t *out = malloc(in->n * width * sizeof(*out)), value;
    assert_non_null(out);
    for (size_t i = 0; i < in->n; i++) {
        memcpy(&value, (const uint8_t *)in->components[0].data + i * row, sizeof(value));
        for (size_t j = 0; j < width; j++)
            out[i * width + j] = value + 1;
    }
    *ret = (struct cw_batch_result){.owner = out};
    ret->columns[0] = (struct cw_tensor){
        .data = out, .size = in->n * width * sizeof(*out), .ndim = 1, .dims = {(int64_t)width}};
    return 0;
}

static void gate_release(struct cw_batch_result *result)
{
    free(CW_STEAL(result->owner));
}

static const struct cw_attr_def attrs[] = {
    {.name = "width", .kind = CW_ATTR_INT, .def = "1", .min = 1, .max = 1e6, .doc = "how often"}, {0}};
static const struct cw_op_desc gate_op = {.name = "gate",
                                          .summary = "waits",
                                          .kind = CW_OP_BATCH_MAP,
                                          .attrs = attrs,
                                          .bind = gate_bind,
                                          .batch = gate_batch,
                                          .batch_release = gate_release};

/* So many calls, the earlier ones too, may pass. */
static void let(unsigned n)
{
    pthread_mutex_lock(&gate.mutex);
    gate.n_let = n;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void notified(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&gate.mutex);
    gate.n_notified++;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static unsigned get(const unsigned *count)
{
    pthread_mutex_lock(&gate.mutex);
    unsigned n = *count;
    pthread_mutex_unlock(&gate.mutex);
    return n;
}

/* Until a count is another one than it was. */
static void wait_change(const unsigned *count, unsigned was)
{
    pthread_mutex_lock(&gate.mutex);
    while (*count == was)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

/* ---- pipelines ---- */

static struct cw_local local;
static struct cw_error err;

static void load(const char *chain)
{
    char text[1000];
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s]}", chain);
    gate.n_calls = gate.n_over = gate.n_cancelled = gate.n_let = gate.n_notified = 0;
    gate.fails = false;
    err = (struct cw_error){0};
    if (cw_local_parse(&local, text, strlen(text), temp_dir, &err) < 0 ||
        cw_local_open(&local, temp_dir, 1, 0, &err) < 0)
        fail_msg("%s", err.message);
}

static struct cw_iterator *iterate(const char *chain)
{
    struct cw_iterator_options o = {
        .seed = 1, .epochs = 1, .world_size = 1, .runner = {.threads = 2, .memory = LARGE}};
    load(chain);
    if (cw_iterator_new(local.sequence, &o, NULL, &local.iterator, &err) < 0)
        fail_msg("%s", err.message);
    return local.iterator;
}

static struct cw_runner *run(const char *chain)
{
    struct cw_runner_options o = {.threads = 2, .memory = SMALL, .notify = notified};
    struct cw_runner *r = NULL;
    load(chain);
    if (cw_runner_new(local.sequence, &o, &r, &err) < 0)
        fail_msg("%s", err.message);
    return r;
}

/* Asks for the next batch until it is asked of the operator, call number n. */
static void ask_until_called(struct cw_iterator *it, unsigned n)
{
    struct cw_batch *b;
    do
        assert_int_equal(cw_iterator_next(it, SOON_NS, &b, &err), CW_E_DEADLINE);
    while (get(&gate.n_calls) < n);
    assert_contains(err.message, "map_batches");
}

static void check(const struct cw_batch *b, uint32_t n, int64_t first, int64_t step, size_t width)
{
    const int64_t *values = b->components[0].data;
    assert_int_equal(b->n, n);
    for (uint32_t i = 0; i < n; i++)
        for (size_t j = 0; j < width; j++)
            assert_int_equal(values[i * width + j], first + step * i);
}

static void expect_short_batch(struct cw_iterator *it, int64_t first)
{
    struct cw_batch *b;
    assert_int_equal(cw_iterator_next(it, 0, &b, &err), 0);
    check(b, 5, first, 2, 1);
    cw_iterator_release(it, b);
    assert_int_equal(cw_iterator_next(it, 0, &b, &err), 1);
}

/* ---- tests ---- */

/* Each operator was called once on the five elements, on a thread of its own. */
static void expect_counted(struct cw_iterator *it, unsigned first, unsigned n)
{
    struct cw_op_profile ops[8] = {0};
    struct cw_profile p = {.ops = ops, .n_ops = 8};
    cw_iterator_profile(it, &p);
    for (unsigned i = first; i < first + n; i++) {
        assert_int_equal(ops[i].calls, 1);
        assert_int_equal(ops[i].rows, 5);
        assert_true(ops[i].call_ns > 0);
        assert_int_equal(ops[i].ns, 0);
    }
}

static void a_deadline_ends_the_wait_and_not_the_call(void **state)
{
    (void)state;
    struct cw_iterator *it = iterate(SHORT "{\"op\": \"gate\"}");
    json_t *before = cw_iterator_state(it);
    ask_until_called(it, 1);
    struct cw_batch *b;
    for (int i = 0; i < 5; i++)
        assert_int_equal(cw_iterator_next(it, SOON_NS, &b, &err), CW_E_DEADLINE);
    json_t *after = cw_iterator_state(it);
    assert_true(json_equal(before, after));
    json_decref(before);
    json_decref(after);
    let(1);
    expect_short_batch(it, 1);
    assert_int_equal(gate.n_calls, 1);
    expect_counted(it, 3, 1);
    cw_local_deinit(&local);
}

static void each_of_several_operators_is_called_once(void **state)
{
    (void)state;
    struct cw_iterator *it = iterate(SHORT "{\"op\": \"gate\"}, {\"op\": \"gate\"}, {\"op\": \"gate\"}");
    for (unsigned n = 1; n <= 3; n++) {
        ask_until_called(it, n);
        let(n);
    }
    expect_short_batch(it, 3);
    assert_int_equal(gate.n_calls, 3);
    expect_counted(it, 3, 3);
    cw_local_deinit(&local);
}

static void *interrupt_once_called(void *it)
{
    wait_change(&gate.n_calls, 0);
    cw_iterator_interrupt(it, true);
    return NULL;
}

static void an_interrupt_ends_the_wait_and_not_the_call(void **state)
{
    (void)state;
    struct cw_iterator *it = iterate(SHORT "{\"op\": \"gate\"}");
    struct cw_batch *b;
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, interrupt_once_called, it), 0);
    assert_int_equal(cw_iterator_next(it, 0, &b, &err), CW_E_INTERRUPTED);
    pthread_join(other, NULL);
    cw_iterator_interrupt(it, false);
    let(1);
    expect_short_batch(it, 1);
    assert_int_equal(gate.n_calls, 1);
    cw_local_deinit(&local);
}

static void who_leaves_for_good_cancels_the_call(void **state)
{
    (void)state;
    ask_until_called(iterate(SHORT "{\"op\": \"gate\"}"), 1);
    cw_local_deinit(&local);
    assert_int_equal(gate.n_over, 1);
    assert_int_equal(gate.n_cancelled, 1);
}

static void a_batch_that_is_held_keeps_no_call(void **state)
{
    (void)state;
    struct cw_iterator *it = iterate(
        "{\"op\": \"range\", \"stop\": 20}, {\"op\": \"filter\", \"where\": \"value % 2 == 0\"}, {\"op\": "
        "\"batch\", \"size\": 8}, {\"op\": \"gate\"}");
    struct cw_batch *b;
    let(1);
    assert_int_equal(cw_iterator_next(it, 0, &b, &err), 0);
    ask_until_called(it, 2);
    cw_iterator_leave(it);
    assert_int_equal(gate.n_cancelled, 1);
    check(b, 8, 1, 2, 1);
    cw_iterator_release(it, b);
    cw_local_deinit(&local);
}

static void what_was_given_and_not_taken_is_freed(void **state)
{
    (void)state;
    ask_until_called(iterate(SHORT "{\"op\": \"gate\"}"), 1);
    let(1);
    wait_change(&gate.n_over, 0);
    cw_local_deinit(&local);
    assert_int_equal(gate.n_cancelled, 0);
}

static void a_failure_is_met_again_and_calls_nobody(void **state)
{
    (void)state;
    struct cw_iterator *it = iterate(SHORT "{\"op\": \"gate\"}");
    struct cw_batch *b;
    ask_until_called(it, 1);
    gate.fails = true; /* read once it is let through */
    let(1);
    for (int i = 0; i < 2; i++) {
        err = (struct cw_error){0};
        assert_int_equal(cw_iterator_next(it, 0, &b, &err), CW_E_RECORD);
        assert_string_equal(err.message, "gate: it fails");
    }
    assert_int_equal(gate.n_calls, 1);
    cw_local_deinit(&local);
}

/* What the operator gave waits for memory as long as the consumer likes. */
static void lack_of_memory_calls_nobody_again(void **state)
{
    (void)state;
    struct cw_runner *r = run(SHORT WIDE);
    struct cw_assembly *a;
    struct cw_range *s;
    unsigned seen = 0;
    int status;
    const struct cw_range_options o = {.seed = 1, .end = local.sequence->n_positions, .rows = true};
    assert_int_equal(cw_runner_open(r, &o, &s, &err), 0);
    while ((status = cw_runner_part(r, s, 0, 0, 5, &a, &err)) == 2) {
        wait_change(&gate.n_notified, seen);
        seen = get(&gate.n_notified);
    }
    assert_int_equal(status, 0);
    assert_int_equal(cw_runner_finish(r, a, 1, 0, cw_now_ns() + SOON_NS, &err), CW_E_DEADLINE);
    let(1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cw_runner_finish(r, a, 1, 0, 0, &err), CW_E_BUDGET);
        assert_contains(err.message, "is too small: a batch does not fit");
    }
    cw_runner_set_memory(r, LARGE);
    assert_int_equal(cw_runner_finish(r, a, 1, 0, 0, &err), 0);
    assert_int_equal(gate.n_calls, 1);
    struct cw_batch *b = cw_runner_take_batch(r, a);
    check(b, 5, 1, 2, 65536);
    cw_runner_release(r, b);
    cw_runner_close(r, s);
    cw_runner_free(r);
    cw_local_deinit(&local);
}

/* A thread of the pool called the operator, and had no memory for what it gave: then it is for the consumer,
 * who polls. */
static void polling_begins_one_call(void **state)
{
    (void)state;
    struct cw_runner *r = run("{\"op\": \"range\", \"stop\": 8}, {\"op\": \"batch\", \"size\": 8}, " WIDE);
    struct cw_assembly *a;
    struct cw_range *s;
    unsigned seen = 0;
    int status;
    let(1);
    const struct cw_range_options o = {.seed = 1, .end = local.sequence->n_positions};
    assert_int_equal(cw_runner_open(r, &o, &s, &err), 0);
    while ((status = cw_runner_poll(r, s, &a, &err)) == 2) {
        wait_change(&gate.n_notified, seen);
        seen = get(&gate.n_notified);
    }
    assert_int_equal(status, 0);
    assert_int_equal(get(&gate.n_calls), 1);
    assert_int_equal(cw_runner_try_finish(r, a, s, &err), 2);
    wait_change(&gate.n_calls, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(cw_runner_try_finish(r, a, s, &err), 2);
    assert_false(cw_runner_stuck(r));
    cw_runner_set_memory(r, LARGE);
    let(2);
    for (;;) {
        seen = get(&gate.n_notified);
        if ((status = cw_runner_try_finish(r, a, s, &err)) != 2)
            break;
        wait_change(&gate.n_notified, seen);
    }
    assert_int_equal(status, 0);
    assert_int_equal(gate.n_calls, 2);
    struct cw_batch *b = cw_runner_take_batch(r, a);
    check(b, 8, 1, 1, 65536);
    cw_runner_release(r, b);
    cw_runner_close(r, s);
    cw_runner_free(r);
    cw_local_deinit(&local);
}

static int setup(void **state)
{
    static const struct cw_op_desc *const ops[] = {&gate_op};
    return temp_make(state) < 0 || cw_ops_add(ops, 1, &err) < 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_ends_the_wait_and_not_the_call),
        cmocka_unit_test(each_of_several_operators_is_called_once),
        cmocka_unit_test(an_interrupt_ends_the_wait_and_not_the_call),
        cmocka_unit_test(who_leaves_for_good_cancels_the_call),
        cmocka_unit_test(a_batch_that_is_held_keeps_no_call),
        cmocka_unit_test(what_was_given_and_not_taken_is_freed),
        cmocka_unit_test(a_failure_is_met_again_and_calls_nobody),
        cmocka_unit_test(lack_of_memory_calls_nobody_again),
        cmocka_unit_test(polling_begins_one_call),
    };
    return cmocka_run_group_tests(tests, setup, temp_remove);
}
