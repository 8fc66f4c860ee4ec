/*
 * How fast connections are, between two processes on one machine: messages per second, bytes per second.
 *
 * usage: net ADDRESS PAYLOAD_BYTES [SECONDS]     ("unix:/tmp/x" or "127.0.0.1:0"; PAYLOAD_BYTES may be 0)
 *
 * The child connects and sends as long as it may; the parent receives into one buffer. Checksums are on, as
 * always. Prints a line of JSON.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/conn.h"

static struct cw_loop *loop;
static struct cw_timer *timer;
static size_t payload_size;
static uint8_t *buffer;
static double seconds = 3;
static uint64_t n_received, began_ns;
static uint64_t id;

static void die(const char *what, const struct cw_error *err)
{
    fprintf(stderr, "net: %s: %s\n", what, err->message);
    exit(1);
}

static void stop(void *arg)
{
    (void)arg;
    cw_loop_stop(loop);
}

/* ---- who sends ---- */

static void send_more(void *user, struct cw_conn *c)
{
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    Cachew__RangeEnd m = CACHEW__RANGE_END__INIT;
    Cachew__Report report = CACHEW__REPORT__INIT;
    struct cw_error err = {0};
    const struct iovec piece = {.iov_base = buffer, .iov_len = payload_size};
    (void)user;
    report.epoch = 1;
    report.begin = 1000;
    m.report = &report;
    e.of_case = CACHEW__ENVELOPE__OF_RANGE_END;
    e.range_end = &m;
    do {
        e.id = ++id;
        if (cw_conn_send(c, &e, &piece, payload_size != 0, NULL, NULL, NULL, 0, &err) < 0)
            die("sending", &err);
    } while (cw_conn_queued(c) < (size_t)4 << 20);
}

static int sender_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    (void)user, (void)c, (void)peer, (void)err;
    return 0;
}

static void sender_closed(void *user, struct cw_conn *c, const struct cw_error *why)
{
    (void)user, (void)c, (void)why;
    cw_loop_stop(loop);
}

/* ---- who receives ---- */

static int give_buffer(void *user, struct cw_conn *c, const Cachew__Envelope *m, size_t size, void **ret,
                       struct cw_error *err)
{
    (void)user, (void)c, (void)m, (void)err, (void)size;
    *ret = buffer;
    return 0;
}

static int count(void *user, struct cw_conn *c, const Cachew__Envelope *m, void *payload, size_t size,
                 const int *fds, size_t n_fds, struct cw_error *err)
{
    (void)user, (void)c, (void)m, (void)payload, (void)size, (void)fds, (void)n_fds, (void)err;
    if (!n_received++) {
        began_ns = cw_now_ns();
        cw_timer_start(timer, (uint64_t)(seconds * 1e9), 0);
    }
    return 0;
}

static const struct cw_conn_ops sender_ops = {
    .open = sender_open, .message = count, .closed = sender_closed, .drained = send_more};
static const struct cw_conn_ops receiver_ops = {
    .payload = give_buffer, .message = count, .closed = sender_closed};

static void send_until_told(const char *address, const struct cw_conn_options *o)
{
    struct cw_error err = {0};
    struct cw_conn *c;
    if (cw_loop_new(&loop, &err) < 0 || cw_conn_connect(loop, address, o, &sender_ops, NULL, &c, &err) < 0)
        die(address, &err);
    cw_loop_run(loop);
    exit(0);
}

int main(int argc, char **argv)
{
    struct cw_error err = {0};
    struct cw_listener *l;
    Cachew__Hello hello = CACHEW__HELLO__INIT;
    const struct cw_conn_options o = {
        .hello = &hello,
        .limits = {.message = 1 << 20, .payload = (size_t)1 << 32, .queued = (size_t)1 << 33}};
    if (argc < 3) {
        fprintf(stderr, "usage: net ADDRESS PAYLOAD_BYTES [SECONDS]\n");
        return 2;
    }
    payload_size = strtoull(argv[2], NULL, 10);
    seconds = argc > 3 ? strtod(argv[3], NULL) : seconds;
    buffer = malloc(payload_size + 1);
    memset(buffer, 7, payload_size + 1);
    if (cw_loop_new(&loop, &err) < 0 || cw_timer_new(loop, stop, NULL, &timer, &err) < 0 ||
        cw_listener_new(loop, argv[1], &o, &receiver_ops, NULL, &l, &err) < 0)
        die(argv[1], &err);
    pid_t child = fork(); /* before the loop has run: it makes one of its own */
    if (child == 0)
        send_until_told(cw_listener_address(l), &o);
    cw_loop_run(loop);
    double took = (double)(cw_now_ns() - began_ns) / 1e9;
    printf("{\"address\": \"%s\", \"payload_bytes\": %zu, \"messages_per_s\": %.0f, \"bytes_per_s\": %.4g}\n",
           argv[1], payload_size, (double)n_received / took,
           (double)n_received * (double)payload_size / took);
    cw_listener_free(l);
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
