/* Both sides of a stream's origin (origin.h). On every worker: a compute thread that needs elements waits,
 * while the loop's thread sends its request to the origin and receives the answer. On the origin itself: a
 * thread of this module reads the source, and answers these requests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/worker/origin.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/thread.h"
#include "net/conn.h"
#include "net/limits.h"
#include "remote/addresses.h"

#define CANCEL_NS UINT64_C(10000000) /* ns between two checks of a waiting pull whether it was cancelled */
/* ns until a request is sent again if the origin can't be reached, or does not have the stream yet */
#define RETRY_NS UINT64_C(200000000)

/* A request for elements, from another worker (answer->peer) or from this one (answer->peer is NULL). Each
 * worker has at most one. */
struct pull_request {
    struct pull_request *next;
    struct cw_answer *answer;
    struct cw_pull q;
};

struct cw_origin {
    /* immutable */
    uint8_t stream[16];                 /* id of the stream */
    const struct cw_sequence *sequence; /* valid until the stream's thread has ended */
    const volatile int *interrupt;
    struct cw_mailbox *mailbox;
    struct cw_pull_away away;
    struct cw_post post;
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* guarded by mutex. The present pull; there is only one, as a runner plans one piece of its sequence at a
     * time. */
    const struct cw_pull *pull; /* NULL: no pull waits */
    uint64_t id;                /* id of the present pull's request; each pull has a higher one */
    bool sent, came;            /* the request was sent; its answer came */
    uint8_t *bytes;             /* the elements that came; NULL: `why` is the error */
    size_t size;
    struct cw_error why;
    uint64_t passed_epoch, passed; /* clients need no elements before this position of this epoch */
    struct pull_request *requests; /* requests to be served, sorted by (epoch, from) */
    bool stopping;

    /* the loop's thread only: */
    const struct cw_worker_common *common; /* NULL: the dispatcher has not named the origin yet */
    uint64_t worker;                       /* id of the worker that is the origin */
    struct cw_addresses addresses;         /* of the origin */
    size_t attempt;
    char logged[200]; /* the last reason why the origin can't be reached */
    struct cw_conn *conn;
    bool open, closed;
    struct cw_timer *retry;
};

/* ---- requesting elements ---- */

/* Passes an answer to the waiting pull, which takes ownership of the bytes. If the pull was cancelled, the
 * bytes are freed. */
static void pull_came(struct cw_origin *o, uint64_t id, uint8_t *bytes, size_t size,
                      const struct cw_error *why)
{
    CW_GUARD(&o->mutex);
    if (!o->pull || o->id != id || o->came) {
        free(bytes);
        return;
    }
    o->bytes = bytes;
    o->size = size;
    o->why = why ? *why : (struct cw_error){0};
    o->came = true;
    pthread_cond_broadcast(&o->changed);
}

static int origin_pull(void *arg, const struct cw_pull *q, uint8_t **ret, size_t *ret_size,
                       struct cw_error *err)
{
    struct cw_origin *o = arg;
    CW_GUARD(&o->mutex);
    o->pull = q;
    o->id++;
    o->sent = o->came = false;
    cw_loop_post(o->mailbox->loop, &o->post);
    while (!o->came && !q->cancelled(q->cancel_arg))
        (void)cw_cond_wait(&o->changed, &o->mutex, cw_now_ns() + CANCEL_NS);
    o->pull = NULL;
    if (!o->came)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    *ret = CW_STEAL(o->bytes);
    *ret_size = o->size;
    return *ret ? 0 : cw_error_copy(err, &o->why);
}

static void pull_request_free(struct pull_request *x)
{
    if (x)
        cw_answer_free(x->answer);
    free(x);
}

/* Adds a request to be served. Frees an older request of the same peer, which the peer has given up. The
 * mutex must be held. */
static int pull_request_add(struct cw_origin *o, struct cw_peer *peer, uint64_t id, const struct cw_pull *q,
                            struct cw_error *err)
{
    struct pull_request *x = calloc(1, sizeof(*x)), **at = &o->requests;
    if (!x || !(x->answer = malloc(sizeof(*x->answer)))) {
        free(x);
        return cw_error_nomem(err, sizeof(*x), "a request");
    }
    *x->answer = (struct cw_answer){
        .kind = CW_ANSWER_PULLED, .peer = peer ? cw_peer_ref(peer) : NULL, .re = id};
    x->q = *q;
    while (*at)
        if ((*at)->answer->peer == peer)
            pull_request_free(CW_POP(*at));
        else
            at = &(*at)->next;
    for (at = &o->requests;
         *at && ((*at)->q.epoch < q->epoch || ((*at)->q.epoch == q->epoch && (*at)->q.from <= q->from));)
        at = &(*at)->next;
    x->next = *at;
    *at = x;
    pthread_cond_broadcast(&o->changed);
    return 0;
}

static const struct cw_conn_ops origin_ops;

static void origin_leave(struct cw_origin *o)
{
    if (o->conn) {
        cw_conn_set_user(o->conn, &origin_ops, NULL);
        cw_conn_close(CW_STEAL(o->conn), NULL);
    }
    o->open = false;
}

static void origin_log(struct cw_origin *o, const struct cw_error *why)
{
    if (strncmp(o->logged, why->message, sizeof(o->logged) - 1) != 0)
        cw_common_log(o->common, "worker %llu, which runs the source of a pipeline, can't be reached: %s",
                      (unsigned long long)o->worker, why->message);
    snprintf(o->logged, sizeof(o->logged), "%.199s", why->message);
}

/* The origin did not answer the request, or could not: sends it again after RETRY_NS. */
static void origin_resend(struct cw_origin *o)
{
    CW_WITH (&o->mutex)
        o->sent = false;
    cw_timer_start(o->retry, RETRY_NS, 0);
}

static void origin_on_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct cw_origin *o = user;
    if (!o)
        return;
    o->conn = NULL;
    o->open = false;
    o->attempt++;
    if (why->status)
        origin_log(o, why);
    origin_resend(o);
}

static void origin_connect(struct cw_origin *o)
{
    const struct cw_worker_common *w = o->common;
    struct cw_error err = {0};
    Cachew__Hello hello;
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_CLIENT, w->options.name, w->incarnation, w->host);
    const char *address = cw_addresses_try(&o->addresses, o->attempt);
    bool local = cw_address_is_local(address);
    struct cw_conn_options c = {.hello = &hello,
                                .limits = CW_LIMITS_CLIENT,
                                .timeout_ns = local ? CW_CONN_LOCAL_TIMEOUT_NS : w->options.timeout_ns,
                                .token = w->options.token,
                                .pack = true,
                                .tls = local ? NULL : w->options.dispatcher_tls};
    if (cw_conn_connect(o->mailbox->loop, address ? address : "", &c, &origin_ops, o, &o->conn, &err) < 0)
        origin_on_closed(o, NULL, &err);
}

/* Sends the request of the present pull, unless it was sent. Connects to the origin first if there is no
 * connection. */
static void origin_pump(void *arg)
{
    struct cw_origin *o = arg;
    struct cw_error err = {0};
    int r = 0;
    if (!o->common || o->closed)
        return;
    bool here = o->worker == o->common->id;
    if (!here && !o->conn)
        origin_connect(o);
    CW_WITH (&o->mutex) {
        if (o->pull && !o->sent && (here || o->open)) {
            struct cw_pull q = *o->pull;
            /* a worker that needs a part of a shuffle window reads all of it, so the origin keeps whole
             * windows */
            uint64_t window = o->sequence->window, passed = o->passed / window * window;
            q.keep = o->sequence->compiled->sequential ? q.from
                     : q.epoch > o->passed_epoch       ? 0
                     : q.epoch == o->passed_epoch      ? CW_MIN(passed, q.from)
                                                       : q.from;
            Cachew__Pull m = {CW_MESSAGE(pull), .stream = {.data = o->stream, .len = sizeof(o->stream)},
                              .epoch = q.epoch, .from = q.from,
                              .n = q.n,         .least = q.least,
                              .keep = q.keep};
            Cachew__Envelope e = {CW_MESSAGE(envelope), .id = o->id, .of_case = CACHEW__ENVELOPE__OF_PULL,
                                  .pull = &m};
            r = here ? pull_request_add(o, NULL, o->id, &q, &err)
                     : cw_conn_send(o->conn, &e, NULL, 0, NULL, NULL, NULL, 0, &err);
            o->sent = r >= 0;
        }
    }
    if (r < 0) {
        origin_log(o, &err);
        origin_resend(o);
    }
}

static int origin_on_open(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *peer CW_UNUSED,
                          struct cw_error *err CW_UNUSED)
{
    struct cw_origin *o = user;
    if (!o)
        return 0;
    o->open = true;
    o->logged[0] = '\0';
    origin_pump(o);
    return 0;
}

static int origin_on_payload(void *user CW_UNUSED, struct cw_conn *c CW_UNUSED,
                             const Cachew__Envelope *m CW_UNUSED, size_t size, void **ret,
                             struct cw_error *err)
{
    *ret = aligned_alloc(64, CW_ALIGN_UP(size, 64));
    return *ret ? 0 : cw_error_nomem(err, size, "elements of a stream");
}

static void origin_on_abandoned(void *user CW_UNUSED, struct cw_conn *c CW_UNUSED, void *payload)
{
    free(payload);
}

static int origin_on_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                             void *payload, size_t size, const int *fds CW_UNUSED, size_t n_fds CW_UNUSED,
                             struct cw_error *err)
{
    struct cw_origin *o = user;
    struct cw_error why = {0};
    bool pulled = m->of_case == CACHEW__ENVELOPE__OF_PULLED;
    if (!o) {
        free(payload);
        return 0;
    }
    if (pulled && !payload && !m->pulled->why)
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker that runs the source sent elements without bytes" CW_OTHER_VERSION);
    /* any other error is the origin's own: the origin fails, and the dispatcher will name another worker */
    bool fails = pulled && !payload && cw_failure_error(m->pulled->why, &why) != CW_E_DATA;
    if (fails || m->of_case == CACHEW__ENVELOPE__OF_NOT_HERE)
        origin_resend(o);
    if (pulled && !fails)
        pull_came(o, m->re, CW_STEAL(payload), size, &why);
    free(payload);
    return 0;
}

/* Callbacks of the connection to the origin. user NULL: the connection is being closed, and not used any
 * more. */
static const struct cw_conn_ops origin_ops = {.open = origin_on_open,
                                              .payload = origin_on_payload,
                                              .abandoned = origin_on_abandoned,
                                              .message = origin_on_message,
                                              .closed = origin_on_closed};

void cw_origin_name(struct cw_origin *o, const struct cw_worker_common *common,
                    const Cachew__WorkerAddress *a, const Cachew__Place *passed)
{
    struct cw_error err = {0};
    bool same = o->common && o->worker == a->worker;
    CW_WITH (&o->mutex) {
        o->passed_epoch = passed ? passed->epoch : 0;
        o->passed = passed ? passed->position : 0;
        o->sent &= same;
    }
    if (!same)
        origin_leave(o);
    o->common = common;
    o->worker = a->worker;
    cw_addresses_deinit(&o->addresses);
    if (cw_addresses_init(&o->addresses, a, *a->unix_path && strcmp(a->host, common->host) == 0, true, &err) <
            0 ||
        (!o->retry && cw_timer_new(o->mailbox->loop, origin_pump, o, &o->retry, &err) < 0)) {
        cw_common_log(common, "a pipeline waits for the worker that runs its source: %s", err.message);
        o->common = NULL;
    }
    origin_pump(o);
}

/* ---- serving elements, where this worker is the origin ---- */

static int pull_cancelled(void *arg)
{
    return *((struct cw_origin *)arg)->interrupt;
}

int cw_origin_serve(struct cw_origin *o, struct cw_peer *peer, uint64_t id, const Cachew__Pull *m,
                    struct cw_error *err)
{
    uint64_t most = o->sequence->window;
    CW_GUARD(&o->mutex);
    if (!id || m->n == 0 || m->n > most || m->least > m->n || m->from >= CW_EPOCH_POSITIONS)
        return cw_error_set(
            err, CW_E_SERVICE,
            "another worker's request for elements (Pull) needs an id and a valid number of elements, not "
            "%llu elements (expected 1 to %llu), at least %llu, from number %llu on" CW_OTHER_VERSION,
            (unsigned long long)m->n, (unsigned long long)most, (unsigned long long)m->least,
            (unsigned long long)m->from);
    return pull_request_add(
        o, peer, id,
        &(struct cw_pull){.epoch = m->epoch, .from = m->from, .n = m->n, .least = m->least, .keep = m->keep},
        err);
}

static void origin_serve_one(struct cw_origin *o, struct pull_request *x, bool stopping)
{
    struct cw_source *source = o->sequence->stream;
    struct cw_answer *a = CW_STEAL(x->answer);
    struct cw_error err = {0};
    x->q.cancelled = pull_cancelled;
    x->q.cancel_arg = o;
    int r = stopping ? cw_error_set(&err, CW_E_INTERRUPTED, "this worker is closing the pipeline")
                     : source->ops->serve(source, &x->q, &a->data, &a->bytes, &err);
    if (a->peer) {
        a->why = r < 0 ? cw_answer_why(&err) : NULL;
        cw_peer_take(a->peer, a->bytes);
        cw_mailbox_answer(o->mailbox, a);
    } else {
        pull_came(o, a->re, CW_STEAL(a->data), a->bytes, &err);
        cw_answer_free(a);
    }
    pull_request_free(x);
}

static void *origin_main(void *arg)
{
    struct cw_origin *o = arg;
    for (;;) {
        pthread_mutex_lock(&o->mutex);
        while (!o->requests && !o->stopping)
            pthread_cond_wait(&o->changed, &o->mutex);
        struct pull_request *x = o->requests ? CW_POP(o->requests) : NULL;
        bool stopping = o->stopping;
        pthread_mutex_unlock(&o->mutex);
        if (!x)
            return NULL;
        origin_serve_one(o, x, stopping);
    }
}

/* ---- life ---- */

static void origin_destroy(struct cw_origin *o)
{
    pthread_mutex_destroy(&o->mutex);
    pthread_cond_destroy(&o->changed);
    free(o);
}

int cw_origin_new(const uint8_t *name, const struct cw_sequence *sequence, const volatile int *interrupt,
                  struct cw_mailbox *mailbox, struct cw_origin **ret, struct cw_error *err)
{
    struct cw_origin *o = malloc(sizeof(*o));
    if (!o)
        return cw_error_nomem(err, sizeof(*o), "a stream");
    *o = (struct cw_origin){.sequence = sequence,
                            .interrupt = interrupt,
                            .mailbox = mailbox,
                            .away = {origin_pull, o},
                            .post = {.fn = origin_pump, .arg = o}};
    memcpy(o->stream, name, sizeof(o->stream));
    pthread_mutex_init(&o->mutex, NULL);
    cw_cond_init(&o->changed);
    int r = cw_thread_start(&o->thread, origin_main, o, err);
    if (r < 0)
        origin_destroy(o);
    else
        *ret = o;
    return r;
}

const struct cw_pull_away *cw_origin_away(const struct cw_origin *o)
{
    return &o->away;
}

void cw_origin_stop(struct cw_origin *o)
{
    if (!o)
        return;
    CW_WITH (&o->mutex) {
        o->stopping = true;
        pthread_cond_broadcast(&o->changed);
    }
    pthread_join(o->thread, NULL);
}

void cw_origin_close(struct cw_origin *o)
{
    if (!o || o->closed)
        return;
    o->closed = true;
    origin_leave(o);
    o->retry = cw_timer_free(o->retry);
}

void cw_origin_free(struct cw_origin *o)
{
    if (!o)
        return;
    cw_origin_close(o);
    cw_loop_unpost(o->mailbox->loop, &o->post);
    while (o->requests) /* requests that came after the thread had ended */
        pull_request_free(CW_POP(o->requests));
    cw_addresses_deinit(&o->addresses);
    origin_destroy(o);
}
