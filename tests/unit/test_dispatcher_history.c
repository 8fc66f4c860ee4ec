/* What the dispatcher keeps for people: how jobs and workers went, what happened to them, where
 * computing time goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "base/text.h"
#include "service/dispatcher/history.h"
#include "service/dispatcher/worker_history.h"
#include "dispatcher_run.h"

static json_t *ask(struct run *u, const char *what)
{
    struct cw_error err = {0};
    char *text = NULL;
    if (cw_dispatcher_query(u->d, what, u->now_ns, &text, &err) < 0)
        fail_msg("%s", err.message);
    json_t *answer = json_loads(text, JSON_DECODE_ANY, NULL);
    free(text);
    assert_non_null(answer);
    return answer;
}

/* The last of a column of the job's history; NAN: it is null. */
static double last(struct run *u, const char *column)
{
    json_t *h = ask(u, "jobs/job/history");
    const json_t *list = json_object_get(h, column), *value = json_array_get(list, json_array_size(list) - 1);
    assert_non_null(value);
    double v = json_is_null(value) ? NAN : json_number_value(value);
    json_decref(h);
    return v;
}

static double rank_waited(struct run *u, size_t rank)
{
    json_t *jobs = ask(u, "jobs");
    const json_t *value = json_object_get(
        json_array_get(json_object_get(json_array_get(jobs, 0), "ranks"), rank), "waited");
    assert_non_null(value);
    double v = json_is_null(value) ? NAN : json_number_value(value);
    json_decref(jobs);
    return v;
}

static double metric(struct run *u, const char *name)
{
    struct cw_text t = {0};
    char line[200];
    cw_dispatcher_metrics(u->d, u->now_ns, &t);
    snprintf(line, sizeof(line), "\ncachew_dispatcher_%s ", name);
    const char *at = strstr(t.data, line);
    assert_non_null(at);
    double v = strtod(at + strlen(line), NULL);
    cw_text_deinit(&t);
    return v;
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-4 * fabs(b) + 1e-9))
        fail_msg("%g, expected %g", a, b);
}

static void progress(struct run_peer *c, uint64_t n, double step_s, double wait_s, bool waits)
{
    Cachew__Place place = CACHEW__PLACE__INIT;
    Cachew__Pace pace = CACHEW__PACE__INIT;
    pace.n = n;
    pace.step_s = step_s;
    pace.wait_s = wait_s;
    RUN_SAY(c, Progress, PROGRESS, false, RUN_BASE(progress), .from = &place, .pace = &pace,
            .n_batches = n + 1, .waiting = waits);
}

/* Two seconds: a point is taken. */
static void point(struct run *u)
{
    run_settle(u);
    run_pass(u, 1000);
    run_pass(u, 1000);
}

/* ---- how jobs went ---- */

static void test_points(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    run_worker(u, 4);
    struct run_peer *a = run_client(u, "job", 0, 2, 0), *b = run_client(u, "job", 1, 2, 0);
    /* what it did before this dispatcher knew it, if it did, is not of the first two seconds */
    progress(a, 1000, 70, 30, false);
    progress(b, 1000, 70, 30, false);
    point(u);
    assert_near(last(u, "rate"), 0);
    progress(a, 1010, 71.5, 30.5, false); /* ten batches, 0.15 s each; a quarter of the time it waited */
    progress(b, 1010, 70.5, 31.5, false); /* 0.05 s each; three quarters */
    point(u);
    assert_near(last(u, "rate"), 10);
    assert_near(last(u, "demand"), 1 / 0.15 + 1 / 0.05);
    assert_near(last(u, "waited"), 0.5);
    assert_near(last(u, "waited_most"), 0.75);
    assert_near(last(u, "workers"), 1);
    assert_true(isnan(last(u, "wanted"))); /* there is no policy */
    assert_near(rank_waited(u, 0), 0.25);
    assert_near(rank_waited(u, 1), 0.75);
    assert_near(metric(u, "rank_waiting_ratio"), 0.75);
    assert_near(metric(u, "rank_batches_total"), 20);
    assert_near(metric(u, "rank_wait_seconds_total"), 2);
    assert_near(metric(u, "rank_step_seconds_total"), 2);
    progress(a, 1010, 71.5, 30.5, true); /* got nothing, and waits; the other one steps */
    progress(b, 1010, 70.5, 31.5, false);
    point(u);
    assert_near(last(u, "rate"), 0);
    assert_near(last(u, "demand"), 1 / 0.15 + 1 / 0.05); /* as fast as they went last */
    assert_near(rank_waited(u, 0), 1);
    assert_near(rank_waited(u, 1), 0);
    run_free(u);
}

static void test_the_last_15_minutes_are_kept(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    for (uint64_t i = 1; i <= SERIES_POINTS + 50; i++) {
        progress(c, i, 0.1 * (double)i, 0, false);
        point(u);
    }
    json_t *h = ask(u, "jobs/job/history");
    const json_t *t = json_object_get(h, "t");
    assert_int_equal(json_array_size(t), SERIES_POINTS);
    assert_int_equal(json_array_size(json_object_get(h, "rate")), SERIES_POINTS);
    double first = json_number_value(json_array_get(t, 0)),
           end = json_number_value(json_array_get(t, SERIES_POINTS - 1));
    assert_near(end - first, 2.0 * (SERIES_POINTS - 1));
    assert_true(json_number_value(json_object_get(h, "uptime_s")) >= end);
    json_decref(h);
    run_free(u);
}

static void test_a_rank_that_is_gone_is_no_demand(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    run_worker(u, 4);
    struct run_peer *a = run_client(u, "job", 0, 2, 0), *b = run_client(u, "job", 1, 2, 0);
    for (uint64_t i = 1; i <= 2; i++) {
        progress(a, 10 * i, 1.0 * (double)i, 0, false);
        progress(b, 10 * i, 1.0 * (double)i, 0, false);
        point(u);
    }
    assert_near(last(u, "demand"), 20);
    run_lose(b);
    progress(a, 30, 3, 0, false);
    point(u);
    assert_near(last(u, "demand"), 10);
    assert_true(isnan(rank_waited(u, 1)));
    run_free(u);
}

/* ---- what happened ---- */

static void test_losses(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct run_peer *w = run_worker(u, 4), *leaves = run_worker(u, 4);
    run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 2, 0), *stops = run_client(u, "job", 1, 2, 0);
    point(u);
    uint64_t id = w->worker;
    run_lose(w);
    RUN_SAY(leaves, Draining, DRAINING, false, RUN_BASE(draining)); /* it says so: no loss */
    run_lose(leaves);
    run_detach(stops, false);
    run_lose(stops);
    run_lose(c);
    run_settle(u);
    json_t *h = ask(u, "jobs/job/history");
    const json_t *events = json_object_get(h, "events"), *first = json_array_get(events, 0),
                 *second = json_array_get(events, 1);
    assert_int_equal(json_array_size(events), 2);
    assert_string_equal(json_string_value(json_object_get(first, "kind")), "worker-gone");
    assert_int_equal(json_integer_value(json_object_get(first, "worker")), id);
    assert_string_equal(json_string_value(json_object_get(second, "kind")), "rank-gone");
    assert_int_equal(json_integer_value(json_object_get(second, "rank")), 0);
    json_decref(h);
    assert_near(metric(u, "workers_lost_total"), 1);
    run_free(u);
}

/* ---- computing time ---- */

static void beat(struct run_peer *w, const uint8_t stream[16], const char *name, uint64_t ns,
                 uint64_t elements)
{
    Cachew__OperatorWork operators[2] = {CACHEW__OPERATOR_WORK__INIT, CACHEW__OPERATOR_WORK__INIT},
                         *named[2] = {&operators[0], &operators[1]};
    Cachew__StreamWork work = CACHEW__STREAM_WORK__INIT, *list[] = {&work};
    operators[0].name = (char *)"decode";
    operators[0].ns = 1000000000;
    operators[0].elements = 10;
    operators[1].name = (char *)(uintptr_t)name;
    operators[1].ns = ns;
    operators[1].elements = elements;
    work.stream = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)stream};
    work.operators = named;
    work.n_operators = 2;
    work.read_ns = ns;
    work.read_bytes = elements;
    RUN_SAY(w, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .streams = list, .n_streams = 1);
}

/* compute_s of an operator of the only stream; NAN: there is none of this name. */
static double computed(struct run *u, const char *name)
{
    json_t *streams = ask(u, "streams"), *o;
    double found = NAN;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(json_array_get(streams, 0), "computing"), "operators"),
                       i, o)
    {
        if (strcmp(json_string_value(json_object_get(o, "name")), name) == 0)
            found = json_number_value(json_object_get(o, "compute_s"));
    }
    json_decref(streams);
    return found;
}

static void test_computing_time(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct run_peer *a = run_worker(u, 4), *b = run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    const uint8_t *stream = c->streams[0].id;
    beat(a, stream, "resize", 2000000000, 20);
    beat(b, stream, "resize", 3000000000, 30);
    assert_near(computed(u, "decode"), 2);
    assert_near(computed(u, "resize"), 5);
    beat(a, stream, "resize", 4500000000, 45);
    assert_near(computed(u, "resize"), 7.5);
    beat(a, stream, "resize", 500000000, 5); /* it began anew: from there on */
    beat(a, stream, "resize", 700000000, 7);
    assert_near(computed(u, "resize"), 7.7);
    beat(b, stream, "\xff\xfe", 1, 1); /* no name */
    beat(b, stream, "", 1, 1);
    for (int i = 0; i < 100; i++) { /* more of them than there can be */
        char name[40];
        snprintf(name, sizeof(name), "operator%d", i);
        beat(b, stream, name, 1000000000, 1);
    }
    json_t *streams = ask(u, "streams");
    assert_int_equal(json_array_size(json_object_get(json_object_get(json_array_get(streams, 0), "computing"),
                                                     "operators")),
                     64);
    json_decref(streams);
    run_lose(a); /* what it did is not forgotten */
    assert_near(computed(u, "resize"), 7.7);
    run_free(u);
}

/* A worker that comes back to a dispatcher that was started again, with all that it did before. */
static void test_computing_time_is_counted_once(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct run_peer *w = run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    uint8_t stream[16];
    memcpy(stream, c->streams[0].id, 16);
    run_settle(u);
    beat(w, stream, "resize", 5000000000, 50);
    assert_near(computed(u, "resize"), 5);
    run_lose(w);
    run_connect_as(u, w, CACHEW__ROLE__ROLE_WORKER);
    run_register(w);
    run_settle(u);
    beat(w, stream, "resize", 6000000000, 60);
    assert_near(computed(u, "resize"), 5);
    beat(w, stream, "resize", 6500000000, 65);
    assert_near(computed(u, "resize"), 5.5);
    run_free(u);
}

/* ---- caches ---- */

static void beat_cached(struct run_peer *w, const uint8_t stream[16], uint64_t positions, uint64_t cached)
{
    Cachew__StreamWork work = CACHEW__STREAM_WORK__INIT, *list[] = {&work};
    work.stream = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)stream};
    work.positions = positions;
    work.cached_positions = cached;
    RUN_SAY(w, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .streams = list, .n_streams = 1);
}

static void test_what_was_read_from_caches(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct run_peer *a = run_worker(u, 4), *b = run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    const uint8_t *stream = c->streams[0].id;
    point(u);
    beat_cached(a, stream, 100, 0);
    point(u);
    assert_true(isnan(last(u, "cached"))); /* nobody says that there is a cache */
    beat_cached(a, stream, 200, 80);
    beat_cached(b, stream, 300, 20);
    point(u);
    assert_near(last(u, "cached"), 0.25);
    beat_cached(a, stream, 250, 130);
    point(u);
    assert_near(last(u, "cached"), 1);
    point(u);
    assert_true(isnan(last(u, "cached")));   /* nothing came */
    beat_cached(a, stream, 251, UINT64_MAX); /* nonsense */
    point(u);
    assert_near(last(u, "cached"), 1);
    run_free(u);
}

/* A column of the history of the first worker as a list; the caller frees it. */
static json_t *worker_column(struct run *u, const char *what, const char *column)
{
    json_t *h = ask(u, what), *list = json_incref(json_object_get(h, column));
    assert_non_null(list);
    json_decref(h);
    return list;
}

static double worker_last(struct run *u, const char *column)
{
    json_t *list = worker_column(u, "workers/1/history", column);
    const json_t *value = json_array_get(list, json_array_size(list) - 1);
    double v = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(list);
    return v;
}

static void beat_usage(struct run_peer *w, const uint8_t *stream, uint64_t cpu_ms, uint64_t positions,
                       uint64_t hits, uint64_t misses)
{
    Cachew__StreamWork work = CACHEW__STREAM_WORK__INIT, *list[] = {&work};
    work.stream = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)stream, .len = 16};
    work.positions = positions;
    RUN_SAY(w, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .streams = list, .n_streams = 1,
            .cpu_ns = cpu_ms * 1000000, .memory_bytes = 1 << 20, .cache_hits = hits, .cache_misses = misses,
            .cache_bytes = 1000, .cache_used = 500);
}

static void test_history_of_a_worker(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct run_peer *w = run_worker(u, 4);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    const uint8_t *stream = c->streams[0].id;
    json_t *none = worker_column(u, "workers/1/history", "t");
    assert_int_equal(json_array_size(none), 0); /* it sent no heartbeat */
    json_decref(none);
    beat_usage(w, stream, 5000, 1000, 70, 30);
    point(u);
    assert_true(isnan(worker_last(u, "cpus"))); /* what was before is not of these two seconds */
    assert_true(isnan(worker_last(u, "elements_per_s")));
    assert_near(worker_last(u, "memory_in_use"), 1 << 20);
    beat_usage(w, stream, 8000, 1500, 100, 40);
    point(u);
    assert_near(worker_last(u, "cpus"), 1.5);
    assert_near(worker_last(u, "elements_per_s"), 250);
    assert_near(worker_last(u, "cache_part"), 0.75);
    assert_near(worker_last(u, "cache_used"), 500);
    beat_usage(w, stream, 0, 0, 0, 0); /* nonsense: sums do not fall */
    point(u);
    assert_near(worker_last(u, "cpus"), 0);
    assert_near(worker_last(u, "elements_per_s"), 0);
    assert_true(isnan(worker_last(u, "cache_part")));
    json_t *part = worker_column(u, "workers/1/history?from=3&to=5", "t");
    assert_int_equal(json_array_size(part), 1);
    json_decref(part);
    run_free(u);
}

/* Asserts that the newest lines of the first worker's log are these, and that there are n. */
static void assert_log(struct run *u, size_t n, const char *last_line)
{
    json_t *log = worker_column(u, "workers/1/history", "log");
    assert_int_equal(json_array_size(log), n);
    const json_t *line = json_array_get(log, n - 1);
    assert_string_equal(json_string_value(json_object_get(line, "text")), last_line);
    assert_true(json_is_real(json_object_get(line, "t")));
    json_decref(log);
}

static void test_log_of_a_worker(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct run_peer *w = run_worker(u, 4);
    char text[8][20], long_line[1000], cut[DP_LOG_BYTES] = "", *lines[8], *one = long_line, *bad = "\xff";
    for (int beat = 0; beat < 3; beat++) {
        for (int i = 0; i < 8; i++) {
            snprintf(text[i], sizeof(text[i]), "line %d", 8 * beat + i);
            lines[i] = text[i];
        }
        RUN_SAY(w, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .log = lines, .n_log = 8);
        run_settle(u);
        assert_log(u, beat < 2 ? 8 * ((size_t)beat + 1) : DP_LOG_LINES, text[7]);
    }
    memset(long_line, 'x', sizeof(long_line) - 1);
    long_line[sizeof(long_line) - 1] = '\0';
    memset(cut, 'x', sizeof(cut) - 1);
    memcpy(long_line + DP_LOG_BYTES - 2, "\u00e9", 2); /* a letter of two bytes is not divided */
    cut[DP_LOG_BYTES - 2] = '\0';
    RUN_SAY(w, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .log = &one, .n_log = 1);
    run_settle(u);
    assert_log(u, DP_LOG_LINES, cut);
    RUN_SAY(w, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .log = &bad, .n_log = 1);
    run_settle(u);
    assert_log(u, DP_LOG_LINES, "(not UTF-8)");
    run_free(u);
}

/* Member of the only job's bottleneck; the caller frees it. NULL: the bottleneck is null. */
static char *bottleneck(struct run *u, const char *member)
{
    json_t *jobs = ask(u, "jobs");
    const json_t *b = json_object_get(json_array_get(jobs, 0), "bottleneck");
    assert_non_null(b);
    char *text = json_is_null(b) ? NULL : strdup(json_string_value(json_object_get(b, member)));
    json_decref(jobs);
    return text;
}

static void assert_bottleneck(struct run *u, const char *kind, const char *says)
{
    char *a = bottleneck(u, "kind"), *b = bottleneck(u, "says"), *c = bottleneck(u, "remedy");
    assert_string_equal(a, kind);
    assert_string_equal(b, says);
    assert_true(*c);
    free(a);
    free(b);
    free(c);
}

static void test_bottlenecks(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct run_peer *c = run_client(u, "job", 0, 1, 0);
    assert_null(bottleneck(u, "kind")); /* nothing is known */
    point(u);
    assert_null(bottleneck(u, "kind"));    /* it waits for a worker, and does not run yet */
    struct run_peer *w = run_worker(u, 4); /* which may use two CPUs */
    point(u);
    const uint8_t *stream = c->streams[0].id;
    progress(c, 10, 1, 0, false);
    point(u);
    progress(c, 20, 2.96, 0.04, false); /* it waited 2 % */
    point(u);
    assert_bottleneck(u, "none", "nothing");
    beat_usage(w, stream, 1000, 100, 0, 0);
    run_pass(u, 1000);
    beat_usage(w, stream, 2750, 200, 0, 0);
    progress(c, 30, 3.5, 0.58, false);
    point(u);
    assert_bottleneck(u, "cpu", "CPUs of workers: 88 % in use");
    beat_usage(w, stream, 2950, 300, 0, 0);
    progress(c, 40, 4, 1.08, false);
    point(u);
    char *kind = bottleneck(u, "kind");
    assert_string_equal(kind, "waiting");
    free(kind);
    run_lose(w);
    progress(c, 50, 4.5, 1.58, true);
    point(u);
    assert_bottleneck(u, "no-worker", "no worker computes for it");
    run_free(u);
}

static void beat_store(struct run_peer *w, uint64_t hits, uint64_t misses, uint64_t quota)
{
    RUN_SAY(w, Heartbeat, HEARTBEAT, false, RUN_BASE(heartbeat), .cache_hits = hits, .cache_misses = misses,
            .cache_bytes = quota, .cache_used = 500, .cache_refused = 7, .cache_skipped = 8, .cache_bad = 9,
            .cache_late = 6);
}

/* A number of the only worker; NAN: null, or there is none. */
static double of_worker(struct run *u, const char *name)
{
    json_t *workers = ask(u, "workers"), *value = json_object_get(json_array_get(workers, 0), name);
    double v = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(workers);
    return v;
}

static void test_caches_of_workers(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct run_peer *w = run_worker(u, 4);
    beat_store(w, 0, 0, 0);
    assert_near(of_worker(u, "cache_hits"), 0);
    assert_true(isnan(of_worker(u, "cache_quota"))); /* it has none */
    run_pass(u, 1000);
    beat_store(w, 30, 10, 1000);
    assert_near(of_worker(u, "cache_quota"), 1000);
    assert_near(of_worker(u, "cache_used"), 500);
    assert_near(of_worker(u, "cache_refused"), 7);
    assert_near(of_worker(u, "cache_skipped"), 8);
    assert_near(of_worker(u, "cache_bad"), 9);
    assert_near(of_worker(u, "cache_late"), 6);
    assert_near(of_worker(u, "cache_hits_per_s"), 30);
    assert_near(of_worker(u, "cache_part"), 0.75);
    run_pass(u, 1000);
    beat_store(w, 30, 10, 1000);
    assert_near(of_worker(u, "cache_hits_per_s"), 0);
    assert_true(isnan(of_worker(u, "cache_part")));
    run_free(u);
}

static void test_questions(void **state)
{
    (void)state;
    struct run *u = run_new(100);
    struct cw_error err = {0};
    char *text = NULL;
    run_client(u, "a/history", 0, 1, 0);
    run_client(u, "b", 0, 1, 0);
    json_decref(ask(u, "jobs/a/history/history"));
    json_decref(ask(u, "jobs/a/history/decisions"));
    json_decref(ask(u, "jobs/a/history/history?from=-1&to=2.5"));
    json_decref(ask(u, "jobs/b/history?to=1e300"));
    static const char *const nonsense[] = {"jobs/a/history",
                                           "jobs//history",
                                           "jobs/history",
                                           "jobs/b/",
                                           "jobs/b",
                                           "history",
                                           "jobs/none/history",
                                           "workers/1/decisions",
                                           "workers/9/history",
                                           "workers//history",
                                           "workers/1x/history",
                                           "jobs/b/history?",
                                           "jobs/b/history?from=",
                                           "jobs/b/history?from=x",
                                           "jobs/b/history?from=1&from",
                                           "jobs/b/history?since=1",
                                           "jobs/b/history&from=1",
                                           "jobs/b/decisions?from=1"};
    for (size_t i = 0; i < CW_COUNT_OF(nonsense); i++)
        assert_int_equal(cw_dispatcher_query(u->d, nonsense[i], u->now_ns, &text, &err), CW_E_OPTION);
    run_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points),
        cmocka_unit_test(test_the_last_15_minutes_are_kept),
        cmocka_unit_test(test_a_rank_that_is_gone_is_no_demand),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_computing_time),
        cmocka_unit_test(test_computing_time_is_counted_once),
        cmocka_unit_test(test_what_was_read_from_caches),
        cmocka_unit_test(test_history_of_a_worker),
        cmocka_unit_test(test_log_of_a_worker),
        cmocka_unit_test(test_bottlenecks),
        cmocka_unit_test(test_caches_of_workers),
        cmocka_unit_test(test_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
