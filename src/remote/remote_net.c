/* The loop's thread: the connection to the dispatcher, and when something is to be done. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/thread.h"
#include "remote/remote_impl.h"
#include "net/conn.h"
#include "net/limits.h"

#include "base/crash.h"
#include "base/clock.h"
#include "base/patience.h"

#define RETRY_NS UINT64_C(100000000)
/* The cursor within a range is said so often while it moves, ... */
#define PROGRESS_NS UINT64_C(250000000)
/* ... and so often when it does not: a job that is held wakes nobody more than its connections do. */
#define STILL_NS UINT64_C(1000000000)
/* What is said at the end has this part of the time after which a silent peer is gone to get through: 1 s. */
#define GOODBYE_PART 3

static const char *const transports[] = {[CW_TRANSPORT_AUTO] = "auto",
                                         [CW_TRANSPORT_SHM] = "shm",
                                         [CW_TRANSPORT_UNIX] = "unix",
                                         [CW_TRANSPORT_TCP] = "tcp"};

const char *cw_transport_name(enum cw_transport t)
{
    return transports[t];
}

void cw_remote_wake_at(struct remote *r, uint64_t when_ns)
{
    uint64_t now = cw_now_ns();
    if (!r->timer) /* connections that end with the loop */
        return;
    if (r->timer_ns && r->timer_ns <= when_ns && r->timer_ns > now)
        return;
    r->timer_ns = CW_MAX(when_ns, now + 1);
    cw_timer_start(r->timer, r->timer_ns - now, 0);
}

void cw_remote_fail(struct remote *r, const struct cw_error *why)
{
    if (!r->failed.status)
        r->failed = *why;
    pthread_cond_broadcast(&r->changed);
}

void cw_remote_tell(struct remote *r, const Cachew__Envelope *m)
{
    struct cw_error err = {0};
    if (r->dispatcher_open && cw_conn_send(r->dispatcher, m, NULL, 0, NULL, NULL, NULL, 0, &err) < 0)
        return; /* the connection ends, and what matters is said again */
}

/* ---- the dispatcher ---- */

static void send_attach(struct remote *r)
{
    const struct cw_remote_options *o = &r->options;
    uint8_t fingerprint[16];
    memcpy(fingerprint, &r->compiled->pipeline->fingerprint, sizeof(fingerprint));
    cw_cursor_set(r->compiled, &r->attached_from, &r->from);
    r->told = cw_remote_cursor(r);
    r->attach_id = ++r->next_id;
    r->answered = false;
    cw_remote_unhold(r);
    Cachew__Place from = {CW_MESSAGE(place), .epoch = r->told.epoch, .position = r->told.position};
    Cachew__Place round = {CW_MESSAGE(place), .epoch = r->view.rounds_epoch, .batch = r->view.rounds_from};
    Cachew__Attach m = {CW_MESSAGE(attach),
                        .job = r->job,
                        .rank = o->rank,
                        .world_size = o->world_size,
                        .seed = o->seed,
                        .epochs = o->epochs,
                        .order = o->any_order ? CACHEW__ORDER__ORDER_ANY : CACHEW__ORDER__ORDER_EXACT,
                        .guarantee = o->at_most_once ? CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE
                                                     : CACHEW__GUARANTEE__GUARANTEE_EXACTLY_ONCE,
                        .fingerprint = {.data = fingerprint, .len = sizeof(fingerprint)},
                        .pipeline = r->pipeline,
                        .base_dir = r->base_dir,
                        .from = &from,
                        .snapshot = r->snapshot,
                        .again = r->attached,
                        .round = &round};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = r->attach_id, .of_case = CACHEW__ENVELOPE__OF_ATTACH,
                          .attach = &m};
    cw_remote_tell(r, &e);
    r->told_ns = cw_now_ns();
    cw_crash_point("client-attach");
}

static void send_progress(struct remote *r, uint64_t now)
{
    const struct pace *p = &r->pace;
    r->told = cw_remote_cursor(r);
    r->told_batches = r->n_batches;
    if (!r->waiting)
        r->lagging[0] = '\0';
    Cachew__Place from = {CW_MESSAGE(place), .epoch = r->told.epoch, .position = r->told.position};
    Cachew__Pace pace = {CW_MESSAGE(pace),    .n = p->n,
                         .late = p->late,     .ready = p->ready,
                         .step_s = p->step_s, .step_sq = p->step_sq,
                         .wait_s = p->wait_s, .wait_sq = p->wait_sq};
    Cachew__Progress m = {CW_MESSAGE(progress),  .from = &from,  .n_batches = r->n_batches,
                          .wait_ns = r->wait_ns, .g = r->from.g, .n_lost = r->n_lost,
                          .waiting = r->waiting, .pace = &pace};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_PROGRESS, .progress = &m};
    cw_remote_tell(r, &e);
    r->told_ns = now;
    cw_crash_point("client-progress");
}

static uint64_t progress_ns(const struct remote *r)
{
    return r->n_batches != r->told_batches ? PROGRESS_NS : STILL_NS;
}

/* Says where the cursor is, if that is due. */
static void tell_cursor(struct remote *r, uint64_t now)
{
    struct place at = cw_remote_cursor(r);
    bool moved = cw_remote_moved(r);
    if (cw_before(at, r->told))
        send_attach(r); /* only that goes back */
    else if (moved || now - r->told_ns >= progress_ns(r))
        send_progress(r, now);
    if (moved)
        cw_remote_forget(r);
}

/* Nothing is to be said to the dispatcher any more. */
static void part(struct remote *r)
{
    r->parted = true;
    r->dispatcher_open = false;
    if (r->dispatcher)
        cw_conn_close(r->dispatcher, NULL);
}

static uint64_t goodbye_ns(void)
{
    return cw_patience_silence_ns() / GOODBYE_PART;
}

/* That this rank is finished is said until it was heard: else its job would wait for it. Of who leaves
 * otherwise the end of the connection tells. */
static void say_goodbye(struct remote *r)
{
    r->goodbye_ns = r->goodbye_ns ? r->goodbye_ns : cw_now_ns() + goodbye_ns();
    if (r->parted || r->detach_id)
        return;
    if (r->dispatcher_open) {
        if (r->answered && !cw_before(cw_remote_cursor(r), r->told))
            send_progress(r, cw_now_ns()); /* the last numbers */
        r->detach_id = ++r->next_id;
        Cachew__Detach m = {CW_MESSAGE(detach), .finished = r->finished, .job = r->job,
                            .rank = r->options.rank};
        Cachew__Envelope e = {CW_MESSAGE(envelope), .id = r->detach_id,
                              .of_case = CACHEW__ENVELOPE__OF_DETACH, .detach = &m};
        cw_remote_tell(r, &e);
    }
    if (!r->finished || !r->attached)
        part(r);
}

static int on_attached(struct remote *r, const Cachew__Attached *m, struct cw_error *err)
{
    const Cachew__Plan *p = m->plan;
    struct cw_plan *plan = &r->view.base.plan;
    if (!p || m->stream.len != sizeof(r->stream) || p->n_positions > CW_ENDLESS)
        return cw_error_set(err, CW_E_SERVICE, "the dispatcher answered with a plan that can't be");
    if (r->attached && (p->snapshot != plan->snapshot || p->n_positions != plan->n_positions)) {
        struct cw_error why = {0};
        (void)cw_error_set(&why, CW_E_DATA,
                           "job %s: the data changed: files were added, removed or changed since it began",
                           r->job);
        cw_remote_fail(r, &why);
        return 0;
    }
    *plan = (struct cw_plan){.n_positions = p->n_positions, .snapshot = p->snapshot};
    memcpy(r->stream, m->stream.data, sizeof(r->stream));
    r->snapshot = p->snapshot;
    if (!r->attached)
        cw_text_show(r->took_over, sizeof(r->took_over), m->took_over);
    r->attached = r->answered = true;
    cw_remote_wake_at(r, cw_now_ns()); /* the cursor may have moved meanwhile */
    pthread_cond_broadcast(&r->changed);
    return 0;
}

/* A file that is here need not be there. */
static void say_where(struct cw_error *why)
{
    struct cw_error said = *why;
    if (why->file[0])
        (void)cw_error_set(why, why->status, "on a worker of the service: %s", said.message);
}

static int on_dispatcher(struct remote *r, const Cachew__Envelope *m, struct cw_error *err)
{
    struct cw_error why = {0};
    int status = 0;
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_DONE:
        if (r->detach_id && m->re == r->detach_id)
            part(r);
        return 0;
    case CACHEW__ENVELOPE__OF_ATTACHED:
        status = m->re == r->attach_id ? on_attached(r, m->attached, err) : 0;
        break;
    case CACHEW__ENVELOPE__OF_FAILURE:
        if (m->re == r->attach_id) {
            cw_failure_error(m->failure, &why);
            say_where(&why);
            cw_remote_fail(r, &why);
        }
        break;
    case CACHEW__ENVELOPE__OF_ENDED:
        if (m->ended->why)
            cw_failure_error(m->ended->why, &why);
        else
            (void)cw_error_set(&why, CW_E_SERVICE, "job %s was ended", r->job);
        cw_remote_fail(r, &why);
        break;
    case CACHEW__ENVELOPE__OF_LAGGING:
        if (m->lagging->at)
            snprintf(
                r->lagging, sizeof(r->lagging), "; rank %u of %u is behind, at position %llu of epoch %llu%s",
                m->lagging->rank, r->options.world_size, (unsigned long long)m->lagging->at->position,
                (unsigned long long)m->lagging->at->epoch, m->lagging->attached ? "" : ", and not attached");
        break;
    case CACHEW__ENVELOPE__OF_HELD:
        cw_remote_hold(r, m->held);
        break;
    case CACHEW__ENVELOPE__OF_WORKERS:
        for (size_t i = 0; i < m->workers->n_workers && status >= 0; i++)
            status = cw_remote_worker(r, m->workers->workers[i], err);
        break;
    case CACHEW__ENVELOPE__OF_PLACEMENTS:
        for (size_t i = 0; i < m->placements->n_placements && status >= 0; i++)
            status = cw_remote_place(r, m->placements->placements[i], err);
        break;
    case CACHEW__ENVELOPE__OF_REPORTS:
        for (size_t i = 0; i < m->reports->n_reports && status >= 0; i++)
            status = cw_remote_report(r, m->reports->reports[i], false, err);
        break;
    default: /* of a later version */
        break;
    }
    cw_remote_pump(r);
    return status;
}

static int dispatcher_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct remote *r = user;
    if (peer->welcome->role != CACHEW__ROLE__ROLE_DISPATCHER)
        return cw_error_set(err, CW_E_SERVICE, "there is no dispatcher at %s, but something else",
                            r->service);
    CW_GUARD(&r->mutex);
    r->dispatcher = c;
    r->dispatcher_open = r->reached = true;
    r->answered = false; /* on this connection, nor is it where it begins with the goodbye */
    r->service_down = (struct cw_error){0};
    if (r->left || r->closing)
        say_goodbye(r);
    else
        send_attach(r);
    return 0;
}

static int dispatcher_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                              void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                              size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct remote *r = user;
    CW_GUARD(&r->mutex);
    return on_dispatcher(r, m, err);
}

static void service_is_down(struct remote *r, const struct cw_error *why)
{
    r->dispatcher = NULL;
    r->dispatcher_open = false;
    r->detach_id = 0;
    cw_remote_unhold(r);
    r->service_down = *why;
    if (!why->status)
        (void)cw_error_set(&r->service_down, CW_E_SERVICE, "it closed the connection");
    r->dispatcher_retry_ns = cw_now_ns() + RETRY_NS;
    struct cw_error e = {0};
    if (!r->attached && cw_failure_is_final(&r->service_down)) /* it would say the same again */
        (void)cw_error_set(&e, CW_E_SERVICE, "the dispatcher at %s refuses: %.400s", r->service,
                           r->service_down.message);
    else if (!r->reached && r->options.absent_ns && cw_now_ns() - r->started_ns > r->options.absent_ns)
        (void)cw_error_set(&e, CW_E_SERVICE, "the dispatcher at %s can't be reached: %.400s", r->service,
                           r->service_down.message);
    if (e.status)
        cw_remote_fail(r, &e);
    cw_remote_wake_at(r, r->dispatcher_retry_ns);
}

static void dispatcher_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct remote *r = user;
    CW_GUARD(&r->mutex);
    r->n_conns--;
    service_is_down(r, why);
    cw_remote_over(r);
}

static const struct cw_conn_ops dispatcher_ops = {
    .open = dispatcher_open, .message = dispatcher_message, .closed = dispatcher_closed};

static void dispatcher_connect(struct remote *r)
{
    struct cw_error err = {0};
    struct cw_conn_options o = {
        .hello = r->hello, .limits = CW_LIMITS_CLIENT_CONTROL, .token = r->token, .tls = r->options.tls};
    if (cw_conn_connect(r->loop, r->service, &o, &dispatcher_ops, r, &r->dispatcher, &err) < 0)
        service_is_down(r, &err);
    else
        r->n_conns++;
}

/* ---- what is to be done ---- */

/* What was lent goes back to the connection that it came by; where that is gone, so is what was lent. Mutex
 * held. */
static void give_back(struct remote *r, struct remote_batch **ret_done)
{
    while (r->returned) {
        uint64_t slabs[256];
        struct remote_batch *b, **at = &r->returned;
        struct mapping *mapping = r->returned->mapping;
        Cachew__Return m = {CW_MESSAGE(return), .slabs = slabs};
        Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_RETURN_SLABS,
                              .return_slabs = &m};
        while (*at && m.n_slabs + CW_COUNT_OF(b->lent) <= CW_COUNT_OF(slabs)) {
            b = *at;
            if (b->mapping != mapping) {
                at = &b->next;
                continue;
            }
            *at = b->next;
            for (unsigned i = 0; i < b->n_lent; i++)
                slabs[m.n_slabs++] = b->lent[i];
            b->next = *ret_done;
            *ret_done = b;
        }
        if (mapping->conn && cw_conn_send(mapping->conn, &e, NULL, 0, NULL, NULL, NULL, 0, NULL) < 0)
            return; /* the connection ends */
    }
}

static void run(void *user)
{
    struct remote *r = user;
    struct remote_batch *done = NULL;
    uint64_t now = cw_now_ns();
    CW_WITH (&r->mutex) {
        give_back(r, &done);
        bool leaving = r->left || r->closing;
        if (leaving)
            say_goodbye(r);
        if (!r->dispatcher && (!leaving || (!r->parted && now < r->goodbye_ns))) {
            if (now >= r->dispatcher_retry_ns)
                dispatcher_connect(r);
            else
                cw_remote_wake_at(r, r->dispatcher_retry_ns); /* whatever rang before */
        }
        if (r->dispatcher_open && r->answered && !leaving)
            tell_cursor(r, now);
        if (r->closing) {
            cw_remote_over(r);
        } else if (!r->left) {
            cw_remote_pump(r);
            cw_remote_wake_at(r, now + progress_ns(r));
        }
        for (struct remote_batch *b = done; b; b = b->next)
            cw_mapping_remove(b);
        cw_remote_retired(r);
    }
    while (done) {
        struct remote_batch *b = done;
        done = b->next;
        cw_batch_free(&b->b);
    }
}

/* It may ring a little early: then what is due is looked at, and it is set again. */
static void on_timer(void *user)
{
    struct remote *r = user;
    CW_WITH (&r->mutex)
        r->timer_ns = 0;
    run(r);
}

/* ---- start and end ---- */

static void *main_loop(void *user)
{
    struct remote *r = user;
    cw_loop_run(r->loop);
    return NULL;
}

static int make_hello(struct remote *r, struct cw_error *err)
{
    static char *capabilities[] = {(char *)(uintptr_t)"shm"};
    bool shm = r->options.transport == CW_TRANSPORT_AUTO || r->options.transport == CW_TRANSPORT_SHM;
    cw_host_identity(r->host);
    r->hello = malloc(sizeof(*r->hello));
    if (!r->hello)
        return cw_error_nomem(err, sizeof(*r->hello), "a job");
    cw_hello_init(r->hello, CACHEW__ROLE__ROLE_CLIENT, r->job, r->incarnation, r->host);
    r->hello->capabilities = capabilities;
    r->hello->n_capabilities = shm;
    return 0;
}

int cw_remote_start(struct remote *r, struct cw_error *err)
{
    int status = make_hello(r, err);
    if (status < 0 || (status = cw_timer_new(r->loop, on_timer, r, &r->timer, err)) < 0)
        return status;
    r->wake = (struct cw_post){.fn = run, .arg = r};
    r->started_ns = cw_now_ns();
    int e = pthread_create(&r->thread, NULL, main_loop, r);
    if (e)
        return cw_error_errno(err, CW_E_MEMORY, e, "can't start a thread");
    r->running = true;
    cw_loop_post(r->loop, &r->wake);
    return 0;
}

void cw_remote_over(struct remote *r)
{
    if (r->closing && ((r->n_conns == 0 && r->parted) || cw_now_ns() >= r->goodbye_ns))
        cw_loop_stop(r->loop);
    else if (r->closing) /* the timer may have been set for something else, before that */
        cw_remote_wake_at(r, r->goodbye_ns);
}

static void goodbye(void *user)
{
    struct remote *r = user;
    run(r); /* gives back what is to be given back */
    CW_GUARD(&r->mutex);
    r->closing = true;
    /* whatever was said before: connections are to close within it */
    r->goodbye_ns = cw_now_ns() + goodbye_ns();
    say_goodbye(r);
    for (struct link *l = r->links; l; l = l->next)
        cw_link_close(l);
    cw_remote_wake_at(r, r->goodbye_ns);
    cw_remote_over(r);
}

void cw_remote_stop(struct remote *r)
{
    struct cw_post post = {.fn = goodbye, .arg = r};
    cw_loop_post(r->loop, &post);
    pthread_join(r->thread, NULL);
    r->running = false;
    for (struct link *l = r->links; l; l = l->next) /* nobody waits for peers that do not close their side */
        if (l->conn)
            cw_conn_abort(l->conn);
    if (r->dispatcher)
        cw_conn_abort(r->dispatcher);
}
