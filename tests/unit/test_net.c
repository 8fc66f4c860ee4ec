/* Connections: round trips, descriptors, order, pings, closing, addresses, posts to a loop. */
#include "net_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/patience.h"

/* ---- addresses ---- */

static void test_addresses(void **state)
{
    (void)state;

    static const struct {
        const char *text, *host, *port, *path;
    } good[] = {
        {"localhost:5050", "localhost", "5050", ""}, {"127.0.0.1:0", "127.0.0.1", "0", ""},
        {"[::1]:65535", "::1", "65535", ""},         {"[fe80::1%lo]:007", "fe80::1%lo", "7", ""},
        {"unix:/a/b:c", "", "", "/a/b:c"},           {"unix:x", "", "", "x"},
    };

    static const char *const bad[] = {"",
                                      ":",
                                      "5050",
                                      "host",
                                      "host:",
                                      ":5050",
                                      "host:x",
                                      "host:65536",
                                      "host:-1",
                                      "host:+1",
                                      "host: 1",
                                      "host:123456",
                                      "::1:5050",
                                      "[::1]",
                                      "[::1]5050",
                                      "[::1:5050",
                                      "[]:1",
                                      "unix:",
                                      "unix:"
                                      "0123456789012345678901234567890123456789012345678901234567890123456789"
                                      "012345678901234567890123456789012345678"};
    struct cw_address a;
    for (size_t i = 0; i < CW_COUNT_OF(good); i++) {
        assert_int_equal(cw_address_parse(good[i].text, &a, NULL), 0);
        assert_string_equal(a.host, good[i].host);
        assert_string_equal(a.port, good[i].port);
        assert_string_equal(a.path, good[i].path);
        assert_int_equal(a.local, good[i].path[0] != '\0');
    }
    for (size_t i = 0; i < CW_COUNT_OF(bad); i++) {
        struct cw_error err = {0};
        assert_int_equal(cw_address_parse(bad[i], &a, &err), CW_E_OPTION);
        assert_true(err.message[0] && err.expected[0]);
    }
}

static void test_loopback(void **state)
{
    (void)state;

    static const struct {
        const char *text;
        bool loopback;
    } cases[] = {
        {"127.0.0.1:1", true},  {"127.9.9.9:1", true},
        {"[::1]:1", true},      {"[::ffff:127.0.0.1]:1", true},
        {"unix:x", true},       {"0.0.0.0:1", false},
        {"[::]:1", false},      {"10.0.0.1:1", false},
        {"128.0.0.1:1", false}, {"[::ffff:10.0.0.1]:1", false},
        {"[fd00::1]:1", false},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct cw_address a;
        bool loopback = !cases[i].loopback;
        assert_int_equal(cw_address_parse(cases[i].text, &a, NULL), 0);
        assert_int_equal(cw_address_is_loopback(&a, &loopback, NULL), 0);
        assert_int_equal(loopback, cases[i].loopback);
    }
}

static void test_identity(void **state)
{
    (void)state;
    char a[80], b[80];
    cw_host_identity(a);
    cw_host_identity(b);
    assert_string_equal(a, b);
    assert_true(strlen(a) > 37);
}

static void test_failures(void **state)
{
    (void)state;
    Cachew__Failure f;
    for (int status = CW_E_RECORD; status >= CW_E_BUG; status--) {
        struct cw_error err = {0}, back;
        cw_error_set(&err, status, "a message\n\x1b[31mwith colours");
        cw_error_op(&err, "op");
        cw_error_attribute(&err, "attribute", "value", "expected");
        cw_error_file(&err, "file");
        cw_error_record(&err, "record");
        cw_error_errnum(&err, ENOENT);
        cw_error_detail(&err, "{\"position\":7}");
        cw_failure_init(&f, &err);
        assert_int_equal(cw_failure_error(&f, &back), status);
        assert_string_equal(back.message, "a message\\n\\u001b[31mwith colours");
        snprintf(err.message, sizeof(err.message), "%s", back.message);
        char detail[CW_ERROR_DETAIL];
        assert_string_equal(cw_error_get_detail(&back, detail), "{\"position\":7}");
        back.detail = err.detail;
        assert_memory_equal(&back, &err, sizeof(err));
    }
    f.kind = (char[]){"from the future"};
    assert_int_equal(cw_failure_error(&f, NULL), CW_E_SERVICE);
}

static void test_details_of_errors(void **state)
{
    (void)state;
    char buf[CW_ERROR_DETAIL], text[40], large[CW_ERROR_DETAIL + 1];
    struct cw_error errors[CW_ERROR_DETAILS + 1] = {{0}}, copy;
    assert_null(cw_error_get_detail(&errors[0], buf));
    for (int i = 0; i <= CW_ERROR_DETAILS; i++) {
        snprintf(text, sizeof(text), "{\"position\":%d}", i);
        cw_error_detail(&errors[i], text);
        cw_error_detail(&errors[i], "{}"); /* it has one already */
    }
    assert_null(cw_error_get_detail(&errors[0], buf)); /* newer ones have replaced it */
    copy = errors[1];
    assert_string_equal(cw_error_get_detail(&copy, buf), "{\"position\":1}");
    assert_string_equal(cw_error_get_detail(&errors[CW_ERROR_DETAILS], buf), text);
    memset(large, ' ', CW_ERROR_DETAIL);
    large[CW_ERROR_DETAIL] = '\0';
    copy = (struct cw_error){0};
    cw_error_detail(&copy, large);
    cw_error_detail(&copy, NULL);
    assert_null(cw_error_get_detail(&copy, buf));
    cw_error_detail(&copy, large + 1);
    assert_string_equal(cw_error_get_detail(&copy, buf), large + 1);
}

/* Ten a window are written down, and with the first of the next one how many were not. */
static void test_refusals_that_are_written_down(void **state)
{
    (void)state;
    struct cw_refusals r = {0};
    unsigned n = 0, unsaid = 0;
    uint64_t now = UINT64_C(100000000000);
    for (int i = 0; i < 200; i++)
        n += cw_refusal_said(&r, now + (uint64_t)i * 40000000, &unsaid); /* 8 s */
    assert_int_equal(n, 10);
    assert_int_equal(unsaid, 0);
    assert_true(cw_refusal_said(&r, now + UINT64_C(10000000000), &unsaid));
    assert_int_equal(unsaid, 190);
}

/* ---- patience ---- */

static void test_patience(void **state)
{
    (void)state;

    static const struct {
        const char *text;
        uint64_t ns;
        bool bad;
    } cases[] = {
        {NULL, UINT64_C(3000000000), false}, {"600", UINT64_C(600000000000), false},
        {"0.25", 250000000, false},          {"", UINT64_C(3000000000), false},
        {"5 s", UINT64_C(3000000000), true}, {"0", UINT64_C(3000000000), true},
        {"-1", UINT64_C(3000000000), true},  {"nan", UINT64_C(3000000000), true},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        if (cases[i].text)
            setenv("CACHEW_SILENCE_S", cases[i].text, 1);
        else
            unsetenv("CACHEW_SILENCE_S");
        assert_int_equal(cw_patience_silence_ns(), cases[i].ns);
        struct cw_error err = {0};
        assert_int_equal(cw_patience_check(&err), cases[i].bad ? CW_E_OPTION : 0);
        assert_int_equal(strstr(err.message, "CACHEW_SILENCE_S") != NULL, cases[i].bad);
    }
    unsetenv("CACHEW_SILENCE_S");
    unsetenv("CACHEW_START_S");
    assert_int_equal(cw_patience_start_ns(), UINT64_C(15000000000));
}

/* ---- round trips ---- */

static void fill(uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 31 + (i >> 8) * 17 + (i >> 16));
}

static bool echo_came(void)
{
    return ours.messages && ours.released;
}

static void round_trip(size_t size, size_t n_pieces)
{
    uint8_t *data = malloc(size + 1);
    struct iovec *pieces = calloc(n_pieces + 1, sizeof(*pieces));
    fill(data, size);
    for (size_t i = 0; i < n_pieces; i++) {
        size_t from = size * i / n_pieces, to = size * (i + 1) / n_pieces;
        pieces[i] = (struct iovec){.iov_base = data + from, .iov_len = to - from};
    }
    ours.messages = ours.released = 0;
    theirs.echo = true;
    assert_int_equal(send_query(&ours, "there and back", pieces, n_pieces), 0);
    run_until(echo_came);
    assert_int_equal(ours.size, size);
    assert_int_equal(ours.kind, CACHEW__ENVELOPE__OF_QUERY);
    assert_string_equal(ours.text, "there and back");
    assert_int_equal(ours.id, 7);
    if (size)
        assert_memory_equal(ours.payload, data, size);
    free(pieces);
    free(data);
}

static void round_trips_at(const char *address)
{
    pair_at(address);
    assert_int_equal(ours.version, 1);
    assert_int_equal(ours.role, CACHEW__ROLE__ROLE_CLIENT);
    assert_int_equal(cw_conn_is_local(ours.c), address == unix_address);

    static const struct {
        size_t size, pieces;
    } cases[] = {
        {0, 0},
        {0, 5},
        {1, 1},
        {1, 7},
        {31, 3},
        {(size_t)64 << 10, 1},
        {(size_t)64 << 10, 1000},
        {((size_t)256 << 10) + 1, 2},
        {(size_t)40 << 20, 1},
        {(size_t)40 << 20, 1024},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++)
        round_trip(cases[i].size, cases[i].pieces);
    cw_conn_close(ours.c, NULL);
    run_until(both_closed);
    assert_int_equal(ours.why.status, 0);
    assert_int_equal(theirs.why.status, 0);
}

static void test_unix(void **state)
{
    (void)state;
    round_trips_at(unix_address);
}

static void test_ipv4(void **state)
{
    (void)state;
    round_trips_at("127.0.0.1:0");
}

static void test_names(void **state)
{
    (void)state;
    round_trips_at("localhost:0");
}

static void test_ipv6(void **state)
{
    (void)state;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0),
        r = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&any, sizeof(any));
    if (fd >= 0)
        close(fd);
    if (r < 0)
        skip();
    round_trips_at("[::1]:0");
}

/* Thousands of messages of all sizes, sent at once: they come in order, whole. */
#define N_MANY 5000
static unsigned next_many;

static size_t many_size(uint32_t i)
{
    i = i * 2654435761u ^ i >> 3;
    return i % 16 == 0 ? i % 300000 : i % 3 == 0 ? 0 : i % 5000;
}

static int check_many(struct side *s, const Cachew__Envelope *m, size_t size, struct cw_error *err)
{
    (void)s;
    (void)err;
    assert_int_equal(m->query->what[0], 'a' + next_many % 26);
    assert_int_equal(size, many_size(next_many));
    next_many++;
    return 0;
}

static bool all_came(void)
{
    return theirs.messages == N_MANY && ours.released == N_MANY;
}

static void test_many(void **state)
{
    (void)state;
    static uint8_t data[300000];
    fill(data, sizeof(data));
    for (int tcp = 0; tcp < 2; tcp++) {
        ours = theirs = (struct side){.on_message = check_many};
        next_many = 0;
        pair_at(tcp ? "127.0.0.1:0" : unix_address);
        for (unsigned i = 0; i < N_MANY; i++) {
            struct iovec pieces[2] = {{.iov_base = data, .iov_len = many_size(i) / 3},
                                      {.iov_base = data, .iov_len = many_size(i) - many_size(i) / 3}};
            assert_int_equal(send_query(&ours, (char[]){(char)('a' + i % 26), '\0'}, pieces, 2), 0);
        }
        run_until(all_came);
        assert_true(ours.drained >= 1);
        cw_conn_close(theirs.c, NULL);
        run_until(both_closed);
        side_forget(&theirs);
    }
}

/* ---- descriptors ---- */

static int named_memory(const char *text)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

static void assert_holds(int fd, const char *text)
{
    char have[100] = {0};
    assert_int_equal(pread(fd, have, sizeof(have) - 1, 0), strlen(text));
    assert_string_equal(have, text);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

static int send_fds(struct side *s, const char *text, const struct iovec *pieces, size_t n, const int *fds,
                    size_t n_fds)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Query q = CACHEW__QUERY__INIT;
    struct cw_error err = {0};
    q.what = (char *)(uintptr_t)text;
    e.of_case = CACHEW__ENVELOPE__OF_QUERY;
    e.query = &q;
    return cw_conn_send(s->c, &e, pieces, n, NULL, NULL, fds, n_fds, &err);
}

/* Each message says how many descriptors it has, and each descriptor what it came with. */
#define N_WITH_FDS 400
static unsigned next_with;

static unsigned fds_of(unsigned i)
{
    return i % 7 == 0 ? 4 : i % 3 == 0 ? 1 : 0;
}

static int check_fds(struct side *s, const Cachew__Envelope *m, size_t size, struct cw_error *err)
{
    (void)err;
    assert_int_equal(atoll(m->query->what), next_with);
    assert_int_equal(size, next_with % 5 == 0 ? 100000 : 0);
    assert_int_equal(s->n_fds, fds_of(next_with));
    for (size_t i = 0; i < s->n_fds; i++)
        assert_holds(s->fds[i], m->query->what);
    next_with++;
    return 0;
}

static bool all_with_fds(void)
{
    return next_with == N_WITH_FDS;
}

static void test_descriptors(void **state)
{
    (void)state;
    static uint8_t data[100000];
    const struct iovec piece = {.iov_base = data, .iov_len = sizeof(data)};
    pair_at(unix_address);
    theirs.on_message = check_fds;
    next_with = 0;
    for (unsigned i = 0; i < N_WITH_FDS; i++) {
        char text[20];
        snprintf(text, sizeof(text), "%u", i);
        int fd = named_memory(text), fds[4] = {fd, fd, fd, fd};
        assert_int_equal(send_fds(&ours, text, &piece, i % 5 == 0, fds, fds_of(i)), 0);
        close(fd); /* it was duplicated */
    }
    run_until(all_with_fds);
    assert_int_equal(send_fds(&ours, "", NULL, 0, (int[]){0, 0, 0, 0, 0}, 5), CW_E_BUG);
    assert_int_equal(send_fds(&ours, "", NULL, 0, (int[]){9999}, 1), CW_E_IO);
    assert_int_equal(ours.closed, 0);
}

static void test_no_descriptors_over_tcp(void **state)
{
    (void)state;
    pair_at("127.0.0.1:0");
    assert_int_equal(send_fds(&ours, "", NULL, 0, (int[]){0}, 1), CW_E_BUG);
}

/* ---- closing ---- */

static void test_reason_arrives(void **state)
{
    (void)state;
    static uint8_t data[(size_t)3 << 20];
    const struct iovec piece = {.iov_base = data, .iov_len = sizeof(data)};
    for (int tcp = 0; tcp < 2; tcp++) {
        struct cw_error why = {0};
        ours = theirs = (struct side){0};
        pair_at(tcp ? "127.0.0.1:0" : unix_address);
        cw_error_set(&why, CW_E_DATA, "the data changed");
        cw_error_file(&why, "a/file");
        /* on its way to who closes: nothing of the reason gets lost over it */
        assert_int_equal(send_query(&theirs, "unread", &piece, 1), 0);
        assert_int_equal(send_query(&ours, "last words", &piece, 1), 0);
        cw_conn_close(ours.c, &why);
        assert_int_equal(send_query(&ours, "too late", NULL, 0), CW_E_SERVICE);
        assert_int_equal(ours.released, 1);
        assert_int_equal(ours.closed, 0);
        run_until(both_closed);
        assert_int_equal(ours.why.status, 0);
        assert_int_equal(theirs.messages, 1);
        assert_int_equal(theirs.size, sizeof(data));
        assert_int_equal(theirs.why.status, CW_E_DATA);
        assert_non_null(strstr(theirs.why.message, "the data changed"));
        assert_string_equal(theirs.why.file, "a/file");
        assert_int_equal(ours.released, 2);
        assert_int_equal(theirs.released, 1);
        side_forget(&theirs);
    }
}

/* Whatever is being told, the connection may be closed: one `closed` on each side, everything released,
 * nothing lost. */
static void test_close_everywhere(void **state)
{
    (void)state;
    static uint8_t data[100000];
    const struct iovec piece = {.iov_base = data, .iov_len = sizeof(data)};
    for (unsigned where = CLOSE_IN_OPEN; where <= CLOSE_IN_RELEASE; where <<= 1)
        for (int theirs_closes = 0; theirs_closes < 2 - (where == CLOSE_IN_RELEASE); theirs_closes++)
            for (int tcp = 0; tcp < 2; tcp++) {
                struct cw_conn_options o = options();
                ours = (struct side){0};
                theirs = (struct side){.echo = true};
                *(theirs_closes ? &theirs.close_in : &ours.close_in) = where;
                struct cw_listener *l = listen_at(tcp ? "127.0.0.1:0" : unix_address, &o);
                connect_to(cw_listener_address(l), &o, &ours);
                run_until(ours_open);
                unsigned expected = 0;
                for (int i = 0; i < 3 && !ours.closed; i++)
                    expected += send_query(&ours, "x", &piece, 1) <= 0;
                run_until(both_closed);
                assert_int_equal(ours.closed, 1);
                assert_int_equal(theirs.closed, 1);
                assert_int_equal(ours.released, expected);
                cw_listener_free(l);
                side_forget(&ours);
                side_forget(&theirs);
            }
}

/* ---- refusing ---- */

static bool opened_or_closed(void)
{
    return both_open() || ours.closed;
}

static void test_token(void **state)
{
    (void)state;
    static const char *const wrong[] = {NULL, "", "secre", "secrets", "Secret", "secretsecret"};
    struct cw_conn_options o = options();
    o.token = "secret";
    struct cw_listener *l = listen_at("127.0.0.1:0", &o);
    for (size_t i = 0; i < CW_COUNT_OF(wrong); i++) {
        ours = (struct side){0};
        refusals = 0;
        o.token = wrong[i];
        connect_to(cw_listener_address(l), &o, &ours);
        run_until(opened_or_closed);
        assert_int_equal(ours.opened + theirs.opened, 0);
        run_until(somebody_refused);
        assert_int_equal(ours.why.status, CW_E_SERVICE);
        assert_non_null(strstr(ours.why.message, wrong[i] && wrong[i][0] ? "the token is wrong"
                                                                         : "the service expects a token"));
        assert_null(strstr(ours.why.message, "secret"));
        assert_null(strstr(refusal.message, "secret"));
    }
    o.token = "secret";
    connect_to(cw_listener_address(l), &o, &ours);
    run_until(both_open);
    cw_listener_free(l);
}

static void test_owner_refuses(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at(unix_address, &o);
    theirs.refuse_open = true;
    connect_to(unix_address, &o, &ours);
    run_until(ours_closed);
    run_until(somebody_refused);
    assert_int_equal(theirs.opened, 1);
    assert_int_equal(theirs.closed, 0);
    assert_int_equal(ours.opened, 0);
    assert_non_null(strstr(ours.why.message, "not today"));
    assert_non_null(strstr(refusal.message, "not today"));
    theirs = ours = (struct side){.refuse_open = true};
    theirs.refuse_open = false;
    connect_to(unix_address, &o, &ours);
    run_until(both_closed);
    assert_non_null(strstr(ours.why.message, "not today"));
    assert_non_null(strstr(theirs.why.message, "not today"));
    cw_listener_free(l);
}

static void test_capabilities(void **state)
{
    (void)state;
    char *first[] = {(char[]){"lz4"}, (char[]){"magic"}, (char[]){"zstd"}},
         *second[] = {(char[]){"zstd"}, (char[]){"lz4"}, (char[]){"x"}};
    struct cw_conn_options o = options();
    hello.capabilities = first;
    hello.n_capabilities = 3;
    struct cw_listener *l = listen_at(unix_address, &o);
    hello.capabilities = second;
    connect_to(unix_address, &o, &ours);
    hello.n_capabilities = 0;
    run_until(both_open);
    for (int i = 0; i < 2; i++) {
        const struct cw_conn *c = i ? ours.c : theirs.c;
        assert_true(cw_conn_has(c, "lz4") && cw_conn_has(c, "zstd"));
        assert_false(cw_conn_has(c, "magic") || cw_conn_has(c, "x"));
    }
    cw_listener_free(l);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at("127.0.0.1:0", &o);
    char address[100];
    snprintf(address, sizeof(address), "%s", cw_listener_address(l));
    cw_listener_free(l);
    const char *const nowhere[] = {address, unix_address, "no-such-host.invalid:1"};
    for (size_t i = 0; i < CW_COUNT_OF(nowhere); i++) {
        ours = (struct side){0};
        connect_to(nowhere[i], &o, &ours);
        assert_int_equal(ours.closed, 0);
        run_until(ours_closed);
        assert_int_equal(ours.why.status, CW_E_SERVICE);
        assert_true(ours.why.message[0]);
        connect_to(nowhere[i], &o, &ours); /* and closed at once */
        cw_conn_close(ours.c, NULL);
        ours.closed = 0;
        run_until(ours_closed);
        assert_int_equal(ours.why.status, 0);
    }
}

static void test_listening_twice(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    struct cw_error err = {0};
    struct cw_listener *l = listen_at(unix_address, &o), *second = NULL;
    struct stat st;
    assert_int_equal(stat(unix_address + 5, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(cw_listener_new(loop, unix_address, &o, &side_ops, &theirs, &second, &err), CW_E_IO);
    assert_string_equal(err.file, unix_address + 5);
    cw_listener_free(l);
    assert_int_equal(stat(unix_address + 5, &st), -1);
    /* What a process that was killed left behind. */
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%s", unix_address + 5);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    close(fd);
    l = listen_at(unix_address, &o);
    cw_listener_free(l);
    /* A file that is not a socket stays. */
    fd = open(unix_address + 5, O_CREAT | O_CLOEXEC | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(cw_listener_new(loop, unix_address, &o, &side_ops, &theirs, &second, &err), CW_E_IO);
    assert_int_equal(unlink(unix_address + 5), 0);
}

/* ---- signs of life ---- */

static void count_down(void *arg)
{
    unsigned *n = arg;
    if (--*n == 0)
        cw_loop_stop(loop);
}

/* Returns whether both sides stay for twice the timeout without a word from the owners. */
static bool both_stay(uint64_t timeout_ns)
{
    struct cw_conn_options o = options();
    struct cw_error err = {0};
    struct cw_timer *t;
    unsigned ticks = 8;
    o.timeout_ns = timeout_ns;
    struct cw_listener *l = listen_at(unix_address, &o);
    connect_to(unix_address, &o, &ours);
    run_until(opened_or_closed);
    assert_int_equal(cw_timer_new(loop, count_down, &ticks, &t, &err), 0);
    cw_timer_start(t, o.timeout_ns / 4, o.timeout_ns / 4);
    while (ticks && !ours.closed && !theirs.closed)
        cw_loop_run(loop);
    cw_timer_free(t);
    bool stay = both_open() && !ours.closed && !theirs.closed;
    assert_int_equal(ours.messages + theirs.messages, 0); /* pings are not told */
    cw_listener_free(l);
    return stay;
}

/* On a machine that lets this process stand still again and again, with a longer timeout. */
static void test_pings(void **state)
{
    uint64_t timeout_ns = UINT64_C(2000000000);
    while (!both_stay(timeout_ns)) {
        assert_int_equal(net_teardown(state), 0);
        assert_int_equal(net_setup(state), 0);
        timeout_ns *= 4;
        assert_in_range(timeout_ns, 0, WAIT_NS / 4);
    }
}

/* What is queued goes, although this process stood still for longer than closing may take. */
static void test_closing_after_standing_still(void **state)
{
    (void)state;
    static uint8_t data[3000000];
    const struct iovec piece = {.iov_base = data, .iov_len = sizeof(data)};
    struct cw_error why = {0};
    pair_at(unix_address);
    assert_int_equal(send_query(&ours, "the last one", &piece, 1), 0);
    cw_error_set(&why, CW_E_OPTION, "enough");
    cw_conn_close(ours.c, &why);
    assert_int_equal(sleep(5), 0);
    run_until(both_closed);
    assert_int_equal(theirs.messages, 1);
    assert_int_equal(theirs.why.status, CW_E_OPTION);
}

/* A request of the owner's own ping kind is answered; its answer comes to the owner. */
static bool done_came(void)
{
    return ours.messages && ours.kind == CACHEW__ENVELOPE__OF_DONE;
}

static void test_own_ping(void **state)
{
    (void)state;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__Ping ping = CACHEW__PING__INIT;
    struct cw_error err = {0};
    pair_at(unix_address);
    e.id = 99;
    e.of_case = CACHEW__ENVELOPE__OF_PING;
    e.ping = &ping;
    assert_int_equal(cw_conn_send(ours.c, &e, NULL, 0, NULL, NULL, NULL, 0, &err), 0);
    run_until(done_came);
    assert_int_equal(ours.re, 99);
    assert_int_equal(theirs.messages, 0);
}

/* ---- the loop ---- */

#define N_POSTS 1000

struct poster {
    struct cw_post post;
    _Atomic unsigned called, wanted, over;
};
static struct poster posters[3];
static unsigned order[2], n_order;

static void on_post(void *arg)
{
    struct poster *p = arg;
    p->called++;
}

static void *post_often(void *arg)
{
    struct poster *p = arg;
    while (p->wanted < N_POSTS) {
        unsigned called = p->called;
        p->wanted++;
        cw_loop_post(loop, &p->post);
        cw_loop_post(loop, &p->post); /* nothing, or once more */
        while (p->called == called)
            sched_yield();
    }
    p->over = 1;
    return NULL;
}

static void on_ordered(void *arg)
{
    order[n_order++] = arg == &order[0] ? 0 : 1;
    if (n_order == 2)
        cw_loop_stop(loop);
}

static void test_posts(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        posters[i].called = posters[i].wanted = posters[i].over = 0;
        posters[i].post = (struct cw_post){.fn = on_post, .arg = &posters[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, post_often, &posters[i]), 0);
    }
    while (!posters[0].over || !posters[1].over || !posters[2].over) {
        cw_loop_stop(loop); /* before it runs: it still returns, having done what there was */
        cw_loop_run(loop);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    cw_loop_stop(loop);
    cw_loop_run(loop);
    for (int i = 0; i < 3; i++)
        assert_true(posters[i].called >= N_POSTS && posters[i].called <= 2 * N_POSTS);
    struct cw_post two[2] = {{.fn = on_ordered, .arg = &order[0]}, {.fn = on_ordered, .arg = &order[1]}};
    n_order = 0;
    cw_loop_post(loop, &two[0]);
    cw_loop_post(loop, &two[1]);
    cw_loop_run(loop);
    assert_int_equal(n_order, 2);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
}

/* Left when the loop is freed: called all the same, its owner may wait for it. */
static void test_posts_at_the_end(void **state)
{
    (void)state;
    struct cw_loop *other;
    struct poster p = {.post = {.fn = on_post, .arg = &p}};
    assert_int_equal(cw_loop_new(&other, NULL), 0);
    cw_loop_post(other, &p.post);
    cw_loop_free(other);
    assert_int_equal(p.called, 1);
}

/* What an owner does in a call that is its last: it has been posted again meanwhile, and others wait for
 * their turn. */
static struct poster *mortal[4];

static void on_mortal(void *arg)
{
    struct poster *p = arg;
    order[0]++;
    if (p != mortal[0])
        return;
    /* alone among those that were posted meanwhile, then before another */
    cw_loop_post(loop, &mortal[0]->post);
    cw_loop_unpost(loop, &mortal[0]->post);
    mortal[0]->post.posted = 0;
    cw_loop_post(loop, &mortal[0]->post);
    cw_loop_post(loop, &mortal[3]->post);
    cw_loop_unpost(loop, &mortal[0]->post);
    cw_loop_unpost(loop, &mortal[1]->post); /* its turn would be next */
    for (int i = 0; i < 2; i++) {
        free(mortal[i]);
        mortal[i] = NULL;
    }
}

static void test_posts_of_the_freed(void **state)
{
    (void)state;
    order[0] = 0;
    for (int i = 0; i < 4; i++) {
        assert_non_null(mortal[i] = calloc(1, sizeof(*mortal[i])));
        mortal[i]->post = (struct cw_post){.fn = on_mortal, .arg = mortal[i]};
    }
    for (int i = 0; i < 3; i++)
        cw_loop_post(loop, &mortal[i]->post);
    for (int turns = 0; turns < 3; turns++) {
        cw_loop_stop(loop);
        cw_loop_run(loop);
    }
    assert_int_equal(order[0], 3);        /* the first, the third, the fourth */
    cw_loop_post(loop, &mortal[2]->post); /* the list is in order */
    cw_loop_stop(loop);
    cw_loop_run(loop);
    assert_int_equal(order[0], 4);
    free(mortal[2]);
    free(mortal[3]);
}

static int caught;

static void on_signal(void *arg, int signal)
{
    (void)arg;
    caught = signal;
    cw_loop_stop(loop);
}

static void test_signals(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGINT};
    struct cw_error err = {0};
    assert_int_equal(cw_loop_signals(loop, on_signal, NULL, &err), 0);
    for (size_t i = 0; i < CW_COUNT_OF(signals); i++) {
        raise(signals[i]);
        cw_loop_run(loop);
        assert_int_equal(caught, signals[i]);
    }
}

static int watched_events;

static void on_watched(void *arg, int events)
{
    (void)arg;
    watched_events = events;
    cw_loop_stop(loop);
}

static void test_watches(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_watch *w;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(cw_watch_new(loop, fds[0], on_watched, NULL, &w, &err), 0);
    cw_watch_set(w, 2);
    cw_loop_run(loop);
    assert_int_equal(watched_events, 2);
    cw_watch_set(w, 1);
    assert_int_equal(write(fds[1], "x", 1), 1);
    cw_loop_run(loop);
    assert_int_equal(watched_events, 1);
    cw_watch_set(w, 3);
    cw_loop_run(loop);
    assert_int_equal(watched_events, 3);
    cw_watch_free(w);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(cw_watch_new(loop, -1, on_watched, NULL, &w, &err), CW_E_IO);
}

/* A connection that is being resolved, connected, shaken hands with, or closed, when its loop is freed: the
 * teardown waits for it. */
static void test_loop_ends_first(void **state)
{
    (void)state;
    static struct side sides[4];
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at("127.0.0.1:0", &o);
    for (size_t i = 0; i < CW_COUNT_OF(sides); i++) {
        sides[i] = (struct side){0};
        connect_to(i == 1 ? "localhost:1" : cw_listener_address(l), &o, &sides[i]);
    }
    for (size_t i = 0; i < CW_COUNT_OF(sides); i++)
        if (sides[i].c)
            cw_conn_close(sides[i].c, NULL);
    cw_listener_free(l);
    guard = cw_timer_free(guard);
    loop = cw_loop_free(loop);
    for (size_t i = 0; i < CW_COUNT_OF(sides); i++)
        assert_int_equal(sides[i].closed, 1);
    struct cw_error err = {0};
    assert_int_equal(cw_loop_new(&loop, &err), 0);
    assert_int_equal(cw_timer_new(loop, give_up, NULL, &guard, &err), 0);
}

int main(void)
{
#define WITH_LOOP(f) cmocka_unit_test_setup_teardown(f, net_setup, net_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_loopback),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_details_of_errors),
        cmocka_unit_test(test_refusals_that_are_written_down),
        cmocka_unit_test(test_patience),
        WITH_LOOP(test_unix),
        WITH_LOOP(test_ipv4),
        WITH_LOOP(test_names),
        WITH_LOOP(test_ipv6),
        WITH_LOOP(test_many),
        WITH_LOOP(test_descriptors),
        WITH_LOOP(test_no_descriptors_over_tcp),
        WITH_LOOP(test_reason_arrives),
        WITH_LOOP(test_close_everywhere),
        WITH_LOOP(test_token),
        WITH_LOOP(test_owner_refuses),
        WITH_LOOP(test_capabilities),
        WITH_LOOP(test_nobody_there),
        WITH_LOOP(test_listening_twice),
        WITH_LOOP(test_pings),
        WITH_LOOP(test_closing_after_standing_still),
        WITH_LOOP(test_own_ping),
        WITH_LOOP(test_posts),
        WITH_LOOP(test_posts_at_the_end),
        WITH_LOOP(test_posts_of_the_freed),
        WITH_LOOP(test_signals),
        WITH_LOOP(test_watches),
        WITH_LOOP(test_loop_ends_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
