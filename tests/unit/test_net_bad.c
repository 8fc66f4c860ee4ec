/* Peers that speak nonsense, too much, too slowly, or nothing: each is cut off with a reason, and nobody else
 * notices. */
#include "net_test.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/hash.h"
#include "net/envelope.h"

static struct cw_conn_options small_options(void)
{
    struct cw_conn_options o = options();
    o.limits = (struct cw_conn_limits){.message = 100000, .payload = 200000, .queued = 1 << 20};
    return o;
}

static int n_open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static bool theirs_open(void)
{
    return theirs.opened;
}

static unsigned theirs_wanted;

static bool theirs_has_enough(void)
{
    return theirs.messages >= theirs_wanted;
}

static bool closed_or_refused(void)
{
    return theirs.closed || refusals;
}

/* A raw peer that shook hands. */
static int raw_pair(const char *address, const struct cw_conn_options *o, struct cw_listener **l)
{
    *l = listen_at(address, o);
    int fd = raw_connect(cw_listener_address(*l));
    raw_hello(fd, 1, 1, "");
    run_until(theirs_open);
    Cachew__Envelope *e;
    for (bool welcome = false; !welcome;) { /* a loop that ran once has sent it */
        cw_loop_stop(loop);
        cw_loop_run(loop);
        char peek;
        welcome = recv(fd, &peek, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    }
    e = raw_receive(fd);
    assert_int_equal(e->of_case, CACHEW__ENVELOPE__OF_WELCOME);
    assert_int_equal(e->re, 1);
    assert_int_equal(e->welcome->version, 1);
    cachew__envelope__free_unpacked(e, NULL);
    return fd;
}

static void assert_reason(const struct cw_error *err, const char *reason)
{
    if (!strstr(err->message, reason))
        fail_msg("\"%s\", expected \"%s\"", err->message, reason);
}

/* What was said last is a Failure with this in it; then the connection ends. */
static void assert_told(int fd, const char *reason)
{
    struct cw_error err = {0};
    Cachew__Envelope *e;
    while ((e = raw_receive(fd))) {
        if (e->of_case == CACHEW__ENVELOPE__OF_FAILURE)
            cw_failure_error(e->failure, &err);
        cachew__envelope__free_unpacked(e, NULL);
    }
    assert_reason(&err, reason);
}

/* ---- before the handshake ---- */

static void send_greeting(const char *address, const void *data, size_t size, const char *reason)
{
    int fd = raw_connect(address);
    refusals = 0;
    raw_send(fd, data, size);
    shutdown(fd, SHUT_WR);
    run_until(somebody_refused);
    assert_reason(&refusal, reason);
    close(fd);
}

static void test_greetings(void **state)
{
    (void)state;
    static const char http[] = "GET / HTTP/1.0\r\n\r\n", ssh[] = "SSH-2.0-OpenSSH_9.2\r\n";
    static const uint8_t tls[60] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03};
    struct cw_conn_options o = options();
    const char *const addresses[] = {unix_address, "127.0.0.1:0"};
    uint8_t noise[5000];
    for (size_t i = 0; i < 2; i++) {
        struct cw_listener *l = listen_at(addresses[i], &o);
        const char *at = cw_listener_address(l);
        int n_fds = n_open_fds();
        /* Peers who are well-behaved come in between. */
        connect_to(at, &o, &ours);
        send_greeting(at, http, strlen(http), "begins with the bytes 47 45 54 20");
        send_greeting(at, ssh, strlen(ssh), "begins with the bytes 53 53 48 2d");
        send_greeting(at, "", 0, "before the handshake");
        send_greeting(at, tls, sizeof(tls), "neither): its message begins with the bytes 16 03 01 02");
        uint32_t seed = 1;
        for (int round = 0; round < 200; round++) {
            for (size_t k = 0; k < sizeof(noise); k++)
                noise[k] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
            if (round % 2) /* a good beginning */
                memcpy(noise, "CWF1\5\0\0\0\0\0\0\0\0\0\0\0", 16);
            send_greeting(at, noise, 32 + seed % (sizeof(noise) - 32), round % 2 ? "" : "than Cachew's");
        }
        run_until(both_open);
        assert_int_equal(send_query(&ours, "still here", NULL, 0), 0);
        run_until(theirs_has_message);
        assert_string_equal(theirs.text, "still here");
        cw_conn_close(ours.c, NULL);
        run_until(both_closed);
        assert_int_equal(n_open_fds(), n_fds);
        cw_listener_free(l);
        ours = theirs = (struct side){0};
    }
}

static void refused_hello(const char *address, uint32_t version_min, uint32_t version_max, const char *reason)
{
    int fd = raw_connect(address);
    refusals = 0;
    raw_hello(fd, version_min, version_max, "");
    shutdown(fd, SHUT_WR);
    run_until(somebody_refused);
    assert_told(fd, reason);
    close(fd);
}

static void test_versions(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at(unix_address, &o);
    refused_hello(unix_address, 7, 9, "versions 7 to 9 of Cachew's protocol, this side 1 to 1");
    refused_hello(unix_address, 0, 0, "versions 0 to 0");
    refused_hello(unix_address, 9, 1, "versions 9 to 1");
    cw_listener_free(l);
    int fd;
    l = listen_at(unix_address, &o);
    fd = raw_connect(unix_address);
    raw_hello(fd, 1, 4000000000u, ""); /* from the future, and still speaks ours */
    run_until(theirs_open);
    close(fd);
    cw_listener_free(l);
}

/* A listener from the future, or one that speaks first. */
static int welcome_with(int fd, uint32_t version)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Welcome w = CACHEW__WELCOME__INIT;
    w.version = version;
    e.of_case = CACHEW__ENVELOPE__OF_WELCOME;
    e.welcome = &w;
    raw_envelope(fd, &e, NULL, 0);
    return fd;
}

static void test_bad_listeners(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(name.sun_path, sizeof(name.sun_path), "%s", unix_address + 5);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(listener, 5), 0);
    static const char *const reasons[] = {"version 2 of Cachew's protocol", "version 0 of Cachew's protocol",
                                          "begins with the bytes 32 32 30 20", "before the handshake",
                                          "with a message of kind 11"};
    for (unsigned i = 0; i < CW_COUNT_OF(reasons); i++) {
        ours = (struct side){0};
        connect_to(unix_address, &o, &ours);
        cw_loop_stop(loop);
        cw_loop_run(loop);
        int fd = accept(listener, NULL, NULL);
        Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
        Cachew__Ping ping = CACHEW__PING__INIT;
        e.of_case = CACHEW__ENVELOPE__OF_PING;
        e.ping = &ping;
        if (i < 2)
            welcome_with(fd, i ? 0 : 2);
        else if (i == 2)
            raw_send(fd, "220 mail.example.org ESMTP ready and willing\r\n", 46);
        else if (i == 4)
            raw_envelope(fd, &e, NULL, 0);
        shutdown(fd, SHUT_WR);
        run_until(ours_closed);
        assert_int_equal(ours.why.status, CW_E_SERVICE);
        assert_reason(&ours.why, reasons[i]);
        close(fd);
    }
    close(listener);
    unlink(name.sun_path);
}

static void test_large_hello(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at(unix_address, &o);
    static char token[70000];
    memset(token, 'x', sizeof(token) - 1);
    int fd = raw_connect(unix_address);
    raw_hello(fd, 1, 1, token);
    shutdown(fd, SHUT_WR);
    run_until(somebody_refused);
    assert_told(fd, "expected at most 65536");
    close(fd);
    cw_listener_free(l);
}

/* ---- half-open peers ---- */

static unsigned wanted_refusals;

static bool enough_refused(void)
{
    return refusals >= wanted_refusals;
}

static void test_half_open(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    int fds[50];
    o.timeout_ns = 300000000;
    struct cw_listener *l = listen_at("127.0.0.1:0", &o);
    for (size_t i = 0; i < CW_COUNT_OF(fds); i++) {
        fds[i] = raw_connect(cw_listener_address(l));
        if (i % 2)
            raw_send(fds[i], "CWF1", 4);
    }
    wanted_refusals = CW_COUNT_OF(fds);
    run_until(enough_refused);
    assert_int_equal(refusal.status, CW_E_DEADLINE);
    assert_reason(&refusal, "no handshake for 0.3 s");
    for (size_t i = 0; i < CW_COUNT_OF(fds); i++)
        close(fds[i]);
    cw_listener_free(l);
}

/* More than may wait: the oldest make room, and who shakes hands is let in. */
static void test_crowd(void **state)
{
    (void)state;

    enum { N = 1500 };

    static int fds[N];
    struct rlimit limit;
    struct cw_conn_options o = options();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < 2 * N + 100 && limit.rlim_max >= 2 * N + 100) {
        limit.rlim_cur = 2 * N + 100;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < 2 * N + 100)
        skip();
    struct cw_listener *l = listen_at("127.0.0.1:0", &o);
    for (int i = 0; i < N; i++)
        fds[i] = raw_connect(cw_listener_address(l));
    wanted_refusals = N - 1024;
    connect_to(cw_listener_address(l), &o, &ours);
    run_until(both_open);
    run_until(enough_refused);
    assert_reason(&refusal, "to make room");
    assert_int_equal(ours.closed, 0);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    cw_listener_free(l);
}

static void test_no_descriptors_left(void **state)
{
    (void)state;
    struct rlimit limit, low;
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at(unix_address, &o);
    int fds[200], n = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (; n < 20; n++)
        fds[n] = raw_connect(unix_address);
    low = limit;
    low.rlim_cur = (rlim_t)dup(0) + 5;
    close((int)low.rlim_cur - 5);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    cw_loop_stop(loop); /* a turn that happens, however late the machine is */
    cw_loop_run(loop);
    cw_timer_start(guard, 200000000, 0);
    cw_loop_run(loop); /* until it gives up: nothing crashes, nothing spins */
    hung = false;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    connect_to(unix_address, &o, &ours);
    run_until(both_open);
    while (n)
        close(fds[--n]);
    cw_listener_free(l);
}

/* ---- after the handshake ---- */

static void test_bad_frames(void **state)
{
    (void)state;

    enum {
        MAGIC,
        MESSAGE_HASH,
        PAYLOAD_HASH,
        MESSAGE_SIZE,
        PAYLOAD_SIZE,
        GHOST_HASH,
        NOT_PROTOBUF,
        CUT_HEADER,
        CUT_MESSAGE,
        CUT_PAYLOAD,
        SECOND_HELLO,
        PING_PAYLOAD,
        UNKNOWN_PAYLOAD,
        LENGTHENED,
        N_CASES
    };

    static const char *const reasons[N_CASES] = {
        "another protocol than Cachew's",
        "a message of 6 bytes was changed",
        "a payload of 5 bytes was changed",
        "a message of 100001 bytes, expected at most 100000",
        "a payload of 200001 bytes, expected at most 200000",
        "but no payload",
        "can't be decoded",
        "",
        "",
        "",
        "a second handshake",
        "an unexpected payload",
        "an unexpected payload",
        "header (message: 65542 bytes; payload: 0 bytes) were changed",
    };
    Cachew__Query q = CACHEW__QUERY__INIT;
    Cachew__Ping ping = CACHEW__PING__INIT;
    q.what = (char[]){"x"};
    for (int i = 0; i < N_CASES; i++)
        for (int tcp = 0; tcp < 2; tcp++) {
            struct cw_conn_options o = small_options();
            struct cw_listener *l;
            Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
            theirs = (struct side){0};
            int fd = raw_pair(tcp ? "127.0.0.1:0" : unix_address, &o, &l);
            e.of_case = CACHEW__ENVELOPE__OF_QUERY;
            e.query = &q;
            e.id = 0;
            if (i == PING_PAYLOAD || i == UNKNOWN_PAYLOAD) {
                e.of_case = i == PING_PAYLOAD ? CACHEW__ENVELOPE__OF_PING : CACHEW__ENVELOPE__OF__NOT_SET;
                e.ping = &ping;
            }
            size_t size,
                payload = i == PAYLOAD_HASH || i == CUT_PAYLOAD || i == PING_PAYLOAD || i == UNKNOWN_PAYLOAD
                              ? 5
                              : 0;
            uint8_t *f = raw_frame(&e, "12345", payload, &size);
            struct cw_frame h;
            assert_int_equal(cw_frame_read(f, 1000, 1000, &h, NULL), 0);
            if (i == MESSAGE_SIZE)
                h.message = 100001;
            if (i == PAYLOAD_SIZE)
                h.payload = 200001;
            h.message_hash ^= i == MESSAGE_HASH;
            h.payload_hash ^= i == PAYLOAD_HASH || i == GHOST_HASH;
            if (i == NOT_PROTOBUF) {
                memset(f + CW_FRAME_HEADER, 0xff, h.message);
                h.message_hash = cw_hash64(f + CW_FRAME_HEADER, h.message);
            }
            cw_frame_write(&h, f);
            f[0] ^= i == MAGIC;
            f[6] ^= i == LENGTHENED; /* so much would be waited for, while keep-alives come */
            size -= i == CUT_HEADER ? size - 20 : i == CUT_MESSAGE || i == CUT_PAYLOAD ? 2 : 0;
            if (i == SECOND_HELLO)
                raw_hello(fd, 1, 1, "");
            else
                raw_send(fd, f, size);
            shutdown(fd, SHUT_WR);
            run_until(theirs_closed);
            assert_int_equal(theirs.why.status, CW_E_SERVICE);
            assert_int_equal(theirs.messages, 0);
            if (reasons[i][0]) {
                assert_reason(&theirs.why, reasons[i]);
                assert_told(fd, reasons[i]);
            } else {
                assert_reason(&theirs.why, "in the middle of a message");
            }
            assert_int_equal(theirs.abandoned, i == CUT_PAYLOAD || i == PAYLOAD_HASH);
            free(f);
            close(fd);
            cw_listener_free(l);
        }
}

static void test_owner_has_enough(void **state)
{
    (void)state;
    for (int payload = 0; payload < 2; payload++) {
        struct cw_conn_options o = small_options();
        struct cw_listener *l;
        Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
        Cachew__Query q = CACHEW__QUERY__INIT;
        theirs = (struct side){.refuse_message = true, .refuse_payload = true};
        int fd = raw_pair(unix_address, &o, &l);
        e.of_case = CACHEW__ENVELOPE__OF_QUERY;
        e.query = &q;
        raw_envelope(fd, &e, "12345", payload ? 5 : 0);
        shutdown(fd, SHUT_WR);
        run_until(theirs_closed);
        assert_told(fd, payload ? "no room for 5 bytes" : "that makes no sense");
        close(fd);
        cw_listener_free(l);
        side_forget(&theirs);
    }
}

/* Of a later version: a request is answered, the rest ignored. */
static void test_unknown_kinds(void **state)
{
    (void)state;
    /* kind 1005 */
    static const uint8_t request[] = {0x08, 0x2a, 0xea, 0x3e, 0x02, 0x08, 0x01},
                         notice[] = {0xea, 0x3e, 0x02, 0x08, 0x01};
    struct cw_conn_options o = small_options();
    struct cw_listener *l;
    int fd = raw_pair(unix_address, &o, &l);

    const struct {
        const uint8_t *data;
        uint32_t size;
    } messages[] = {{notice, sizeof(notice)}, {NULL, 0}, {request, sizeof(request)}};

    for (size_t i = 0; i < CW_COUNT_OF(messages); i++) {
        uint8_t header[CW_FRAME_HEADER];
        const struct cw_frame f = {.message = messages[i].size,
                                   .message_hash = cw_hash64(messages[i].data, messages[i].size)};
        cw_frame_write(&f, header);
        raw_send(fd, header, sizeof(header));
        raw_send(fd, messages[i].data, messages[i].size);
    }
    shutdown(fd, SHUT_WR);
    run_until(theirs_closed);
    assert_int_equal(theirs.why.status, 0);
    assert_int_equal(theirs.messages, 0);
    Cachew__Envelope *e = raw_receive(fd);
    if (e) { /* unless the end was noticed first */
        assert_int_equal(e->re, 42);
        assert_int_equal(e->of_case, CACHEW__ENVELOPE__OF_FAILURE);
        cachew__envelope__free_unpacked(e, NULL);
    }
    close(fd);
    cw_listener_free(l);
}

/* A message of few bytes that would take a gigabyte in memory. */
static void test_swelling_message(void **state)
{
    (void)state;

    enum { N = 1 << 20 };

    uint8_t *bytes = malloc(N + 10);
    size_t n = 0;
    bytes[n++] = 0xca; /* placements, 25, length-delimited */
    bytes[n++] = 0x01;
    uint32_t left = N - 10;
    size_t at = n;
    n += 4;
    for (uint32_t i = 0; i < left / 2; i++) { /* a Placement of no bytes */
        bytes[n++] = 0x0a;
        bytes[n++] = 0x00;
    }
    uint32_t size = (uint32_t)(n - at - 4);
    for (int i = 0; i < 4; i++)
        bytes[at + (size_t)i] = (uint8_t)((size >> (7 * i) & 0x7f) | (i < 3 ? 0x80 : 0));
    struct cw_envelope_memory memory = {0};
    struct cw_error err = {0};
    const Cachew__Envelope *e;
    assert_int_equal(cw_envelope_read(&memory, SIZE_MAX / 2, bytes, n, &e, &err), 0);
    assert_int_equal(e->placements->n_placements, size / 2);
    assert_true(memory.used > (size_t)30 * N);
    cw_envelope_clear(&memory);
    assert_int_equal(cw_envelope_read(&memory, cw_envelope_limit(N), bytes, n, &e, &err), CW_E_SERVICE);
    assert_non_null(strstr(err.message, "of memory here"));
    assert_true(memory.used <= cw_envelope_limit(N));
    cw_envelope_deinit(&memory);
    free(bytes);
}

/* Byte by byte, and two at a time, both ways of cutting a stream: what comes out is the same. */
static void test_slow_senders(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    for (size_t step = 1; step <= 3; step++) {
        struct cw_listener *l;
        Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
        Cachew__Query q = CACHEW__QUERY__INIT;
        size_t size;
        theirs = (struct side){0};
        int fd = raw_pair(unix_address, &o, &l);
        q.what = (char[]){"slowly"};
        e.of_case = CACHEW__ENVELOPE__OF_QUERY;
        e.query = &q;
        uint8_t *f = raw_frame(&e, "0123456789", 10, &size);
        for (unsigned round = 0; round < 3; round++) {
            for (size_t i = 0; i < size; i += step) {
                raw_send(fd, f + i, CW_MIN(step, size - i));
                cw_loop_stop(loop);
                cw_loop_run(loop);
            }
        }
        theirs_wanted = 3;
        run_until(theirs_has_enough);
        assert_int_equal(theirs.size, 10);
        assert_memory_equal(theirs.payload, "0123456789", 10);
        assert_string_equal(theirs.text, "slowly");
        free(f);
        close(fd);
        run_until(theirs_closed);
        side_forget(&theirs);
        cw_listener_free(l);
    }
}

/* A message that is announced and does not come takes no memory, and its sender stays for as long as it says
 * something. */
static void test_large_message_in_pieces(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct cw_listener *l;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Query q = CACHEW__QUERY__INIT;

    enum { N = 3000000 };

    char *text = malloc(N + 1);
    size_t size, sent = 0;
    memset(text, 'q', N);
    text[N] = '\0';
    int fd = raw_pair(unix_address, &o, &l);
    q.what = text;
    e.of_case = CACHEW__ENVELOPE__OF_QUERY;
    e.query = &q;
    uint8_t *f = raw_frame(&e, "x", 1, &size);
    while (sent < size) {
        ssize_t n = send(fd, f + sent, CW_MIN((size_t)70001, size - sent), MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
        cw_loop_stop(loop);
        cw_loop_run(loop);
    }
    run_until(theirs_has_message);
    assert_int_equal(theirs.size, 1);
    free(f);
    free(text);
    close(fd);
    cw_listener_free(l);
}

static void test_silent_peer(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct cw_listener *l;
    o.timeout_ns = UINT64_C(3000000000); /* a loop that is later than a third of this waits anew */
    int fd = raw_pair(unix_address, &o, &l);
    run_until(theirs_closed);
    assert_int_equal(theirs.why.status, CW_E_DEADLINE);
    Cachew__Envelope *e = raw_receive(fd); /* it was asked whether it is still there */
    assert_int_equal(e->of_case, CACHEW__ENVELOPE__OF_PING);
    cachew__envelope__free_unpacked(e, NULL);
    close(fd);
    cw_listener_free(l);
}

/* Who never reads is cut off when the queue is full; what was queued is released. */
static void test_never_reads(void **state)
{
    (void)state;
    static uint8_t data[100000];
    const struct iovec piece = {.iov_base = data, .iov_len = sizeof(data)};
    struct cw_conn_options o = small_options();
    struct cw_listener *l;
    int fd = raw_pair(unix_address, &o, &l);
    unsigned n = 0;
    while (send_query(&theirs, "x", &piece, 1) >= 0) {
        n++;
        assert_true(cw_conn_queued(theirs.c) <= o.limits.queued);
    }
    assert_true(n >= 10);
    assert_int_equal(theirs.closed, 0);
    run_until(theirs_closed);
    assert_reason(&theirs.why, "the other side does not read its messages");
    assert_int_equal(theirs.released, n + 1);
    close(fd);
    cw_listener_free(l);
}

/* ---- descriptors ---- */

static void send_with_fds(int fd, const void *data, size_t size, size_t n_fds)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec piece = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr m = {.msg_iov = &piece,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(n_fds * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    for (size_t i = 0; i < n_fds; i++)
        memcpy(CMSG_DATA(c) + i * sizeof(int), &(int){0}, sizeof(int));
    assert_int_equal(sendmsg(fd, &m, MSG_NOSIGNAL), (ssize_t)size);
}

static void test_bad_descriptors(void **state)
{
    (void)state;

    enum { TOO_MANY, IN_THE_MIDDLE, TWICE, WITH_PING, BEFORE_HANDSHAKE, N_CASES };

    static const char *const reasons[] = {"more than 4 file descriptors", "in the middle", "in the middle",
                                          "that has none", "that has none"};
    Cachew__Query q = CACHEW__QUERY__INIT;
    Cachew__Ping ping = CACHEW__PING__INIT;
    Cachew__Hello h = CACHEW__HELLO__INIT;
    h.version_min = h.version_max = 1;
    for (int i = 0; i < N_CASES; i++) {
        struct cw_conn_options o = options();
        Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
        struct cw_listener *l;
        size_t size;
        int n_fds = n_open_fds(), fd;
        theirs = (struct side){0};
        refusals = 0;
        if (i == BEFORE_HANDSHAKE) {
            l = listen_at(unix_address, &o);
            fd = raw_connect(unix_address);
            e.of_case = CACHEW__ENVELOPE__OF_HELLO;
            e.hello = &h;
        } else {
            fd = raw_pair(unix_address, &o, &l);
            e.of_case = i == WITH_PING ? CACHEW__ENVELOPE__OF_PING : CACHEW__ENVELOPE__OF_QUERY;
            if (i == WITH_PING)
                e.ping = &ping;
            else
                e.query = &q;
        }
        uint8_t *f = raw_frame(&e, "0123456789", i == IN_THE_MIDDLE ? 10 : 0, &size);
        if (i == IN_THE_MIDDLE) {
            raw_send(fd, f, size - 5);
            cw_loop_stop(loop);
            cw_loop_run(loop);
            send_with_fds(fd, f + size - 5, 5, 2);
        } else if (i == TWICE) {
            send_with_fds(fd, f, 10, 1);
            send_with_fds(fd, f + 10, 10, 1);
        } else {
            send_with_fds(fd, f, size, i == TOO_MANY ? 6 : 4);
        }
        shutdown(fd, SHUT_WR);
        run_until(i == BEFORE_HANDSHAKE ? closed_or_refused : theirs_closed);
        assert_reason(i == BEFORE_HANDSHAKE && refusals ? &refusal : &theirs.why, reasons[i]);
        free(f);
        close(fd);
        cw_listener_free(l);
        side_forget(&theirs);
        assert_int_equal(n_open_fds(), n_fds);
    }
}

/* ---- many ---- */

/* Under AddressSanitizer 0: it finds leaks itself. */
static size_t memory_in_use(void)
{
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

static unsigned n_closed_wanted;

static bool many_closed(void)
{
    return ours.closed >= n_closed_wanted && theirs.closed >= n_closed_wanted;
}

static void test_thousands(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at(unix_address, &o);
    size_t first = 0;
    int n_fds = n_open_fds();
    ours.close_in = CLOSE_IN_OPEN;
    for (n_closed_wanted = 100; n_closed_wanted <= 5000; n_closed_wanted += 100) {
        for (int i = 0; i < 100; i++)
            connect_to(unix_address, &o, &ours);
        run_until(many_closed);
        if (n_closed_wanted == 1000)
            first = memory_in_use();
    }
    assert_int_equal(n_open_fds(), n_fds);
    assert_true(memory_in_use() < first + 65536); /* of 4,000 connections */
    cw_listener_free(l);
}

int main(void)
{
#define WITH_LOOP(f) cmocka_unit_test_setup_teardown(f, net_setup, net_teardown)
    const struct CMUnitTest tests[] = {
        WITH_LOOP(test_greetings),
        WITH_LOOP(test_versions),
        WITH_LOOP(test_bad_listeners),
        WITH_LOOP(test_large_hello),
        WITH_LOOP(test_half_open),
        WITH_LOOP(test_crowd),
        WITH_LOOP(test_no_descriptors_left),
        WITH_LOOP(test_bad_frames),
        WITH_LOOP(test_owner_has_enough),
        WITH_LOOP(test_unknown_kinds),
        cmocka_unit_test(test_swelling_message),
        WITH_LOOP(test_slow_senders),
        WITH_LOOP(test_large_message_in_pieces),
        WITH_LOOP(test_silent_peer),
        WITH_LOOP(test_never_reads),
        WITH_LOOP(test_bad_descriptors),
        WITH_LOOP(test_thousands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
