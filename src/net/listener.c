/*
 * Listening sockets. A listener keeps a list of connections that are "waiting": they have sent no request
 * yet, or have not finished the handshake. Their number is limited separately, so that a peer which opens
 * thousands of connections and sends nothing does not push out connections that are in use.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/conn_impl.h"
#include "net/socket.h"

/* Waiting connections, at most; they also take at most a quarter of the process's descriptors. All
 * connections of a listener take at most three quarters: files and shared memory need descriptors, too. */
#define MAX_WAITING 1024
#define MIN_WAITED_MS 250 /* before a waiting connection is closed for a newer one: the peer may be far */
#define ACCEPT_TURN 64    /* connections accepted before others have their turn */
#define PAUSE_NS UINT64_C(50000000) /* without free descriptors or room: the next try to accept */

struct cw_listener {
    struct cw_loop *loop;
    struct cw_conn_setup *setup;
    const struct cw_conn_ops *ops;
    void *user;
    int fd;
    struct cw_watch *watch;
    struct cw_timer *pause;
    struct cw_address at;
    char address[320];
    struct cw_link waiting; /* connections that have sent no request yet, the oldest first */
    unsigned n_waiting;
};

void cw_listener_forget(struct cw_conn *c)
{
    struct cw_listener *l = c->listener;
    cw_link_out(&c->waiting);
    c->listener = NULL;
    l->n_waiting--;
}

static void listener_on_pause_over(void *arg)
{
    struct cw_listener *l = arg;
    cw_watch_set(l->watch, 1);
}

/* Makes room for another connection; may close the oldest waiting one. Returns whether there is room. */
static bool listener_make_room(struct cw_listener *l)
{
    struct cw_error err = {0};
    struct rlimit limit;
    rlim_t quarter = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? CW_MAX(limit.rlim_cur / 4, (rlim_t)1)
                                                           : MAX_WAITING;
    bool full = l->setup->refs > 3 * quarter; /* each connection of the listener has a reference to setup */
    if (!full && l->n_waiting < CW_MIN(quarter, (rlim_t)MAX_WAITING))
        return true;
    struct cw_conn *c = CW_CONTAINER(l->waiting.next, struct cw_conn, waiting);
    if (cw_list_empty(&l->waiting) || cw_loop_now_ms(l->loop) - c->at_ms.since < MIN_WAITED_MS)
        return false;
    cw_error_set(&err, CW_E_SERVICE,
                 "%u connections have sent no request yet: this one, the oldest of them, is closed to make "
                 "room for new ones",
                 l->n_waiting);
    cw_listener_forget(c);
    cw_conn_die(c, &err);
    return true;
}

static void listener_name_peer(struct cw_conn *c, const struct cw_listener *l, int fd,
                               const struct sockaddr_storage *peer, socklen_t size)
{
    struct ucred process;
    socklen_t process_size = sizeof(process);
    if (!l->at.local)
        cw_address_print_socket((const struct sockaddr *)peer, size, c->peer, sizeof(c->peer));
    else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &process_size) == 0)
        snprintf(c->peer, sizeof(c->peer), "process %" PRIdMAX, (intmax_t)process.pid);
    else
        snprintf(c->peer, sizeof(c->peer), "%s", l->address);
}

static int listener_admit(struct cw_listener *l, int fd, const struct sockaddr_storage *peer, socklen_t size,
                          struct cw_error *err)
{
    struct cw_conn *c = NULL;
    int r = cw_conn_new(l->loop, l->setup, l->ops, l->user, &c, err);
    if (r < 0) {
        close(fd);
        return r;
    }
    c->accepted = true;
    c->local = l->at.local;
    listener_name_peer(c, l, fd, peer, size);
    r = cw_conn_establish(c, fd, err);
    if (r < 0) {
        cw_conn_drop(c);
        return r;
    }
    c->listener = l;
    cw_list_add(&l->waiting, &c->waiting);
    l->n_waiting++;
    return 0;
}

static void listener_on_connection(void *arg, int events CW_UNUSED)
{
    struct cw_listener *l = arg;
    for (int i = 0; i < ACCEPT_TURN; i++) {
        struct sockaddr_storage peer;
        struct cw_error err = {0};
        socklen_t size;
        int fd = listener_make_room(l) ? cw_socket_accept(l->fd, &peer, &size) : -EMFILE;
        if (fd == -EAGAIN || fd == -EWOULDBLOCK)
            return;
        if (fd < 0) { /* no descriptors or no room: without a pause the loop would call this at once */
            cw_watch_set(l->watch, 0);
            cw_timer_start(l->pause, PAUSE_NS, 0);
            return;
        }
        if (listener_admit(l, fd, &peer, size, &err) < 0 && l->ops->refused)
            l->ops->refused(l->user, l->address, &err);
    }
}

static int listener_listen(struct cw_listener *l, struct cw_error *err)
{
    unsigned port = 0;
    int r = cw_socket_listen(&l->at, &l->fd, &port, err);
    if (r < 0)
        return r;
    if (l->at.local)
        snprintf(l->address, sizeof(l->address), "unix:%s", l->at.path);
    else
        cw_address_print(l->at.host, port, l->address, sizeof(l->address));
    r = cw_timer_new(l->loop, listener_on_pause_over, l, &l->pause, err);
    if (r >= 0)
        r = cw_watch_new(l->loop, l->fd, listener_on_connection, l, &l->watch, err);
    if (r >= 0)
        cw_watch_set(l->watch, 1);
    return r;
}

int cw_listener_new(struct cw_loop *loop, const char *address, const struct cw_conn_options *o,
                    const struct cw_conn_ops *ops, void *user, struct cw_listener **ret, struct cw_error *err)
{
    struct cw_listener *l = calloc(1, sizeof(*l));
    if (!l)
        return cw_error_nomem(err, sizeof(*l), "a listener");
    *l = (struct cw_listener){.loop = loop, .ops = ops, .user = user, .fd = -1};
    cw_list_init(&l->waiting);
    int r = cw_address_parse(address, &l->at, err);
    if (r >= 0)
        r = cw_conn_setup_new(o, false, &l->setup, err);
    if (r >= 0)
        r = listener_listen(l, err);
    if (r < 0)
        cw_listener_free(l);
    else
        *ret = l;
    return r;
}

const char *cw_listener_address(const struct cw_listener *l)
{
    return l->address;
}

/* Of connections that end with their listener: their owner is not called. */
static const struct cw_conn_ops no_ops;

struct cw_listener *cw_listener_free(struct cw_listener *l)
{
    if (!l)
        return NULL;
    while (!cw_list_empty(&l->waiting)) {
        struct cw_conn *c = CW_CONTAINER(l->waiting.next, struct cw_conn, waiting);
        cw_listener_forget(c);
        if (c->owner == OWNER_OPEN)
            continue;
        cw_conn_set_user(c, &no_ops, NULL);
        cw_conn_die(c, NULL);
    }
    cw_watch_free(l->watch);
    cw_timer_free(l->pause);
    if (l->fd >= 0) {
        close(l->fd);
        if (l->at.local)
            unlink(l->at.path);
    }
    cw_conn_setup_unref(l->setup);
    free(l);
    return NULL;
}
