/* HTTP: what is answered to whom; and metrics as text. */
#include "net_test.h"

#include <math.h>
#include <pthread.h>

#include "net/http.h"
#include "net/metrics.h"

#define LONG_NS UINT64_C(3600000000000) /* ends a hang */

/* ---- metrics ---- */

static void test_metrics(void **state)
{
    (void)state;
    struct cw_text t = {0};
    struct cw_metrics m = {.text = &t};
    cw_metrics_family(&m, CW_METRIC_COUNTER, "worker_sent", "bytes",
                      "Bytes sent, \"all\" of them,\nsince \\ the start.");
    cw_metrics_add(&m, 123456789012.0, "job", "a\"b\\c\nd", "rank", "0", NULL);
    cw_metrics_add(&m, 0.1, "job", "\xff\xc3\xa4", NULL);
    cw_metrics_family(&m, CW_METRIC_GAUGE, "uptime", "seconds", "How long.");
    cw_metrics_add(&m, INFINITY, NULL);
    cw_metrics_family(&m, CW_METRIC_GAUGE, "jobs", NULL, "Jobs \xc3\xa4.");
    cw_metrics_add(&m, NAN, "name", "\xc3\xa4", NULL);
    cw_metrics_add(&m, -INFINITY, "name", "", NULL);
    cw_metrics_add(&m, 1e300, NULL);
    assert_false(t.failed);
    assert_string_equal(
        t.data, "# HELP cachew_worker_sent_bytes_total Bytes sent, \"all\" of them,\\nsince \\\\ the start.\n"
                "# TYPE cachew_worker_sent_bytes_total counter\n"
                "cachew_worker_sent_bytes_total{job=\"a\\\"b\\\\c\\nd\",rank=\"0\"} 123456789012\n"
                "cachew_worker_sent_bytes_total{job=\"???\"} 0.10000000000000001\n"
                "# HELP cachew_uptime_seconds How long.\n"
                "# TYPE cachew_uptime_seconds gauge\n"
                "cachew_uptime_seconds +Inf\n"
                "# HELP cachew_jobs Jobs \xc3\xa4.\n"
                "# TYPE cachew_jobs gauge\n"
                "cachew_jobs{name=\"\xc3\xa4\"} NaN\n"
                "cachew_jobs{name=\"\"} -Inf\n"
                "cachew_jobs 1.0000000000000001e+300\n");
    cw_text_deinit(&t);
}

/* ---- HTTP ---- */

static struct cw_http *server;
static char path_seen[200], query_seen[200];
static unsigned n_handled;

static void handler(void *user, const char *path, const char *query, struct cw_http_reply *reply)
{
    assert_ptr_equal(user, &server);
    n_handled++;
    snprintf(path_seen, sizeof(path_seen), "%s", path);
    snprintf(query_seen, sizeof(query_seen), "%s", query);
    if (strcmp(path, "/json") == 0) {
        reply->type = "application/json";
        cw_text_add(&reply->body, "{}");
    } else if (strcmp(path, "/large") == 0) {
        for (int i = 0; i < 100000; i++)
            cw_text_add(&reply->body, "%09d\n", i);
    } else if (strcmp(path, "/full") == 0) {
        cw_text_add(&reply->body, "half of it");
        reply->body.failed = 1;
    } else if (strcmp(path, "/empty") != 0) {
        reply->status = 404;
        cw_text_add(&reply->body, "nothing here\n");
    }
}

/* A client in a thread of its own: sends the request, keeps what comes until the end. */
static struct exchange {
    int fd;
    const char *request;
    char *answer;
    size_t size;
    struct cw_post post;
} exchange;

static void on_answer(void *arg)
{
    (void)arg;
    cw_loop_stop(loop);
}

static void *ask(void *arg)
{
    struct exchange *e = arg;
    ssize_t n;
    (void)!send(e->fd, e->request, strlen(e->request), MSG_NOSIGNAL);
    e->answer = calloc(1, 2 << 20);
    for (e->size = 0; (n = recv(e->fd, e->answer + e->size, ((size_t)2 << 20) - 1 - e->size, 0)) > 0;
         e->size += (size_t)n)
        ;
    cw_loop_post(loop, &e->post);
    return NULL;
}

/* The answer, freed by the next. */
static const char *get(const char *request)
{
    pthread_t thread;
    free(exchange.answer);
    exchange = (struct exchange){
        .fd = raw_connect(cw_http_address(server)), .request = request, .post = {.fn = on_answer}};
    /* with a time-out, recv fails with EINTR where this process was stopped */
    const struct timeval never = {0};
    setsockopt(exchange.fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never));
    assert_int_equal(pthread_create(&thread, NULL, ask, &exchange), 0);
    cw_timer_start(guard, LONG_NS, 0);
    cw_loop_run(loop);
    assert_false(hung);
    pthread_join(thread, NULL);
    cw_timer_stop(guard);
    close(exchange.fd);
    if (exchange.answer && strncmp(exchange.answer, "HTTP/1.0 ", 9) == 0)
        /* libmicrohttpd 0.9.72 answers a request of HTTP/1.0 in that version, later ones in 1.1 */
        exchange.answer[7] = '1';
    return exchange.answer;
}

static int http_setup(void **state)
{
    struct cw_error err = {0};
    n_handled = 0;
    setenv("CACHEW_SILENCE_S", "3600", 1); /* a request may take as long: this process may stand still */
    return net_setup(state) < 0 ? -1 : cw_http_new(loop, "127.0.0.1:0", handler, &server, &server, &err);
}

static int http_teardown(void **state)
{
    server = cw_http_free(server);
    free(exchange.answer);
    exchange.answer = NULL;
    return net_teardown(state);
}

static void assert_answer(const char *request, const char *first_line, const char *header, const char *body)
{
    const char *answer = get(request);
    if (strncmp(answer, first_line, strlen(first_line)) != 0)
        fail_msg("\"%s\", expected \"%s\"", answer, first_line);
    assert_non_null(strstr(answer, header));
    const char *end = strstr(answer, "\r\n\r\n");
    assert_non_null(end);
    assert_string_equal(end + 4, body);
}

static void test_answers(void **state)
{
    (void)state;
    assert_answer("GET /json?a=b%20c&d HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                  "HTTP/1.1 200 OK\r\n", "Content-Type: application/json\r\n", "{}");
    assert_string_equal(path_seen, "/json");
    assert_string_equal(query_seen, "a=b%20c&d");
    assert_answer("HEAD /json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                  "HTTP/1.1 200 OK\r\n", "Content-Length: 2\r\n", "");
    assert_answer("GET /empty HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "Content-Length: 0\r\n", "");
    assert_answer("GET /empty HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n",
                  "Content-Security-Policy: default-src 'none'; script-src 'self';", "");
    assert_string_equal(query_seen, "");
    assert_answer("GET /%6eowhere HTTP/1.0\r\n\r\n", "HTTP/1.1 404 Not Found\r\n", "nosniff",
                  "nothing here\n");
    assert_string_equal(path_seen, "/nowhere");
    assert_answer("GET /full HTTP/1.0\r\n\r\n", "HTTP/1.1 503 ", "no-store", "");
    assert_int_equal(n_handled, 6);
    assert_answer(
        "POST /json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 405 ", "Allow: GET, HEAD\r\n", "expected the HTTP method GET or HEAD\n");
    assert_answer("DELETE / HTTP/1.0\r\n\r\n", "HTTP/1.1 405 ", "Allow",
                  "expected the HTTP method GET or HEAD\n");
    assert_int_equal(n_handled, 6);
}

/* A page of somebody else, whose name had come to mean 127.0.0.1, could read everything. */
static void test_another_name_for_this_machine_is_refused(void **state)
{
    (void)state;

    static const struct {
        const char *host;
        bool may;
    } cases[] = {
        {"localhost", true},
        {"LocalHost:8080", true},
        {"127.0.0.1:1", true},
        {"[::1]:8080", true},
        {"[::1]", true},
        {"10.1.2.3", true},
        {"evil.example", false},
        {"evil.example:5051", false},
        {"127.0.0.1.evil.example", false},
        {"localhost.evil.example:80", false},
        {"[evil]", false},
        {"unix:/x", false},
        {":80", false},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        char request[200];
        snprintf(request, sizeof(request), "GET /json HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                 cases[i].host);
        const char *answer = get(request);
        if ((strncmp(answer, "HTTP/1.1 200 ", 13) == 0) != cases[i].may)
            fail_msg("%s: \"%s\"", cases[i].host, answer);
    }
    assert_answer("GET /json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "HTTP/1.1 403 ",
                  "no-store",
                  "these pages are served to this machine only: expected a URL (header Host) with localhost "
                  "or an IP address\n");
}

static void test_large_answer(void **state)
{
    (void)state;
    const char *answer = get("GET /large HTTP/1.0\r\n\r\n"), *end = strstr(answer, "\r\n\r\n");
    assert_non_null(end);
    assert_int_equal(strlen(end + 4), 1000000);
    assert_string_equal(end + 4 + 999990, "000099999\n");
}

static void test_nonsense(void **state)
{
    (void)state;
    static char large[100000];
    memset(large, 'a', sizeof(large) - 1);
    memcpy(large, "GET /", 5);
    const char *const requests[] = {"CWF1\r\n\r\n", "\x16\x03\x01\x02\n\n", "GET\r\n\r\n", large,
                                    "GET / HTTP/1.1\r\n\r\n" /* no host */};
    for (size_t i = 0; i < CW_COUNT_OF(requests); i++) {
        const char *answer = get(requests[i]);
        assert_true(answer[0] == '\0' || strncmp(answer, "HTTP/1.1 4", 10) == 0);
    }
    assert_int_equal(n_handled, 0);
    assert_answer("GET /json HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "", "{}"); /* still there */
}

/* More connections than it has places for, which say nothing: it ends all the same. */
static void test_crowd(void **state)
{
    (void)state;
    int fds[100];
    for (size_t i = 0; i < CW_COUNT_OF(fds); i++)
        fds[i] = raw_connect(cw_http_address(server));
    for (int i = 0; i < 20; i++) {
        cw_loop_stop(loop);
        cw_loop_run(loop);
    }
    for (size_t i = 0; i < CW_COUNT_OF(fds); i++)
        close(fds[i]);
    assert_answer("GET /json HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "", "{}");
}

/* A name that ends at its zero byte is another one. */
static void test_a_path_with_a_zero_byte_is_refused(void **state)
{
    (void)state;
    assert_answer("GET /json%00b HTTP/1.0\r\n\r\n", "HTTP/1.1 400 ", "no-store",
                  "the URL's path has a zero byte (%00): expected a path without zero bytes\n");
    assert_int_equal(n_handled, 0);
    assert_answer("GET /json?a%00b HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "no-store", "{}");
    assert_string_equal(query_seen, "a%00b");
}

static void test_addresses(void **state)
{
    (void)state;
    struct cw_error err = {0};
    struct cw_http *second = NULL;
    assert_true(strncmp(cw_http_address(server), "127.0.0.1:", 10) == 0 &&
                strcmp(cw_http_address(server), "127.0.0.1:0") != 0);
    assert_int_equal(cw_http_new(loop, cw_http_address(server), handler, NULL, &second, &err), CW_E_IO);
    assert_int_equal(cw_http_new(loop, "unix:x", handler, NULL, &second, &err), CW_E_OPTION);
    assert_int_equal(cw_http_new(loop, "nonsense", handler, NULL, &second, &err), CW_E_OPTION);
    assert_null(second);
}

int main(void)
{
#define WITH_SERVER(f) cmocka_unit_test_setup_teardown(f, http_setup, http_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),
        WITH_SERVER(test_answers),
        WITH_SERVER(test_another_name_for_this_machine_is_refused),
        WITH_SERVER(test_large_answer),
        WITH_SERVER(test_nonsense),
        WITH_SERVER(test_crowd),
        WITH_SERVER(test_a_path_with_a_zero_byte_is_refused),
        WITH_SERVER(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
