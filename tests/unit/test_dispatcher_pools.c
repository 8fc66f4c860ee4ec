/* The dispatcher's core and provisioners: what they are told, whose workers are whose, and who may have a
 * pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>

#include "dispatcher_policy.h"

static const Cachew__Want *last_want(const struct run_peer *p)
{
    for (size_t i = p->n_in; i-- > 0;)
        if (p->in[i]->of_case == CACHEW__ENVELOPE__OF_WANT)
            return p->in[i]->want;
    return NULL;
}

static struct run_peer *run_unit_of(struct run *u, const char *pool, const char *name)
{
    struct run_peer *p = u->peers;
    while (p->used)
        p++;
    p = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    run_lose(p); /* its name belongs in its Hello */
    p->name = name;
    p->pool = pool;
    p->capacity = 2;
    p->snapshot = 11;
    run_connect_as(u, p, CACHEW__ROLE__ROLE_WORKER);
    run_register(p);
    run_settle(u);
    return p;
}

static struct run_peer *run_unit(struct run *u, const char *name)
{
    return run_unit_of(u, "local", name);
}

static void say_priced(struct run_peer *p, const char *name, uint32_t minimum, uint32_t maximum,
                       double price_per_h)
{
    RUN_SAY(p, Pool, POOL, false, RUN_BASE(pool), .name = (char *)(uintptr_t)name, .minimum = minimum,
            .maximum = maximum, .price_per_h = price_per_h, .why = (char *)"",
            .prefix = (char *)(uintptr_t)name);
    run_settle(p->run);
}

/* Names of its workers begin with the prefix. */
static void say_pool_of(struct run_peer *p, const char *prefix, uint32_t minimum, uint32_t maximum,
                        uint32_t units)
{
    RUN_SAY(p, Pool, POOL, false, RUN_BASE(pool), .name = (char *)"local", .minimum = minimum,
            .maximum = maximum, .units = units, .price_per_h = 0.1, .why = (char *)"",
            .prefix = (char *)(uintptr_t)prefix);
    run_settle(p->run);
}

static void say_pool(struct run_peer *p, uint32_t minimum, uint32_t maximum, uint32_t units)
{
    say_pool_of(p, "local-", minimum, maximum, units);
}

static bool is_present(const struct run_peer *p, const char *name)
{
    const Cachew__Want *m = last_want(p);
    assert_non_null(m->present);
    for (size_t i = 0; i < m->present->n_names; i++)
        if (strcmp(m->present->names[i], name) == 0)
            return true;
    return false;
}

static void test_a_pool_grows_and_shrinks(void **state)
{
    (void)state;
    struct run *u = begin("fixed:3", 100);
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool(p, 1, 5, 0);
    assert_int_equal(last_want(p)->workers, 1);
    struct run_peer *first = run_unit(u, "local-1"), *c = run_client(u, "job", 0, 1, 0);
    assert_true(c->attached);
    run_pass(u, 3000);
    assert_int_equal(last_want(p)->workers, 3);
    assert_int_equal(scaling(u, "job", "wanted"), 3);
    run_unit(u, "local-2");
    run_unit(u, "local-3");
    run_pass(u, 1000);
    assert_int_equal(serving(u, c->streams[0].id), 3);
    /* The job is over: they stay for a while, for the next one; then all but one go. */
    run_detach(c, true);
    run_pass(u, 20000);
    assert_int_equal(last_want(p)->workers, 3);
    run_pass(u, 15000);
    assert_int_equal(last_want(p)->workers, 1);
    assert_int_equal(last_want(p)->n_release, 2);
    int drained = 0;
    for (struct run_peer *w = u->peers; w < u->peers + RUN_PEERS; w++)
        drained += w->used && w->drain;
    assert_int_equal(drained, 2);
    assert_false(first->closed);
    json_t *pools = ask(u, "pools");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(pools, 0), "wanted")), 1);
    json_decref(pools);
    end(u);
}

/* A worker that nobody provisioned counts, and is never ended. */
static void test_workers_of_no_pool(void **state)
{
    (void)state;
    struct run *u = begin("fixed:3", 100);
    run_worker(u, 2);
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool(p, 0, 5, 0);
    run_client(u, "job", 0, 1, 0);
    run_pass(u, 3000);
    assert_int_equal(last_want(p)->workers, 2);
    run_lose(p);
    run_settle(u);
    run_pass(u, 2000);
    assert_int_equal(scaling(u, "job", "granted"), 1); /* there are no more now */
    end(u);
}

/* Told to go by somebody, a worker of a pool is ended by its provisioner; if it goes by itself it is not told
 * twice. */
static void test_who_drains_is_released_once(void **state)
{
    (void)state;
    struct run *u = begin("fixed:2", 100);
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER),
                    *o = run_connect(u, CACHEW__ROLE__ROLE_ADMIN_CLIENT);
    say_pool(p, 2, 5, 2);
    struct run_peer *a = run_unit(u, "local-1"), *b = run_unit(u, "local-2");
    RUN_SAY(b, Draining, DRAINING, false, RUN_BASE(draining)); /* SIGTERM of somebody */
    run_pass(u, 1000);
    assert_int_equal(last_want(p)->n_release, 0);
    char id[32];
    snprintf(id, sizeof(id), "%" PRIu64, a->worker);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"drain-worker", .name = id);
    run_pass(u, 1000);
    assert_int_equal(last_want(p)->workers, 2);
    assert_int_equal(last_want(p)->n_release, 1);
    assert_string_equal(last_want(p)->release[0], "local-1");
    end(u);
}

/* They were told as if they were its own, so that it was too many for it, or it was to end what it did not
 * know. */
static void test_workers_of_a_provisioner_before_this_one_count_and_are_nobody_s_to_end(void **state)
{
    (void)state;
    struct run *u = begin("fixed:3", 100);
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool_of(p, "local-a-", 2, 3, 0);
    struct run_peer *a = run_unit(u, "local-a-1"), *b = run_unit(u, "local-a-2"),
                    *c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 3000);
    assert_int_equal(last_want(p)->workers, 3);
    run_lose(p);
    run_settle(u);
    struct run_peer *next = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool_of(next, "local-b-", 0, 3, 0);
    run_pass(u, 2000);
    assert_int_equal(last_want(next)->workers, 1); /* with the two that are there, three */
    assert_false(is_present(next, "local-a-1"));
    run_lose(b);
    run_pass(u, 2000);
    assert_int_equal(last_want(next)->workers, 2);
    run_detach(c, true);
    run_pass(u, 35000);
    assert_int_equal(last_want(next)->workers, 0);
    assert_int_equal(last_want(next)->n_release, 0);
    assert_false(a->closed || a->drain);
    end(u);
}

/* Two provisioners of one name took the pool from each other, again and again. */
static void test_who_has_a_pool_keeps_it(void **state)
{
    (void)state;
    struct run *u = begin("fixed:3", 100);
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER),
                    *other = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool_of(p, "local-a-", 1, 3, 0);
    say_pool_of(other, "local-b-", 1, 3, 0);
    assert_true(other->closed && !p->closed);
    assert_non_null(strstr(other->why, "another provisioner has pool \"local\""));
    /* It connects anew, and its old connection is not noticed to be dead. */
    struct run_peer *again = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    run_lose(again);
    memcpy(again->incarnation, p->incarnation, sizeof(p->incarnation));
    run_connect_as(u, again, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool_of(again, "local-a-", 1, 4, 0);
    assert_true(p->closed && !again->closed);
    run_lose(again);
    run_settle(u);
    other = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool_of(other, "local-b-", 1, 3, 0);
    assert_false(other->closed);
    assert_int_equal(last_want(other)->workers, 1);
    end(u);
}

/* One that stood still was a worker still for its provisioner, and nobody took its place. */
static void test_a_provisioner_learns_who_is_not_connected(void **state)
{
    (void)state;
    struct run *u = begin("fixed:2", 100);
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool(p, 2, 2, 0);
    struct run_peer *a = run_unit(u, "local-1");
    run_unit(u, "local-2");
    run_pass(u, 3000);
    assert_true(is_present(p, "local-1") && is_present(p, "local-2"));
    run_lose(a);
    run_pass(u, 2000);
    assert_true(!is_present(p, "local-1") && is_present(p, "local-2"));
    assert_int_equal(last_want(p)->workers, 2);
    end(u);
}

/* What was chosen last, by pool; -1: nothing of it. */
static int chosen(struct run *u, const char *job, const char *pool)
{
    char what[64];
    snprintf(what, sizeof(what), "jobs/%s/decisions", job);
    json_t *decisions = ask(u, what),
           *last = json_object_get(json_array_get(decisions, json_array_size(decisions) - 1), "record");
    const json_t *n = json_object_get(json_object_get(json_object_get(last, "chosen"), "workers"), pool);
    int ret = n ? (int)json_integer_value(n) : -1;
    json_decref(decisions);
    return ret;
}

/* Each provisioner is asked for what was decided of its pool: the cheapest first, then the next one. Workers
 * of no pool cost nothing more. */
static void test_a_decision_over_two_pools(void **state)
{
    (void)state;
    struct run *u = begin("fixed:4", 100);
    struct run_peer *dear = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER),
                    *cheap = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_priced(dear, "dear", 0, 9, 2);
    say_priced(cheap, "cheap", 0, 2, 0.1);
    run_worker(u, 2);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 3000);
    assert_int_equal(last_want(cheap)->workers, 2);
    assert_int_equal(last_want(dear)->workers, 1);
    assert_int_equal(chosen(u, "job", "static"), 1);
    assert_int_equal(chosen(u, "job", "cheap"), 2);
    assert_int_equal(chosen(u, "job", "dear"), 1);
    run_unit_of(u, "cheap", "cheap-1");
    run_unit_of(u, "cheap", "cheap-2");
    run_unit_of(u, "dear", "dear-1");
    run_pass(u, 1000);
    assert_int_equal(serving(u, c->streams[0].id), 4);
    assert_int_equal(scaling(u, "job", "running"), 4);
    end(u);
}

/* A provisioner that is away for a while leaves its workers: a job keeps as many as it had, then and when it
 * is back. */
static void test_a_provisioner_that_comes_back_takes_nobody_away(void **state)
{
    (void)state;
    struct run *u = begin("fixed:3", 100);
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool(p, 3, 5, 0);
    run_unit(u, "local-1");
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 3000);
    run_unit(u, "local-2");
    run_unit(u, "local-3");
    run_pass(u, 1000);
    assert_int_equal(serving(u, c->streams[0].id), 3);
    run_lose(p);
    run_settle(u);
    assert_int_equal(serving(u, c->streams[0].id), 3);
    run_pass(u, 3000);
    assert_int_equal(serving(u, c->streams[0].id), 3);
    p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool(p, 3, 5, 3);
    assert_int_equal(serving(u, c->streams[0].id), 3);
    run_pass(u, 3000);
    assert_int_equal(serving(u, c->streams[0].id), 3);
    assert_int_equal(last_want(p)->workers, 3);
    end(u);
}

/* A pool that is dearer takes over from one that is gone; until its workers are there, those of the other one
 * stay. */
static void test_who_is_to_go_stays_until_others_are_there(void **state)
{
    (void)state;
    struct run *u = begin("fixed:2", 100);
    struct run_peer *dear = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER),
                    *cheap = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_priced(dear, "dear", 2, 2, 2);
    run_unit_of(u, "dear", "dear-1");
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 3000);
    run_unit_of(u, "dear", "dear-2");
    run_pass(u, 1000);
    assert_int_equal(serving(u, c->streams[0].id), 2);
    say_priced(cheap, "cheap", 0, 2, 0.1);
    run_progress(c, 8, 0); /* what was under way is passed: it is measured again */
    run_pass(u, 5000);
    assert_int_equal(last_want(cheap)->workers, 2);
    assert_int_equal(serving(u, c->streams[0].id), 2);
    run_unit_of(u, "cheap", "cheap-1");
    run_unit_of(u, "cheap", "cheap-2");
    run_pass(u, 3000);
    assert_int_equal(chosen(u, "job", "cheap"), 2);
    assert_int_equal(chosen(u, "job", "dear"), 0);
    assert_int_equal(scaling(u, "job", "running"), 2);
    end(u);
}

static void test_nonsense_of_provisioners(void **state)
{
    (void)state;
    struct run *u = begin("fixed:3", 100);
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool(p, 5, 1, 0);
    assert_non_null(strstr(p->why, "expected at most"));
    p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_priced(p, "dear", 0, 1, 1e7); /* up to 1e9 it was taken, of which no command says so much */
    assert_non_null(strstr(p->why, "a price from 0 to 1e+06"));
    p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    RUN_SAY(p, Pool, POOL, false, RUN_BASE(pool), .name = (char *)"", .why = (char *)"",
            .prefix = (char *)"");
    assert_non_null(strstr(p->why, "the pool's name"));
    p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    RUN_SAY(p, Pool, POOL, false, RUN_BASE(pool), .name = (char *)"static", .why = (char *)"",
            .prefix = (char *)"");
    assert_non_null(strstr(p->why, "that no provisioner started"));
    end(u);
    u = run_new(10); /* without a policy */
    p = run_connect(u, CACHEW__ROLE__ROLE_PROVISIONER);
    say_pool(p, 0, 1, 0);
    assert_non_null(strstr(p->why, "--policy"));
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pool_grows_and_shrinks),
        cmocka_unit_test(test_workers_of_no_pool),
        cmocka_unit_test(test_a_decision_over_two_pools),
        cmocka_unit_test(test_a_provisioner_that_comes_back_takes_nobody_away),
        cmocka_unit_test(test_who_is_to_go_stays_until_others_are_there),
        cmocka_unit_test(test_who_drains_is_released_once),
        cmocka_unit_test(test_workers_of_a_provisioner_before_this_one_count_and_are_nobody_s_to_end),
        cmocka_unit_test(test_who_has_a_pool_keeps_it),
        cmocka_unit_test(test_a_provisioner_learns_who_is_not_connected),
        cmocka_unit_test(test_nonsense_of_provisioners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
