/*
 * The dispatcher's core among fake peers, a fake journal and a fake clock. Workers answer Prepare, keep what
 * they were leased, and complete what the test says; clients remember what they were told. Nothing happens by
 * itself: run_settle lets messages and commits go through.
 *
 * Positions are counted in units of RUN_UNIT positions (or run.unit), through the epochs: where nothing else
 * is said, each range has just one unit.
 */
#pragma once
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "service/dispatcher/core.h"

#define RUN_UNIT 10    /* positions */
#define RUN_UNITS 4096 /* that a test uses at most */
#define RUN_ENDLESS (UINT64_C(1) << 62)
#define RUN_PEERS 64
#define RUN_STREAMS 20

struct run_row {
    uint8_t key[300], *value;
    size_t key_size, value_size;
};

struct run_stream { /* what a worker has, or a client knows, of a stream */
    uint8_t id[16];
    bool used;
    uint8_t held[RUN_UNITS];   /* 1: a range begins with this unit; 2: it goes on */
    bool done[RUN_UNITS];      /* it said so, of a range that it has */
    uint64_t from[RUN_UNITS];  /* as leased: positions of the range that nobody needs */
    uint64_t lease[RUN_UNITS]; /* its number */
};

struct run_peer {
    struct run *run;
    bool used, closed;
    Cachew__Role role;
    struct cw_peer *peer;
    uint8_t incarnation[16];
    char why[700];
    Cachew__Envelope *in[4096]; /* all that came, oldest first */
    size_t n_in, at;            /* at: handled up to here */
    uint64_t last_id;
    /* worker */
    uint64_t worker, snapshot, most;
    uint64_t origin; /* id of the worker that is the origin, from the last Leases; 0: none was named */
    uint32_t capacity, max_streams;
    const char *file;           /* of the data; its key is the snapshot */
    const char *name, *pool;    /* NULL: "fake", none */
    const char *fails;          /* Prepare is answered with this */
    bool registered;            /* on this connection */
    bool silent, forgot, drain; /* silent: does not answer Prepare */
    bool budget;                /* what fails is its memory */
    unsigned n_prepares;
    uint64_t prepare_id; /* of the last Prepare, and its stream */
    uint8_t prepare_stream[16];
    struct run_stream streams[RUN_STREAMS];
    /* client */
    bool attached, ended;
    uint64_t placed[RUN_UNITS]; /* worker + 1 of a unit; 0: nothing was said */
    bool lost[RUN_UNITS];
    uint64_t reports[RUN_UNITS], n_reports[RUN_UNITS]; /* by the unit that the range begins with */
    uint64_t report_end[RUN_UNITS];
    uint64_t first_report, next_report;
    uint64_t cursor;
    char failure[700], attribute[64], value[128], expected[256];
    char lagging[64], held_by[800]; /* what it was told of other ranks, and that keeps it */
    bool paused;
};

struct run {
    struct cw_dispatcher *d;
    uint64_t now_ns, n_units; /* n_units: of an epoch; RUN_ENDLESS */
    /* positions of a range, at most; of the last unit of an epoch, so many are not there */
    uint64_t most, missing;
    uint64_t unit, align;    /* positions of a unit; positions of a batch of a counted pipeline */
    uint32_t n_keys, depth;  /* depth: ranges of a worker at a time, by which its capacity is bounded */
    bool sequential, origin; /* as the plan has them */
    bool last;               /* what is completed is the end of its epoch */
    struct run_row *rows;    /* durable, by key */
    size_t n_rows;
    const struct cw_store_batch *batch;
    bool hold; /* commits wait for run_commit */
    bool full; /* they fail */
    size_t n_commits;
    struct run_peer peers[RUN_PEERS];
    char log[8192];
    void (*seen)(struct run_peer *p, const Cachew__Envelope *m); /* called with each message, if set */
};

/* Who decides how many workers a job gets, in runs that are started from now on; NULL: nobody. */
CW_UNUSED static const struct cw_policy *run_policy;

/* Around every call of the dispatcher (true), and around what it calls (false): for tests that let its
 * allocations fail. */
static void (*run_inside)(bool in);

static void run_in(bool in)
{
    if (run_inside)
        run_inside(in);
}

#define RUN_CALL(call) \
    __extension__({ \
        run_in(true); \
        __typeof__(call) result_ = (call); \
        run_in(false); \
        result_; \
    })
#define RUN_CALL_VOID(call) \
    do { \
        run_in(true); \
        (call); \
        run_in(false); \
    } while (0)

/* ---- journal ---- */

static int run_compare(const struct run_row *row, const uint8_t *key, size_t size)
{
    int c = memcmp(row->key, key, CW_MIN(row->key_size, size));
    return c != 0 ? c : row->key_size < size ? -1 : row->key_size > size;
}

static void run_delete(struct run *u, size_t i)
{
    free(u->rows[i].value);
    memmove(u->rows + i, u->rows + i + 1, (u->n_rows - i - 1) * sizeof(*u->rows));
    u->n_rows--;
}

static void run_apply(struct run *u, const struct cw_store_op *op)
{
    size_t i = 0;
    while (i < u->n_rows && run_compare(&u->rows[i], op->key, op->key_size) < 0)
        i++;
    bool there = i < u->n_rows && run_compare(&u->rows[i], op->key, op->key_size) == 0;
    if (op->kind == CW_STORE_DELETE_RANGE) {
        while (i < u->n_rows && run_compare(&u->rows[i], op->value, op->value_size) < 0)
            run_delete(u, i);
    } else if (op->kind == CW_STORE_DELETE) {
        if (there)
            run_delete(u, i);
    } else {
        if (there)
            run_delete(u, i);
        u->rows = realloc(u->rows, (u->n_rows + 1) * sizeof(*u->rows));
        memmove(u->rows + i + 1, u->rows + i, (u->n_rows - i) * sizeof(*u->rows));
        struct run_row *row = &u->rows[i];
        memcpy(row->key, op->key, op->key_size);
        row->key_size = op->key_size;
        row->value = malloc(op->value_size + 1);
        memcpy(row->value, op->value, op->value_size);
        row->value_size = op->value_size;
        u->n_rows++;
    }
}

CW_UNUSED static size_t run_count(const struct run *u, char kind)
{
    size_t n = 0;
    for (size_t i = 0; i < u->n_rows; i++)
        n += u->rows[i].key[0] == kind;
    return n;
}

/* ---- io ---- */

static void run_send(void *user, void *const *peers, size_t n, const Cachew__Envelope *m)
{
    size_t size = cachew__envelope__get_packed_size(m);
    (void)user;
    run_in(false);
    uint8_t *packed = malloc(size + 1);
    cachew__envelope__pack(m, packed);
    for (size_t i = 0; i < n; i++) {
        struct run_peer *p = peers[i];
        assert_true(p->used && !p->closed);
        assert_true(p->n_in < CW_COUNT_OF(p->in));
        p->in[p->n_in++] = cachew__envelope__unpack(NULL, size, packed);
    }
    free(packed);
    run_in(true);
}

static void run_closed(void *user, void *peer, const struct cw_error *why)
{
    struct run_peer *p = peer;
    (void)user;
    p->closed = true;
    snprintf(p->why, sizeof(p->why), "%s", why->message);
}

static void run_begin_commit(void *user, const struct cw_store_batch *batch)
{
    struct run *u = user;
    assert_null(u->batch);
    u->batch = batch;
}

static void run_log(void *user, bool warning, const char *text)
{
    struct run *u = user;
    size_t size = strlen(u->log);
    if (size > sizeof(u->log) / 2)
        size = 0;
    snprintf(u->log + size, sizeof(u->log) - size, "%s%s\n", warning ? "! " : "", text);
    if (getenv("RUN_LOG"))
        fprintf(stderr, "%s%s\n", warning ? "! " : "", text);
}

static void run_commit(struct run *u)
{
    struct cw_error err = {0};
    struct cw_store_op op;
    assert_non_null(u->batch);
    const struct cw_store_batch *batch = u->batch;
    u->batch = NULL;
    if (u->full)
        cw_error_set(&err, CW_E_IO, "the disk is full");
    for (size_t at = 0; !u->full && cw_store_batch_next(batch, &at, &op);)
        run_apply(u, &op);
    u->n_commits++;
    RUN_CALL_VOID(cw_dispatcher_committed(u->d, u->full ? &err : NULL, u->now_ns));
}

static void run_start_shared(struct run *u, bool share)
{
    struct cw_error err = {0};
    struct cw_dispatcher_options o = {.name = "test",
                                      .share_streams = share,
                                      .depth = u->depth,
                                      .policy = run_policy,
                                      .client_price_per_h = 5,
                                      .worker_price_per_h = 0.4};
    struct cw_dispatcher_io io = {
        .user = u, .send = run_send, .close = run_closed, .commit = run_begin_commit, .log = run_log};
    int r;
    do { /* again only where memory was refused */
        u->d = cw_dispatcher_free(u->d);
        r = RUN_CALL(cw_dispatcher_new(&o, &io, &u->d, &err));
        for (size_t i = 0; r == 0 && i < u->n_rows; i++) {
            r = RUN_CALL(cw_dispatcher_load(u->d, u->rows[i].key, u->rows[i].key_size, u->rows[i].value,
                                            u->rows[i].value_size, &err));
            if (r == CW_E_DATA) { /* the entry is left out, as the server does */
                run_log(u, true, err.message);
                r = 0;
            }
        }
    } while (r < 0 && run_inside);
    if (r < 0)
        fail_msg("%s", err.message);
    RUN_CALL_VOID(cw_dispatcher_start(u->d, u->now_ns));
}

static void run_start(struct run *u)
{
    run_start_shared(u, false);
}

static void run_peer_clear(struct run_peer *p)
{
    for (size_t i = 0; i < p->n_in; i++)
        cachew__envelope__free_unpacked(p->in[i], NULL);
    p->n_in = p->at = 0;
}

/* As kill -9: nothing that was not committed is left, and every connection is gone. */
CW_UNUSED static void run_kill(struct run *u)
{
    u->d = cw_dispatcher_free(u->d);
    u->batch = NULL;
    for (size_t i = 0; i < RUN_PEERS; i++) {
        u->peers[i].peer = NULL;
        if (u->peers[i].used)
            u->peers[i].closed = true;
    }
}

static struct run *run_new(uint64_t n_units)
{
    struct run *u = calloc(1, sizeof(*u));
    u->now_ns = UINT64_C(5000000000);
    u->n_units = n_units;
    u->most = u->unit = u->align = RUN_UNIT;
    u->n_keys = 1;
    u->depth = 1024;
    run_start(u);
    return u;
}

static void run_free(struct run *u)
{
    cw_dispatcher_free(u->d);
    for (size_t i = 0; i < RUN_PEERS; i++)
        run_peer_clear(&u->peers[i]);
    while (u->n_rows > 0)
        run_delete(u, u->n_rows - 1);
    free(u->rows);
    free(u);
}

/* ---- peers ---- */

static struct run_peer *run_connect_as(struct run *u, struct run_peer *p, Cachew__Role role)
{
    struct cw_error err = {0};
    Cachew__Hello hello = CACHEW__HELLO__INIT;
    hello.role = role;
    hello.name = (char *)(p->name ? p->name : "fake");
    hello.host = (char *)"here";
    hello.incarnation = (ProtobufCBinaryData){16, p->incarnation};
    p->run = u;
    p->used = true;
    p->closed = p->registered = false;
    p->role = role;
    int r;
    while ((r = RUN_CALL(cw_dispatcher_connected(u->d, p, &hello, &p->peer, &err))) == CW_E_MEMORY &&
           run_inside)
        ; /* it comes again */
    assert_int_equal(r, 0);
    return p;
}

static struct run_peer *run_connect(struct run *u, Cachew__Role role)
{
    static uint64_t incarnations;
    struct run_peer *p = u->peers;
    while (p->used)
        assert_true(++p < u->peers + RUN_PEERS);
    run_peer_clear(p);
    *p = (struct run_peer){.most = u->most};
    incarnations++;
    memcpy(p->incarnation, &incarnations, 8);
    return run_connect_as(u, p, role);
}

/* The connection is gone; the fake is free for another. */
static void run_lose(struct run_peer *p)
{
    if (p->peer)
        RUN_CALL_VOID(cw_dispatcher_lost(p->run->d, p->peer, p->run->now_ns));
    p->peer = NULL;
    p->used = false;
}

static int run_say(struct run_peer *p, Cachew__Envelope *m)
{
    struct cw_error err = {0};
    if (p->closed)
        return CW_E_SERVICE;
    size_t size = cachew__envelope__get_packed_size(m);
    uint8_t *packed = malloc(size + 1);
    cachew__envelope__pack(m, packed);
    /* so that who keeps what is in a message is found */
    Cachew__Envelope *copy = cachew__envelope__unpack(NULL, size, packed);
    free(packed);
    int r = RUN_CALL(cw_dispatcher_message(p->run->d, p->peer, copy, p->run->now_ns, &err));
    cachew__envelope__free_unpacked(copy, NULL);
    if (r < 0) {
        snprintf(p->why, sizeof(p->why), "%s", err.message);
        p->closed = true;
    }
    return r;
}

#define RUN_SAY(p, kind, field, request, ...) \
    __extension__({ \
        Cachew__##kind what_ = {__VA_ARGS__}; \
        Cachew__Envelope say_ = CACHEW__ENVELOPE__INIT; \
        say_.of_case = CACHEW__ENVELOPE__OF_##field; \
        say_.id = (request) ? ++(p)->last_id : 0; \
        say_.hello = (void *)&what_; /* any member of the union */ \
        run_say((p), &say_); \
    })
#define RUN_BASE(name) .base = PROTOBUF_C_MESSAGE_INIT(&cachew__##name##__descriptor)

static struct run_stream *run_stream_of(struct run_peer *p, ProtobufCBinaryData id)
{
    struct run_stream *free_one = NULL;
    assert_int_equal(id.len, 16);
    for (size_t i = 0; i < RUN_STREAMS; i++) {
        if (p->streams[i].used && memcmp(p->streams[i].id, id.data, 16) == 0)
            return &p->streams[i];
        if (!p->streams[i].used && !free_one)
            free_one = &p->streams[i];
    }
    assert_non_null(free_one);
    *free_one = (struct run_stream){.used = true};
    memcpy(free_one->id, id.data, 16);
    return free_one;
}

static Cachew__Plan run_plan(const struct run_peer *p)
{
    const struct run *u = p->run;
    Cachew__Plan plan = CACHEW__PLAN__INIT;
    plan.align = u->align;
    plan.n_positions = u->n_units >= RUN_ENDLESS ? RUN_ENDLESS : u->unit * u->n_units - u->missing;
    plan.n_keys = u->n_keys;
    plan.sequential = u->sequential;
    plan.origin = u->origin;
    plan.snapshot = p->snapshot;
    return plan;
}

static void run_prepared(struct run_peer *p, uint64_t re, ProtobufCBinaryData stream)
{
    Cachew__Plan plan = run_plan(p);
    Cachew__Prepared answer = CACHEW__PREPARED__INIT;
    Cachew__FileFact file = CACHEW__FILE_FACT__INIT, *files[1] = {&file};
    Cachew__Failure failure = CACHEW__FAILURE__INIT;
    Cachew__Envelope m = CACHEW__ENVELOPE__INIT;
    m.re = re;
    if (p->fails) {
        failure.kind = (char *)(p->budget ? "budget" : "data");
        failure.message = (char *)p->fails;
        m.of_case = CACHEW__ENVELOPE__OF_FAILURE;
        m.failure = &failure;
    } else {
        file.path = (char *)(p->file ? p->file : "a");
        file.key = p->snapshot;
        answer.stream = stream;
        answer.plan = &plan;
        answer.capacity = p->capacity;
        answer.most_positions = p->most;
        answer.files = files;
        answer.n_files = 1;
        m.of_case = CACHEW__ENVELOPE__OF_PREPARED;
        m.prepared = &answer;
    }
    run_say(p, &m);
}

/* The unit that has a position. */
static uint64_t run_unit_at(const struct run *u, uint64_t epoch, uint64_t position)
{
    return u->n_units >= RUN_ENDLESS ? position / u->unit : epoch * u->n_units + position / u->unit;
}

/* The first unit behind a range. */
static uint64_t run_unit_end(const struct run *u, uint64_t epoch, uint64_t end)
{
    return run_unit_at(u, epoch, end + u->unit - 1);
}

static void run_place(const struct run *u, uint64_t unit, uint64_t *epoch, uint64_t *position)
{
    bool endless = u->n_units >= RUN_ENDLESS || u->n_units == 0;
    *epoch = endless ? 0 : unit / u->n_units;
    *position = u->unit * (endless ? unit : unit % u->n_units);
}

/* Units of the range that begins with this one. */
static uint64_t run_units(const struct run_stream *s, uint64_t unit)
{
    uint64_t n = 1;
    while (unit + n < RUN_UNITS && s->held[unit + n] == 2)
        n++;
    return n;
}

static void run_range(const struct run *u, uint64_t unit, uint64_t n, uint64_t *epoch, uint64_t *begin,
                      uint64_t *end)
{
    run_place(u, unit, epoch, begin);
    *end = *begin + u->unit * n;
    if (u->n_units < RUN_ENDLESS)
        *end = CW_MIN(*end, u->unit * u->n_units - u->missing);
}

static void run_hold(struct run_stream *s, uint64_t unit, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) {
        assert_true(unit + k < RUN_UNITS);
        assert_int_equal(s->held[unit + k], 0); /* no lease of what it has */
        s->held[unit + k] = k > 0 ? 2 : 1;
        s->done[unit + k] = false;
    }
}

/* The first that a registered worker says: what it has, mostly nothing. */
static void run_holdings(struct run_peer *p)
{
    Cachew__Holdings all = CACHEW__HOLDINGS__INIT;
    Cachew__Holding holdings[RUN_STREAMS], *pointers[RUN_STREAMS];
    Cachew__Prepared prepared[RUN_STREAMS];
    Cachew__Plan plan = run_plan(p);
    static Cachew__Range ranges[RUN_STREAMS][RUN_UNITS], *range_pointers[RUN_STREAMS][RUN_UNITS];
    Cachew__Envelope m = CACHEW__ENVELOPE__INIT;
    all.holdings = pointers;
    for (size_t i = 0; i < RUN_STREAMS; i++) {
        if (!p->streams[i].used)
            continue;
        size_t n = all.n_holdings;
        pointers[n] = &holdings[n];
        cachew__holding__init(&holdings[n]);
        cachew__prepared__init(&prepared[n]);
        prepared[n].stream = (ProtobufCBinaryData){16, p->streams[i].id};
        prepared[n].plan = &plan;
        prepared[n].capacity = p->capacity;
        prepared[n].most_positions = p->most;
        holdings[n].prepared = &prepared[n];
        holdings[n].ranges = range_pointers[n];
        for (uint64_t unit = 0; unit < RUN_UNITS; unit++)
            if (p->streams[i].held[unit] == 1) {
                Cachew__Range *a = range_pointers[n][holdings[n].n_ranges] = &ranges[n][holdings[n].n_ranges];
                holdings[n].n_ranges++;
                cachew__range__init(a);
                run_range(p->run, unit, run_units(&p->streams[i], unit), &a->epoch, &a->begin, &a->end);
                a->lease = p->streams[i].lease[unit];
            }
        all.n_holdings++;
    }
    m.of_case = CACHEW__ENVELOPE__OF_HOLDINGS;
    m.holdings = &all;
    run_say(p, &m);
}

static void run_worker_handle(struct run_peer *p, const Cachew__Envelope *m)
{
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_REGISTERED:
        p->worker = m->registered->worker;
        p->registered = true;
        run_holdings(p);
        break;
    case CACHEW__ENVELOPE__OF_PREPARE:
        p->n_prepares++;
        p->prepare_id = m->id;
        memcpy(p->prepare_stream, m->prepare->stream.data, 16);
        if (!p->silent)
            run_prepared(p, m->id, m->prepare->stream);
        break;
    case CACHEW__ENVELOPE__OF_LEASES: {
        struct run_stream *s = run_stream_of(p, m->leases->stream);
        assert_int_equal(m->leases->n_ranges, m->leases->n_from);
        p->origin = m->leases->origin ? m->leases->origin->worker : 0;
        for (size_t i = 0; i < m->leases->n_ranges; i++) {
            const Cachew__Range *a = m->leases->ranges[i];
            uint64_t unit = run_unit_at(p->run, a->epoch, a->begin);
            assert_true(a->begin < a->end && a->begin % p->run->unit == 0 && m->leases->from[i] >= a->begin &&
                        m->leases->from[i] < a->end);
            run_hold(s, unit, run_unit_end(p->run, a->epoch, a->end) - unit);
            s->from[unit] = m->leases->from[i] - a->begin;
            s->lease[unit] = a->lease;
        }
        break;
    }
    case CACHEW__ENVELOPE__OF_REVOKE: {
        struct run_stream *s = run_stream_of(p, m->revoke->stream);
        for (size_t i = 0; i < m->revoke->n_positions; i++) {
            const Cachew__Range *a = m->revoke->positions[i];
            uint64_t end = run_unit_end(p->run, a->epoch, a->end);
            for (uint64_t unit = run_unit_at(p->run, a->epoch, a->begin), n; unit < end; unit++)
                if (s->held[unit] == 1 && unit + (n = run_units(s, unit)) <= end)
                    memset(s->held + unit, 0, n);
        }
        break;
    }
    case CACHEW__ENVELOPE__OF_FORGET:
        run_stream_of(p, m->forget->stream)->used = false;
        p->forgot = true;
        break;
    case CACHEW__ENVELOPE__OF_DRAIN:
        p->drain = true;
        break;
    default:
        break;
    }
}

static void run_client_handle(struct run_peer *p, const Cachew__Envelope *m)
{
    const Cachew__Failure *f = m->of_case == CACHEW__ENVELOPE__OF_FAILURE ? m->failure
                               : m->of_case == CACHEW__ENVELOPE__OF_ENDED ? m->ended->why
                                                                          : NULL;
    if (f) {
        p->ended |= m->of_case == CACHEW__ENVELOPE__OF_ENDED;
        snprintf(p->failure, sizeof(p->failure), "%s: %s", f->kind, f->message);
        snprintf(p->attribute, sizeof(p->attribute), "%s", f->attribute);
        snprintf(p->value, sizeof(p->value), "%s", f->value);
        snprintf(p->expected, sizeof(p->expected), "%s", f->expected);
    }
    if (m->of_case == CACHEW__ENVELOPE__OF_LAGGING)
        snprintf(p->lagging, sizeof(p->lagging), "%" PRIu32 " at %" PRIu64 ", %s", m->lagging->rank,
                 run_unit_at(p->run, m->lagging->at->epoch, m->lagging->at->position),
                 m->lagging->attached ? "attached" : "gone");
    if (m->of_case == CACHEW__ENVELOPE__OF_HELD) {
        snprintf(p->held_by, sizeof(p->held_by), "%s", m->held->why);
        p->paused = m->held->paused;
    }
    if (m->of_case == CACHEW__ENVELOPE__OF_ATTACHED) {
        p->attached = true;
        memcpy(p->streams[0].id, m->attached->stream.data, 16);
        p->next_report = p->first_report = p->cursor;
    }
    for (size_t i = 0; m->of_case == CACHEW__ENVELOPE__OF_PLACEMENTS && i < m->placements->n_placements;
         i++) {
        const Cachew__Placement *a = m->placements->placements[i];
        assert_true(p->attached && a->begin < a->end);
        for (uint64_t unit = run_unit_at(p->run, a->epoch, a->begin);
             unit < run_unit_end(p->run, a->epoch, a->end); unit++) {
            assert_true(unit < RUN_UNITS);
            p->placed[unit] = a->worker + 1;
            p->lost[unit] |= a->lost;
        }
    }
    for (size_t i = 0; m->of_case == CACHEW__ENVELOPE__OF_REPORTS && i < m->reports->n_reports; i++) {
        const Cachew__Report *a = m->reports->reports[i];
        uint64_t unit = run_unit_at(p->run, a->epoch, a->begin), end = run_unit_end(p->run, a->epoch, a->end),
                 value = a->n_elements > 0 ? a->elements[0] : a->n_batches;
        assert_true(p->attached && unit < end && end <= RUN_UNITS);
        /* lost ones, and those not needed, may be left out */
        while (p->next_report < unit && (p->lost[p->next_report] || p->next_report < p->cursor))
            p->next_report++;
        /* less: the range was cut anew, or the rank is inside the first one */
        assert_true(unit <= p->next_report);
        assert_true(p->n_reports[unit] == 0 || p->report_end[unit] != end || p->reports[unit] == value);
        p->reports[unit] = value;
        p->report_end[unit] = end;
        p->n_reports[unit]++;
        p->next_report = CW_MAX(p->next_report, end);
    }
}

static bool run_handle(struct run *u)
{
    bool any = false;
    for (struct run_peer *p = u->peers; p < u->peers + RUN_PEERS; p++)
        while (p->used && p->peer && !p->closed && p->at < p->n_in) {
            const Cachew__Envelope *m = p->in[p->at++];
            any = true;
            if (u->seen)
                u->seen(p, m);
            if (p->role == CACHEW__ROLE__ROLE_WORKER)
                run_worker_handle(p, m);
            else
                run_client_handle(p, m);
            if (p->at == p->n_in && p->n_in > CW_COUNT_OF(p->in) / 2)
                run_peer_clear(p);
        }
    return any;
}

/* Until nothing moves any more. */
static void run_settle(struct run *u)
{
    for (bool any = true; any;) {
        RUN_CALL_VOID(cw_dispatcher_turn(u->d, u->now_ns));
        any = false;
        if (u->batch && !u->hold) {
            run_commit(u);
            any = !u->full;
        }
        any |= run_handle(u);
        for (struct run_peer *p = u->peers; p < u->peers + RUN_PEERS; p++)
            if (p->used && p->closed && p->peer) {
                RUN_CALL_VOID(cw_dispatcher_lost(u->d, p->peer, u->now_ns));
                p->peer = NULL;
                any = true;
            }
    }
}

static void run_pass(struct run *u, uint64_t ms)
{
    for (uint64_t end = u->now_ns + ms * 1000000; u->now_ns < end;) {
        u->now_ns = CW_MIN(end, u->now_ns + 100000000);
        RUN_CALL(cw_dispatcher_tick(u->d, u->now_ns));
        run_settle(u);
    }
}

/* ---- what peers do ---- */

static void run_register(struct run_peer *p)
{
    char *addresses[] = {(char *)"127.0.0.1:1"};
    RUN_SAY(p, Register, REGISTER, true, RUN_BASE(register), .unix_path = (char *)"", .http = (char *)"",
            .addresses = addresses, .n_addresses = 1, .pid = 7, .cpu_budget = 2,
            .max_streams = p->max_streams, .pool = (char *)(p->pool ? p->pool : ""));
}

static struct run_peer *run_worker_data(struct run *u, uint32_t capacity, uint64_t snapshot)
{
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_WORKER);
    p->capacity = capacity;
    p->snapshot = snapshot;
    run_register(p);
    return p;
}

CW_UNUSED static struct run_peer *run_worker(struct run *u, uint32_t capacity)
{
    struct run_peer *p = run_worker_data(u, capacity, 11);
    run_settle(u);
    return p;
}

struct run_attach {
    const char *job;
    uint32_t rank, world_size;
    uint64_t seed, epochs, snapshot, offset; /* offset: of the position where it begins, in the unit */
    uint8_t pipeline;
    const char *text; /* of the pipeline; NULL: [] */
    Cachew__Order order;
    Cachew__Guarantee guarantee;

    struct {
        uint64_t epoch, g;
    } round;

    bool again;
};

static void run_attach_in(struct run_peer *p, const struct run_attach *a, uint64_t from, const char *base_dir)
{
    uint8_t fingerprint[16] = {[0] = a->pipeline};
    Cachew__Place place = CACHEW__PLACE__INIT, round = CACHEW__PLACE__INIT;
    run_place(p->run, from, &place.epoch, &place.position);
    place.position += a->offset;
    round.epoch = a->round.epoch;
    round.batch = a->round.g;
    p->attached = p->ended = false;
    p->cursor = from;
    p->failure[0] = '\0';
    memset(p->placed, 0, sizeof(p->placed));
    memset(p->n_reports, 0, sizeof(p->n_reports));
    memset(p->lost, 0, sizeof(p->lost));
    RUN_SAY(p, Attach, ATTACH, true, RUN_BASE(attach), .job = (char *)a->job, .rank = a->rank,
            .world_size = a->world_size ? a->world_size : 1, .seed = a->seed,
            .epochs = a->epochs ? a->epochs : 1, .order = a->order, .guarantee = a->guarantee,
            .fingerprint = {16, fingerprint}, .pipeline = (char *)(a->text ? a->text : "[]"),
            .base_dir = (char *)base_dir, .from = &place, .snapshot = a->snapshot, .again = a->again,
            .round = &round);
}

static void run_attach_as(struct run_peer *p, const struct run_attach *a, uint64_t from)
{
    run_attach_in(p, a, from, "/");
}

CW_UNUSED static struct run_peer *run_client_with(struct run *u, const struct run_attach *a, uint64_t from)
{
    struct run_peer *p = run_connect(u, CACHEW__ROLE__ROLE_CLIENT);
    run_attach_as(p, a, from);
    run_settle(u);
    return p;
}

CW_UNUSED static struct run_peer *run_client(struct run *u, const char *job, uint32_t rank,
                                             uint32_t world_size, uint64_t from)
{
    return run_client_with(u, &(struct run_attach){.job = job, .rank = rank, .world_size = world_size}, from);
}

CW_UNUSED static int run_progress(struct run_peer *p, uint64_t to, uint64_t offset)
{
    Cachew__Place place = CACHEW__PLACE__INIT;
    run_place(p->run, to, &place.epoch, &place.position);
    place.position += offset;
    p->cursor = to;
    return RUN_SAY(p, Progress, PROGRESS, false, RUN_BASE(progress), .from = &place, .g = to,
                   .digest_lo = to);
}

/* The same, from who waits meanwhile. */
CW_UNUSED static int run_waiting(struct run_peer *p, uint64_t to)
{
    Cachew__Place place = CACHEW__PLACE__INIT;
    run_place(p->run, to, &place.epoch, &place.position);
    p->lagging[0] = '\0';
    return RUN_SAY(p, Progress, PROGRESS, false, RUN_BASE(progress), .from = &place, .waiting = true);
}

/* That a rank is finished, on a connection that attached to nothing. */
CW_UNUSED static int run_detach_as(struct run_peer *p, const char *job, uint32_t rank)
{
    return RUN_SAY(p, Detach, DETACH, true, RUN_BASE(detach), .finished = true, .job = (char *)job,
                   .rank = rank);
}

CW_UNUSED static int run_detach(struct run_peer *p, bool finished)
{
    return RUN_SAY(p, Detach, DETACH, true, RUN_BASE(detach), .finished = finished, .job = (char *)"");
}

/* Of n units from this one on. Returns the id of the request. */
CW_UNUSED static uint64_t run_completed_of(struct run_peer *p, const struct run_stream *s, uint64_t unit,
                                           uint64_t n, uint64_t gives)
{
    Cachew__Report report = CACHEW__REPORT__INIT;
    for (size_t i = 0; i < RUN_STREAMS; i++)
        for (uint64_t k = 0; s == &p->streams[i] && k < n; k++)
            p->streams[i].done[unit + k] = true;
    run_range(p->run, unit, n, &report.epoch, &report.begin, &report.end);
    report.n_batches = p->run->sequential ? gives : 0;
    report.elements = &gives;
    report.n_elements = p->run->n_keys > 0 && !p->run->sequential;
    RUN_SAY(p, Completed, COMPLETED, true, RUN_BASE(completed), .stream = {16, (uint8_t *)s->id},
            .report = &report, .lease = s->lease[unit], .last = p->run->last);
    return p->last_id;
}

/* Of the range that it has there, or of one unit: what it gives, in elements or batches. */
CW_UNUSED static uint64_t run_completed(struct run_peer *p, const struct run_stream *s, uint64_t unit,
                                        uint64_t gives)
{
    return run_completed_of(p, s, unit, run_units(s, unit), gives);
}

CW_UNUSED static bool run_answered(const struct run_peer *p, uint64_t id)
{
    for (size_t i = 0; i < p->n_in; i++)
        if (p->in[i]->re == id && p->in[i]->of_case == CACHEW__ENVELOPE__OF_DONE)
            return true;
    return false;
}

/* The same process connects again, and says what it has. */
CW_UNUSED static void run_reconnect(struct run_peer *p)
{
    struct run *u = p->run;
    run_peer_clear(p);
    run_connect_as(u, p, CACHEW__ROLE__ROLE_WORKER);
    run_register(p);
    run_settle(u);
}

CW_UNUSED static size_t run_held(const struct run_peer *p)
{
    size_t n = 0;
    for (size_t i = 0; i < RUN_STREAMS; i++)
        for (uint64_t unit = 0; p->streams[i].used && unit < RUN_UNITS; unit++)
            n += p->streams[i].held[unit] == 1;
    return n;
}

CW_UNUSED static struct run_peer *run_find_worker(struct run *u, uint64_t id)
{
    for (struct run_peer *p = u->peers; p < u->peers + RUN_PEERS; p++)
        if (p->used && p->role == CACHEW__ROLE__ROLE_WORKER && p->worker == id)
            return p;
    return NULL;
}
