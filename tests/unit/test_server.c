/* The dispatcher as a server: real connections, a real journal, one loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macro.h"
#include "service/dispatcher/dispatcher.h"
#include "net/conn.h"

#define LONG_NS UINT64_C(3600000000000) /* both sides are in one process, which may stand still */

struct person {
    struct cw_loop *loop;
    struct cw_conn *conn;
    bool open, closed;
    char why[700];
    Cachew__Envelope *last[80]; /* by kind of message */
    unsigned seen[80];
};

static int on_open(void *user, struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    struct person *p = user;
    (void)c, (void)m, (void)err;
    p->open = true;
    cw_loop_stop(p->loop);
    return 0;
}

static int on_message(void *user, struct cw_conn *c, const Cachew__Envelope *m, void *payload, size_t size,
                      const int *fds, size_t n_fds, struct cw_error *err)
{
    struct person *p = user;
    (void)c, (void)payload, (void)size, (void)fds, (void)n_fds, (void)err;
    size_t packed_size = cachew__envelope__get_packed_size(m);
    uint8_t *packed = malloc(packed_size + 1);
    cachew__envelope__pack(m, packed);
    if (p->last[m->of_case])
        cachew__envelope__free_unpacked(p->last[m->of_case], NULL);
    p->last[m->of_case] = cachew__envelope__unpack(NULL, packed_size, packed);
    p->seen[m->of_case]++;
    free(packed);
    cw_loop_stop(p->loop);
    return 0;
}

static void on_closed(void *user, struct cw_conn *c, const struct cw_error *why)
{
    struct person *p = user;
    (void)c;
    p->conn = NULL;
    p->closed = true;
    snprintf(p->why, sizeof(p->why), "%s", why->message);
    cw_loop_stop(p->loop);
}

static const struct cw_conn_ops ops = {.open = on_open, .message = on_message, .closed = on_closed};

static void person_connect(struct person *p, struct cw_loop *l, const struct cw_dispatcher_server *s,
                           Cachew__Role role)
{
    uint8_t incarnation[16] = {(uint8_t)role, 1};
    Cachew__Hello hello = CACHEW__HELLO__INIT;
    hello.role = role;
    hello.name = (char *)"test";
    hello.incarnation = (ProtobufCBinaryData){16, incarnation};
    struct cw_conn_options o = {.hello = &hello, .limits = {1 << 20, 0, 1 << 20}, .timeout_ns = LONG_NS};
    struct cw_error err = {0};
    *p = (struct person){.loop = l};
    assert_int_equal(cw_conn_connect(l, cw_dispatcher_server_address(s), &o, &ops, p, &p->conn, &err), 0);
    while (!p->open && !p->closed)
        cw_loop_run(l);
    assert_true(p->open);
}

static void say(struct person *p, Cachew__Envelope__OfCase kind, void *what, uint64_t id, uint64_t re)
{
    struct cw_error err = {0};
    Cachew__Envelope m = CACHEW__ENVELOPE__INIT;
    m.of_case = kind;
    m.hello = what; /* any member of the union */
    m.id = id;
    m.re = re;
    assert_int_equal(cw_conn_send(p->conn, &m, NULL, 0, NULL, NULL, NULL, 0, &err), 0);
}

static Cachew__Envelope *await(struct person *p, Cachew__Envelope__OfCase kind, unsigned n)
{
    while (p->seen[kind] < n && !p->closed)
        cw_loop_run(p->loop);
    if (p->seen[kind] < n)
        fail_msg("waiting for message %d: %s", (int)kind, p->why);
    return p->last[kind];
}

static void person_close(struct person *p)
{
    if (p->conn)
        cw_conn_close(p->conn, NULL);
    while (!p->closed)
        cw_loop_run(p->loop);
    for (size_t i = 0; i < CW_COUNT_OF(p->last); i++)
        if (p->last[i])
            cachew__envelope__free_unpacked(p->last[i], NULL);
}

static struct cw_dispatcher_server *serve(struct cw_loop *l, const char *dir)
{
    struct cw_dispatcher_server *s = NULL;
    struct cw_error err = {0};
    const struct cw_dispatcher_server_options o = {
        .loop = l, .listen = "127.0.0.1:0", .state_dir = dir, .timeout_ns = LONG_NS};
    if (cw_dispatcher_server_start(&o, &s, &err) < 0)
        fail_msg("%s", err.message);
    return s;
}

static void worker_arrives(struct person *w)
{
    char *addresses[] = {(char *)"127.0.0.1:9"};
    Cachew__Register r = CACHEW__REGISTER__INIT;
    Cachew__Holdings holdings = CACHEW__HOLDINGS__INIT;
    r.addresses = addresses;
    r.n_addresses = 1;
    say(w, CACHEW__ENVELOPE__OF_REGISTER, &r, 1, 0);
    await(w, CACHEW__ENVELOPE__OF_REGISTERED, 1);
    say(w, CACHEW__ENVELOPE__OF_HOLDINGS, &holdings, 0, 0);
}

static void attach(struct person *c)
{
    uint8_t fingerprint[16] = {5};
    Cachew__Attach a = CACHEW__ATTACH__INIT;
    a.job = (char *)"job";
    a.world_size = 1;
    a.epochs = 1;
    a.fingerprint = (ProtobufCBinaryData){16, fingerprint};
    a.pipeline = (char *)"[]";
    a.base_dir = (char *)"/";
    say(c, CACHEW__ENVELOPE__OF_ATTACH, &a, 1, 0);
}

/* A job from its first message to a completed range; then another server from the same journal knows it, the
 * worker's id, and what the range gave. */
static void test_serves(void **state)
{
    char dir[] = "/tmp/cachew-server-XXXXXX", path[100];
    struct cw_loop *l = NULL;
    struct cw_error err = {0};
    struct person w, c;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(cw_loop_new(&l, &err), 0);
    struct cw_dispatcher_server *s = serve(l, dir);
    person_connect(&w, l, s, CACHEW__ROLE__ROLE_WORKER);
    person_connect(&c, l, s, CACHEW__ROLE__ROLE_CLIENT);
    worker_arrives(&w);
    uint64_t id = w.last[CACHEW__ENVELOPE__OF_REGISTERED]->registered->worker;
    attach(&c);
    Cachew__Envelope *asked = await(&w, CACHEW__ENVELOPE__OF_PREPARE, 1);
    assert_string_equal(asked->prepare->pipeline, "[]");
    Cachew__Plan plan = CACHEW__PLAN__INIT;
    Cachew__Prepared prepared = CACHEW__PREPARED__INIT;
    plan.n_positions = 30;
    plan.align = 1;
    plan.n_keys = 1;
    plan.sequential = true;
    plan.snapshot = 4;
    prepared.stream = asked->prepare->stream;
    prepared.plan = &plan;
    prepared.capacity = 1;
    say(&w, CACHEW__ENVELOPE__OF_PREPARED, &prepared, 0, asked->id);
    assert_int_equal(await(&c, CACHEW__ENVELOPE__OF_ATTACHED, 1)->attached->plan->n_positions, 30);
    const Cachew__Leases *leases = await(&w, CACHEW__ENVELOPE__OF_LEASES, 1)->leases;
    assert_int_equal(leases->n_ranges, 1);
    uint64_t lease = leases->ranges[0]->lease;
    assert_string_equal(await(&c, CACHEW__ENVELOPE__OF_WORKERS, 1)->workers->workers[0]->addresses[0],
                        "127.0.0.1:9");
    assert_int_equal(await(&c, CACHEW__ENVELOPE__OF_PLACEMENTS, 1)->placements->placements[0]->worker, id);
    Cachew__Report report = CACHEW__REPORT__INIT;
    Cachew__Completed completed = CACHEW__COMPLETED__INIT;
    report.end = 30;
    report.n_batches = 17;
    completed.stream = prepared.stream;
    completed.report = &report;
    completed.lease = lease;
    say(&w, CACHEW__ENVELOPE__OF_COMPLETED, &completed, 2, 0);
    assert_int_equal(await(&w, CACHEW__ENVELOPE__OF_DONE, 1)->re, 2);
    assert_int_equal(await(&c, CACHEW__ENVELOPE__OF_REPORTS, 1)->reports->reports[0]->n_batches, 17);

    cw_dispatcher_server_free(s);
    person_close(&c);
    person_close(&w);
    s = serve(l, dir);
    person_connect(&c, l, s, CACHEW__ROLE__ROLE_CLIENT);
    attach(&c);
    assert_int_equal(await(&c, CACHEW__ENVELOPE__OF_REPORTS, 1)->reports->reports[0]->n_batches, 17);
    person_connect(&w, l, s, CACHEW__ROLE__ROLE_WORKER);
    worker_arrives(&w);
    assert_int_equal(w.last[CACHEW__ENVELOPE__OF_REGISTERED]->registered->worker, id);
    cw_dispatcher_server_free(s);
    person_close(&c);
    person_close(&w);
    cw_loop_free(l);
    static const char *const files[] = {"journal.db", "journal.db-wal"};
    for (size_t i = 0; i < CW_COUNT_OF(files); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* The command line asks; what it has no business to say ends its connection, with the reason, and nobody
 * else's. */
static void test_admin_client(void **state)
{
    struct cw_loop *l = NULL;
    struct cw_error err = {0};
    struct person o, bad;
    (void)state;
    assert_int_equal(cw_loop_new(&l, &err), 0);
    struct cw_dispatcher_server *s = serve(l, NULL);
    person_connect(&o, l, s, CACHEW__ROLE__ROLE_ADMIN_CLIENT);
    person_connect(&bad, l, s, CACHEW__ROLE__ROLE_ADMIN_CLIENT);
    attach(&bad);
    while (!bad.closed)
        cw_loop_run(l);
    assert_non_null(strstr(bad.why, "which an admin client does not send"));
    Cachew__Query q = CACHEW__QUERY__INIT;
    q.what = (char *)"status";
    say(&o, CACHEW__ENVELOPE__OF_QUERY, &q, 1, 0);
    assert_non_null(
        strstr(await(&o, CACHEW__ENVELOPE__OF_ANSWER, 1)->answer->json, "\"role\":\"dispatcher\""));
    person_close(&bad);
    person_close(&o);
    cw_dispatcher_server_free(s);
    cw_loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_serves), cmocka_unit_test(test_admin_client)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
