/* The HTTP server: libmicrohttpd without threads, whose epoll descriptor our loop watches. This file decides
 * how long a connection may stay. */
#include "net/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/patience.h"
#include "net/address.h"
#include "net/socket.h"

/* Connections at a time: a browser makes six, Prometheus one. Each takes a descriptor, and up to
 * REQUEST_BYTES. */
#define PLACES 128
#define REQUEST_BYTES ((size_t)16 << 10)
/* For a request and its answer: Prometheus, too, gives up after 10 s. */
#define MOST_NS CW_MAX(UINT64_C(10000000000), cw_patience_silence_ns())
/* A connection stays at least this long, even if all places are taken: a peer that sends its request at once
 * has sent it by then, also from far away. */
#define LEAST_NS UINT64_C(100000000)
/* Content-Security-Policy: a page may load scripts, styles and images from this server only. Inline scripts
 * and styles, and frames around the page, are not allowed. */
#define PAGE_POLICY \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri " \
    "'none'; form-action 'none'; frame-ancestors 'none'"

struct cw_http {
    cw_http_handler handler;
    void *user;
    struct MHD_Daemon *daemon;
    struct cw_watch *watch;
    struct cw_timer *timer;
    struct cw_link guests; /* connections, the oldest first */
    unsigned n_guests;
    char address[320];
    bool loopback; /* it listens on this machine only */
};

/* ---- how long connections stay ---- */

/* A connection, for one request and its answer. Its deadline counts from its beginning, however fast it
 * sends. */
struct guest {
    struct cw_link link;
    struct cw_http *http;
    int fd;
    uint64_t since_ns;
};

static void guest_forget(struct guest *g)
{
    if (cw_link_in(&g->link)) /* else http_end_guests has ended it */
        g->http->n_guests--;
    cw_link_out(&g->link);
}

static void guest_on_connection(void *arg, struct MHD_Connection *c, void **guest,
                                enum MHD_ConnectionNotificationCode what)
{
    struct cw_http *h = arg;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*guest)
            guest_forget(*guest);
        free(*guest);
        return;
    }
    int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    struct guest *g = *guest = calloc(1, sizeof(*g));
    if (!g) {
        (void)shutdown(fd, SHUT_RDWR);
        return;
    }
    *g = (struct guest){.http = h, .fd = fd, .since_ns = cw_now_ns()};
    cw_list_add(&h->guests, &g->link);
    h->n_guests++;
}

/*
 * Ends late connections, and, if all places are taken, the oldest one. Returns the ns until the next
 * connection is late; 0: there are no connections. A socket is only shut down here: that is an event for
 * libmicrohttpd, which then closes it.
 */
static uint64_t http_end_guests(struct cw_http *h)
{
    uint64_t now = cw_now_ns();
    while (!cw_list_empty(&h->guests)) {
        struct guest *g = CW_CONTAINER(h->guests.next, struct guest, link);
        uint64_t age = now - g->since_ns, most = h->n_guests < PLACES ? MOST_NS : LEAST_NS;
        if (age < most)
            return most - age;
        (void)shutdown(g->fd, SHUT_RDWR);
        guest_forget(g);
    }
    return 0;
}

/* ---- running ---- */

static unsigned http_connections(struct cw_http *h)
{
    return MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections;
}

static void http_run(void *arg)
{
    struct cw_http *h = arg;
    MHD_UNSIGNED_LONG_LONG ms;
    unsigned n = http_connections(h);
    MHD_run(h->daemon);
    uint64_t due_ns = http_end_guests(h);
    /* With all places taken, libmicrohttpd stops listening; it begins again only in the run after a place
     * became free. */
    if (http_connections(h) < n || (MHD_get_timeout(h->daemon, &ms) == MHD_YES && ms == 0))
        cw_timer_start(h->timer, 0, 0);
    else if (due_ns)
        cw_timer_start(h->timer, due_ns, 0);
    else
        cw_timer_stop(h->timer);
}

static void http_on_event(void *arg, int events CW_UNUSED)
{
    http_run(arg);
}

/* ---- answering ---- */

struct request {
    bool cut; /* its path has a zero byte, so only the part before it would be looked up */
    char query[];
};

/* Keeps the query. libmicrohttpd calls this with the whole URI before it decodes percent signs and parses the
 * query. The result is *request in later callbacks. */
static void *request_keep_query(void *arg CW_UNUSED, const char *uri, struct MHD_Connection *c CW_UNUSED)
{
    size_t path = strcspn(uri, "?");
    const char *query = uri[path] ? uri + path + 1 : "", *zero = strstr(uri, "%00");
    struct request *r = malloc(sizeof(*r) + strlen(query) + 1);
    if (!r)
        return NULL;
    r->cut = zero && zero < uri + path;
    memcpy(r->query, query, strlen(query) + 1);
    return r;
}

static void request_forget(void *arg CW_UNUSED, struct MHD_Connection *c CW_UNUSED, void **request,
                           enum MHD_RequestTerminationCode how CW_UNUSED)
{
    free(*request);
    *request = NULL;
}

/* Headers of every reply. */
static const char *const headers[][2] = {
    {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
    {MHD_HTTP_HEADER_CONNECTION, "close"}, /* the deadline is that of one request */
    {"X-Content-Type-Options", "nosniff"},
    {"Content-Security-Policy", PAGE_POLICY},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Referrer-Policy", "no-referrer"},
};

static enum MHD_Result reply_send(struct MHD_Connection *c, struct cw_http_reply *reply)
{
    if (reply->body.failed) { /* out of memory: the body is incomplete */
        cw_text_deinit(&reply->body);
        reply->status = MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    struct MHD_Response *r = MHD_create_response_from_buffer(reply->body.size, reply->body.data,
                                                             MHD_RESPMEM_MUST_COPY);
    cw_text_deinit(&reply->body);
    if (!r)
        return MHD_NO; /* the connection ends */
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    for (size_t i = 0; i < CW_COUNT_OF(headers); i++)
        MHD_add_response_header(r, headers[i][0], headers[i][1]);
    if (reply->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(c, reply->status, r);
    MHD_destroy_response(r);
    return result;
}

static bool host_is_number(const char *host)
{
    struct in6_addr a;
    return inet_pton(AF_INET, host, &a) == 1 || inet_pton(AF_INET6, host, &a) == 1;
}

static bool host_is_local_name(const char *host)
{
    return strcasecmp(host, "localhost") == 0;
}

/* Returns whether a host is this machine's loopback name or address. */
static bool host_is_loopback(const char *host)
{
    return host_is_local_name(host) || strcmp(host, "::1") == 0 ||
           (strncmp(host, "127.", 4) == 0 && host_is_number(host));
}

/*
 * Returns whether a request with this Host may be answered. If the server listens on this machine only, pages
 * of other sites must not read it. Such a site can let its own name resolve to 127.0.0.1 (DNS rebinding), but
 * the browser still sends that name in Host. An IP address can't be redefined, so it is allowed; tunnels use
 * addresses.
 */
static bool host_is_allowed(const struct cw_http *h, const char *host)
{
    struct cw_address given;
    struct cw_error err = {0};
    char with_port[300];
    if (!h->loopback || !host)
        return true;
    size_t size = strlen(host);
    if (size == 0 || size > 255)
        return false;
    const char *port = host[size - 1] == ']' ? NULL : strrchr(host, ':');
    snprintf(with_port, sizeof(with_port), "%s%s", host, port ? "" : ":80");
    return cw_address_parse(with_port, &given, &err) == 0 && !given.local &&
           (host_is_local_name(given.host) || host_is_number(given.host));
}

static enum MHD_Result http_answer(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                   const char *version CW_UNUSED, const char *data CW_UNUSED,
                                   size_t *data_size, void **request)
{
    struct cw_http *h = arg;
    struct cw_http_reply reply = {.status = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
    const struct request *r = *request;
    *data_size = 0;
    if (!r)
        return MHD_NO;    /* no memory for the query */
    if (path[0] != '/') { /* such as "*" */
        reply.status = MHD_HTTP_BAD_REQUEST;
    } else if (r->cut) {
        reply.status = MHD_HTTP_BAD_REQUEST;
        cw_text_add(&reply.body,
                    "the URL's path has a zero byte (%%00): expected a path without zero bytes\n");
    } else if (!host_is_allowed(h, MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST))) {
        reply.status = MHD_HTTP_FORBIDDEN;
        cw_text_add(&reply.body, "these pages are served to this machine only: expected a URL (header Host) "
                                 "with localhost or an IP address\n");
    } else if (strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0) {
        h->handler(h->user, path, r->query, &reply);
    } else {
        reply.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        cw_text_add(&reply.body, "expected the HTTP method GET or HEAD\n");
    }
    return reply_send(c, &reply);
}

/* ---- beginning and end ---- */

static int http_start(struct cw_http *h, struct cw_loop *l, int fd, struct cw_error *err)
{
    h->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, http_answer, h, MHD_OPTION_LISTEN_SOCKET, fd,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)PLACES,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, REQUEST_BYTES,
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK,
                                 request_keep_query, NULL, MHD_OPTION_NOTIFY_CONNECTION, guest_on_connection,
                                 h, MHD_OPTION_NOTIFY_COMPLETED, request_forget, NULL, MHD_OPTION_END);
    if (!h->daemon) {
        close(fd);
        return cw_error_set(err, CW_E_IO, "can't start an HTTP server at %s", h->address);
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return cw_error_set(err, CW_E_IO, "can't start an HTTP server at %s: libmicrohttpd has no epoll",
                            h->address);
    int r = cw_timer_new(l, http_run, h, &h->timer, err);
    if (r >= 0)
        r = cw_watch_new(l, info->epoll_fd, http_on_event, h, &h->watch, err);
    if (r >= 0)
        cw_watch_set(h->watch, 1);
    return r;
}

int cw_http_new(struct cw_loop *l, const char *address, cw_http_handler handler, void *user,
                struct cw_http **ret, struct cw_error *err)
{
    struct cw_address a;
    unsigned port;
    int fd;
    int r = cw_address_parse(address, &a, err);
    if (r >= 0 && a.local)
        return cw_error_value(err, CW_E_OPTION, "address", address, "HOST:PORT",
                              "the address for HTTP is \"%.200s\": expected HOST:PORT", address);
    if (r >= 0)
        r = cw_socket_listen(&a, &fd, &port, err);
    if (r < 0)
        return r;
    struct cw_http *h = malloc(sizeof(*h));
    if (!h) {
        close(fd);
        return cw_error_nomem(err, sizeof(*h), "an HTTP server");
    }
    *h = (struct cw_http){.handler = handler, .user = user, .loopback = host_is_loopback(a.host)};
    cw_list_init(&h->guests);
    cw_address_print(a.host, port, h->address, sizeof(h->address));
    r = http_start(h, l, fd, err);
    if (r < 0)
        cw_http_free(h);
    else
        *ret = h;
    return r;
}

const char *cw_http_address(const struct cw_http *h)
{
    return h->address;
}

struct cw_http *cw_http_free(struct cw_http *h)
{
    if (!h)
        return NULL;
    cw_watch_free(h->watch);
    cw_timer_free(h->timer);
    if (h->daemon)
        MHD_stop_daemon(h->daemon); /* also closes the listening socket */
    free(h);
    return NULL;
}
