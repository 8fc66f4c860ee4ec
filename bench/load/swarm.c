/* Simulated workers: connections, each with an identity of its own, that register. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "load.h"
#include "net/limits.h"

/* connections under way at a time, fewer than a listener lets shake hands */
#define WAVE 256
#define ENDLESS ((uint64_t)1 << 62)

/* ---- times ---- */

void load_count(struct load_histogram *h, uint64_t ns)
{
    h->n++;
    h->most_ns = CW_MAX(h->most_ns, ns);
    h->counts[CW_MIN(ns / LOAD_STEP_NS, CW_COUNT_OF(h->counts) - 1)]++;
}

/* The least time that this part of all times does not exceed. */
static double histogram_quantile(const struct load_histogram *h, double part)
{
    uint64_t below = 0, i = 0;
    while (i < CW_COUNT_OF(h->counts) - 1 && (double)(below += h->counts[i]) < part * (double)h->n)
        i++;
    return (double)CW_MIN((i + 1) * LOAD_STEP_NS, h->most_ns) * 1e-9;
}

void load_times(const struct load_histogram *h, struct load_times *ret)
{
    ret->n = h->n;
    ret->p50_s = histogram_quantile(h, 0.5);
    ret->p99_s = histogram_quantile(h, 0.99);
    ret->most_s = (double)h->most_ns * 1e-9;
}

/* ---- connections ---- */

void swarm_fail(struct swarm *s, const struct cw_error *why)
{
    if (!s->failed.status)
        s->failed = *why;
    cw_loop_stop(s->loop);
}

void swarm_closed(struct swarm *s, const struct cw_error *why)
{
    struct cw_error err = {0};
    s->n_open--;
    if (!s->closing) {
        cw_error_set(&err, CW_E_SERVICE, "the dispatcher at %s ended a connection: %.400s", s->o->address,
                     why->status ? why->message : "it gave no reason");
        swarm_fail(s, &err);
    } else if (s->n_open == 0) {
        cw_loop_stop(s->loop);
    }
}

int swarm_connect(struct swarm *s, Cachew__Role role, const struct cw_conn_ops *ops, void *user,
                  struct cw_conn **ret, struct cw_error *err)
{
    Cachew__Hello hello;
    uint8_t incarnation[16];
    struct cw_conn_options o = {.hello = &hello, .limits = CW_LIMITS_CLIENT_CONTROL, .token = s->o->token};
    if (getrandom(incarnation, sizeof(incarnation), 0) != sizeof(incarnation))
        return cw_error_set(err, CW_E_IO, "the system has no random bytes");
    cw_hello_init(&hello, role, "load", incarnation, "load");
    int r = cw_conn_connect(s->loop, s->o->address, &o, ops, user, ret, err);
    s->n_open += r >= 0;
    return r;
}

/* ---- workers ---- */

static const struct cw_conn_ops worker_ops;

static int swarm_connect_more(struct swarm *s, struct cw_error *err)
{
    int r = 0;
    while (r >= 0 && s->n_begun < s->o->n_workers && s->n_begun - s->n_registered < WAVE) {
        struct swarm_worker *w = &s->workers[s->n_begun];
        *w = (struct swarm_worker){.swarm = s, .index = s->n_begun};
        r = swarm_connect(s, CACHEW__ROLE__ROLE_WORKER, &worker_ops, w, &w->conn, err);
        s->n_begun += r >= 0;
    }
    return r;
}

static int worker_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer CW_UNUSED,
                       struct cw_error *err)
{
    struct swarm_worker *w = user;
    Cachew__Register m = CACHEW__REGISTER__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    char *address = (char *)(uintptr_t)"127.0.0.1:1"; /* no client asks for a batch there */
    m.addresses = &address;
    m.n_addresses = 1;
    m.cpu_budget = 1;
    e.id = ++w->last_id;
    e.of_case = CACHEW__ENVELOPE__OF_REGISTER;
    e.register_ = &m;
    return cw_conn_send(c, &e, NULL, 0, NULL, NULL, NULL, 0, err);
}

static int worker_registered(struct swarm_worker *w, struct cw_error *err)
{
    struct swarm *s = w->swarm;
    Cachew__Holdings m = CACHEW__HOLDINGS__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    e.of_case = CACHEW__ENVELOPE__OF_HOLDINGS;
    e.holdings = &m;
    int r = cw_conn_send(w->conn, &e, NULL, 0, NULL, NULL, NULL, 0, err);
    s->n_registered++;
    if (r >= 0)
        r = swarm_connect_more(s, err);
    if (r >= 0 && s->n_registered == s->o->n_workers)
        s->ready(s->user);
    return r;
}

static int worker_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                          void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                          size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct swarm_worker *w = user;
    if (m->of_case == CACHEW__ENVELOPE__OF_REGISTERED)
        return worker_registered(w, err);
    return w->swarm->closing ? 0 : w->swarm->message(w->swarm->user, w, m, err);
}

static void worker_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct swarm_worker *w = user;
    w->conn = NULL;
    swarm_closed(w->swarm, why);
}

static const struct cw_conn_ops worker_ops = {
    .open = worker_open, .message = worker_message, .closed = worker_closed};

int swarm_start(struct swarm *s, struct cw_error *err)
{
    if (getrandom(s->fingerprint, sizeof(s->fingerprint), 0) != sizeof(s->fingerprint))
        return cw_error_set(err, CW_E_IO, "the system has no random bytes");
    s->workers = calloc(s->o->n_workers, sizeof(*s->workers));
    return s->workers ? swarm_connect_more(s, err)
                      : cw_error_nomem(err, s->o->n_workers * sizeof(*s->workers), "workers");
}

int swarm_prepared(struct swarm_worker *w, uint64_t re, const Cachew__Prepare *p, uint64_t range_size,
                   uint32_t capacity, uint8_t ret_stream[16], struct cw_error *err)
{
    Cachew__Prepared m = CACHEW__PREPARED__INIT;
    Cachew__Plan plan = CACHEW__PLAN__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    plan.n_positions = ENDLESS;
    plan.align = m.most_positions = range_size; /* so that all ranges have just so many */
    plan.n_keys = w->swarm->o->n_keys;
    plan.snapshot = 1;
    m.stream = p->stream;
    m.plan = &plan;
    m.capacity = capacity;
    e.re = re;
    e.of_case = CACHEW__ENVELOPE__OF_PREPARED;
    e.prepared = &m;
    if (p->stream.len != 16)
        return cw_error_set(err, CW_E_SERVICE, "Prepare names a stream by %zu bytes, expected 16",
                            p->stream.len);
    memcpy(ret_stream, p->stream.data, 16);
    return cw_conn_send(w->conn, &e, NULL, 0, NULL, NULL, NULL, 0, err);
}

int swarm_end(struct swarm *s, int r, struct cw_error *err)
{
    s->closing = true;
    for (size_t i = 0; i < s->n_begun; i++)
        if (s->workers[i].conn)
            cw_conn_close(s->workers[i].conn, NULL);
    if (s->n_open > 0)
        cw_loop_run(s->loop);
    free(s->workers);
    cw_loop_free(s->loop);
    if (r < 0 || !s->failed.status)
        return r;
    *err = s->failed;
    return err->status;
}
