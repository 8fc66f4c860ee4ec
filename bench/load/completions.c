/*
 * Completions: each worker says of every range that it is leased that it is computed, in a request of its
 * own, and waits for the acknowledgement with no more than a few of them under way. A range has one position.
 * Clients pass the ranges, so that they come to an end as in a real job: leased, completed, written down,
 * acknowledged, reported, passed, revoked, deleted. Workers complete as many as are acknowledged, or at a
 * pace.
 */
#include "load.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

#define RUN_IN_NS UINT64_C(1000000000) /* run-in: until leases are deep enough and memory is allocated */
#define WINDOW ((uint64_t)1 << 20)     /* ids beyond the first missing acknowledgement that are remembered */
#define TICK_NS UINT64_C(2000000)      /* of workers and clients that keep a pace */
#define PROGRESS_S 0.2                 /* between two reports of such a client */
#define LEASED \
    4 /* ranges of a worker per completion under way: the others wait to be begun, or to be passed */

/* A completion that was sent. */
struct sent {
    uint64_t id, position, ns;
};

/* The ranges of a worker, by position. */
struct leased {
    uint64_t begin, number;
};

struct hand {
    struct leased *leased; /* ring of ranges that were not begun */
    size_t first, n_leased;
    struct sent *sent; /* by id */
    unsigned n_said;
};

struct load {
    struct swarm swarm;
    struct hand *hands;           /* by worker */
    size_t room;                  /* of the rings, a power of two */
    struct swarm_client *clients; /* by rank */
    unsigned n_attached;
    uint8_t stream[16];
    uint64_t elements[256]; /* of a range, by key */
    bool measuring;
    uint8_t *acknowledged;   /* of WINDOW ranges, a byte each */
    uint64_t from, reported; /* the client's cursor, and the cursor that the dispatcher has */
    struct cw_timer *timer, *pace;
    /* start of the steady rate. Completions due since then, and reports of clients */
    uint64_t paced_ns, n_due, n_reports;
    struct cw_post turn;
    uint64_t began_ns, ended_ns;
    struct load_histogram times;
};

/* ---- workers ---- */

static int completions_send(struct load *l, struct swarm_worker *w, struct leased leased,
                            struct cw_error *err)
{
    Cachew__Completed m = CACHEW__COMPLETED__INIT;
    Cachew__Report report = CACHEW__REPORT__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    struct hand *h = &l->hands[w->index];
    report.begin = leased.begin;
    report.end = leased.begin + 1;
    report.elements = l->elements;
    report.n_elements = l->swarm.o->n_keys;
    m.stream = (ProtobufCBinaryData){.data = l->stream, .len = sizeof(l->stream)};
    m.report = &report;
    m.lease = leased.number;
    e.id = ++w->last_id;
    e.of_case = CACHEW__ENVELOPE__OF_COMPLETED;
    e.completed = &m;
    h->sent[e.id & (l->room - 1)] = (struct sent){.id = e.id, .position = leased.begin, .ns = cw_now_ns()};
    h->n_said++;
    return cw_conn_send(w->conn, &e, NULL, 0, NULL, NULL, NULL, 0, err);
}

/* At most n. */
static int completions_complete(struct load *l, struct swarm_worker *w, unsigned n, struct cw_error *err)
{
    struct hand *h = &l->hands[w->index];
    int r = 0;
    for (; n > 0 && r >= 0 && h->n_leased > 0 && h->n_said < l->swarm.o->in_flight; n--) {
        h->n_leased--;
        r = completions_send(l, w, h->leased[h->first++ & (l->room - 1)], err);
    }
    return r;
}

static int completions_complete_more(struct load *l, struct swarm_worker *w, struct cw_error *err)
{
    return l->swarm.o->ranges_per_s > 0 ? 0 : completions_complete(l, w, UINT_MAX, err);
}

static int completions_on_leases(struct load *l, struct swarm_worker *w, const Cachew__Leases *m,
                                 struct cw_error *err)
{
    struct hand *h = &l->hands[w->index];
    if (h->n_leased + m->n_ranges > l->room)
        return cw_error_set(err, CW_E_SERVICE,
                            "%zu ranges were leased to a worker that has %zu and asked for %u", m->n_ranges,
                            h->n_leased, l->swarm.o->in_flight * LEASED);
    for (size_t i = 0; i < m->n_ranges; i++)
        h->leased[(h->first + h->n_leased++) & (l->room - 1)] = (struct leased){m->ranges[i]->begin,
                                                                                m->ranges[i]->lease};
    return completions_complete_more(l, w, err);
}

/* Returns the ranges that were not begun. */
static void completions_on_revoke(struct load *l, const struct swarm_worker *w, const Cachew__Revoke *m)
{
    struct hand *h = &l->hands[w->index];
    for (size_t i = 0; i < m->n_positions; i++) {
        size_t n = h->n_leased;
        h->n_leased = 0;
        for (size_t k = 0; k < n; k++) {
            struct leased leased = h->leased[(h->first + k) & (l->room - 1)];
            if (leased.begin < m->positions[i]->begin || leased.begin >= m->positions[i]->end)
                h->leased[(h->first + h->n_leased++) & (l->room - 1)] = leased;
        }
    }
}

static int completions_on_done(struct load *l, struct swarm_worker *w, uint64_t re, struct cw_error *err)
{
    struct hand *h = &l->hands[w->index];
    const struct sent *s = &h->sent[re & (l->room - 1)];
    if (s->id != re || h->n_said == 0)
        return cw_error_set(err, CW_E_SERVICE, "request %llu was acknowledged, which was not made",
                            (unsigned long long)re);
    h->n_said--;
    if (l->measuring)
        load_count(&l->times, cw_now_ns() - s->ns);
    if (s->position >= l->from && s->position - l->from < WINDOW)
        l->acknowledged[s->position % WINDOW] = 1;
    cw_loop_post(l->swarm.loop, &l->turn);
    return completions_complete_more(l, w, err);
}

static int completions_on_message(void *user, struct swarm_worker *w, const Cachew__Envelope *m,
                                  struct cw_error *err)
{
    struct load *l = user;
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_PREPARE:
        return swarm_prepared(w, m->id, m->prepare, 1, l->swarm.o->in_flight * LEASED, l->stream, err);
    case CACHEW__ENVELOPE__OF_LEASES:
        return completions_on_leases(l, w, m->leases, err);
    case CACHEW__ENVELOPE__OF_REVOKE:
        completions_on_revoke(l, w, m->revoke);
        return 0;
    case CACHEW__ENVELOPE__OF_DONE:
        return completions_on_done(l, w, m->re, err);
    case CACHEW__ENVELOPE__OF_FAILURE:
        return cw_failure_error(m->failure, err);
    default:
        return 0;
    }
}

/* ---- the client ---- */

static int completions_report(struct load *l, unsigned rank, struct cw_error *err)
{
    return swarm_progress(&l->clients[rank], l->from, NULL, err);
}

/* Called once for all acknowledgements that arrived together. */
static void completions_on_turn(void *user)
{
    struct load *l = user;
    struct cw_error err = {0};
    int r = 0;
    while (l->acknowledged[l->from % WINDOW])
        l->acknowledged[l->from++ % WINDOW] = 0;
    if (l->from == l->reported || l->n_attached < l->swarm.o->n_ranks || l->swarm.closing ||
        l->swarm.o->ranges_per_s > 0)
        return;
    l->reported = l->from;
    for (unsigned i = 0; r >= 0 && i < l->swarm.o->n_ranks; i++)
        r = completions_report(l, i, &err);
    if (r < 0)
        swarm_fail(&l->swarm, &err);
}

/* Workers and clients take turns. */
static void completions_on_pace(void *user)
{
    struct load *l = user;
    const struct load_options *o = l->swarm.o;
    struct cw_error err = {0};
    double age = (double)(cw_now_ns() - l->paced_ns) * 1e-9;
    uint64_t due = l->n_attached < o->n_ranks ? 0 : (uint64_t)(age * o->ranges_per_s * (double)o->n_workers);
    uint64_t reports = (uint64_t)(age / PROGRESS_S * o->n_ranks);
    int r = 0;
    for (; r >= 0 && l->n_due < due; l->n_due++)
        r = completions_complete(l, &l->swarm.workers[l->n_due % o->n_workers], 1, &err);
    for (; r >= 0 && l->n_reports < reports; l->n_reports++)
        /* by attached clients, which show that they are alive */
        r = completions_report(l, (unsigned)(l->n_reports % o->n_ranks), &err);
    if (r < 0)
        swarm_fail(&l->swarm, &err);
}

static void completions_on_attached(void *user)
{
    struct load *l = user;
    bool all = ++l->n_attached == l->swarm.o->n_ranks;
    if (l->swarm.o->ranges_per_s > 0 && (all || l->n_attached == 1)) {
        l->paced_ns = cw_now_ns();
        l->n_reports = 0;
        cw_timer_start(l->pace, TICK_NS, TICK_NS);
    }
    if (!all) {
        swarm_attach(&l->clients[l->n_attached]);
        return;
    }
    cw_timer_start(l->timer, RUN_IN_NS, 0);
    completions_on_turn(l);
}

static void completions_on_ready(void *user)
{
    struct load *l = user;
    swarm_attach(&l->clients[0]);
}

/* ---- the run ---- */

static void completions_on_timer(void *user)
{
    struct load *l = user;
    if (l->measuring) {
        l->ended_ns = cw_now_ns();
        cw_loop_stop(l->swarm.loop);
        return;
    }
    l->measuring = true;
    fprintf(stderr, "measuring\n");
    l->began_ns = cw_now_ns();
    cw_timer_start(l->timer, (uint64_t)(l->swarm.o->seconds * 1e9), 0);
}

static int completions_hands_new(struct load *l, struct cw_error *err)
{
    size_t n = l->swarm.o->n_workers;
    l->room = 64;
    while (l->room < (size_t)l->swarm.o->in_flight * LEASED * 2)
        l->room *= 2;
    l->acknowledged = calloc(WINDOW, 1);
    l->hands = calloc(n, sizeof(*l->hands));
    l->clients = calloc(l->swarm.o->n_ranks, sizeof(*l->clients));
    bool ok = l->acknowledged && l->hands && l->clients;
    for (unsigned i = 0; ok && i < l->swarm.o->n_ranks; i++)
        l->clients[i] = (struct swarm_client){
            .swarm = &l->swarm, .job = "load", .rank = i, .begin = completions_on_attached};
    for (size_t i = 0; ok && i < n; i++) {
        l->hands[i].leased = malloc(l->room * sizeof(*l->hands[i].leased));
        l->hands[i].sent = calloc(l->room, sizeof(*l->hands[i].sent));
        ok = l->hands[i].leased && l->hands[i].sent;
    }
    return ok ? 0 : cw_error_nomem(err, n * l->room * sizeof(struct sent), "a load");
}

static void completions_free(struct load *l)
{
    for (size_t i = 0; l->hands && i < l->swarm.o->n_workers; i++) {
        free(l->hands[i].leased);
        free(l->hands[i].sent);
    }
    free(l->hands);
    free(l->clients);
    free(l->acknowledged);
    free(l);
}

int load_completions(const struct load_options *o, struct load_times *ret, struct cw_error *err)
{
    struct load *l = calloc(1, sizeof(*l));
    if (!l)
        return cw_error_nomem(err, sizeof(*l), "a load");
    l->swarm = (struct swarm){
        .o = o, .user = l, .ready = completions_on_ready, .message = completions_on_message};
    for (size_t i = 0; i < CW_COUNT_OF(l->elements); i++)
        l->elements[i] = 1 + i % 3;
    l->turn = (struct cw_post){.fn = completions_on_turn, .arg = l};
    int r = completions_hands_new(l, err);
    if (r >= 0)
        r = cw_loop_new(&l->swarm.loop, err);
    if (r >= 0)
        r = cw_timer_new(l->swarm.loop, completions_on_timer, l, &l->timer, err);
    if (r >= 0)
        r = cw_timer_new(l->swarm.loop, completions_on_pace, l, &l->pace, err);
    if (r >= 0)
        r = swarm_start(&l->swarm, err);
    if (r >= 0) {
        cw_loop_run(l->swarm.loop);
        load_times(&l->times, ret);
        ret->seconds = (double)(l->ended_ns - l->began_ns) * 1e-9;
    }
    cw_timer_free(l->timer);
    cw_timer_free(l->pace);
    for (unsigned i = 0; l->clients && i < o->n_ranks; i++)
        if (l->clients[i].swarm)
            swarm_detach(&l->clients[i]);
    r = swarm_end(&l->swarm, r, err);
    completions_free(l);
    return r;
}
