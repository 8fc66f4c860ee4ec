/* Connecting: resolves the host's name, and tries its addresses one after the other. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/conn_impl.h"
#include "net/socket.h"

#define ADDRESS_MS UINT64_C(250)    /* for each of several addresses of a host, at least */
#define RETRY_NS UINT64_C(10000000) /* until the next try if a Unix socket's listener has a full queue */

struct resolving {
    uv_getaddrinfo_t request;
    struct cw_conn *c; /* NULL: the connection has ended */
};

void cw_conn_resolve_cancel(struct cw_conn *c)
{
    if (!c->to.resolving)
        return;
    c->to.resolving->c = NULL;
    uv_cancel((uv_req_t *)&c->to.resolving->request);
    c->to.resolving = NULL;
}

static void resolving_on_done(uv_getaddrinfo_t *request, int status, struct addrinfo *addresses)
{
    struct resolving *r = request->data;
    struct cw_conn *c = r->c;
    free(r);
    if (!c) {
        uv_freeaddrinfo(addresses);
        return;
    }
    c->to.resolving = NULL;
    if (status < 0) {
        struct cw_error err = {0};
        cw_address_unresolved(&c->to.address, uv_strerror(status), &err);
        cw_conn_die(c, &err);
        return;
    }
    c->to.addresses = c->to.next =
        addresses; /* libuv returns the list of getaddrinfo, so freeaddrinfo frees it */
    c->state = CONN_CONNECTING;
    cw_loop_defer(c->loop, &c->defer);
}

static int connecting_resolve(struct cw_conn *c, struct cw_error *err)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    c->state = CONN_CONNECTING;
    if (c->to.address.local)
        return 0;
    int r = cw_address_resolve(&c->to.address, AI_NUMERICHOST, &c->to.addresses, err);
    c->to.next = c->to.addresses;
    if (r <= 0)
        return r;
    struct resolving *request = malloc(sizeof(*request));
    if (!request)
        return cw_error_nomem(err, sizeof(*request), "resolving a host");
    request->c = c;
    request->request.data = request;
    r = uv_getaddrinfo(cw_loop_uv(c->loop), &request->request, resolving_on_done, c->to.address.host,
                       c->to.address.port, &hints);
    if (r < 0) {
        free(request);
        return r == UV_ENOMEM ? cw_error_nomem(err, 0, "resolving a host")
                              : cw_address_unresolved(&c->to.address, uv_strerror(r), err);
    }
    c->to.resolving = request;
    c->state = CONN_RESOLVING;
    return 0;
}

static void connecting_fail(struct cw_conn *c, int errnum)
{
    struct cw_error err = {0};
    cw_error_errno(&err, CW_E_SERVICE, errnum, "can't connect");
    cw_conn_die(c, &err);
}

static int connecting_begin(struct cw_conn *c)
{
    struct sockaddr_un name;
    if (c->to.address.local) {
        socklen_t size = cw_socket_path(c->to.address.path, &name);
        return cw_socket_connect((const struct sockaddr *)&name, size);
    }
    if (!c->to.next)
        return -EADDRNOTAVAIL;
    const struct addrinfo *a = c->to.next;
    c->to.next = a->ai_next;
    cw_address_print_socket(a->ai_addr, a->ai_addrlen, c->peer, sizeof(c->peer));
    return cw_socket_connect(a->ai_addr, a->ai_addrlen);
}

void cw_conn_try_addresses(struct cw_conn *c)
{
    struct cw_error err = {0};
    int fd;
    do
        fd = connecting_begin(c);
    while (fd < 0 && c->to.next);
    if (fd == -EAGAIN && c->to.address.local) {
        cw_timer_start(c->timer, RETRY_NS, 0);
        return;
    }
    if (fd < 0) {
        connecting_fail(c, -fd);
        return;
    }
    uint64_t now = cw_loop_now_ms(c->loop), left_ms = c->at_ms.deadline > now ? c->at_ms.deadline - now : 0,
             addresses = 1;
    for (const struct addrinfo *a = c->to.next; a; a = a->ai_next)
        addresses++;
    /* an address that does not answer leaves time for the others */
    cw_timer_start(c->timer, CW_MIN(left_ms, CW_MAX(left_ms / addresses, ADDRESS_MS)) * 1000000, 0);
    c->fd = fd;
    if (cw_conn_watch_new(c, fd, &err) < 0)
        cw_conn_die(c, &err);
    else
        cw_watch_set(c->watch, 2);
}

/* Closes the socket of an address that does not answer, or refuses. */
static void connecting_leave_address(struct cw_conn *c)
{
    c->watch = cw_watch_free(c->watch);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void cw_conn_next_address(struct cw_conn *c)
{
    connecting_leave_address(c);
    cw_conn_try_addresses(c);
}

void cw_conn_connected(struct cw_conn *c)
{
    struct cw_error err = {0};
    int r = cw_socket_result(c->fd);
    if (r == 0) {
        if (cw_conn_establish(c, c->fd, &err) < 0 || cw_conn_send_hello(c, &err) < 0)
            cw_conn_die(c, &err);
        return;
    }
    connecting_leave_address(c);
    if (c->to.next)
        cw_conn_try_addresses(c);
    else
        connecting_fail(c, -r);
}

int cw_conn_connect(struct cw_loop *l, const char *address, const struct cw_conn_options *o,
                    const struct cw_conn_ops *ops, void *user, struct cw_conn **ret, struct cw_error *err)
{
    struct cw_conn_setup *setup;
    struct cw_conn *c = NULL;
    int r = cw_conn_setup_new(o, true, &setup, err);
    if (r < 0)
        return r;
    r = cw_conn_new(l, setup, ops, user, &c, err);
    cw_conn_setup_unref(setup);
    if (r < 0)
        return r;
    snprintf(c->peer, sizeof(c->peer), "%s", address);
    r = cw_address_parse(address, &c->to.address, err);
    c->local = c->to.address.local;
    if (r >= 0)
        r = connecting_resolve(c, err);
    if (r < 0) {
        cw_conn_drop(c);
        return r;
    }
    if (c->state == CONN_CONNECTING)
        cw_loop_defer(l, &c->defer);
    *ret = c;
    return 0;
}
