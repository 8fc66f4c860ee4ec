/* Two sides of connections on one loop, which runs until what a test waits for has happened. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/hash.h"
#include "net/address.h"
#include "net/conn.h"
#include "net/frame.h"

#define WAIT_S 900 /* longer than anything takes, on however slow a machine: then the test failed */
#define WAIT_NS (WAIT_S * UINT64_C(1000000000))

static struct cw_loop *loop;
static struct cw_timer *guard;
static bool (*awaited)(void);
static bool hung;

/* What happened on one side. */
struct side {
    struct cw_conn *c;
    unsigned opened, messages, closed, drained, released, abandoned;
    struct cw_error why;           /* of closed */
    Cachew__Envelope__OfCase kind; /* of the last message */
    uint64_t id, re;
    Cachew__Role role; /* of the peer */
    uint32_t version;  /* of its Welcome */
    void *payload;     /* of the last message: freed by the next */
    size_t size;
    int fds[CW_FRAME_FDS]; /* open within on_message */
    size_t n_fds;
    struct cw_error failure; /* of a Failure */
    char text[100];          /* of a Query */
    /* what it is to do */
    bool echo, refuse_open, refuse_message, refuse_payload;
    /* instead */
    int (*on_message)(struct side *s, const Cachew__Envelope *m, size_t size, struct cw_error *err);
    unsigned close_in; /* CLOSE_IN_... */
};

enum {
    CLOSE_IN_OPEN = 1,
    CLOSE_IN_PAYLOAD = 2,
    CLOSE_IN_MESSAGE = 4,
    CLOSE_IN_DRAINED = 8,
    CLOSE_IN_RELEASE = 16
};
static struct side ours, theirs; /* who connected; what the listener accepted last */
static unsigned refusals;
static struct cw_error refusal;

static void happened(void)
{
    if (awaited && awaited())
        cw_loop_stop(loop);
}

static void side_close(struct side *s, unsigned where)
{
    if (s->close_in & where)
        cw_conn_close(s->c, NULL);
}

static int side_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct side *s = user;
    s->c = c;
    s->opened++;
    s->role = peer->of_case == CACHEW__ENVELOPE__OF_HELLO ? peer->hello->role : peer->welcome->role;
    s->version = peer->of_case == CACHEW__ENVELOPE__OF_HELLO ? peer->hello->version_max
                                                             : peer->welcome->version;
    side_close(s, CLOSE_IN_OPEN);
    happened();
    return s->refuse_open ? cw_error_set(err, CW_E_SERVICE, "not today") : 0;
}

static int side_payload(void *user, struct cw_conn *c, const Cachew__Envelope *m, size_t size, void **ret,
                        struct cw_error *err)
{
    struct side *s = user;
    (void)m;
    (void)c;
    if (s->refuse_payload)
        return cw_error_set(err, CW_E_BUDGET, "no room for %zu bytes", size);
    *ret = malloc(size);
    if (!*ret)
        return cw_error_nomem(err, size, "a payload");
    side_close(s, CLOSE_IN_PAYLOAD);
    return 0;
}

static void side_abandoned(void *user, struct cw_conn *c, void *payload)
{
    struct side *s = user;
    (void)c;
    s->abandoned++;
    free(payload);
}

static void side_released(void *arg)
{
    struct side *s = arg;
    s->released++;
    side_close(s, CLOSE_IN_RELEASE);
}

static void side_forget(struct side *s)
{
    free(s->payload);
    s->payload = NULL;
}

static int side_message(void *user, struct cw_conn *c, const Cachew__Envelope *m, void *payload, size_t size,
                        const int *fds, size_t n_fds, struct cw_error *err)
{
    struct side *s = user;
    side_forget(s);
    s->messages++;
    s->kind = m->of_case;
    s->id = m->id;
    s->re = m->re;
    s->payload = payload;
    s->size = size;
    s->n_fds = n_fds;
    memcpy(s->fds, fds, n_fds * sizeof(*fds));
    if (m->of_case == CACHEW__ENVELOPE__OF_QUERY)
        snprintf(s->text, sizeof(s->text), "%s", m->query->what);
    if (m->of_case == CACHEW__ENVELOPE__OF_FAILURE)
        cw_failure_error(m->failure, &s->failure);
    int r = s->on_message ? s->on_message(s, m, size, err) : 0;
    if (r >= 0 && s->echo) {
        struct iovec piece = {.iov_base = payload, .iov_len = size};
        s->payload = NULL; /* freed when it was sent */
        r = cw_conn_send(c, m, &piece, size != 0, free, payload, fds, n_fds, err);
    }
    side_close(s, CLOSE_IN_MESSAGE);
    happened();
    return r >= 0 && s->refuse_message ? cw_error_set(err, CW_E_SERVICE, "that makes no sense") : r;
}

static void side_closed(void *user, struct cw_conn *c, const struct cw_error *why)
{
    struct side *s = user;
    s->closed++;
    s->why = *why;
    if (s->c == c)
        s->c = NULL;
    happened();
}

static void side_drained(void *user, struct cw_conn *c)
{
    struct side *s = user;
    (void)c;
    s->drained++;
    side_close(s, CLOSE_IN_DRAINED);
    happened();
}

static void side_refused(void *user, const char *peer, const struct cw_error *why)
{
    (void)user;
    assert_true(peer[0] != '\0');
    refusals++;
    refusal = *why;
    happened();
}

static const struct cw_conn_ops side_ops = {.open = side_open,
                                            .payload = side_payload,
                                            .abandoned = side_abandoned,
                                            .message = side_message,
                                            .closed = side_closed,
                                            .drained = side_drained,
                                            .refused = side_refused};

static void give_up(void *arg)
{
    (void)arg;
    hung = true;
    cw_loop_stop(loop);
}

/* Runs the loop until then. */
static void run_until(bool (*condition)(void))
{
    awaited = condition;
    if (!condition()) {
        cw_timer_start(guard, WAIT_NS, 0);
        while (!condition() && !hung)
            cw_loop_run(loop);
        cw_timer_stop(guard);
    }
    awaited = NULL;
    if (hung)
        fail_msg(
            "hung: ours %u opened %u closed (%s), %u released, theirs %u opened %u closed (%s), %u messages",
            ours.opened, ours.closed, ours.why.message, ours.released, theirs.opened, theirs.closed,
            theirs.why.message, theirs.messages);
}

static CW_UNUSED bool both_open(void)
{
    return ours.opened && theirs.opened;
}

static CW_UNUSED bool both_closed(void)
{
    return ours.closed && theirs.closed;
}

static CW_UNUSED bool ours_closed(void)
{
    return ours.closed;
}

static CW_UNUSED bool theirs_closed(void)
{
    return theirs.closed;
}

static CW_UNUSED bool ours_open(void)
{
    return ours.opened;
}

static CW_UNUSED bool theirs_has_message(void)
{
    return theirs.messages;
}

static CW_UNUSED bool ours_has_message(void)
{
    return ours.messages;
}

static CW_UNUSED bool somebody_refused(void)
{
    return refusals;
}

static Cachew__Hello hello = CACHEW__HELLO__INIT;

static struct cw_conn_options options(void)
{
    static char name[] = "a test";
    hello.role = CACHEW__ROLE__ROLE_CLIENT;
    hello.name = name;
    return (struct cw_conn_options){
        .hello = &hello,
        .limits = {.message = (size_t)4 << 20, .payload = (size_t)1 << 30, .queued = (size_t)1 << 30},
        .timeout_ns = WAIT_NS}; /* tests of silence have one of their own */
}

static char directory[64], unix_address[100];

static int net_setup(void **state)
{
    struct cw_error err = {0};
    (void)state;
    ours = theirs = (struct side){0};
    refusals = 0;
    refusal = (struct cw_error){0};
    hung = false;
    snprintf(directory, sizeof(directory), "/tmp/cachew-test-net-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(unix_address, sizeof(unix_address), "unix:%s/socket", directory);
    if (cw_loop_new(&loop, &err) < 0)
        return -1;
    return cw_timer_new(loop, give_up, NULL, &guard, &err);
}

static struct cw_listener *listening; /* of a test that failed */

static int net_teardown(void **state)
{
    (void)state;
    cw_listener_free(listening);
    listening = NULL;
    if (ours.c)
        cw_conn_close(ours.c, NULL);
    if (theirs.c)
        cw_conn_close(theirs.c, NULL);
    guard = cw_timer_free(guard);
    loop = cw_loop_free(loop);
    side_forget(&ours);
    side_forget(&theirs);
    return rmdir(directory); /* nothing is left in it */
}

static CW_UNUSED struct cw_listener *listen_at(const char *address, const struct cw_conn_options *o)
{
    struct cw_error err = {0};
    struct cw_listener *l = NULL;
    if (cw_listener_new(loop, address, o, &side_ops, &theirs, &l, &err) < 0)
        fail_msg("%s", err.message);
    return listening = l;
}

#define cw_listener_free(l) (listening = cw_listener_free(l))

static void connect_to(const char *address, const struct cw_conn_options *o, struct side *s)
{
    struct cw_error err = {0};
    if (cw_conn_connect(loop, address, o, &side_ops, s, &s->c, &err) < 0)
        fail_msg("%s", err.message);
}

/* Both sides open; the listener is gone. */
static CW_UNUSED void pair_at(const char *address)
{
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at(address, &o);
    connect_to(cw_listener_address(l), &o, &ours);
    run_until(both_open);
    cw_listener_free(l);
}

static CW_UNUSED int send_query(struct side *s, const char *text, const struct iovec *pieces, size_t n)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Query q = CACHEW__QUERY__INIT;
    struct cw_error err = {0};
    q.what = (char *)(uintptr_t)text;
    e.id = 7;
    e.of_case = CACHEW__ENVELOPE__OF_QUERY;
    e.query = &q;
    return cw_conn_send(s->c, &e, pieces, n, side_released, s, NULL, 0, &err);
}

/* ---- raw peers ---- */

/* A blocking socket that is connected to a listener, which need not have accepted it. */
static CW_UNUSED int raw_connect(const char *address)
{
    struct cw_address a;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = WAIT_S};
    int fd;
    assert_int_equal(cw_address_parse(address, &a, NULL), 0);
    if (a.local) {
        memcpy(name.sun_path, a.path, sizeof(name.sun_path));
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    } else {
        struct addrinfo *list;
        assert_int_equal(cw_address_resolve(&a, false, &list, NULL), 0);
        fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, list->ai_addr, list->ai_addrlen), 0);
        freeaddrinfo(list);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

static CW_UNUSED void raw_send(int fd, const void *data, size_t size)
{
    assert_int_equal(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* A frame with its header, in memory that is freed by the caller; *size: of all. */
static CW_UNUSED uint8_t *raw_frame(const Cachew__Envelope *e, const void *payload, size_t payload_size,
                                    size_t *size)
{
    size_t n = cachew__envelope__get_packed_size(e);
    uint8_t *bytes = malloc(CW_FRAME_HEADER + n + payload_size);
    struct iovec rest = {.iov_base = (void *)(uintptr_t)payload, .iov_len = payload_size};
    cachew__envelope__pack(e, bytes + CW_FRAME_HEADER);
    if (payload_size)
        memcpy(bytes + CW_FRAME_HEADER + n, payload, payload_size);
    struct cw_frame f = {.message = (uint32_t)n,
                         .payload = payload_size,
                         .message_hash = cw_hash64(bytes + CW_FRAME_HEADER, n),
                         .payload_hash = cw_frame_hash(&rest, 1)};
    cw_frame_write(&f, bytes);
    *size = CW_FRAME_HEADER + n + payload_size;
    return bytes;
}

static CW_UNUSED void raw_envelope(int fd, const Cachew__Envelope *e, const void *payload,
                                   size_t payload_size)
{
    size_t size;
    uint8_t *bytes = raw_frame(e, payload, payload_size, &size);
    raw_send(fd, bytes, size);
    free(bytes);
}

static CW_UNUSED void raw_hello(int fd, uint32_t version_min, uint32_t version_max, const char *token)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Hello h = CACHEW__HELLO__INIT;
    h.version_min = version_min;
    h.version_max = version_max;
    h.token = (char *)(uintptr_t)token;
    e.id = 1;
    e.of_case = CACHEW__ENVELOPE__OF_HELLO;
    e.hello = &h;
    raw_envelope(fd, &e, NULL, 0);
}

/* The next message; NULL at the end. Freed by the caller. */
static CW_UNUSED Cachew__Envelope *raw_receive(int fd)
{
    uint8_t header[CW_FRAME_HEADER];
    struct cw_frame f;
    ssize_t n = recv(fd, header, sizeof(header), MSG_WAITALL);
    if (n == 0)
        return NULL;
    assert_int_equal(n, sizeof(header));
    assert_int_equal(cw_frame_read(header, 1 << 20, 0, &f, NULL), 0);
    uint8_t *message = malloc(f.message + 1u);
    assert_int_equal(f.message ? recv(fd, message, f.message, MSG_WAITALL) : 0, f.message);
    Cachew__Envelope *e = cachew__envelope__unpack(NULL, f.message, message);
    assert_non_null(e);
    free(message);
    return e;
}
