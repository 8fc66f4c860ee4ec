/* The I/O around the dispatcher's core: passes inputs from connections and the store to the core, and the
 * core's output to them. After an input, a turn of the core (cw_dispatcher_turn) is posted to the loop, so
 * that all messages received in one iteration of the loop are answered together. */
#include "service/dispatcher/dispatcher.h"

#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/crash.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/text.h"
#include "service/dispatcher/pages.h"
#include "net/conn.h"
#include "net/limits.h"

/* damaged entries of the journal that are logged one by one; further ones are only counted */
#define DAMAGED_NAMED 8

struct cw_dispatcher_server {
    struct cw_loop *loop;
    struct cw_dispatcher *core;
    struct cw_store *store;
    struct cw_listener *listener;
    struct cw_timer *timer;
    struct cw_http *http;
    struct cw_post turn;
    struct cw_link peers;
    bool closed, turn_timed; /* turn_timed: the timer is set to run a turn */
    size_t n_damaged;        /* entries of the journal that were left out */
    struct cw_refusals refusals;
    void (*log)(void *arg, bool warning, const char *text);
    void *log_arg;
};

struct server_peer {
    struct cw_link link;
    struct cw_dispatcher_server *server;
    struct cw_conn *conn;
    struct cw_peer *peer;
};

static void server_turn_later(struct cw_dispatcher_server *s)
{
    cw_loop_post(s->loop, &s->turn);
}

static void _printf_(3, 4) server_log(struct cw_dispatcher_server *s, bool warning, const char *format, ...)
{
    char text[1300];
    if (!s->log)
        return;
    CW_FORMAT(text, format);
    s->log(s->log_arg, warning, text);
}

static void server_turn(struct cw_dispatcher_server *s)
{
    uint64_t again_ns = cw_dispatcher_turn(s->core, cw_now_ns());
    if (again_ns == 0 || s->turn_timed)
        return;
    s->turn_timed = true;
    cw_timer_start(s->timer, again_ns, 0);
}

static void server_on_turn(void *arg)
{
    struct cw_dispatcher_server *s = arg;
    if (!s->closed)
        server_turn(s);
    else if (cw_list_empty(&s->peers)) /* the last reference is gone */
        free(s);
}

static void server_on_timer(void *arg)
{
    struct cw_dispatcher_server *s = arg;
    s->turn_timed = false;
    cw_timer_start(s->timer, cw_dispatcher_tick(s->core, cw_now_ns()), 0);
    server_turn(s);
}

/* ---- output of the core ---- */

static void io_send(void *user CW_UNUSED, void *const *peers, size_t n, const Cachew__Envelope *m)
{
    struct cw_conn *conns[CW_DISPATCHER_SENDS];
    if (m->of_case == CACHEW__ENVELOPE__OF_LEASES)
        cw_crash_point("dispatcher-lease");
    for (size_t i = 0; i < n; i++)
        conns[i] = ((struct server_peer *)peers[i])->conn;
    cw_conn_send_all(conns, n, m);
}

static void io_close(void *user CW_UNUSED, void *peer, const struct cw_error *why)
{
    cw_conn_close(((struct server_peer *)peer)->conn, why);
}

static void server_on_committed(void *arg, const struct cw_error *why)
{
    struct cw_dispatcher_server *s = arg;
    cw_crash_point("dispatcher-committed");
    cw_dispatcher_committed(s->core, why, cw_now_ns());
    server_turn(s);
}

static void io_commit(void *user, const struct cw_store_batch *batch)
{
    struct cw_dispatcher_server *s = user;
    cw_crash_point("dispatcher-commit");
    cw_store_commit(s->store, batch, server_on_committed, s);
}

static void io_log(void *user, bool warning, const char *text)
{
    server_log(user, warning, "%s", text);
}

/* ---- input from connections ---- */

static int peer_on_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                           void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                           size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct server_peer *p = user;
    server_turn_later(p->server);
    if (m->of_case == CACHEW__ENVELOPE__OF_ATTACH)
        cw_crash_point("dispatcher-attach");
    if (m->of_case == CACHEW__ENVELOPE__OF_COMPLETED)
        cw_crash_point("dispatcher-completed");
    return cw_dispatcher_message(p->server->core, p->peer, m, cw_now_ns(), err);
}

static void peer_on_closed(void *user, struct cw_conn *c, const struct cw_error *why)
{
    struct server_peer *p = user;
    if (why->status < 0 && !p->server->closed)
        server_log(p->server, false, "the connection of %s ended: %s", cw_conn_peer(c), why->message);
    if (p->peer)
        cw_dispatcher_lost(p->server->core, p->peer, cw_now_ns());
    cw_link_out(&p->link);
    /* the turn after the last connection of a closed server frees the server */
    if (!p->server->closed || cw_list_empty(&p->server->peers))
        server_turn_later(p->server);
    free(p);
}

static const struct cw_conn_ops peer_ops = {.message = peer_on_message, .closed = peer_on_closed};

static int server_on_open(void *user, struct cw_conn *c, const Cachew__Envelope *hello, struct cw_error *err)
{
    struct cw_dispatcher_server *s = user;
    struct server_peer *p = malloc(sizeof(*p));
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "a connection");
    *p = (struct server_peer){.server = s, .conn = c};
    int r = cw_dispatcher_connected(s->core, p, hello->hello, &p->peer, err);
    if (r < 0) {
        free(p);
        return r;
    }
    cw_list_add(&s->peers, &p->link);
    cw_conn_set_user(c, &peer_ops, p);
    return 0;
}

static void server_on_refused(void *user, const char *peer, const struct cw_error *why)
{
    struct cw_dispatcher_server *s = user;
    unsigned n_hidden;
    if (!s->log || !cw_refusal_said(&s->refusals, cw_now_ns(), &n_hidden))
        return;
    if (n_hidden)
        server_log(s, false, "%u other connections were refused since the last such message", n_hidden);
    server_log(s, false, "a connection from %s was refused: %s", peer, why->message);
}

/* for connections until they are accepted; then peer_ops */
static const struct cw_conn_ops listen_ops = {.open = server_on_open, .refused = server_on_refused};

/* ---- life ---- */

static int server_on_row(void *user, const void *key, size_t key_size, const void *value, size_t value_size,
                         struct cw_error *err)
{
    struct cw_dispatcher_server *s = user;
    int r = cw_dispatcher_load(s->core, key, key_size, value, value_size, err);
    if (r != CW_E_DATA)
        return r;
    if (s->n_damaged++ < DAMAGED_NAMED)
        server_log(s, true, "%s: %s", cw_store_path(s->store), err->message);
    return 0;
}

static int server_load(struct cw_dispatcher_server *s, struct cw_error *err)
{
    int r = cw_store_read(s->store, server_on_row, s, err);
    if (r < 0 || s->n_damaged == 0)
        return r;
    server_log(
        s, true,
        "%s: %zu damaged entries of the journal were left out. A job that starts over goes on from the "
        "positions of its clients as soon as they reconnect. A job with the guarantee at-most-once that "
        "ended must be started again. To avoid both, stop the dispatcher and restore the file from a copy",
        cw_store_path(s->store), s->n_damaged);
    return 0;
}

static int server_listen(struct cw_dispatcher_server *s, const struct cw_dispatcher_server_options *o,
                         struct cw_error *err)
{
    uint8_t incarnation[16];
    Cachew__Hello hello;
    char host[80];
    if (getrandom(incarnation, sizeof(incarnation), 0) != sizeof(incarnation))
        return cw_error_set(err, CW_E_IO, "the operating system gives no random bytes");
    cw_host_identity(host);
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_DISPATCHER, o->core.name ? o->core.name : "dispatcher",
                  incarnation, host);
    struct cw_conn_options options = {.hello = &hello,
                                      .limits = CW_LIMITS_DISPATCHER,
                                      .timeout_ns = o->timeout_ns,
                                      .token = o->token,
                                      .tls = o->tls};
    return cw_listener_new(s->loop, o->listen, &options, &listen_ops, s, &s->listener, err);
}

static int server_start(struct cw_dispatcher_server *s, const struct cw_dispatcher_server_options *o,
                        struct cw_error *err)
{
    struct cw_dispatcher_options core = o->core;
    core.pid = (uint32_t)getpid();
    struct cw_dispatcher_io io = {
        .user = s, .send = io_send, .close = io_close, .commit = io_commit, .log = io_log};
    int r = cw_dispatcher_new(&core, &io, &s->core, err);
    if (r == 0)
        r = cw_store_open(o->state_dir, s->loop, &s->store, err);
    if (r == 0)
        r = server_load(s, err);
    if (r == 0)
        r = cw_timer_new(s->loop, server_on_timer, s, &s->timer, err);
    if (r == 0)
        r = server_listen(s, o, err);
    if (r == 0 && o->http)
        r = cw_http_new(s->loop, o->http, cw_dispatcher_page, s->core, &s->http, err);
    if (r < 0)
        return r;
    cw_dispatcher_start(s->core, cw_now_ns());
    cw_timer_start(s->timer, 1, 0);
    return 0;
}

int cw_dispatcher_server_start(const struct cw_dispatcher_server_options *o,
                               struct cw_dispatcher_server **ret, struct cw_error *err)
{
    struct cw_dispatcher_server *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "the dispatcher");
    *s = (struct cw_dispatcher_server){
        .loop = o->loop, .log = o->log, .log_arg = o->log_arg, .turn = {.fn = server_on_turn, .arg = s}};
    cw_list_init(&s->peers);
    int r = server_start(s, o, err);
    if (r < 0) {
        cw_dispatcher_server_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

const char *cw_dispatcher_server_address(const struct cw_dispatcher_server *s)
{
    return cw_listener_address(s->listener);
}

const char *cw_dispatcher_server_http(const struct cw_dispatcher_server *s)
{
    return s->http ? cw_http_address(s->http) : NULL;
}

struct cw_dispatcher_server *cw_dispatcher_server_free(struct cw_dispatcher_server *s)
{
    if (!s)
        return NULL;
    cw_listener_free(s->listener);
    s->http = cw_http_free(s->http);
    cw_timer_free(s->timer);
    if (s->core)
        cw_dispatcher_turn(s->core, cw_now_ns()); /* commits pending entries, and sends pending messages */
    s->store = cw_store_close(s->store);          /* waits until the commit is written */
    s->core = cw_dispatcher_free(s->core);
    CW_LIST_EACH_OF (p, struct server_peer, link, &s->peers) {
        /* peer_on_closed frees p, from the loop */
        p->peer = NULL;
        cw_conn_close(p->conn, NULL);
    }
    s->closed = true;
    if (cw_list_empty(&s->peers))
        cw_loop_post(s->loop, &s->turn);
    return NULL;
}
