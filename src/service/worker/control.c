/* Messages between the dispatcher and this worker: registering, streams, leases, draining. The loop's thread
 * only; called by worker.c. */
#include "service/worker/control.h"

#include <unistd.h>

#include "base/crash.h"
#include "service/worker/answers.h"
#include "service/worker/prepared.h"
#include "service/worker/worker_impl.h"

/* ---- streams ---- */

/* Answers Prepare of a stream that is ready, if this connection's Prepare is not answered yet. */
static void control_send_prepared(struct cw_worker *w, struct cw_worker_stream *s)
{
    Cachew__Prepared prepared;
    Cachew__Plan plan;
    if (!s->prepare_id)
        return; /* no Prepare came over this connection: Holdings names the stream */
    _cleanup_free_ CW_UNUSED void *files = cw_prepared_message(s, &prepared, &plan);
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = s->prepare_id, .of_case = CACHEW__ENVELOPE__OF_PREPARED,
                          .prepared = &prepared};
    cw_crash_point("worker-prepared");
    s->prepare_id = 0;
    cw_uplink_send(&w->uplink, &m);
}

/* Answers Prepare with Failure: the stream can't be opened. */
static void control_send_not_prepared(struct cw_worker *w, struct cw_worker_stream *s,
                                      const struct cw_error *why)
{
    cw_common_log(&w->common, "a pipeline of a job can't be opened: %s", why->message);
    if (s->prepare_id)
        cw_uplink_send_failure(&w->uplink, s->prepare_id, why);
    s->prepare_id = 0;
}

/* Sends StreamFailed: the worker can't go on with the stream, or does not have it. */
static void control_send_failed(struct cw_worker *w, ProtobufCBinaryData stream, const struct cw_error *why)
{
    Cachew__Failure failure;
    cw_common_log(&w->common, "a pipeline of a job can't go on: %s", why->message);
    cw_failure_init(&failure, why);
    Cachew__StreamFailed failed = {CW_MESSAGE(stream_failed), .stream = stream, .why = &failure};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_STREAM_FAILED,
                          .stream_failed = &failed};
    cw_uplink_send(&w->uplink, &m);
}

/* Handles one answer, and takes ownership of it. After EXITED, s is freed. */
static void control_on_answer(struct cw_worker *w, struct cw_worker_stream *s, struct cw_answer *a)
{
    static const struct cw_error unknown = {.status = CW_E_MEMORY, .message = "out of memory"};
    const struct cw_error *why = a->why ? a->why : &unknown;
    switch (a->kind) {
    case CW_ANSWER_OPENED:
        if (cw_streams_opened(s))
            control_send_prepared(w, s);
        break;
    case CW_ANSWER_NOT_OPENED:
        if (s->state == STREAM_OPENING)
            control_send_not_prepared(w, s, why);
        cw_streams_end(s);
        break;
    case CW_ANSWER_COMPLETED:
        if (s->state != STREAM_READY)
            break;
        cw_reports_completed(&w->reports, s, a);
        return;
    case CW_ANSWER_FAILED:
        if (s->state != STREAM_READY)
            break;
        s->state = STREAM_FAILED;
        cw_grants_clear(&s->grants);
        control_send_failed(w, cw_streams_name(s), why);
        break;
    case CW_ANSWER_EXITED:
        cw_streams_exited(s);
        break;
    default:
        cw_answers_send(s, a);
        return;
    }
    cw_answer_free(a);
}

void cw_control_on_answers(void *stream)
{
    struct cw_worker_stream *s = stream;
    struct cw_worker *w = CW_CONTAINER(s->streams, struct cw_worker, streams);
    struct cw_answer *came = cw_mailbox_answers(&s->stream->mailbox);
    while (came)
        control_on_answer(w, s, CW_POP(came));
    cw_common_changed(&w->common);
}

/* ---- registering ---- */

static void control_register(struct cw_worker *w)
{
    const struct cw_worker_options *o = &w->common.options;
    char *own = w->clients.tcp ? (char *)(uintptr_t)cw_listener_address(w->clients.tcp) : NULL;
    Cachew__Register reg = {CW_MESSAGE(register),
                            .unix_path = w->clients.unix_path,
                            .addresses = o->n_advertise ? (char **)(uintptr_t)o->advertise : &own,
                            .n_addresses = o->n_advertise ? o->n_advertise : own != NULL,
                            .pid = (uint32_t)getpid(),
                            .cpu_budget = o->threads,
                            .memory = o->memory,
                            .http = (char *)(uintptr_t)(w->http ? cw_http_address(w->http) : ""),
                            .allow_python = o->allow_python,
                            .pool = (char *)(uintptr_t)(o->pool ? o->pool : ""),
                            .max_streams = o->max_streams};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_REGISTER, .register_ = &reg};
    m.id = w->uplink.register_id = ++w->uplink.next_id;
    cw_uplink_send(&w->uplink, &m);
}

static void control_send_draining(struct cw_worker *w)
{
    Cachew__Draining draining = CACHEW__DRAINING__INIT;
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_DRAINING,
                          .draining = &draining};
    cw_uplink_send(&w->uplink, &m);
}

/* Sends Holdings with one stream that is ready, and its granted ranges. If memory is short, nothing is sent,
 * and the dispatcher leases the ranges to other workers. */
static void control_send_holding(struct cw_worker *w, const struct cw_worker_stream *s)
{
    _cleanup_free_ Cachew__Range *memory = malloc((s->grants.n + 1) * sizeof(*memory));
    _cleanup_free_ Cachew__Range **ranges = malloc((s->grants.n + 1) * sizeof(*ranges));
    Cachew__Prepared prepared;
    Cachew__Plan plan;
    Cachew__Holding holding = {CW_MESSAGE(holding), .prepared = &prepared, .ranges = ranges},
                    *list = &holding;
    Cachew__Holdings holdings = {CW_MESSAGE(holdings), .holdings = &list, .n_holdings = 1};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_HOLDINGS,
                          .holdings = &holdings};
    if (!memory || !ranges)
        return;
    _cleanup_free_ CW_UNUSED void *files = cw_prepared_message(s, &prepared, &plan);
    for (const struct cw_grant *g = s->grants.list; g; g = g->next) {
        Cachew__Range *p = ranges[holding.n_ranges] = &memory[holding.n_ranges];
        *p = (Cachew__Range){CW_MESSAGE(range), .epoch = g->epoch, .begin = g->begin, .end = g->end,
                             .lease = g->number};
        holding.n_ranges++;
    }
    cw_uplink_send(&w->uplink, &m);
}

static void control_on_registered(struct cw_worker *w, uint64_t id)
{
    cw_uplink_registered(&w->uplink, id);
    for (struct cw_worker_stream *s = w->streams.list; s; s = s->next)
        if (s->state == STREAM_READY)
            control_send_holding(w, s);
        else if (s->state == STREAM_FAILED)
            cw_streams_end(
                s); /* the dispatcher gave the stream up with the last connection, and sends no Forget */
    cw_reports_send_all(&w->reports);
    if (w->common.draining)
        control_send_draining(w);
    cw_common_changed(&w->common);
}

/* ---- messages ---- */

static void control_on_prepare(struct cw_worker *w, uint64_t id, const Cachew__Prepare *m)
{
    struct cw_error why = {0};
    if (cw_streams_prepare(&w->streams, id, m, &why) < 0) {
        cw_uplink_send_failure(&w->uplink, id, &why);
        return;
    }
    struct cw_worker_stream *s = cw_streams_find(&w->streams, m->stream);
    if (s->state == STREAM_READY)
        control_send_prepared(w, s);
}

static int control_on_leases(struct cw_worker *w, const Cachew__Leases *m, struct cw_error *err)
{
    struct cw_worker_stream *s = cw_streams_find(&w->streams, m->stream);
    struct cw_error why = {0};
    cw_crash_point("worker-lease");
    if (s)
        return cw_streams_lease(s, m, err);
    /* the dispatcher thinks that the stream is prepared here: after this message it sends Prepare again */
    (void)cw_error_set(&why, CW_E_SERVICE,
                       "the dispatcher leased ranges of a pipeline that this worker has not opened; it will "
                       "request that the worker open it");
    control_send_failed(w, m->stream, &why);
    return 0;
}

static void control_on_forget(struct cw_worker *w, ProtobufCBinaryData stream)
{
    struct cw_worker_stream *s = cw_streams_find(&w->streams, stream);
    cw_reports_forget(&w->reports, stream);
    if (s)
        cw_streams_end(s);
}

static void control_on_reply(struct cw_worker *w, uint64_t re, bool done)
{
    cw_reports_answered(&w->reports, re, done);
    cw_common_changed(&w->common);
}

static int control_on_open(void *worker, struct cw_conn *c, const Cachew__Envelope *peer,
                           struct cw_error *err)
{
    if (!peer->welcome || peer->welcome->role != CACHEW__ROLE__ROLE_DISPATCHER)
        return cw_error_set(err, CW_E_SERVICE, "%s is not a dispatcher", cw_conn_peer(c));
    control_register(worker);
    return 0;
}

static int control_on_message(void *worker, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                              void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                              size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct cw_worker *w = worker;
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_REGISTERED:
        control_on_registered(w, m->registered->worker);
        break;
    case CACHEW__ENVELOPE__OF_PREPARE:
        control_on_prepare(w, m->id, m->prepare);
        break;
    case CACHEW__ENVELOPE__OF_LEASES:
        return control_on_leases(w, m->leases, err);
    case CACHEW__ENVELOPE__OF_REVOKE:
        return cw_streams_revoke(&w->streams, m->revoke, err);
    case CACHEW__ENVELOPE__OF_FORGET:
        control_on_forget(w, m->forget->stream);
        break;
    case CACHEW__ENVELOPE__OF_CACHING:
        cw_streams_set_caching(&w->streams, m->caching);
        break;
    case CACHEW__ENVELOPE__OF_DRAIN:
        cw_control_drain(w);
        break;
    case CACHEW__ENVELOPE__OF_FAILURE:
        if (m->re && m->re == w->uplink.register_id)
            return cw_failure_error(m->failure, err);
        cw_common_log(&w->common, "the dispatcher refused a request of this worker: %s", m->failure->message);
        control_on_reply(w, m->re, false);
        break;
    case CACHEW__ENVELOPE__OF_DONE:
        control_on_reply(w, m->re, true);
        break;
    default: /* of a later version */
        break;
    }
    return 0;
}

static void control_on_closed(void *worker, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct cw_worker *w = worker;
    for (struct cw_worker_stream *s = w->streams.list; s; s = s->next)
        s->prepare_id = 0;
    cw_uplink_lost(&w->uplink, why);
}

const struct cw_conn_ops cw_control_ops = {
    .open = control_on_open, .message = control_on_message, .closed = control_on_closed};

void cw_control_drain(void *worker)
{
    struct cw_worker *w = worker;
    if (!w->common.draining) {
        cw_common_log(&w->common, "draining: the worker accepts no more work");
        w->common.draining = true;
        control_send_draining(w);
    }
    cw_common_changed(&w->common);
}
