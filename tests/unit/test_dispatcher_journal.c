/* The dispatcher's journal when it is damaged or can't be written: which jobs end, and which clients learn
 * why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/text.h"
#include "dispatcher_run.h"
#include "sample.h"

#define EXACT 7 /* seeds of the two jobs */
#define LOSSY 8
#define N_RANGES 40

/* Two jobs, one of each guarantee, in the middle of their epoch: two workers hold ranges of both, and
 * completed one of each. */
struct world {
    struct run *u;
    struct run_peer *stays, *goes, *exact, *lossy;
    bool had[N_RANGES]; /* ranges of the lossy job that the worker that goes held, or completed */
};

static const struct run_attach exact_job = {.job = "exact", .seed = EXACT};
static const struct run_attach lossy_job = {.job = "lossy",
                                            .seed = LOSSY,
                                            .order = CACHEW__ORDER__ORDER_ANY,
                                            .guarantee = CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE};

static struct run_stream *stream_of(struct run_peer *worker, const struct run_peer *client)
{
    for (size_t i = 0; i < RUN_STREAMS; i++)
        if (worker->streams[i].used && memcmp(worker->streams[i].id, client->streams[0].id, 16) == 0)
            return &worker->streams[i];
    fail_msg("the worker has nothing of a job");
    return NULL;
}

static void complete_first(struct run_peer *w, struct run_stream *s)
{
    uint64_t pos = 0;
    while (pos < N_RANGES && !s->held[pos])
        pos++;
    run_completed(w, s, pos, 3);
    run_settle(w->run);
}

static void world_begin(struct world *x)
{
    *x = (struct world){.u = run_new(N_RANGES)};
    x->stays = run_worker(x->u, 2);
    x->goes = run_worker(x->u, 2);
    x->exact = run_client_with(x->u, &exact_job, 0);
    x->lossy = run_client_with(x->u, &lossy_job, 0);
    assert_true(x->exact->attached && x->lossy->attached);
    complete_first(x->stays, stream_of(x->stays, x->exact));
    complete_first(x->goes, stream_of(x->goes, x->lossy));
    memcpy(x->had, stream_of(x->goes, x->lossy)->held, sizeof(x->had));
}

static struct run_peer *come_back(struct run *u, struct run_attach at)
{
    at.again = true;
    return run_client_with(u, &at, 0);
}

/* The dispatcher is killed; one of the workers and the connections of both clients are gone with it. */
static void world_end(struct world *x)
{
    run_kill(x->u);
    run_lose(x->goes);
    run_lose(x->exact);
    run_lose(x->lossy);
    x->u->log[0] = '\0';
}

/* The dispatcher is started again with the journal as it is now, and only one of the workers comes back. */
static void world_restart(struct world *x)
{
    world_end(x);
    run_start(x->u);
    run_reconnect(x->stays);
    x->exact = come_back(x->u, exact_job);
    x->lossy = come_back(x->u, lossy_job);
    run_worker(x->u, 8);
    run_pass(x->u, 4000);
}

static struct run_row *row_of(struct run *u, const char *key_begin)
{
    for (size_t i = 0; i < u->n_rows; i++)
        if (u->rows[i].key_size >= strlen(key_begin) &&
            memcmp(u->rows[i].key, key_begin, strlen(key_begin)) == 0)
            return &u->rows[i];
    fail_msg("no row begins with %s", key_begin);
    return NULL;
}

static void assert_served(const struct run_peer *c)
{
    if (!c->attached)
        fail_msg("not attached: %s", c->failure);
    for (uint64_t pos = 0; pos < 4; pos++)
        assert_true(c->placed[pos] > 0 || c->n_reports[pos] > 0);
}

/* Nothing that a worker had that died is given to another. */
static void assert_given_once(const struct world *x)
{
    for (uint64_t pos = 0; pos < N_RANGES && x->lossy->attached; pos++)
        if (x->had[pos] && !x->lossy->lost[pos])
            assert_int_equal(x->lossy->placed[pos], 0);
    if (!x->lossy->attached && !strstr(x->lossy->failure, "start the job again"))
        fail_msg("%s", x->lossy->failure);
}

/* The rows lie in the order of their keys again, after one of these was damaged. */
static int by_key(const void *a, const void *b)
{
    const struct run_row *other = b;
    return run_compare(a, other->key, other->key_size);
}

static void sort_rows(struct run *u)
{
    qsort(u->rows, u->n_rows, sizeof(*u->rows), by_key);
}

static void start_again(struct run *u)
{
    run_kill(u);
    u->log[0] = '\0';
    run_start(u);
    run_settle(u);
}

/* Any byte of any entry: the dispatcher starts, serves the job with exactly-once, and gives nothing of the
 * other one a second time. */
static void test_any_damaged_byte_costs_at_most_its_job(void **state)
{
    (void)state;
    size_t n = sample_size(240);
    uint64_t draw = 1;
    for (size_t i = 0; i < n; i++) {
        struct world x;
        world_begin(&x);
        draw = draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        struct run_row *row = &x.u->rows[(draw >> 40) % x.u->n_rows];
        size_t at = (size_t)(draw >> 20) % (row->key_size + row->value_size);
        bool in_key = at < row->key_size;
        *(in_key ? row->key + at : row->value + at - row->key_size) ^= (uint8_t)(1u << ((draw >> 60) % 8));
        sort_rows(x.u);
        world_restart(&x);
        assert_non_null(strstr(x.u->log, "is left out (its checksum does not match)"));
        assert_served(x.exact);
        assert_given_once(&x);
        /* What was damaged is gone: the next start finds nothing. */
        if (!in_key) {
            run_kill(x.u);
            x.u->log[0] = '\0';
            run_start(x.u);
            assert_null(strstr(x.u->log, "left out"));
        }
        run_free(x.u);
    }
}

/* What is said of each kind of entry, and what becomes of the jobs. */
static void test_damaged_entries_are_named_with_their_cost(void **state)
{
    (void)state;

    static const struct {
        const char *key, *said;
        bool lossy_goes_on;
    } cases[] = {
        {"a",
         "the damaged entry of counters is left out (its checksum does not match): new workers and streams "
         "get numbers "
         "that are higher by a million",
         true},
        {"b",
         "the damaged entry of pipeline 00000000000000000000000000000000 is left out (its checksum does not "
         "match): "
         "jobs that run it start over, or are ended if their guarantee is at-most-once",
         false},
        {"fexact",
         "the damaged entry of job \"exact\" is left out (its checksum does not match): the job starts over, "
         "or is "
         "ended if its guarantee is at-most-once",
         true},
        {"flossy",
         "the damaged entry of job \"lossy\" is left out (its checksum does not match): the job starts over, "
         "or is "
         "ended if its guarantee is at-most-once",
         false},
        {"g", "the worker gets another number", true},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct world x;
        world_begin(&x);
        row_of(x.u, cases[i].key)->value[0] ^= 1;
        uint64_t before = x.goes->worker;
        world_restart(&x);
        if (!strstr(x.u->log, cases[i].said))
            fail_msg("expected \"%s\" in: %s", cases[i].said, x.u->log);
        assert_served(x.exact);
        assert_given_once(&x);
        assert_int_equal(x.lossy->attached, cases[i].lossy_goes_on);
        struct run_peer *w = run_worker(x.u, 1);
        if (*cases[i].key == 'a')
            assert_true(w->worker > before + 1000000);
        run_free(x.u);
    }
}

/* A stream's entry costs the jobs of that stream: they are listed as failed, with the reason, until they
 * begin anew. */
static void test_a_damaged_stream_costs_its_job_and_no_other(void **state)
{
    (void)state;
    struct world x;
    char *jobs;
    world_begin(&x);
    char key[18] = "c";
    memcpy(key + 1, x.exact->streams[0].id, 16);
    for (size_t i = 0; i < x.u->n_rows; i++)
        if (x.u->rows[i].key_size == 17 && memcmp(x.u->rows[i].key, key, 17) == 0)
            x.u->rows[i].value[2] ^= 0x10;
    world_end(&x);
    run_start(x.u);
    assert_non_null(strstr(x.u->log, "! job \"exact\" is failed: the dispatcher's journal was damaged"));
    assert_int_equal(cw_dispatcher_query(x.u->d, "jobs", x.u->now_ns, &jobs, NULL), 0);
    assert_non_null(strstr(jobs, "\"state\":\"failed\""));
    free(jobs);
    run_reconnect(x.stays);
    run_worker(x.u, 8);
    x.lossy = come_back(x.u, lossy_job);
    assert_true(x.lossy->attached);
    x.exact = come_back(x.u, exact_job);
    run_pass(x.u, 4000);
    assert_served(x.exact);
    assert_given_once(&x);
    run_free(x.u);
}

/* at-most-once: where an entry of the job, its stream or its pipeline was damaged, clients that go on from a
 * saved state are refused, also by a dispatcher that was started again since; those that begin are not. */
static void test_a_saved_state_is_refused_after_damage(void **state)
{
    (void)state;

    static const struct {
        const char *key;
        size_t at;
    } cases[] = {{"flossy", 0}, {"flossy", 5}, {"c", 0}, {"b", 0}};

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct world x;
        struct run_attach saved = lossy_job;
        world_begin(&x);
        struct run_row *row = row_of(x.u, cases[i].key);
        while (*cases[i].key == 'c' && memcmp(row->key + 1, x.lossy->streams[0].id, 16) != 0)
            row++;
        *(cases[i].at > 0 ? row->key + cases[i].at : row->value + 2) ^= 0x10;
        sort_rows(x.u);
        world_end(&x);
        for (int starts = 0; starts < 3; starts++) {
            start_again(x.u);
            struct run_peer *c = run_client_with(x.u, &saved, 3);
            if (!strstr(c->failure, "start the job again"))
                fail_msg("case %zu, start %d: %s", i, starts, c->failure);
            saved.snapshot = 11; /* of a state that begins at the first range */
            c = run_client_with(x.u, &saved, 0);
            assert_non_null(strstr(c->failure, "start the job again"));
            saved.snapshot = 0;
        }
        run_reconnect(x.stays);
        assert_true(run_client_with(x.u, &lossy_job, 0)->attached);
        run_free(x.u);
    }
}

/* After an hour, a job without a client would have been collected: one that is not known is new. */
static void test_a_saved_state_is_taken_long_after_damage(void **state)
{
    (void)state;
    struct world x;
    world_begin(&x);
    row_of(x.u, "flossy")->value[2] ^= 0x10;
    world_end(&x);
    start_again(x.u);
    run_pass(x.u, UINT64_C(3602) * 1000);
    start_again(x.u);
    run_reconnect(x.stays);
    assert_true(run_client_with(x.u, &lossy_job, 3)->attached);
    run_free(x.u);
}

/* at-most-once: an entry of a range whose key was damaged may lie behind those of jobs. */
static void test_a_range_that_sorts_behind_the_jobs_ends_at_most_once(void **state)
{
    (void)state;
    struct world x;
    world_begin(&x);
    row_of(x.u, "e")->key[0] = 'u';
    sort_rows(x.u);
    world_end(&x);
    start_again(x.u);
    assert_non_null(strstr(x.u->log, "the damaged entry of unknown kind 75"));
    assert_non_null(strstr(x.u->log, "jobs with the guarantee at-most-once are ended"));
    if (!strstr(x.u->log, "! job \"lossy\" is failed: the dispatcher's journal was damaged"))
        fail_msg("%s", x.u->log);
    assert_null(strstr(x.u->log, "job \"exact\" is failed"));
    start_again(x.u);
    assert_non_null(strstr(come_back(x.u, lossy_job)->failure, "start the job again"));
    run_free(x.u);
}

/* at-most-once: of a floor whose key was damaged the letter may be that of jobs. */
static void test_a_floor_that_looks_like_a_job_ends_at_most_once(void **state)
{
    (void)state;
    struct world x;
    uint8_t key[17] = {'f'}, value[] = "a floor and its checksum";
    world_begin(&x);
    memcpy(key + 1, x.lossy->streams[0].id, 16);
    assert_false(cw_text_utf8((const char *)key + 1, 16));
    run_apply(
        x.u,
        &(struct cw_store_op){
            .kind = CW_STORE_PUT, .key = key, .key_size = 17, .value = value, .value_size = sizeof(value)});
    world_end(&x);
    start_again(x.u);
    assert_non_null(strstr(x.u->log, "the damaged entry of unknown kind 66"));
    assert_non_null(strstr(x.u->log, "! job \"lossy\" is failed: the dispatcher's journal was damaged"));
    run_free(x.u);
}

/* A client that waits is told that the journal can't be written, which file, and why; and when it can again.
 * */
static void test_waiting_clients_are_told_that_the_journal_cant_be_written(void **state)
{
    (void)state;
    struct run *u = run_new(8);
    struct run_peer *w = run_worker(u, 2), *first = run_client(u, "first", 0, 1, 0);
    assert_string_equal(first->held_by, "");
    u->full = true;
    run_completed(w, &w->streams[0], 0, 5);
    /* one that waits for its first answer, and one that waits for what a range gave */
    struct run_peer *second = run_client(u, "second", 0, 1, 0);
    run_pass(u, 2500);
    assert_false(second->attached);
    for (int i = 0; i < 2; i++) {
        const char *said = (i ? second : first)->held_by;
        if (!strstr(said, "the dispatcher can't write its journal") || !strstr(said, "the disk is full"))
            fail_msg("client %d was told: %s", i, said);
    }
    char *jobs;
    assert_int_equal(cw_dispatcher_query(u->d, "jobs", u->now_ns, &jobs, NULL), 0);
    assert_non_null(strstr(jobs, "\"held\":\"the dispatcher can't write its journal"));
    free(jobs);
    u->full = false;
    run_pass(u, 2500);
    assert_true(second->attached);
    assert_string_equal(first->held_by, "");
    assert_int_equal(first->reports[0], 5);
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_damaged_byte_costs_at_most_its_job),
        cmocka_unit_test(test_damaged_entries_are_named_with_their_cost),
        cmocka_unit_test(test_a_damaged_stream_costs_its_job_and_no_other),
        cmocka_unit_test(test_a_saved_state_is_refused_after_damage),
        cmocka_unit_test(test_a_saved_state_is_taken_long_after_damage),
        cmocka_unit_test(test_a_range_that_sorts_behind_the_jobs_ends_at_most_once),
        cmocka_unit_test(test_a_floor_that_looks_like_a_job_ends_at_most_once),
        cmocka_unit_test(test_waiting_clients_are_told_that_the_journal_cant_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
