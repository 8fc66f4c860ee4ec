/* The connection to the dispatcher: attaches to the job, reports progress, receives the addresses of workers
 * and the placement of ranges, and detaches at the end. The loop's thread, with the mutex held. */
#include "remote/dispatcher.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/patience.h"
#include "base/text.h"
#include "base/thread.h"
#include "net/limits.h"
#include "remote/internal.h"
#include "remote/placement.h"
#include "remote/requests.h"

#define RETRY_NS UINT64_C(100000000)
/* ns between two reports of a cursor that stays within a range: the first value while batches are taken, the
 * second while none are, so that a held job causes little traffic. */
#define PROGRESS_NS UINT64_C(250000000)
#define STILL_NS UINT64_C(1000000000)
/* The goodbye may take 1/3 of the time after which a silent peer counts as gone: 1 s by default. */
#define GOODBYE_PART 3

/* ---- what is sent ---- */

static char *message_text(const char *text) /* for texts in messages: the structs have char *, but sending
                                               does not change the text */
{
    return (char *)(uintptr_t)text;
}

static void dispatcher_attach(struct remote *r)
{
    struct dispatcher *d = &r->dispatcher;
    const struct remote_job *job = &r->job;
    const struct cw_remote_options *o = &job->options;
    uint8_t fingerprint[16];
    memcpy(fingerprint, &job->compiled->pipeline->fingerprint, sizeof(fingerprint));
    cw_cursor_set(job->compiled, &r->attached_from, &r->from);
    d->cursor = cw_placement_cursor(r);
    d->attach_id = ++r->loop.last_id;
    d->state = DISPATCHER_OPEN;
    cw_waiting_unhold(&r->waiting);
    Cachew__Place from = {CW_MESSAGE(place), .epoch = d->cursor.epoch, .position = d->cursor.position};
    Cachew__Place round = {CW_MESSAGE(place), .epoch = r->view.rounds_epoch, .batch = r->view.rounds_from};
    Cachew__Attach m = {CW_MESSAGE(attach),
                        .job = message_text(o->job),
                        .rank = o->rank,
                        .world_size = o->world_size,
                        .seed = o->seed,
                        .epochs = o->epochs,
                        .order = o->unordered ? CACHEW__ORDER__ORDER_ANY : CACHEW__ORDER__ORDER_EXACT,
                        .guarantee = o->at_most_once ? CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE
                                                     : CACHEW__GUARANTEE__GUARANTEE_EXACTLY_ONCE,
                        .fingerprint = {.data = fingerprint, .len = sizeof(fingerprint)},
                        .pipeline = message_text(o->pipeline),
                        .base_dir = message_text(o->base_dir),
                        .from = &from,
                        .snapshot = r->run.snapshot,
                        .again = r->run.attached,
                        .round = &round};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = d->attach_id, .of_case = CACHEW__ENVELOPE__OF_ATTACH,
                          .attach = &m};
    cw_dispatcher_send(d, &e);
    d->last_report_ns = cw_now_ns();
    cw_crash_point("client-attach");
}

static void dispatcher_send_progress(struct remote *r, uint64_t now)
{
    struct dispatcher *d = &r->dispatcher;
    struct waiting *w = &r->waiting;
    const struct cw_pace *p = &r->pace.sums;
    d->cursor = cw_placement_cursor(r);
    d->reported_batches = r->n_batches;
    if (!w->active)
        w->lagging[0] = '\0';
    Cachew__Place from = {CW_MESSAGE(place), .epoch = d->cursor.epoch, .position = d->cursor.position};
    Cachew__Pace pace = {
        CW_MESSAGE(pace),    .n = (uint64_t)p->n,   .late = (uint64_t)p->late, .ready = (uint64_t)p->ready,
        .step_s = p->step_s, .step_sq = p->step_sq, .wait_s = p->wait_s,       .wait_sq = p->wait_sq};
    Cachew__Progress m = {
        CW_MESSAGE(progress), .from = &from,       .n_batches = r->n_batches, .wait_ns = w->total_ns,
        .g = r->from.g,       .n_lost = r->n_lost, .digest_lo = r->digest.lo, .digest_hi = r->digest.hi,
        .waiting = w->active, .pace = &pace};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_PROGRESS, .progress = &m};
    cw_dispatcher_send(d, &e);
    d->last_report_ns = now;
    cw_crash_point("client-progress");
}

/* Returns the time in ns after which the next report is due, at the latest. */
static uint64_t dispatcher_report_interval_ns(const struct remote *r)
{
    return r->n_batches != r->dispatcher.reported_batches ? PROGRESS_NS : STILL_NS;
}

void cw_dispatcher_report(struct remote *r, uint64_t now)
{
    const struct dispatcher *d = &r->dispatcher;
    bool attached = d->state == DISPATCHER_ATTACHED, moved = attached && cw_placement_cursor_moved(r);
    if (attached && cw_position_before(cw_placement_cursor(r), d->cursor))
        dispatcher_attach(r); /* the cursor moved back: only an Attach can tell the dispatcher */
    else if (attached && (moved || now - d->last_report_ns >= dispatcher_report_interval_ns(r)))
        dispatcher_send_progress(r, now);
    if (moved)
        cw_range_table_forget(&r->ranges,
                              d->cursor); /* the dispatcher names these ranges again only after an Attach */
    cw_remote_wake_at(r, now + dispatcher_report_interval_ns(r));
}

static void dispatcher_part(struct dispatcher *d)
{
    d->state = DISPATCHER_PARTED;
    if (d->conn)
        cw_conn_close(d->conn, NULL);
}

void cw_dispatcher_leave(struct remote *r)
{
    struct dispatcher *d = &r->dispatcher;
    if (!r->loop.goodbye_ns)
        r->loop.goodbye_ns = cw_now_ns() + cw_patience_silence_ns() / GOODBYE_PART;
    if (d->state == DISPATCHER_PARTED || d->detach_id)
        return;
    if (d->state == DISPATCHER_ATTACHED && !cw_position_before(cw_placement_cursor(r), d->cursor))
        dispatcher_send_progress(r, cw_now_ns()); /* the final numbers */
    Cachew__Detach m = {CW_MESSAGE(detach), .finished = r->run.finished,
                        .job = message_text(r->job.options.job), .rank = r->job.options.rank};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = r->loop.last_id + 1,
                          .of_case = CACHEW__ENVELOPE__OF_DETACH, .detach = &m};
    if (cw_dispatcher_send(d, &e))
        d->detach_id = ++r->loop.last_id;
    if (!r->run.finished || !r->run.attached)
        dispatcher_part(d);
}

/* ---- messages from the dispatcher ---- */

static int dispatcher_on_attached(struct remote *r, const Cachew__Attached *m, struct cw_error *err)
{
    const Cachew__Plan *p = m->plan;
    struct cw_plan *plan = &r->view.base.plan;
    if (!p || m->stream.len != sizeof(r->run.stream) || p->n_positions > CW_ENDLESS)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the dispatcher answered the request to join the job with an invalid plan" CW_OTHER_VERSION);
    if (r->run.attached && (p->snapshot != plan->snapshot || p->n_positions != plan->n_positions)) {
        cw_remote_fail_text(
            r, CW_E_DATA,
            "job %s: the data changed: files were added, removed or changed since the job began",
            r->job.options.job);
        return 0;
    }
    if (!r->run.attached) { /* once `attached` is set, the consumer's thread reads the plan */
        *plan = (struct cw_plan){.n_positions = p->n_positions, .snapshot = p->snapshot};
        cw_text_show(r->run.took_over, sizeof(r->run.took_over), m->took_over);
    }
    memcpy(r->run.stream, m->stream.data, sizeof(r->run.stream));
    r->run.snapshot = p->snapshot;
    r->run.attached = true;
    r->dispatcher.state = DISPATCHER_ATTACHED;
    cw_remote_wake_at(r, cw_now_ns()); /* the cursor may have moved since Attach was sent */
    pthread_cond_broadcast(&r->changed);
    return 0;
}

static void dispatcher_on_refused(struct remote *r, const Cachew__Failure *m)
{
    struct cw_error why = {0};
    cw_failure_error(m, &why);
    struct cw_error said = why;
    if (why.file[0]) /* the file that the error names is one of the worker's */
        (void)cw_error_set(&why, why.status, "on a worker of the service: %s", said.message);
    cw_remote_fail(r, &why);
}

static void dispatcher_on_ended(struct remote *r, const Cachew__Ended *m)
{
    struct cw_error why = {0};
    if (m->why)
        cw_failure_error(m->why, &why);
    else
        (void)cw_error_set(&why, CW_E_SERVICE, "the dispatcher ended job %s without a reason",
                           r->job.options.job);
    cw_remote_fail(r, &why);
}

static void dispatcher_on_lagging(struct remote *r, const Cachew__Lagging *m)
{
    if (m->at)
        snprintf(r->waiting.lagging, sizeof(r->waiting.lagging),
                 "; rank %u of %u is behind: it is at position %llu of epoch %llu%s", m->rank,
                 r->job.options.world_size, (unsigned long long)m->at->position,
                 (unsigned long long)m->at->epoch, m->attached ? "" : ", and not connected");
}

/* Handles a message from the dispatcher; see cw_conn_ops.message. The mutex must be held. */
static int dispatcher_hear(struct remote *r, const Cachew__Envelope *m, struct cw_error *err)
{
    struct dispatcher *d = &r->dispatcher;
    int status = 0;
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_DONE:
        if (d->detach_id && m->re == d->detach_id)
            dispatcher_part(d);
        return 0;
    case CACHEW__ENVELOPE__OF_ATTACHED:
        status = m->re == d->attach_id ? dispatcher_on_attached(r, m->attached, err) : 0;
        break;
    case CACHEW__ENVELOPE__OF_FAILURE:
        if (m->re == d->attach_id)
            dispatcher_on_refused(r, m->failure);
        break;
    case CACHEW__ENVELOPE__OF_ENDED:
        dispatcher_on_ended(r, m->ended);
        break;
    case CACHEW__ENVELOPE__OF_LAGGING:
        dispatcher_on_lagging(r, m->lagging);
        break;
    case CACHEW__ENVELOPE__OF_HELD:
        cw_waiting_hold(&r->waiting, m->held);
        break;
    case CACHEW__ENVELOPE__OF_WORKERS:
        for (size_t i = 0; i < m->workers->n_workers && status >= 0; i++)
            status = cw_link_set(r, m->workers->workers[i], err);
        break;
    case CACHEW__ENVELOPE__OF_PLACEMENTS:
        for (size_t i = 0; i < m->placements->n_placements && status >= 0; i++)
            status = cw_placement_set(r, m->placements->placements[i], err);
        break;
    case CACHEW__ENVELOPE__OF_REPORTS:
        for (size_t i = 0; i < m->reports->n_reports && status >= 0; i++)
            status = cw_placement_report(r, m->reports->reports[i], false, err);
        break;
    default: /* of a later version */
        break;
    }
    cw_requests_send(r);
    return status;
}

/* ---- the connection ---- */

static int dispatcher_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct remote *r = user;
    if (peer->welcome->role != CACHEW__ROLE__ROLE_DISPATCHER)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the server at %s is not a dispatcher: expected the address of the service's dispatcher",
            r->job.options.service);
    CW_GUARD(&r->mutex);
    r->dispatcher.conn = c;
    r->dispatcher.state = DISPATCHER_OPEN;
    r->dispatcher.reached = true;
    r->run.service_down = (struct cw_error){0};
    if (r->run.phase != REMOTE_RUNNING)
        cw_dispatcher_leave(r);
    else
        dispatcher_attach(r);
    return 0;
}

static int dispatcher_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                              void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                              size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct remote *r = user;
    CW_GUARD(&r->mutex);
    return dispatcher_hear(r, m, err);
}

static void dispatcher_down(struct remote *r, const struct cw_error *why)
{
    struct dispatcher *d = &r->dispatcher;
    struct cw_error *down = &r->run.service_down;
    uint64_t now = cw_now_ns();
    d->conn = NULL;
    if (d->state != DISPATCHER_PARTED)
        d->state = DISPATCHER_DOWN;
    d->detach_id = 0;
    cw_waiting_unhold(&r->waiting);
    *down = *why;
    if (!why->status)
        (void)cw_error_set(down, CW_E_SERVICE, "it closed the connection");
    d->retry_ns = now + RETRY_NS;
    if (!r->run.attached && cw_failure_is_final(down)) /* another attempt would be refused, too */
        cw_remote_fail_text(r, CW_E_SERVICE, "the dispatcher at %s refuses the connection: %.400s",
                            r->job.options.service, down->message);
    else if (!d->reached && r->job.options.absent_ns && now - r->loop.started_ns > r->job.options.absent_ns)
        cw_remote_fail_text(r, CW_E_SERVICE, "the dispatcher at %s can't be reached: %.400s",
                            r->job.options.service, down->message);
    cw_remote_wake_at(r, d->retry_ns);
}

static void dispatcher_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct remote *r = user;
    CW_GUARD(&r->mutex);
    r->loop.n_conns--;
    dispatcher_down(r, why);
    cw_remote_end_if_done(r);
}

static const struct cw_conn_ops dispatcher_ops = {
    .open = dispatcher_open, .message = dispatcher_message, .closed = dispatcher_closed};

void cw_dispatcher_connect(struct remote *r, uint64_t now)
{
    struct dispatcher *d = &r->dispatcher;
    bool leaving = r->run.phase != REMOTE_RUNNING;
    if (d->conn || (leaving && (d->state == DISPATCHER_PARTED || now >= r->loop.goodbye_ns)))
        return;
    if (now < d->retry_ns) {
        cw_remote_wake_at(r, d->retry_ns); /* the loop may have been woken for something else */
        return;
    }
    struct cw_error err = {0};
    struct cw_conn_options o = {.hello = &r->job.hello,
                                .limits = CW_LIMITS_CLIENT_CONTROL,
                                .token = r->job.options.token,
                                .tls = r->job.options.tls};
    if (cw_conn_connect(r->loop.loop, r->job.options.service, &o, &dispatcher_ops, r, &d->conn, &err) < 0)
        dispatcher_down(r, &err);
    else
        r->loop.n_conns++;
}
