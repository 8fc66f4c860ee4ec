/*
 * The dispatcher, as a worker sees it: the connection, which is made again for ever, and what is said over
 * it. What the worker has is said anew on the next one. What its ranges gave: reports.c; what a stream is
 * made from: facts.c. The loop's thread only.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text.h"
#include "net/conn.h"
#include "net/limits.h"
#include "service/worker/worker_impl.h"

#include "base/crash.h"

#define BACKOFF_FIRST_NS UINT64_C(50000000)
#define BACKOFF_MAX_NS UINT64_C(1000000000)

void cw_control_say(struct cw_worker *w, const Cachew__Envelope *m)
{
    struct cw_error err = {0};
    if (!w->registered && m->of_case != CACHEW__ENVELOPE__OF_REGISTER)
        return; /* it is said when it is */
    if (w->dispatcher && cw_conn_send(w->dispatcher, m, NULL, 0, NULL, NULL, NULL, 0, &err) < 0) {
        cw_worker_log(w, "dispatcher: %s", err.message);
        cw_control_close(w); /* all is said again on the next one */
    }
}

/* ---- streams ---- */

void cw_control_prepared(struct cw_worker *w, struct worker_stream *s)
{
    Cachew__Prepared prepared;
    Cachew__Plan plan;
    if (!s->prepare_id)
        return; /* nobody asks on this connection: Holdings say it */
    _cleanup_free_ CW_UNUSED void *facts = cw_facts_prepared(s, &prepared, &plan);
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = s->prepare_id, .of_case = CACHEW__ENVELOPE__OF_PREPARED,
                          .prepared = &prepared};
    cw_crash_point("worker-prepared");
    s->prepare_id = 0;
    cw_control_say(w, &m);
}

static void say_failure(struct cw_worker *w, uint64_t re, const struct cw_error *why)
{
    Cachew__Failure failure;
    Cachew__Envelope m;
    cw_failure_envelope(&m, &failure, re, why);
    cw_control_say(w, &m);
}

void cw_control_prepare_failed(struct cw_worker *w, struct worker_stream *s, const struct cw_error *why)
{
    cw_worker_log(w, "a stream can't be prepared: %s", why->message);
    if (s->prepare_id)
        say_failure(w, s->prepare_id, why);
    s->prepare_id = 0;
}

void cw_control_stream_failed(struct cw_worker *w, ProtobufCBinaryData stream, const struct cw_error *why)
{
    Cachew__Failure failure;
    cw_worker_log(w, "a stream can't go on: %s", why->message);
    cw_failure_init(&failure, why);
    Cachew__StreamFailed failed = {CW_MESSAGE(stream_failed), .stream = stream, .why = &failure};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_STREAM_FAILED,
                          .stream_failed = &failed};
    cw_control_say(w, &m);
}

/* ---- registering ---- */

static void say_register(struct cw_worker *w)
{
    char *own = w->tcp ? (char *)(uintptr_t)cw_listener_address(w->tcp) : NULL;
    Cachew__Register reg = {CW_MESSAGE(register),
                            .unix_path = w->unix_path,
                            .addresses = w->options.n_advertise ? (char **)(uintptr_t)w->options.advertise
                                                                : &own,
                            .n_addresses = w->options.n_advertise ? w->options.n_advertise : own != NULL,
                            .pid = (uint32_t)getpid(),
                            .cpu_budget = w->options.threads,
                            .memory = w->options.memory,
                            .http = (char *)(uintptr_t)(w->http ? cw_http_address(w->http) : ""),
                            .allow_python = w->options.allow_python,
                            .pool = (char *)(uintptr_t)(w->options.pool ? w->options.pool : ""),
                            .max_streams = w->options.max_streams};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_REGISTER, .register_ = &reg};
    m.id = w->register_id = next_number(&w->next_id);
    cw_control_say(w, &m);
}

static void say_draining(struct cw_worker *w)
{
    Cachew__Draining draining = CACHEW__DRAINING__INIT;
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_DRAINING,
                          .draining = &draining};
    cw_control_say(w, &m);
}

/* One stream that is ready, with its leases. */
static void say_holding(struct cw_worker *w, const struct worker_stream *s)
{
    _cleanup_free_ Cachew__Range *memory = malloc((s->n_leases + 1) * sizeof(*memory));
    _cleanup_free_ Cachew__Range **ranges = malloc((s->n_leases + 1) * sizeof(*ranges));
    Cachew__Prepared prepared;
    Cachew__Plan plan;
    Cachew__Holding holding = {CW_MESSAGE(holding), .prepared = &prepared, .ranges = ranges},
                    *list = &holding;
    Cachew__Holdings holdings = {CW_MESSAGE(holdings), .holdings = &list, .n_holdings = 1};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_HOLDINGS,
                          .holdings = &holdings};
    _cleanup_free_ void *facts = NULL;
    if (memory && ranges) { /* else they are leased to others */
        facts = cw_facts_prepared(s, &prepared, &plan);
        for (const struct lease *l = s->leases; l; l = l->next) {
            Cachew__Range *p = ranges[holding.n_ranges] = &memory[holding.n_ranges];
            *p = (Cachew__Range){CW_MESSAGE(range), .epoch = l->epoch, .begin = l->begin, .end = l->end,
                                 .lease = l->number};
            holding.n_ranges++;
        }
        cw_control_say(w, &m);
    }
}

static void on_registered(struct cw_worker *w, uint64_t id)
{
    if (w->id != id)
        cw_worker_log(w, "registered as worker %llu", (unsigned long long)id);
    w->id = id;
    w->registered = true;
    w->refused = false;
    w->why[0] = '\0';
    w->backoff_ns = BACKOFF_FIRST_NS;
    for (struct worker_stream *s = w->streams; s; s = s->next)
        if (s->state == STREAM_READY)
            say_holding(w, s);
        else if (s->state ==
                 STREAM_FAILED) /* the dispatcher gave it up with the last connection, and sends no Forget */
            cw_streams_end(w, s);
    cw_reports_say(w);
    if (w->draining)
        say_draining(w);
    cw_worker_changed(w);
}

uint64_t cw_control_cpu_ns(void)
{
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
}

/* ---- messages ---- */

static int on_prepare(struct cw_worker *w, uint64_t id, const Cachew__Prepare *p)
{
    struct cw_error why = {0};
    if (cw_streams_prepare(w, id, p, &why) < 0)
        say_failure(w, id, &why);
    return 0;
}

static int on_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                      void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                      size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct cw_worker *w = user;
    struct worker_stream *s;
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_REGISTERED:
        on_registered(w, m->registered->worker);
        return 0;
    case CACHEW__ENVELOPE__OF_PREPARE:
        return on_prepare(w, m->id, m->prepare);
    case CACHEW__ENVELOPE__OF_LEASES:
        cw_crash_point("worker-lease");
        return cw_streams_lease(w, m->leases, err);
    case CACHEW__ENVELOPE__OF_REVOKE:
        return cw_streams_revoke(w, m->revoke, err);
    case CACHEW__ENVELOPE__OF_FORGET:
        cw_reports_forget(w, m->forget->stream);
        if ((s = cw_streams_find(w, m->forget->stream)))
            cw_streams_end(w, s);
        return 0;
    case CACHEW__ENVELOPE__OF_CACHING:
        cw_streams_caching(w, m->caching);
        return 0;
    case CACHEW__ENVELOPE__OF_DRAIN:
        cw_control_drain(w);
        return 0;
    case CACHEW__ENVELOPE__OF_FAILURE:
        if (m->re && m->re == w->register_id)
            return cw_failure_error(m->failure, err);
        cw_worker_log(w, "the dispatcher refused a request: %s", m->failure->message);
        cw_reports_answered(w, m->re, false);
        cw_worker_changed(w);
        return 0;
    case CACHEW__ENVELOPE__OF_DONE:
        cw_reports_answered(w, m->re, true);
        cw_worker_changed(w);
        return 0;
    default: /* of a later version */
        return 0;
    }
}

/* ---- the connection ---- */

static int on_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct cw_worker *w = user;
    if (!peer->welcome || peer->welcome->role != CACHEW__ROLE__ROLE_DISPATCHER)
        return cw_error_set(err, CW_E_SERVICE, "%s is no dispatcher", cw_conn_peer(c));
    say_register(w);
    return 0;
}

/* Waits longer and longer, and not in step with others. */
static void connect_later(struct cw_worker *w)
{
    uint64_t wait = w->backoff_ns;
    w->jitter = w->jitter * 1664525u + 1013904223u;
    wait = wait / 2 + wait / 2 * (w->jitter >> 16) / 65536;
    w->backoff_ns = CW_MIN(w->backoff_ns * 2, BACKOFF_MAX_NS);
    cw_timer_start(w->reconnect, wait, 0);
}

static void on_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct cw_worker *w = user;
    w->dispatcher = NULL;
    w->registered = false;
    for (struct worker_stream *s = w->streams; s; s = s->next)
        s->prepare_id = 0;
    if (!w->stopping) {
        cw_text_show(w->why, sizeof(w->why), why->status ? why->message : "it closed the connection");
        w->refused = cw_failure_is_final(why);
        if (w->backoff_ns == BACKOFF_FIRST_NS || why->status != CW_E_SERVICE)
            cw_worker_log(w, "the dispatcher's connection ended: %s",
                          why->status ? why->message : "it closed it");
        connect_later(w);
    }
    cw_worker_changed(w);
    cw_worker_maybe_over(w);
}

static const struct cw_conn_ops ops = {.open = on_open, .message = on_message, .closed = on_closed};

static void on_reconnect(void *arg)
{
    struct cw_worker *w = arg;
    if (!w->stopping)
        cw_control_connect(w);
}

void cw_control_connect(struct cw_worker *w)
{
    struct cw_error err = {0};
    Cachew__Hello hello;
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_WORKER, w->options.name, w->incarnation, w->host);
    bool local = strncmp(w->options.dispatcher, "unix:", 5) == 0;
    struct cw_conn_options o = {.hello = &hello,
                                .limits = CW_LIMITS_WORKER_CONTROL,
                                .timeout_ns = w->options.timeout_ns,
                                .token = w->options.token,
                                .tls = local ? NULL : w->options.dispatcher_tls};
    if (cw_conn_connect(w->loop, w->options.dispatcher, &o, &ops, w, &w->dispatcher, &err) < 0) {
        w->dispatcher = NULL;
        cw_worker_log(w, "the dispatcher can't be reached: %s", err.message);
        connect_later(w);
    }
}

void cw_control_drain(struct cw_worker *w)
{
    if (!w->draining) {
        cw_worker_log(w, "draining: no more ranges are taken");
        w->draining = true;
        say_draining(w);
    }
    cw_worker_changed(w);
}

int cw_control_init(struct cw_worker *w, struct cw_error *err)
{
    cw_reports_init(w);
    w->backoff_ns = BACKOFF_FIRST_NS;
    memcpy(&w->jitter, w->incarnation, sizeof(w->jitter));
    int r = cw_timer_new(w->loop, on_reconnect, w, &w->reconnect, err);
    return r < 0 ? r : cw_heartbeat_init(w, err);
}

void cw_control_start(struct cw_worker *w)
{
    cw_heartbeat_start(w);
    cw_control_connect(w);
}

void cw_control_close(struct cw_worker *w)
{
    w->registered = false; /* nothing more is said */
    if (w->dispatcher)
        cw_conn_close(w->dispatcher, NULL);
}

void cw_control_cut(struct cw_worker *w)
{
    if (w->dispatcher)
        cw_conn_abort(w->dispatcher);
}

void cw_control_deinit(struct cw_worker *w)
{
    w->reconnect = w->reconnect ? cw_timer_free(w->reconnect) : NULL;
    w->heartbeat = w->heartbeat ? cw_timer_free(w->heartbeat) : NULL;
    cw_reports_deinit(w);
}
