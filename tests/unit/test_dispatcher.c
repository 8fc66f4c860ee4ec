/* The dispatcher's core, rule by rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dispatcher_run.h"

/* One job, three workers: every split once, in order of cursors, up to capacities; reports in order; then it is over. */
static void test_one_job(void **state)
{
    (void)state;
    struct run *u = run_new(20);
    struct run_peer *w[3] = {run_worker(u, 2), run_worker(u, 2), run_worker(u, 2)};
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_held(w[i]), 2);
    for (uint64_t pos = 0; pos < 20; pos++) {
        assert_true(c->placed[pos] > 1);
        struct run_peer *holder = run_find_worker(u, c->placed[pos] - 1);
        assert_true(holder->streams[0].held[pos]);
        uint64_t id = run_completed(holder, &holder->streams[0], pos, 3 + pos % 2);
        run_settle(u);
        assert_true(run_answered(holder, id));
        assert_int_equal(c->next_report, pos + 1);
        assert_int_equal(c->reports[pos], 3 + pos % 2);
        assert_int_equal(run_progress(c, pos + 1, 0), 0);
        run_settle(u);
        assert_false(holder->streams[0].held[pos]);
    }
    assert_int_equal(run_count(u, 'f'), 1);
    run_detach(c, true);
    run_settle(u);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_held(w[i]), 0);
    run_pass(u, 31000);
    for (int i = 0; i < 3; i++)
        assert_true(w[i]->forgot);
    assert_int_equal(run_count(u, 'b') + run_count(u, 'c') + run_count(u, 'd') + run_count(u, 'e'), 0);
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
