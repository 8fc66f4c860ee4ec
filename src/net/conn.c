/* The life of a connection: how it begins, pings, how it closes. conn_impl.h names the other files. */
#include "net/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/conn_impl.h"
#include "net/socket.h"

/* ---- end ---- */

static void conn_finish(struct cw_conn *c)
{
    const bool told = c->owner == OWNER_OPEN || !c->accepted;
    cw_conn_out_clear(c);
    cw_conn_in_deinit(c);
    if (c->listener)
        cw_listener_forget(c);
    if (told)
        c->ops->closed(c->user, c, &c->why);
    else if (c->ops->refused)
        c->ops->refused(c->user, c->peer, &c->why);
    cw_conn_drop(c);
}

void cw_conn_drop(struct cw_conn *c)
{
    cw_watch_free(c->watch);
    cw_tls_stream_free(c->tls);
    cw_packer_free(c->out.packer);
    if (c->fd >= 0)
        close(c->fd);
    cw_timer_free(c->timer);
    if (c->to.addresses)
        freeaddrinfo(c->to.addresses);
    cw_conn_setup_unref(c->setup);
    free(c);
}

/* A closing connection waits at most this long after the last bytes were sent, even if its timeout is longer.
 */
#define CLOSING_MS 3000

static uint64_t conn_closing_ms(const struct cw_conn *c)
{
    return CW_MIN(c->setup->timeout_ms, (uint64_t)CLOSING_MS);
}

static void conn_set_why(struct cw_conn *c, const struct cw_error *err)
{
    if (!err || c->why.status)
        return;
    c->why = *err;
    (void)cw_error_set(&c->why, err->status, "%s: %s", c->peer, err->message);
}

void cw_conn_die(struct cw_conn *c, const struct cw_error *err)
{
    if (c->state == CONN_DEAD)
        return;
    conn_set_why(c, err);
    c->state = CONN_DEAD;
    cw_conn_resolve_cancel(c);
    cw_timer_stop(c->timer);
    if (c->watch)
        cw_watch_set(c->watch, 0);
    cw_loop_defer(c->loop, &c->defer);
}

static int conn_send_failure(struct cw_conn *c, const struct cw_error *why)
{
    Cachew__Envelope e;
    Cachew__Failure f;
    cw_failure_envelope(&e, &f, c->state == CONN_SHAKING ? c->hello_id : 0, why);
    return cw_conn_queue_message(c, &e, NULL);
}

static void conn_begin_closing(struct cw_conn *c, const struct cw_error *said)
{
    if (said && said->status && conn_send_failure(c, said) < 0) {
        cw_conn_die(c, NULL);
        return;
    }
    if (c->state == CONN_DEAD) /* sending found the socket broken */
        return;
    c->state = CONN_CLOSING;
    c->at_ms.closing_since = cw_loop_now_ms(c->loop);
    c->at_ms.deadline = c->at_ms.closing_since + conn_closing_ms(c);
    cw_timer_start(c->timer, conn_closing_ms(c) * 1000000, 0);
    cw_loop_defer(c->loop, &c->defer);
}

/* Called at the deadline of a closing connection. Returns whether it goes on waiting: this process stood
 * still, or (until the connection's timeout) the peer still takes bytes. */
static bool conn_closing_goes_on(struct cw_conn *c)
{
    uint64_t now = cw_loop_now_ms(c->loop);
    if (c->out.head)
        cw_conn_flush(c); /* the peer may have made room while this process had no time */
    if (c->state == CONN_DEAD)
        return true;
    uint64_t until_ms = CW_MIN(c->at_ms.sent + conn_closing_ms(c),
                               c->at_ms.closing_since + c->setup->timeout_ms);
    if (now >= c->at_ms.deadline + conn_closing_ms(c) / 3)
        until_ms = now + conn_closing_ms(c);
    if (until_ms <= now)
        return false;
    c->at_ms.deadline = until_ms;
    cw_timer_start(c->timer, (until_ms - now) * 1000000, 0);
    return true;
}

void cw_conn_cut(struct cw_conn *c, const struct cw_error *err)
{
    struct cw_error unknown = {.status = CW_E_SERVICE, .message = "the connection was cut off"};
    if (!cw_conn_listens(c))
        return;
    err = err->status ? err : &unknown;
    conn_set_why(c, err);
    conn_begin_closing(c, err);
}

void cw_conn_close(struct cw_conn *c, const struct cw_error *why)
{
    if (cw_conn_listens(c))
        conn_begin_closing(c, why);
    else if (c->state < CONN_SHAKING)
        cw_conn_die(c, NULL);
}

void cw_conn_abort(struct cw_conn *c)
{
    cw_conn_die(c, NULL);
}

/* ---- pings and timeouts ---- */

static void conn_send_ping(struct cw_conn *c, uint64_t now)
{
    Cachew__Ping ping = CACHEW__PING__INIT;
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = CW_CONN_OWN_ID | ++c->last_id,
                          .of_case = CACHEW__ENVELOPE__OF_PING, .ping = &ping};
    c->at_ms.pinged = now;
    struct cw_error err = {0};
    if (cw_conn_queue_message(c, &e, &err) < 0)
        cw_conn_die(c, &err);
}

static void conn_expire(struct cw_conn *c)
{
    struct cw_error err = {0};
    const char *what = c->state == CONN_OPEN      ? "the other side sent nothing"
                       : c->state == CONN_SHAKING ? "the other side sent no handshake"
                                                  : "the other side accepted no connection";
    cw_error_set(&err, CW_E_DEADLINE, "%s for %g s", what, (double)c->setup->timeout_ms / 1000);
    cw_conn_die(c, c->state == CONN_CLOSING ? NULL : &err);
}

/* Sends a Ping when nothing was received, or nothing sent, for a third of the timeout. A side that sends a
 * large payload depends on the pings of the receiver: its own ping would be queued behind the payload, and
 * would be answered too late. */
static void conn_keep_alive(struct cw_conn *c)
{
    uint64_t timeout = c->setup->timeout_ms, third = CW_MAX(timeout / 3, 1);
    /* bytes that came while this process was busy may wait in the socket */
    if (cw_loop_now_ms(c->loop) - c->at_ms.heard >= timeout)
        cw_conn_receive(c);
    if (c->state != CONN_OPEN)
        return;
    uint64_t now = cw_loop_now_ms(c->loop);
    /* this process, perhaps the whole machine, stood still and sent no pings: the peer gets a new timeout */
    if (now >= c->at_ms.due + third)
        c->at_ms.heard = now;
    if (now - c->at_ms.heard >= timeout) {
        conn_expire(c);
        return;
    }
    uint64_t word = CW_MAX(CW_MIN(c->at_ms.heard, c->at_ms.sent), c->at_ms.pinged);
    if (now - word >= third) {
        conn_send_ping(c, now);
        word = now;
    }
    if (c->state == CONN_OPEN)
        cw_conn_call_at(c, CW_MIN(c->at_ms.heard + timeout, word + third));
}

void cw_conn_call_at(struct cw_conn *c, uint64_t ms)
{
    uint64_t now = cw_loop_now_ms(c->loop);
    c->at_ms.due = ms;
    cw_timer_start(c->timer, (ms > now ? ms - now : 0) * 1000000, 0);
}

static void conn_on_timer(void *arg)
{
    struct cw_conn *c = arg;
    if (c->state == CONN_SHAKING && cw_loop_now_ms(c->loop) >= c->at_ms.deadline)
        cw_conn_receive(c); /* bytes that came while this process was busy may wait in the socket */
    if (c->state == CONN_OPEN)
        conn_keep_alive(c);
    else if (c->state == CONN_CLOSING && cw_loop_now_ms(c->loop) >= c->at_ms.deadline &&
             conn_closing_goes_on(c))
        return;
    else if (c->state < CONN_DEAD && cw_loop_now_ms(c->loop) >= c->at_ms.deadline)
        conn_expire(c);
    else if (c->state == CONN_CONNECTING && (c->fd < 0 || c->to.next))
        cw_conn_next_address(c);
}

/* ---- events ---- */

static bool conn_wants_writable(const struct cw_conn *c)
{
    if (c->tls_state == TLS_BROKEN)
        return false;
    return c->tls ? cw_tls_wants_writable(c->tls, c->out.blocked) : c->out.blocked;
}

void cw_conn_watch(struct cw_conn *c)
{
    if (c->watch && c->state >= CONN_SHAKING && c->state < CONN_DEAD)
        cw_watch_set(c->watch, (c->in.ended ? 0 : 1) | (conn_wants_writable(c) ? 2 : 0));
}

static void conn_on_event(void *arg, int events)
{
    struct cw_conn *c = arg;
    if (c->state == CONN_CONNECTING) {
        cw_conn_connected(c);
        return;
    }
    if (events & 2 || (c->tls && c->out.blocked)) {
        c->out.blocked = false;
        cw_loop_defer(c->loop, &c->defer);
    }
    if (events & 1 || c->tls) /* with TLS, sending and receiving may each wait for either event */
        cw_conn_receive(c);
    if (c->tls)
        cw_conn_watch(c);
}

/* ---- bytes ---- */

ssize_t cw_conn_write(struct cw_conn *c, struct iovec *pieces, size_t n, const int *fds, size_t n_fds)
{
    return c->tls ? cw_tls_send(c->tls, pieces, n) : cw_socket_send(c->fd, pieces, n, fds, n_fds);
}

/* Detects a peer that speaks our protocol without TLS where TLS is expected. It would not understand a TLS
 * alert, and would retry for ever; without TLS it gets a Failure. */
static void conn_detect_tls(struct cw_conn *c)
{
    uint8_t first;
    if (recv(c->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
        return;
    c->tls_state = cw_frame_begins(&first, 1, NULL) >= 0 ? TLS_PLAIN : TLS_SPOKEN;
    if (c->tls_state == TLS_PLAIN)
        c->tls = cw_tls_stream_free(c->tls);
}

ssize_t cw_conn_read(struct cw_conn *c, struct iovec *pieces, size_t n, int *fds, size_t *n_fds)
{
    if (c->tls && c->accepted && c->tls_state == TLS_UNKNOWN)
        conn_detect_tls(c);
    return c->tls && c->tls_state != TLS_BROKEN ? cw_tls_receive(c->tls, pieces, n)
                                                : cw_socket_receive(c->fd, pieces, n, fds, n_fds);
}

void cw_conn_broke(struct cw_conn *c, int errnum)
{
    struct cw_error err = c->tls && errnum == EPROTO ? *cw_tls_why(c->tls) : (struct cw_error){0};
    if (err.status < 0 && cw_conn_listens(c)) {
        c->tls_state = TLS_BROKEN;
        conn_set_why(c, &err);
        conn_begin_closing(c, NULL); /* not cw_conn_die, so that the TLS alert arrives */
        return;
    }
    cw_error_errno(&err, CW_E_SERVICE, errnum, "the connection broke");
    cw_conn_die(c, &err);
}

static void conn_on_deferred(void *arg)
{
    struct cw_conn *c = arg;
    if (c->state == CONN_DEAD) {
        conn_finish(c);
        return;
    }
    if (c->state == CONN_CONNECTING && c->fd < 0)
        cw_conn_try_addresses(c); /* if that ends the connection, this function is called again */
    else if (c->state >= CONN_SHAKING)
        cw_conn_flush(c);
    if (c->in.more && c->state != CONN_DEAD)
        cw_conn_receive(c);
}

int cw_conn_watch_new(struct cw_conn *c, int fd, struct cw_error *err)
{
    return cw_watch_new(c->loop, fd, conn_on_event, c, &c->watch, err);
}

int cw_conn_establish(struct cw_conn *c, int fd, struct cw_error *err)
{
    c->fd = fd;
    c->state = CONN_SHAKING;
    c->at_ms.heard = c->at_ms.sent = cw_loop_now_ms(c->loop);
    int r = c->watch ? 0 : cw_conn_watch_new(c, fd, err);
    if (r >= 0 && c->setup->tls && !c->local)
        r = cw_tls_stream_new(c->setup->tls, fd, c->accepted ? NULL : c->to.address.host, &c->tls, err);
    if (r >= 0)
        cw_conn_watch(c);
    return r;
}

/* ---- beginning ---- */

int cw_conn_new(struct cw_loop *l, struct cw_conn_setup *setup, const struct cw_conn_ops *ops, void *user,
                struct cw_conn **ret, struct cw_error *err)
{
    struct cw_timer *timer;
    struct cw_conn *c = malloc(sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a connection");
    int r = cw_timer_new(l, conn_on_timer, c, &timer, err);
    if (r < 0) {
        free(c);
        return r;
    }
    *c = (struct cw_conn){.loop = l,
                          .setup = cw_conn_setup_ref(setup),
                          .ops = ops,
                          .user = user,
                          .fd = -1,
                          .timer = timer,
                          .out = {.tail = &c->out.head, .done_tail = &c->out.done},
                          .defer = {.fn = conn_on_deferred, .arg = c}};
    uv_update_time(cw_loop_uv(l)); /* the loop's clock may be old, if the loop has not run for long */
    c->at_ms.since = cw_loop_now_ms(l);
    c->at_ms.deadline = c->at_ms.since + setup->timeout_ms;
    cw_timer_start(c->timer, setup->timeout_ms * 1000000, 0);
    *ret = c;
    return 0;
}

/* ---- queries and settings ---- */

bool cw_conn_is_local(const struct cw_conn *c)
{
    return c->local;
}

void cw_conn_traffic(const struct cw_conn *c, struct cw_conn_traffic *ret)
{
    *ret = c->traffic;
}

const struct cw_tuned *cw_conn_tuned(const struct cw_conn *c)
{
    return &c->out.policy.told;
}

int cw_conn_peer_process(const struct cw_conn *c)
{
    return cw_socket_peer_process(c->fd);
}

const char *cw_conn_peer(const struct cw_conn *c)
{
    return c->peer;
}

bool cw_conn_has(const struct cw_conn *c, const char *capability)
{
    const Cachew__Hello *hello = c->setup->hello;
    for (size_t i = 0; i < hello->n_capabilities; i++)
        if (strcmp(hello->capabilities[i], capability) == 0)
            return c->common >> i & 1;
    return false;
}

void cw_conn_set_user(struct cw_conn *c, const struct cw_conn_ops *ops, void *user)
{
    c->ops = ops;
    c->user = user;
}
