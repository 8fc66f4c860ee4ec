/*
 * A worker among a dispatcher and clients that are the test's: they live on one loop, run by the test's
 * thread until what it waits for has happened. Include after cmocka.h.
 */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "session/local.h"
#include "net/conn.h"
#include "remote/wire.h"
#include "ops/table.h"
#include "service/worker/worker.h"

#include "data_files.h"

#define PATIENCE_NS \
    UINT64_C(900000000000) /* longer than anything takes, on however slow a machine: then the test failed. \
                              No peer is given up sooner */
#define N_STREAMS 4

/* A message that came, whole. */
struct got {
    struct got *next;
    Cachew__Envelope *m;
    void *payload;
    size_t size;
};

struct mapped {
    uint64_t region;
    uint8_t *data;
    size_t size;
};

struct fake {
    struct cw_conn *conn;
    bool open, closed;
    unsigned n_closed;
    struct cw_error why;
    struct got *got, **tail;
    struct mapped mapped[16];
    size_t n_mapped;
    uint64_t next_id;
    bool dead_slow; /* dispatcher: completions are not acknowledged */
};

static struct cw_loop *loop;
static struct cw_timer *guard;
static bool hung;
static struct fake dispatcher, clients[3];
static bool wrong_fingerprint;
static uint8_t fake_incarnation = 1; /* of those that connect */
static struct cw_listener *dispatcher_listener;
static struct cw_worker *worker;
static char dispatcher_address[128];
static unsigned n_registered, n_holdings, n_completed, n_failed_streams;
static Cachew__Envelope *last_holdings;

static void fake_init(struct fake *f)
{
    *f = (struct fake){0};
    f->tail = &f->got;
}

static void got_free(struct got *g)
{
    if (!g)
        return;
    cachew__envelope__free_unpacked(g->m, NULL);
    free(g->payload);
    free(g);
}

static void fake_drop(struct fake *f)
{
    while (f->got) {
        struct got *g = f->got;
        f->got = g->next;
        got_free(g);
    }
    f->tail = &f->got;
    for (size_t i = 0; i < f->n_mapped; i++)
        munmap(f->mapped[i].data, f->mapped[i].size);
    f->n_mapped = 0;
}

static Cachew__Envelope *copy_envelope(const Cachew__Envelope *m)
{
    size_t n = cachew__envelope__get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    cachew__envelope__pack(m, bytes);
    Cachew__Envelope *c = cachew__envelope__unpack(NULL, n, bytes);
    assert_non_null(c);
    free(bytes);
    return c;
}

static int fake_payload(void *user CW_UNUSED, struct cw_conn *c CW_UNUSED,
                        const Cachew__Envelope *m CW_UNUSED, size_t size, void **ret,
                        struct cw_error *err CW_UNUSED)
{
    *ret = aligned_alloc(64, CW_ALIGN_UP(size, (size_t)64));
    assert_non_null(*ret);
    return 0;
}

static void fake_abandoned(void *user CW_UNUSED, struct cw_conn *c CW_UNUSED, void *payload)
{
    free(payload);
}

static void answer(struct fake *f, uint64_t re, Cachew__Envelope *m)
{
    struct cw_error err = {0};
    m->re = re;
    if (cw_conn_send(f->conn, m, NULL, 0, NULL, NULL, NULL, 0, &err) < 0)
        print_message("the answer was not sent: %s\n", err.message);
}

/* What a dispatcher answers at once. */
static void dispatcher_answers(struct fake *f, const Cachew__Envelope *m)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Registered registered = CACHEW__REGISTERED__INIT;
    Cachew__Done done = CACHEW__DONE__INIT;
    if (m->of_case == CACHEW__ENVELOPE__OF_REGISTER) {
        n_registered++;
        registered.worker = 7;
        e.of_case = CACHEW__ENVELOPE__OF_REGISTERED;
        e.registered = &registered;
        answer(f, m->id, &e);
    } else if (m->of_case == CACHEW__ENVELOPE__OF_COMPLETED) {
        n_completed++;
        e.of_case = CACHEW__ENVELOPE__OF_DONE;
        e.done = &done;
        if (!f->dead_slow)
            answer(f, m->id, &e);
    } else if (m->of_case == CACHEW__ENVELOPE__OF_HOLDINGS) {
        n_holdings++;
        if (last_holdings)
            cachew__envelope__free_unpacked(last_holdings, NULL);
        last_holdings = copy_envelope(m);
    }
    n_failed_streams += m->of_case == CACHEW__ENVELOPE__OF_STREAM_FAILED;
}

static void map_region(struct fake *f, const Cachew__Region *m, const int *fds, size_t n_fds)
{
    assert_int_equal(n_fds, 1);
    assert_true(f->n_mapped < CW_COUNT_OF(f->mapped));
    for (size_t i = 0; i < f->n_mapped; i++)
        assert_true(f->mapped[i].region != m->region); /* said once */
    void *data = mmap(NULL, m->size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fds[0], 0);
    assert_true(data != MAP_FAILED);
    f->mapped[f->n_mapped++] = (struct mapped){.region = m->region, .data = data, .size = m->size};
}

static int fake_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m, void *payload,
                        size_t size, const int *fds, size_t n_fds, struct cw_error *err CW_UNUSED)
{
    struct fake *f = user;
    if (f == &dispatcher)
        dispatcher_answers(f, m);
    if (m->of_case == CACHEW__ENVELOPE__OF_REGION) {
        map_region(f, m->region, fds, n_fds);
    } else if (m->of_case != CACHEW__ENVELOPE__OF_HEARTBEAT) {
        struct got *g = calloc(1, sizeof(*g));
        *g = (struct got){.m = copy_envelope(m), .payload = payload, .size = size};
        payload = NULL;
        *f->tail = g;
        f->tail = &g->next;
    }
    free(payload);
    cw_loop_stop(loop);
    return 0;
}

static void fake_closed(void *user, struct cw_conn *c, const struct cw_error *why)
{
    struct fake *f = user;
    if (f->conn != c)
        return; /* it has another one */
    f->conn = NULL;
    f->open = false;
    f->closed = true;
    f->n_closed++;
    f->why = *why;
    cw_loop_stop(loop);
}

static int fake_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer CW_UNUSED,
                     struct cw_error *err CW_UNUSED)
{
    struct fake *f = user;
    f->conn = c;
    f->open = true;
    f->closed = false;
    cw_loop_stop(loop);
    return 0;
}

static const struct cw_conn_ops fake_ops = {.open = fake_open,
                                            .payload = fake_payload,
                                            .abandoned = fake_abandoned,
                                            .message = fake_message,
                                            .closed = fake_closed};

static void on_guard(void *arg CW_UNUSED)
{
    hung = true;
    cw_loop_stop(loop);
}

static void on_poke(void *arg CW_UNUSED)
{
    cw_loop_stop(loop);
}

/* Runs the loop until then; what happens in the worker only is looked at now and then. */
#define run_until(condition) \
    do { \
        struct cw_timer *poke_ = NULL; \
        assert_int_equal(cw_timer_new(loop, on_poke, NULL, &poke_, NULL), 0); \
        cw_timer_start(poke_, 2000000, 2000000); \
        cw_timer_start(guard, PATIENCE_NS, 0); \
        while (!(condition) && !hung) \
            cw_loop_run(loop); \
        cw_timer_stop(guard); \
        cw_timer_free(poke_); \
        if (hung) { \
            hung = false; \
            fail_msg("hung at line %d, waiting for %s", __LINE__, #condition); \
        } \
    } while (0)

static struct cw_conn_options fake_options(Cachew__Hello *hello, Cachew__Role role, bool shared)
{
    static char *capabilities[] = {(char *)(uintptr_t)"shm"};
    static uint8_t incarnation[16];
    incarnation[0] = fake_incarnation;
    static char host[80];
    cw_host_identity(host);
    cachew__hello__init(hello);
    hello->role = role;
    hello->host = host;
    hello->incarnation = (ProtobufCBinaryData){.data = incarnation, .len = 16};
    hello->capabilities = capabilities;
    hello->n_capabilities = shared;
    return (struct cw_conn_options){.hello = hello,
                                    .limits = {.message = (size_t)32 << 20, .payload = (size_t)1 << 30},
                                    .timeout_ns = PATIENCE_NS};
}

static void dispatcher_listen(void)
{
    Cachew__Hello hello;
    struct cw_error err = {0};
    struct cw_conn_options o = fake_options(&hello, CACHEW__ROLE__ROLE_DISPATCHER, false);
    if (cw_listener_new(loop, dispatcher_address, &o, &fake_ops, &dispatcher, &dispatcher_listener, &err) < 0)
        fail_msg("%s", err.message);
}

static void log_line(void *arg CW_UNUSED, const char *message)
{
    if (getenv("WORKER_LOG"))
        fprintf(stderr, "worker: %s\n", message);
}

static struct cw_worker_options worker_defaults(void)
{
    return (struct cw_worker_options){.dispatcher = dispatcher_address,
                                      .listen = "127.0.0.1:0",
                                      .name = "w",
                                      .threads = 2,
                                      .memory = (size_t)256 << 20,
                                      .index_dir = temp_dir,
                                      .log = log_line,
                                      .timeout_ns = PATIENCE_NS};
}

static void worker_start(const struct cw_worker_options *o)
{
    struct cw_error err = {0};
    if (cw_worker_start(o, &worker, &err) < 0)
        fail_msg("%s", err.message);
    run_until(n_registered);
}

static struct cw_worker_status status_now(void)
{
    struct cw_worker_status s;
    cw_worker_status(worker, &s);
    return s;
}

static int world_setup(void **state)
{
    struct cw_error err = {0};
    (void)state;
    hung = false;
    setenv("CACHEW_RANGE_S", "1000", 1); /* no range ends early because a test takes long */
    fake_incarnation = 1;
    n_registered = n_holdings = n_completed = n_failed_streams = 0;
    fake_init(&dispatcher);
    for (size_t i = 0; i < CW_COUNT_OF(clients); i++)
        fake_init(&clients[i]);
    assert_int_equal(cw_loop_new(&loop, &err), 0);
    assert_int_equal(cw_timer_new(loop, on_guard, NULL, &guard, &err), 0);
    snprintf(dispatcher_address, sizeof(dispatcher_address), "unix:%s/dispatcher", temp_dir);
    dispatcher_listen();
    return 0;
}

static void fake_close(struct fake *f)
{
    if (!f->conn)
        return;
    unsigned before = f->n_closed;
    cw_conn_close(f->conn, NULL);
    run_until(f->n_closed > before); /* the peer may have connected again by then */
}

static int world_teardown(void **state)
{
    (void)state;
    dispatcher_listener = cw_listener_free(dispatcher_listener);
    for (size_t i = 0; i < CW_COUNT_OF(clients); i++)
        fake_close(&clients[i]);
    fake_close(&dispatcher);
    worker = cw_worker_stop(worker);
    guard = cw_timer_free(guard);
    loop = cw_loop_free(loop);
    fake_drop(&dispatcher);
    for (size_t i = 0; i < CW_COUNT_OF(clients); i++)
        fake_drop(&clients[i]);
    if (last_holdings)
        cachew__envelope__free_unpacked(last_holdings, NULL);
    last_holdings = NULL;
    return 0;
}

enum transport { SHARED, LOCAL, TCP };

static void client_connect(struct fake *f, enum transport t)
{
    Cachew__Hello hello;
    struct cw_error err = {0};
    char address[256];
    struct cw_conn_options o = fake_options(&hello, CACHEW__ROLE__ROLE_CLIENT, t == SHARED);
    snprintf(address, sizeof(address), "unix:%s", cw_worker_unix_path(worker));
    if (cw_conn_connect(loop, t == TCP ? cw_worker_address(worker) : address, &o, &fake_ops, f, &f->conn,
                        &err) < 0)
        fail_msg("%s", err.message);
    run_until(f->open);
}

/* ---- messages to the worker ---- */

static void send_message(struct fake *f, Cachew__Envelope *m)
{
    struct cw_error err = {0};
    if (cw_conn_send(f->conn, m, NULL, 0, NULL, NULL, NULL, 0, &err) < 0)
        fail_msg("%s", err.message);
}

static ProtobufCBinaryData stream_name(unsigned stream)
{
    static uint8_t names[N_STREAMS][16];
    names[stream][0] = (uint8_t)(stream + 1);
    return (ProtobufCBinaryData){.data = names[stream], .len = 16};
}

static uint64_t send_prepare(unsigned stream, const char *chain, uint64_t seed)
{
    char text[4000];
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Prepare m = CACHEW__PREPARE__INIT;
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [%s]}", chain);
    m.stream = stream_name(stream);
    m.pipeline = chain[0] == '{' && strstr(chain, "\"cachew\"") ? (char *)(uintptr_t)chain : text;
    m.base_dir = temp_dir;
    m.seed = seed;
    uint8_t fingerprint[16] = {0};
    struct cw_pipeline *p;
    if (!wrong_fingerprint &&
        cw_pipeline_parse(cw_ops(), m.pipeline, strlen(m.pipeline), temp_dir, &p, NULL) >= 0) {
        memcpy(fingerprint, &p->fingerprint, sizeof(fingerprint));
        cw_pipeline_unref(p);
    }
    m.fingerprint = (ProtobufCBinaryData){.data = fingerprint, .len = sizeof(fingerprint)};
    e.id = ++dispatcher.next_id;
    e.of_case = CACHEW__ENVELOPE__OF_PREPARE;
    e.prepare = &m;
    send_message(&dispatcher, &e);
    return e.id;
}

/* Ranges that tests lease are numbered: range i of a stream is its positions i * size .. (i + 1) * size - 1,
 * as far as there are so many. */
static struct cut {
    uint64_t size, n_positions, align; /* align: as in Plan */
} cuts[N_STREAMS];

static Cachew__Range cut_range(unsigned stream, uint64_t epoch, uint64_t first, uint64_t n)
{
    const struct cut *c = &cuts[stream];
    Cachew__Range r = CACHEW__RANGE__INIT;
    r.epoch = epoch;
    r.begin = first * c->size;
    r.end = CW_MIN((first + n) * c->size, c->n_positions);
    return r;
}

static void send_lease_of(unsigned stream, const Cachew__Range *range, uint64_t from)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Leases m = CACHEW__LEASES__INIT;
    static uint64_t number;
    Cachew__Range numbered = *range, *list = &numbered;
    numbered.lease = ++number;
    m.stream = stream_name(stream);
    m.ranges = &list;
    m.from = &from;
    m.n_ranges = m.n_from = 1;
    e.of_case = CACHEW__ENVELOPE__OF_LEASES;
    e.leases = &m;
    send_message(&dispatcher, &e);
}

/* batch: the first that anybody needs of each. */
static void send_lease(unsigned stream, uint64_t epoch, uint64_t first, uint64_t n, uint64_t batch)
{
    for (uint64_t i = first; i < first + n; i++) {
        Cachew__Range range = cut_range(stream, epoch, i, 1);
        send_lease_of(stream, &range, range.begin + CW_MIN(batch, range.end) * cuts[stream].align);
    }
}

static void send_revoke_of(unsigned stream, const Cachew__Range *range)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Revoke m = CACHEW__REVOKE__INIT;
    Cachew__Range *list = (Cachew__Range *)(uintptr_t)range;
    m.stream = stream_name(stream);
    m.positions = &list;
    m.n_positions = 1;
    e.of_case = CACHEW__ENVELOPE__OF_REVOKE;
    e.revoke = &m;
    send_message(&dispatcher, &e);
}

static void send_revoke(unsigned stream, uint64_t epoch, uint64_t first, uint64_t n)
{
    Cachew__Range range = cut_range(stream, epoch, first, n);
    send_revoke_of(stream, &range);
}

static void send_forget(unsigned stream)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Forget m = CACHEW__FORGET__INIT;
    m.stream = stream_name(stream);
    e.of_case = CACHEW__ENVELOPE__OF_FORGET;
    e.forget = &m;
    send_message(&dispatcher, &e);
}

static uint64_t send_want(struct fake *f, unsigned stream, uint64_t epoch, uint64_t range, Cachew__What what,
                          uint32_t key, uint64_t first, uint64_t count)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Get m = CACHEW__GET__INIT;
    m.stream = stream_name(stream);
    m.epoch = epoch;
    m.begin = range * CW_MAX(cuts[stream].size, 1);
    m.what = what;
    m.key = key;
    m.first = first;
    m.count = count;
    e.id = ++f->next_id;
    e.of_case = CACHEW__ENVELOPE__OF_GET;
    e.get = &m;
    send_message(f, &e);
    return e.id;
}

/* Batches first .. first + count - 1 of a range. */
static uint64_t send_get(struct fake *f, unsigned stream, uint64_t epoch, uint64_t range, uint64_t first,
                         uint64_t count)
{
    return send_want(f, stream, epoch, range, CACHEW__WHAT__WHAT_BATCHES, 0, first, count);
}

static void send_return(struct fake *f, const uint64_t *slabs, size_t n)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Return m = CACHEW__RETURN__INIT;
    m.slabs = (uint64_t *)(uintptr_t)slabs;
    m.n_slabs = n;
    e.of_case = CACHEW__ENVELOPE__OF_RETURN_SLABS;
    e.return_slabs = &m;
    send_message(f, &e);
}

/* Of regions that came over an earlier connection (n_regions 0: over this one), only these slabs are in use.
 */
CW_UNUSED static void send_keep(struct fake *f, const uint64_t *regions, size_t n_regions,
                                const uint64_t *slabs, size_t n_slabs)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Keep m = CACHEW__KEEP__INIT;
    m.regions = (uint64_t *)(uintptr_t)regions;
    m.n_regions = n_regions;
    m.slabs = (uint64_t *)(uintptr_t)slabs;
    m.n_slabs = n_slabs;
    e.of_case = CACHEW__ENVELOPE__OF_KEEP;
    e.keep = &m;
    send_message(f, &e);
}

/* ---- messages from the worker ---- */

static struct got *find_got(struct fake *f, bool (*fits)(const Cachew__Envelope *m, uint64_t x, uint64_t y),
                            uint64_t x, uint64_t y)
{
    for (struct got *g = f->got; g; g = g->next)
        if (fits(g->m, x, y))
            return g;
    return NULL;
}

static struct got *take_got(struct fake *f, struct got *g)
{
    struct got **at = &f->got;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    if (f->tail == &g->next)
        f->tail = at;
    return g;
}

static bool is_answer(const Cachew__Envelope *m, uint64_t re, uint64_t y CW_UNUSED)
{
    return m->re == re;
}

CW_UNUSED static bool is_kind(const Cachew__Envelope *m, uint64_t kind, uint64_t y CW_UNUSED)
{
    return (uint64_t)m->of_case == kind;
}

static bool is_report(const Cachew__Envelope *m, uint64_t epoch, uint64_t begin)
{
    return m->of_case == CACHEW__ENVELOPE__OF_COMPLETED && m->completed->report->epoch == epoch &&
           m->completed->report->begin == begin;
}

static struct got *wait_got(struct fake *f, bool (*fits)(const Cachew__Envelope *m, uint64_t x, uint64_t y),
                            uint64_t x, uint64_t y)
{
    struct got *g = NULL;
    run_until((g = find_got(f, fits, x, y)) || f->closed);
    if (!g)
        fail_msg("the connection ended: %s", f->why.message);
    return take_got(f, g);
}

static void give_back(struct fake *f, const struct got *g)
{
    uint64_t slabs[2];
    size_t n = g->m->batch->n_slabs;
    assert_true(n <= 2);
    for (size_t i = 0; i < n; i++)
        slabs[i] = g->m->batch->slabs[i]->slab;
    if (n && f->conn)
        send_return(f, slabs, n);
}
