/* Measures what decisions cost a dispatcher: workers of one job report each second what they computed, by
 * operator, and what their caches hold and would give. A client reports its pace. Few ranges are completed
 * (completions.c measures that). */
#include <stdlib.h>

#include "base/clock.h"
#include "load.h"

#define TICK_NS UINT64_C(2000000)
#define PROGRESS_NS UINT64_C(250000000)
#define RANGES_PER_S 20 /* that the client passes */
#define AHEAD 40        /* ranges, as far as they are computed */
#define CAPACITY 4
#define RANGE_SIZE 16         /* positions, a batch each */
#define SAID (UINT64_MAX - 1) /* in place of a range that is completed */
#define OPERATORS 6
#define CACHE_POINTS 2 /* places where elements may be cached */
#define COMPUTE_S \
    0.004 /* seconds per position: half of it if read at the first cache point, next to nothing at the \
             second */
#define CACHE_POINT_BYTES 150000

struct hand {
    struct {
        uint64_t begin, number;
    } leased[CAPACITY + 2];

    size_t n;
};

struct scaling {
    struct swarm swarm;
    struct hand *hands;
    struct swarm_client client;
    struct cw_timer *timer;
    uint8_t stream[16];
    int32_t cache_point; /* that workers use, as in Prepare: what they were told last */
    uint64_t began_ns, beats, progress_ns, cursor;
};

static int scaling_send(struct cw_conn *c, const Cachew__Envelope *e, struct cw_error *err)
{
    return c ? cw_conn_send(c, e, NULL, 0, NULL, NULL, NULL, 0, err) : 0;
}

/* ---- workers ---- */

static void hand_drop(struct hand *h, uint64_t begin, uint64_t end)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n; i++)
        if (h->leased[i].begin < begin || h->leased[i].begin >= end)
            h->leased[n++] = h->leased[i];
    h->n = n;
}

static int scaling_on_message(void *user, struct swarm_worker *w, const Cachew__Envelope *m,
                              struct cw_error *err)
{
    struct scaling *x = user;
    struct hand *h = &x->hands[w->index];
    if (m->of_case == CACHEW__ENVELOPE__OF_PREPARE)
        return swarm_prepared(w, m->id, m->prepare, RANGE_SIZE, CAPACITY, x->stream, err);
    if (m->of_case == CACHEW__ENVELOPE__OF_CACHING)
        x->cache_point = m->caching->cache_point;
    for (size_t i = 0; m->of_case == CACHEW__ENVELOPE__OF_LEASES && i < m->leases->n_ranges &&
                       h->n < CW_COUNT_OF(h->leased);
         i++) {
        h->leased[h->n].begin = m->leases->ranges[i]->begin;
        h->leased[h->n++].number = m->leases->ranges[i]->lease;
    }
    for (size_t i = 0; m->of_case == CACHEW__ENVELOPE__OF_REVOKE && i < m->revoke->n_positions; i++)
        hand_drop(h, m->revoke->positions[i]->begin, m->revoke->positions[i]->end);
    return 0;
}

/* Reports the ranges that the client needs soon. */
static int scaling_complete(struct scaling *x, struct swarm_worker *w, struct cw_error *err)
{
    struct hand *h = &x->hands[w->index];
    int r = 0;
    for (size_t i = 0; r >= 0 && i < h->n; i++) {
        uint64_t elements = RANGE_SIZE;
        Cachew__Completed m = CACHEW__COMPLETED__INIT;
        Cachew__Report report = CACHEW__REPORT__INIT;
        Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
        if (h->leased[i].begin >= x->cursor + AHEAD * RANGE_SIZE)
            continue;
        report.begin = h->leased[i].begin;
        report.end = report.begin + RANGE_SIZE;
        report.elements = &elements;
        report.n_elements = 1;
        m.stream = (ProtobufCBinaryData){.data = x->stream, .len = sizeof(x->stream)};
        m.report = &report;
        m.lease = h->leased[i].number;
        e.id = ++w->last_id;
        e.of_case = CACHEW__ENVELOPE__OF_COMPLETED;
        e.completed = &m;
        h->leased[i].begin = SAID; /* taken off below */
        r = scaling_send(w->conn, &e, err);
    }
    hand_drop(h, SAID, UINT64_MAX);
    return r;
}

/* What each cache point, and none, would cost. */
static void scaling_put_cache_points(const struct scaling *x, Cachew__CachePointWork work[CACHE_POINTS + 1],
                                     Cachew__CachePointWork *list[CACHE_POINTS + 1], Cachew__StreamWork *to)
{
    static const char *const names[] = {"", "autocache (operator 2)", "autocache (operator 4)"};
    for (int i = 0; i <= CACHE_POINTS; i++) {
        cachew__cache_point_work__init(list[i] = &work[i]);
        work[i].cache_point = i ? i : -1;
        work[i].name = (char *)(uintptr_t)names[i];
        work[i].compute_s = COMPUTE_S;
        work[i].read_s = i == 1 ? COMPUTE_S / 2 : COMPUTE_S / 50;
        work[i].was_read = i > 0;
        work[i].bytes = CACHE_POINT_BYTES;
        work[i].cached = i > 0 ? 0.5 : 0;
    }
    to->cache_point = x->cache_point;
    to->cache_points = list;
    to->n_cache_points = CACHE_POINTS + 1;
}

static int scaling_heartbeat(struct scaling *x, struct swarm_worker *w, uint64_t now, struct cw_error *err)
{
    static const char *const names[OPERATORS] = {"tfrecord", "parse_example", "decode_image",
                                                 "resize",   "random_flip",   "batch"};
    Cachew__Heartbeat m = CACHEW__HEARTBEAT__INIT;
    Cachew__StreamWork work = CACHEW__STREAM_WORK__INIT, *works = &work;
    Cachew__OperatorWork operators[OPERATORS], *list[OPERATORS];
    Cachew__CachePointWork cache_points[CACHE_POINTS + 1], *cache_point_list[CACHE_POINTS + 1];
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    uint64_t age = now - x->began_ns;
    for (size_t i = 0; i < OPERATORS; i++) {
        list[i] = &operators[i];
        cachew__operator_work__init(list[i]);
        operators[i] = (Cachew__OperatorWork){.base = operators[i].base,
                                              .name = (char *)(uintptr_t)names[i],
                                              .ns = age / OPERATORS,
                                              .elements = age / 1000000};
    }
    work.stream = (ProtobufCBinaryData){.data = x->stream, .len = sizeof(x->stream)};
    work.compute_ns = age;
    work.positions = age / 100000000;
    work.operators = list;
    work.n_operators = OPERATORS;
    work.cached_positions = work.positions / 2;
    scaling_put_cache_points(x, cache_points, cache_point_list, &work);
    m.cpu_ns = age;
    m.memory_bytes = (uint64_t)1 << 30;
    m.streams = &works;
    m.n_streams = 1;
    m.cache_hits = m.cache_misses = age / 1000000;
    m.cache_bytes = (uint64_t)100 << 30;
    m.cache_used = m.cache_bytes / 2;
    m.cache_read_bytes_per_s = m.cache_write_bytes_per_s = 1e9;
    e.of_case = CACHEW__ENVELOPE__OF_HEARTBEAT;
    e.heartbeat = &m;
    return scaling_send(w->conn, &e, err);
}

/* ---- the client ---- */

static int scaling_progress(struct scaling *x, uint64_t now, struct cw_error *err)
{
    Cachew__Pace pace = CACHEW__PACE__INIT;
    double batches = (double)(now - x->began_ns) * 1e-9 * RANGES_PER_S * RANGE_SIZE;
    x->cursor = (uint64_t)(batches / RANGE_SIZE) * RANGE_SIZE;
    pace.n = (uint64_t)batches;
    pace.step_s = (double)(now - x->began_ns) * 1e-9;
    pace.step_sq = pace.step_s / (RANGES_PER_S * RANGE_SIZE);
    return swarm_progress(&x->client, x->cursor, &pace, err);
}

static void scaling_on_attached(void *user)
{
    struct scaling *x = user;
    x->began_ns = x->progress_ns = cw_now_ns();
    cw_timer_start(x->timer, TICK_NS, TICK_NS);
}

static void scaling_on_ready(void *user)
{
    struct scaling *x = user;
    swarm_attach(&x->client);
}

/* ---- the run ---- */

static void scaling_on_tick(void *user)
{
    struct scaling *x = user;
    struct cw_error err = {0};
    uint64_t now = cw_now_ns(),
             due = (uint64_t)((double)(now - x->began_ns) * 1e-9 * (double)x->swarm.o->n_workers);
    int r = 0;
    if ((double)(now - x->began_ns) * 1e-9 >= x->swarm.o->seconds) {
        cw_loop_stop(x->swarm.loop);
        return;
    }
    for (; r >= 0 && x->beats < due; x->beats++) {
        struct swarm_worker *w = &x->swarm.workers[x->beats % x->swarm.o->n_workers];
        r = scaling_heartbeat(x, w, now, &err);
        if (r >= 0)
            r = scaling_complete(x, w, &err);
    }
    if (r >= 0 && now - x->progress_ns >= PROGRESS_NS) {
        x->progress_ns = now;
        r = scaling_progress(x, now, &err);
    }
    if (r < 0)
        swarm_fail(&x->swarm, &err);
}

int load_scaling(const struct load_options *o, uint64_t *ret_sent, double *ret_seconds, struct cw_error *err)
{
    struct scaling *x = calloc(1, sizeof(*x));
    if (!x || !(x->hands = calloc(o->n_workers, sizeof(*x->hands)))) {
        free(x);
        return cw_error_nomem(err, sizeof(*x), "a load");
    }
    x->swarm = (struct swarm){.o = o, .user = x, .ready = scaling_on_ready, .message = scaling_on_message};
    x->client = (struct swarm_client){.swarm = &x->swarm, .job = "scaling", .begin = scaling_on_attached};
    x->cache_point = CACHE_POINTS;
    int r = cw_loop_new(&x->swarm.loop, err);
    if (r >= 0)
        r = cw_timer_new(x->swarm.loop, scaling_on_tick, x, &x->timer, err);
    if (r >= 0)
        r = swarm_start(&x->swarm, err);
    if (r >= 0) {
        cw_loop_run(x->swarm.loop);
        *ret_sent = x->beats;
        *ret_seconds = (double)(cw_now_ns() - x->began_ns) * 1e-9;
    }
    cw_timer_free(x->timer);
    swarm_detach(&x->client);
    r = swarm_end(&x->swarm, r, err);
    free(x->hands);
    free(x);
    return r;
}
