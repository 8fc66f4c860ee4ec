/* The dispatcher's core with a policy: who serves which job, what provisioners are told, what a decision
 * rests on, and that it survives a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "base/text.h"
#include "dispatcher_policy.h"

static bool has(const struct run_peer *p, const uint8_t stream[16])
{
    for (size_t i = 0; i < RUN_STREAMS; i++)
        if (p->streams[i].used && memcmp(p->streams[i].id, stream, 16) == 0)
            return true;
    return false;
}

/* ---- worker sets ---- */

static void test_a_job_gets_as_many_as_are_wanted(void **state)
{
    (void)state;
    struct run *u = begin("fixed:2", 100);
    struct run_peer *w[4];
    for (int i = 0; i < 4; i++)
        w[i] = run_worker(u, 2);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 3000);
    assert_true(c->attached);
    assert_int_equal(serving(u, c->streams[0].id), 2);
    for (int i = 0; i < 4; i++)
        /* who does not serve it was not even asked to open the data */
        assert_int_equal(w[i]->streams[0].used, run_held(w[i]) > 0);
    /* One of them dies: another one takes its place, and its ranges. */
    int dead = run_held(w[0]) > 0 ? 0 : run_held(w[1]) > 0 ? 1 : 2;
    run_lose(w[dead]);
    run_settle(u);
    assert_int_equal(serving(u, c->streams[0].id), 2);
    for (uint64_t pos = 0; pos < 4; pos++)
        assert_true(c->placed[pos] > 1);
    end(u);
}

/* Who has to go finishes what it has begun; what it has finished is read from it; then it forgets the stream.
 */
static void test_who_leaves_a_worker_set(void **state)
{
    (void)state;
    struct run *u = begin("fixed:2", 100);
    struct run_peer *a = run_worker(u, 4), *b = run_worker(u, 4), *c = run_client(u, "first", 0, 1, 0);
    run_pass(u, 3000);
    assert_int_equal(run_held(a), 4);
    assert_int_equal(run_held(b), 4);
    struct run_peer *d = run_client(u, "second", 0, 1, 0); /* two jobs, two workers: one each */
    run_pass(u, 2000);
    assert_true(d->attached);
    assert_int_equal(serving(u, d->streams[0].id), 1);
    struct run_peer *left = has(a, d->streams[0].id) ? a : b;
    struct run_stream *old = run_stream_of(left, (ProtobufCBinaryData){16, c->streams[0].id});
    size_t n = 0;
    for (uint64_t pos = 0; pos < 100; pos++)
        n += old->held[pos];
    assert_int_equal(n, 2); /* those that it may be computing */
    for (uint64_t pos = 0; pos < 100; pos++)
        if (old->held[pos])
            run_completed(left, old, pos, 1);
    run_settle(u);
    assert_true(old->used); /* the client has them still to fetch */
    run_progress(c, 8, 0);
    run_pass(u, 1000);
    assert_false(old->used);
    assert_false(c->ended || d->ended);
    end(u);
}

static void test_weights_priorities_and_quotas(void **state)
{
    (void)state;
    struct run *u = begin("fixed:8", 1000);
    for (int i = 0; i < 6; i++)
        run_worker(u, 2);
    struct run_peer *a = run_client(u, "a", 0, 1, 0), *b = run_client(u, "b", 0, 1, 0),
                    *o = run_connect(u, CACHEW__ROLE__ROLE_ADMIN_CLIENT);
    run_pass(u, 3000);
    assert_int_equal(serving(u, a->streams[0].id), 3);
    assert_int_equal(serving(u, b->streams[0].id), 3);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"share-job", .name = (char *)"a",
            .has_weight_case = CACHEW__STEER__HAS_WEIGHT_WEIGHT, .weight = 2);
    run_pass(u, 2000);
    run_progress(a, 20, 0); /* what they had before is passed */
    run_progress(b, 20, 0);
    run_pass(u, 2000);
    assert_int_equal(serving(u, a->streams[0].id), 4);
    assert_int_equal(serving(u, b->streams[0].id), 2);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"share-job", .name = (char *)"b",
            .has_priority_case = CACHEW__STEER__HAS_PRIORITY_PRIORITY, .priority = 1,
            .has_quota_case = CACHEW__STEER__HAS_QUOTA_QUOTA, .quota = 3);
    run_pass(u, 2000);
    run_progress(a, 40, 0);
    run_progress(b, 40, 0);
    run_pass(u, 2000);
    assert_int_equal(serving(u, b->streams[0].id), 3);
    assert_int_equal(serving(u, a->streams[0].id), 3);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"share-job", .name = (char *)"b",
            .has_weight_case = CACHEW__STEER__HAS_WEIGHT_WEIGHT, .weight = -1);
    run_settle(u);
    assert_non_null(strstr(o->failure, "weight -1: expected 1e-06 to 1e+06"));
    end(u);
}

static double claimed(struct run *u, const char *job, const char *what)
{
    json_t *jobs = ask(u, "jobs"), *j;
    size_t i;
    double value = -1;
    json_array_foreach(jobs, i, j)
    {
        if (strcmp(json_string_value(json_object_get(j, "name")), job) == 0)
            value = json_number_value(json_object_get(json_object_get(j, "scaling"), what));
    }
    json_decref(jobs);
    return value;
}

/* A weight alone set the priority back to 0, and took the quota away. */
static void test_what_is_not_said_of_a_share_stays(void **state)
{
    (void)state;
    struct run *u = begin("fixed:2", 1000);
    run_worker(u, 2);
    run_client(u, "a", 0, 1, 0);
    struct run_peer *o = run_connect(u, CACHEW__ROLE__ROLE_ADMIN_CLIENT);
    run_pass(u, 3000);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"share-job", .name = (char *)"a",
            .has_priority_case = CACHEW__STEER__HAS_PRIORITY_PRIORITY, .priority = 7,
            .has_quota_case = CACHEW__STEER__HAS_QUOTA_QUOTA, .quota = 3);
    run_settle(u);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"share-job", .name = (char *)"a",
            .has_weight_case = CACHEW__STEER__HAS_WEIGHT_WEIGHT, .weight = 2);
    run_settle(u);
    assert_true(claimed(u, "a", "weight") == 2);
    assert_true(claimed(u, "a", "priority") == 7);
    assert_true(claimed(u, "a", "quota") == 3);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"share-job", .name = (char *)"a",
            .has_priority_case = CACHEW__STEER__HAS_PRIORITY_PRIORITY, .priority = 0);
    run_settle(u);
    assert_true(claimed(u, "a", "priority") == 0); /* said, though it is nothing */
    assert_true(claimed(u, "a", "quota") == 3);
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"share-job", .name = (char *)"a",
            .has_quota_case = CACHEW__STEER__HAS_QUOTA_QUOTA, .quota = 10001);
    run_settle(u);
    assert_non_null(strstr(o->failure, "quota 10001: expected 1 to 10000"));
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"aim-job", .name = (char *)"a",
            .has_price_case = CACHEW__STEER__HAS_PRICE_CLIENT_PRICE_PER_H, .client_price_per_h = 0);
    run_settle(u);
    assert_non_null(strstr(o->failure, "price 0: expected 1e-06 to 1e+06, per hour"));
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"share-job", .name = (char *)"b",
            .has_weight_case = CACHEW__STEER__HAS_WEIGHT_WEIGHT, .weight = 2);
    run_settle(u);
    assert_non_null(strstr(o->failure, "there is no running job \"b\""));
    end(u);
}

/* More jobs than workers: all of them go on. */
static void test_more_jobs_than_workers(void **state)
{
    (void)state;
    struct run *u = begin("auto", 100);
    struct run_peer *w = run_worker(u, 2), *c[3];
    char name[3][8];
    for (int i = 0; i < 3; i++) {
        snprintf(name[i], sizeof(name[i]), "job%d", i);
        c[i] = run_client(u, name[i], 0, 1, 0);
    }
    run_pass(u, 2000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(serving(u, c[i]->streams[0].id), 1);
    assert_int_equal(run_held(w), 6);
    /* Others come: each job has one of its own. */
    struct run_peer *others[] = {run_worker(u, 2), run_worker(u, 2)};
    run_pass(u, 2000);
    for (int i = 0; i < 3; i++)
        run_progress(c[i], 10, 0); /* what the first one had is passed */
    run_pass(u, 2000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(serving(u, c[i]->streams[0].id), 1);
    assert_int_equal(run_held(w), 2);
    assert_int_equal(run_held(others[0]) + run_held(others[1]), 4);
    end(u);
}

/* The first worker that is asked can't open the data: the next one is. If nobody can, who waits is told. */
static void test_unfit_workers_are_replaced(void **state)
{
    (void)state;
    struct run *u = begin("fixed:1", 100);
    struct run_peer *w[3];
    for (int i = 0; i < 3; i++) {
        w[i] = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
        w[i]->capacity = 2;
        w[i]->snapshot = 11;
        w[i]->fails = i < 2 ? "no such file" : NULL;
        run_register(w[i]);
    }
    run_settle(u);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 2000);
    assert_true(c->attached);
    assert_int_equal(run_held(w[2]), 2);
    run_lose(w[2]);
    run_settle(u);
    struct run_peer *d = run_client_with(u, &(struct run_attach){.job = "other", .pipeline = 1}, 0);
    run_pass(u, 1000);
    assert_string_equal(d->failure, "data: no such file");
    end(u);
}

/* A client does not get through to the only worker of the worker set: another one serves it. */
static void test_out_of_reach(void **state)
{
    (void)state;
    struct run *u = begin("fixed:1", 100);
    struct run_peer *a = run_worker(u, 2), *b = run_worker(u, 2), *c = run_client(u, "job", 0, 1, 0);
    run_pass(u, 2000);
    struct run_peer *served = run_held(a) > 0 ? a : b, *other = served == a ? b : a;
    assert_int_equal(run_held(served), 2);
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = served->worker,
            .reason = (char *)"a wall");
    run_pass(u, 1000);
    assert_int_equal(run_held(other), 2);
    assert_int_equal(c->placed[0], other->worker + 1);
    /* nobody else is left: better than nobody */
    RUN_SAY(c, Unreachable, UNREACHABLE, false, RUN_BASE(unreachable), .worker = other->worker,
            .reason = (char *)"a wall");
    run_pass(u, 1000);
    assert_int_equal(run_held(other), 2);
    end(u);
}

/* ---- deciding ---- */

struct world {             /* a client and its workers, as a formula has it */
    double step_s, work_s; /* of the client; of a worker, per batch: a range has two */
    double scatter;        /* variance of steps, relative to their square */
    double taken, waited_s, waited_sq, stepped_s, computed[RUN_PEERS], positions[RUN_PEERS];
    uint64_t units;
    double read_s; /* 0: there is no cache; else what a batch takes that is read, all of it is there */
    int32_t uses;  /* of its two cache points, as in Prepare; the second is as good as none */
    bool deaf;     /* what workers are told of it is lost */
    bool endless;  /* no range is completed */
    bool crumbs;   /* no range gives an element */
};

/* What a worker computes for a batch. */
static double work_s(const struct world *x)
{
    return x->read_s > 0 && x->uses == 1 ? x->read_s : x->work_s;
}

/* The workers do what they were told last. */
static void listen(struct run *u, struct world *x)
{
    for (struct run_peer *p = u->peers; p < u->peers + RUN_PEERS; p++)
        for (size_t i = 0; p->used && p->role == CACHEW__ROLE__ROLE_WORKER && !x->deaf && i < p->n_in; i++)
            if (p->in[i]->of_case == CACHEW__ENVELOPE__OF_CACHING)
                x->uses = p->in[i]->caching->cache_point;
}

static void beat(struct run_peer *w, const uint8_t stream[16], double compute_s, double positions,
                 const struct world *x)
{
    Cachew__StreamWork work = CACHEW__STREAM_WORK__INIT, *list[] = {&work};
    Cachew__CachePointWork cache_points[3], *all[3];
    for (int i = 0; i < 3; i++) { /* ranges have ten positions and two batches */
        cachew__cache_point_work__init(all[i] = &cache_points[i]);
        cache_points[i].cache_point = i ? i : -1;
        cache_points[i].name = (char *)(i == 1 ? "good" : i ? "bad" : "");
        cache_points[i].compute_s = x->work_s / 5;
        cache_points[i].read_s = (i == 1 ? x->read_s : x->work_s) / 5;
        cache_points[i].was_read = i > 0;
        cache_points[i].bytes = 1000;
        cache_points[i].cached = i == 1;
    }
    work.cache_point = x->uses;
    work.cache_points = all;
    work.n_cache_points = x->read_s > 0 ? 3 : 0;
    work.stream = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)stream};
    work.compute_ns = (uint64_t)(compute_s * 1e9);
    work.positions = (uint64_t)positions;
    work.batches = positions / 5;
    RUN_SAY(w, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .streams = list, .n_streams = 1);
}

/* A second of it: workers that hold something compute, the client takes what they give, at most as fast as it
 * steps. */
static void second(struct run *u, struct run_peer *c, struct world *x)
{
    struct run_peer *busy[RUN_PEERS];
    int n = 0;
    for (struct run_peer *p = u->peers; p < u->peers + RUN_PEERS; p++)
        if (p->used && p->role == CACHEW__ROLE__ROLE_WORKER && run_held(p) > 0)
            busy[n++] = p;
    listen(u, x);
    double interval = n > 0 ? CW_MAX(x->step_s, work_s(x) / n) : 1, batches = n > 0 ? 1 / interval : 0;
    x->taken += batches;
    x->stepped_s += batches * x->step_s;
    x->waited_s += batches * (interval - x->step_s);
    x->waited_sq += batches * (interval - x->step_s) * (interval - x->step_s);
    for (int i = 0; i < n; i++) {
        size_t k = (size_t)(busy[i] - u->peers);
        x->computed[k] += batches * work_s(x) / n;
        x->positions[k] += batches * 5 / n; /* ranges have ten positions */
        beat(busy[i], c->streams[0].id, x->computed[k], x->positions[k], x);
    }
    for (; !x->endless && x->units < (uint64_t)(x->taken / 2); x->units++)
        for (int i = 0; i < n; i++)
            if (busy[i]->streams[0].held[x->units])
                run_completed(busy[i], &busy[i]->streams[0], x->units, x->crumbs ? 0 : 2);
    Cachew__Place place = CACHEW__PLACE__INIT;
    Cachew__Pace pace = CACHEW__PACE__INIT;
    place.position = RUN_UNIT * x->units;
    pace.n = (uint64_t)x->taken;
    pace.step_s = x->stepped_s;
    pace.wait_s = x->waited_s;
    pace.step_sq = x->stepped_s * x->step_s * (1 + x->scatter);
    pace.wait_sq = x->waited_sq;
    c->cursor = x->units;
    RUN_SAY(c, Progress, PROGRESS, false, RUN_BASE(progress), .from = &place, .pace = &pace);
    run_settle(u);
    run_pass(u, 1000);
}

static void test_measured_and_decided(void **state)
{
    (void)state;
    struct run *u = begin("auto", 4000);
    for (int i = 0; i < 12; i++)
        run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    struct world x = {.step_s = 0.1, .work_s = 0.56};
    for (int i = 0; i < 60; i++)
        second(u, c, &x);
    assert_int_equal(scaling(u, "job", "wanted"), 6);
    assert_int_equal(serving(u, c->streams[0].id), 6);
    json_t *decisions = ask(u, "jobs/job/decisions");
    assert_in_range(json_array_size(decisions), 1, 3);
    const json_t *record = json_object_get(json_array_get(decisions, json_array_size(decisions) - 1),
                                           "record"),
                 *seen = json_object_get(record, "seen");
    assert_true(json_number_value(json_object_get(seen, "step_s")) > 0.09 &&
                json_number_value(json_object_get(seen, "step_s")) < 0.11);
    assert_true(json_array_size(json_object_get(record, "alternatives")) > 1);
    assert_true(strlen(json_string_value(json_object_get(record, "why"))) > 10);
    json_decref(decisions);
    /* It is written down: after a restart the job has as many as before. */
    run_kill(u);
    run_start(u);
    assert_int_equal(scaling(u, "job", "wanted"), 6);
    end(u);
}

static void test_demand_that_falls(void **state)
{
    (void)state;
    struct run *u = begin("auto", 4000);
    for (int i = 0; i < 12; i++)
        run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    struct world x = {.step_s = 0.1, .work_s = 0.75};
    for (int i = 0; i < 60; i++)
        second(u, c, &x);
    assert_int_equal(scaling(u, "job", "wanted"), 8);
    x.step_s = 0.2;
    for (int i = 0; i < 60; i++)
        second(u, c, &x);
    assert_int_equal(scaling(u, "job", "wanted"), 4);
    end(u);
}

/* Another worker takes a dead one's place at once; what that one had begun is computed again, and the client
 * waits meanwhile. That says nothing of the worker set. */
static void test_a_worker_that_is_replaced_at_once_is_no_other_condition(void **state)
{
    (void)state;
    struct run *u = begin("auto", 4000);
    for (int i = 0; i < 12; i++)
        run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0), *w = u->peers;
    struct world x = {.step_s = 0.1, .work_s = 0.56};
    for (int i = 0; i < 60; i++)
        second(u, c, &x);
    assert_int_equal(scaling(u, "job", "wanted"), 6);
    while (!w->used || w->role != CACHEW__ROLE__ROLE_WORKER || run_held(w) == 0)
        w++;
    run_lose(w);
    run_settle(u);
    assert_int_equal(scaling(u, "job", "running"), 6);
    x.work_s *= 2;
    for (int i = 0; i < 4; i++)
        second(u, c, &x);
    x.work_s /= 2;
    for (int i = 0; i < 30; i++) {
        second(u, c, &x);
        assert_int_equal(scaling(u, "job", "wanted"), 6);
    }
    end(u);
}

static const char *aimed_at(struct run *u, double *ret_price)
{
    json_t *jobs = ask(u, "jobs");
    const json_t *scaling = json_object_get(json_array_get(jobs, 0), "scaling");
    *ret_price = json_number_value(json_object_get(scaling, "client_price_per_h"));
    const char *objective = strcmp(json_string_value(json_object_get(scaling, "objective")), "cost") == 0
                                ? "cost"
                                : "time";
    json_decref(jobs);
    return objective;
}

/* A job whose clients cost little is to be cheap: the worker that is not wholly needed goes, and a restart
 * does not change that. */
static void test_a_job_with_an_objective_of_its_own(void **state)
{
    (void)state;
    struct run *u = begin("auto", 4000);
    for (int i = 0; i < 12; i++)
        run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0), *o = run_connect(u, CACHEW__ROLE__ROLE_ADMIN_CLIENT);
    struct world x = {.step_s = 0.1, .work_s = 0.75};
    double price;
    for (int i = 0; i < 60; i++)
        second(u, c, &x);
    assert_int_equal(scaling(u, "job", "wanted"), 8);
    assert_string_equal(aimed_at(u, &price), "time");
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"aim-job", .name = (char *)"job",
            .objective = (char *)"speed");
    run_settle(u);
    assert_non_null(strstr(o->failure, "expected time or cost"));
    RUN_SAY(o, Steer, STEER, true, RUN_BASE(steer), .verb = (char *)"aim-job", .name = (char *)"job",
            .objective = (char *)"cost", .has_price_case = CACHEW__STEER__HAS_PRICE_CLIENT_PRICE_PER_H,
            .client_price_per_h = 0.75);
    run_settle(u);
    assert_string_equal(aimed_at(u, &price), "cost");
    assert_true(price == 0.75);
    for (int i = 0; i < 60; i++)
        second(u, c, &x);
    assert_int_equal(scaling(u, "job", "wanted"), 7);
    run_kill(u);
    run_start(u);
    assert_string_equal(aimed_at(u, &price), "cost");
    assert_true(price == 0.75);
    end(u);
}

/* The cache points of the only stream, as its workers told of them; those that are in use. */
static int cache_points_in_use(struct run *u, const struct world *x)
{
    json_t *streams = ask(u, "streams");
    const json_t *list = json_object_get(json_object_get(json_array_get(streams, 0), "caching"),
                                         "cache_points"),
                 *m;
    size_t i;
    int in_use = 0;
    assert_int_equal(json_array_size(list), 2);
    json_array_foreach(list, i, m)
    {
        assert_string_equal(json_string_value(json_object_get(m, "name")), i == 0 ? "good" : "bad");
        assert_true(json_number_value(json_object_get(m, "cached")) == (i == 0));
        assert_true(json_number_value(json_object_get(m, "bytes")) == 1000);
        assert_true(fabs(json_number_value(json_object_get(m, "compute_s")) - x->work_s / 5) < 1e-6);
        assert_true(fabs(json_number_value(json_object_get(m, "read_s")) -
                         (i == 0 ? x->read_s : x->work_s) / 5) < 1e-6);
        in_use += json_is_true(json_object_get(m, "in_use")) ? 1 << i : 0;
    }
    json_decref(streams);
    return in_use;
}

static double counter(struct run *u, const char *line)
{
    struct cw_text t = {0};
    cw_dispatcher_metrics(u->d, u->now_ns, &t);
    const char *at = strstr(t.data, line);
    assert_non_null(at);
    double v = strtod(at + strlen(line), NULL);
    cw_text_deinit(&t);
    return v;
}

/* Each decision stands in the log as its record has it. */
static void logged(struct run *u, const json_t *decisions)
{
    size_t i;
    const json_t *d;
    const char *at = u->log;
    json_array_foreach(decisions, i, d)
    {
        char line[600];
        const json_t *record = json_object_get(d, "record");
        snprintf(line, sizeof(line), "job \"job\": %s: %s",
                 json_string_value(json_object_get(record, "what")),
                 json_string_value(json_object_get(record, "why")));
        at = strstr(at, line);
        assert_non_null(at);
        at += strlen(line);
    }
}

/* What a decision does, in words. */
static const char *what_of(const json_t *decision)
{
    return json_string_value(json_object_get(json_object_get(decision, "record"), "what"));
}

/* Whether one of the decisions says this. */
static bool decided(const json_t *decisions, const char *words)
{
    size_t i;
    const json_t *d;
    bool any = false;
    json_array_foreach(decisions, i, d) any |= strstr(what_of(d), words) != NULL;
    return any;
}

/* Two workers that need longer than the client: where it is cached follows what reading takes, and they are
 * told until they do it. */
static void where_it_is_cached(struct run *u)
{
    run_worker(u, 4);
    run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    struct world x = {.step_s = 0.01, .work_s = 0.12, .read_s = 0.2, .uses = 1};
    for (int i = 0; i < 40; i++)
        second(u, c, &x);
    assert_int_equal(x.uses, -1);
    json_t *decisions = ask(u, "jobs/job/decisions");
    const json_t *last = json_object_get(json_array_get(decisions, json_array_size(decisions) - 1), "record");
    assert_true(json_is_null(json_object_get(json_object_get(last, "chosen"), "cache")));
    assert_string_equal(json_string_value(json_object_get(json_object_get(last, "seen"), "cache")), "good");
    assert_non_null(
        strstr(json_string_value(json_object_get(last, "what")), "cached nowhere, after good before"));
    logged(u, decisions);
    json_decref(decisions);
    second(u, c, &x);
    assert_int_equal(cache_points_in_use(u, &x), 0);
    double moves = counter(u, "\ncachew_dispatcher_cache_moves_total ");
    assert_true(moves >= 1);
    x.read_s = 0.02;
    x.deaf = true;
    for (int i = 0; i < 40; i++)
        second(u, c, &x);
    assert_int_equal(x.uses, -1);
    x.deaf = false;
    second(u, c, &x);
    assert_int_equal(x.uses, 1);
    decisions = ask(u, "jobs/job/decisions");
    assert_in_range(json_array_size(decisions), 2, 6);
    assert_true(decided(decisions, "cached after good, nowhere before"));
    assert_int_equal(decided(decisions, "2 workers, 1 before"), run_policy != NULL);
    logged(u, decisions);
    json_decref(decisions);
    second(u, c, &x);
    assert_int_equal(cache_points_in_use(u, &x), 1);
    assert_true(counter(u, "\ncachew_dispatcher_cache_moves_total ") > moves);
}

static void test_where_it_is_cached(void **state)
{
    (void)state;
    struct run *u = begin("auto", 4000);
    where_it_is_cached(u);
    end(u);
}

static void test_where_it_is_cached_without_a_policy(void **state)
{
    (void)state;
    struct run *u = run_new(4000);
    where_it_is_cached(u);
    run_free(u);
}

/* Decides on one worker, and again at the fifth report, since the client waits; the others say what stands.
 */
static void stays(const struct cw_policy *self, struct cw_policy_memory *memory, const struct cw_facts *f,
                  double now_s, struct cw_decision *d)
{
    (void)self, (void)now_s;
    memory->values[0]++;
    d->replanned = memory->values[0] == 5;
    d->concluded = memory->values[0] == 1 || d->replanned || memory->values[0] == 7;
    cw_pools_fill(f, 1, d);
    d->seen = (struct cw_seen){.step_s = 0.4,
                               .wait_s = 0.1,
                               .interval_s = 0.5,
                               .compute_s = 0.5,
                               .workers = 1,
                               .cache_point = -1,
                               .limit = CW_BOTTLENECK_WORKERS};
    snprintf(d->why, sizeof(d->why), "%s",
             d->replanned ? "the client waits for batches, which was not expected" : "measured");
}

/* That the client waits, which was not expected, is a record also where the plan stays. */
static void test_waiting_that_was_not_expected_is_a_record(void **state)
{
    (void)state;
    assert_true(cw_policy_find("auto", &policy));
    policy.decide = stays;
    run_policy = &policy;
    struct run *u = run_new(4000);
    run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    struct world x = {.step_s = 0.1, .work_s = 0.2};
    for (int i = 0; i < 60; i++)
        second(u, c, &x);
    json_t *decisions = ask(u, "jobs/job/decisions");
    assert_int_equal(json_array_size(decisions), 2);
    logged(u, decisions);
    const json_t *last = json_object_get(json_array_get(decisions, 1), "record");
    assert_string_equal(json_string_value(json_object_get(last, "why")),
                        "the client waits for batches, which was not expected");
    assert_string_equal(what_of(json_array_get(decisions, 1)), "1 worker, as before");
    json_decref(decisions);
    end(u);
}

#ifdef CW_CRASH_POINTS
/* The scripted policy of tests with processes: each of its decisions comes, in order, whatever the workers
 * and the client report. */
static void test_script(void **state)
{
    static const char *const whats[] = {"1 worker, as before; cached after good",
                                        "2 workers, 1 before; cached after good",
                                        "2 workers, as before; cached nowhere, after good before",
                                        "2 workers, as before; cached after good, nowhere before"};
    static const struct world worlds[] = {
        {.step_s = 0.01, .work_s = 0.12, .read_s = 0.2, .uses = 1},
        {.step_s = 3, .work_s = 0.001, .read_s = 1e-6, .uses = 1},
        {.step_s = 1e-6, .work_s = 7, .read_s = 7, .uses = 1, .scatter = 30},
    };
    (void)state;
    for (size_t k = 0; k < CW_COUNT_OF(worlds); k++) {
        struct world x = worlds[k];
        struct run *u = begin("script", 4000);
        run_worker(u, 4);
        run_worker(u, 4);
        struct run_peer *c = run_client(u, "job", 0, 1, 0);
        for (int i = 0; i < 300; i++)
            second(u, c, &x);
        json_t *decisions = ask(u, "jobs/job/decisions");
        assert_int_equal(json_array_size(decisions), CW_COUNT_OF(whats));
        for (size_t i = 0; i < CW_COUNT_OF(whats); i++)
            assert_string_equal(what_of(json_array_get(decisions, i)), whats[i]);
        logged(u, decisions);
        json_decref(decisions);
        assert_int_equal(x.uses, 1);
        end(u);
    }
}
#endif

static void decides_to_read(struct world x)
{
    struct run *u = run_new(4000);
    run_worker(u, 4);
    run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    for (int i = 0; i < 10; i++)
        second(u, c, &x);
    json_t *decisions = ask(u, "jobs/job/decisions");
    const char *first = json_string_value(json_object_get(
        json_object_get(json_object_get(json_array_get(decisions, 0), "record"), "chosen"), "cache"));
    assert_non_null(first);
    assert_string_equal(first, "good");
    json_decref(decisions);
    assert_int_equal(x.uses, 1);
    run_free(u);
}

/* A range may take minutes: nothing was decided about the cache until one was completed. */
static void test_where_it_is_cached_is_decided_before_a_range_is_completed(void **state)
{
    (void)state;
    decides_to_read(
        (struct world){.step_s = 0.01, .work_s = 0.12, .read_s = 0.02, .uses = 2, .endless = true});
}

/* Behind a filter a range may leave less than a batch: nothing was decided at all where all of them did. */
static void test_where_it_is_cached_is_decided_where_no_range_gives_a_whole_batch(void **state)
{
    (void)state;
    decides_to_read(
        (struct world){.step_s = 0.01, .work_s = 0.12, .read_s = 0.02, .uses = 2, .crumbs = true});
}

/* Measurements that are none. */
static void test_nonsense_of_cache_points(void **state)
{
    (void)state;
    static const double nonsense[] = {NAN, INFINITY, -INFINITY, -1, 1e300, 0};
    struct run *u = begin("auto", 4000);
    run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    struct world x = {.step_s = 0.1, .work_s = 0.5, .read_s = 0.1, .uses = 1};
    for (int i = 0; i < 30; i++) {
        Cachew__StreamWork work = CACHEW__STREAM_WORK__INIT, *list[] = {&work};
        Cachew__CachePointWork cache_points[40], *all[40];
        double v = nonsense[(size_t)i % CW_COUNT_OF(nonsense)];
        second(u, c, &x);
        for (int k = 0; k < 40; k++) {
            cachew__cache_point_work__init(all[k] = &cache_points[k]);
            cache_points[k].cache_point = k % 2 ? k * 1000003 : i - k;
            cache_points[k].name = (char *)(k % 2 ? "\x01\xff" : "");
            cache_points[k].compute_s = cache_points[k].read_s = cache_points[k].store_s =
                cache_points[k].bytes = cache_points[k].cached = cache_points[k].written = v;
            cache_points[k].was_read = k % 3;
        }
        work.stream = (ProtobufCBinaryData){16, c->streams[0].id};
        work.cache_point = -i * 77;
        work.cache_points = all;
        work.n_cache_points = 40;
        for (struct run_peer *p = u->peers; p < u->peers + RUN_PEERS; p++)
            if (p->used && p->role == CACHEW__ROLE__ROLE_WORKER)
                RUN_SAY(p, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .streams = list, .n_streams = 1,
                        .cache_read_bytes_per_s = v, .cache_write_bytes_per_s = v, .cache_bytes = UINT64_MAX);
        run_pass(u, 1000);
    }
    json_decref(ask(u, "jobs/job/decisions"));
    json_decref(ask(u, "workers"));
    end(u);
}

/* A client that takes next to no time, and now that and now this: it gets all that there are, though nobody
 * knows how short its steps are. */
static void test_a_client_that_takes_all(void **state)
{
    (void)state;
    struct run *u = begin("auto", 4000);
    for (int i = 0; i < 3; i++)
        run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    struct world x = {.step_s = 0.00005, .work_s = 0.4, .scatter = 30};
    for (int i = 0; i < 60; i++)
        second(u, c, &x);
    assert_int_equal(scaling(u, "job", "wanted"), 3);
    end(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_gets_as_many_as_are_wanted),
        cmocka_unit_test(test_who_leaves_a_worker_set),
        cmocka_unit_test(test_weights_priorities_and_quotas),
        cmocka_unit_test(test_what_is_not_said_of_a_share_stays),
        cmocka_unit_test(test_more_jobs_than_workers),
        cmocka_unit_test(test_unfit_workers_are_replaced),
        cmocka_unit_test(test_out_of_reach),
        cmocka_unit_test(test_measured_and_decided),
        cmocka_unit_test(test_demand_that_falls),
        cmocka_unit_test(test_a_worker_that_is_replaced_at_once_is_no_other_condition),
        cmocka_unit_test(test_a_job_with_an_objective_of_its_own),
        cmocka_unit_test(test_waiting_that_was_not_expected_is_a_record),
        cmocka_unit_test(test_where_it_is_cached),
        cmocka_unit_test(test_where_it_is_cached_without_a_policy),
#ifdef CW_CRASH_POINTS
        cmocka_unit_test(test_script),
#endif
        cmocka_unit_test(test_where_it_is_cached_is_decided_before_a_range_is_completed),
        cmocka_unit_test(test_where_it_is_cached_is_decided_where_no_range_gives_a_whole_batch),
        cmocka_unit_test(test_nonsense_of_cache_points),
        cmocka_unit_test(test_a_client_that_takes_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
