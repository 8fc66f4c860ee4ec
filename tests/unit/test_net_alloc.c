/* Every allocation from connecting to the answer of a request fails in turn, on either side: what comes of it
 * is an error and the end of that connection, or the answer. Another connection does not notice, and nothing
 * is left behind. */
#include "net_test.h"

#include <fcntl.h>

#include "alloc_fail.h"

static struct side bystander;

static bool answered(void)
{
    return ours.messages > 0;
}

static bool over(void)
{
    return answered() || ours.closed;
}

static bool open_or_over(void)
{
    return ours.opened || ours.closed;
}

static bool bystander_open(void)
{
    return bystander.opened && theirs.opened;
}

static bool bystander_answered(void)
{
    return bystander.messages > 0;
}

static bool both_gone(void)
{
    return ours.closed && theirs.closed == theirs.opened;
}

static bool in_the_resolver; /* the last failure */

static int next_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

/* The result of what failed here, or 0. */
static int one_request(const char *address, const struct cw_conn_options *o)
{
    static uint8_t data[100000];
    const struct iovec pieces[2] = {{.iov_base = data, .iov_len = 70000}, {.iov_base = data, .iov_len = 1}};
    struct cw_error err = {0};
    in_the_resolver = false;
    ours = (struct side){0};
    theirs = (struct side){.echo = true};
    int r = cw_conn_connect(loop, address, o, &side_ops, &ours, &ours.c, &err);
    if (r < 0) {
        assert_int_equal(err.status, r);
        in_the_resolver = strstr(err.message, "resolving a host");
        return r;
    }
    run_until(open_or_over);
    if (!ours.closed && (r = send_query(&ours, "x", pieces, 2)) < 0)
        assert_int_equal(r, CW_E_MEMORY);
    if (r >= 0)
        run_until(over);
    r = r < 0 ? r : ours.why.status;
    if (!ours.closed)
        cw_conn_close(ours.c, NULL);
    run_until(both_gone);
    for (int i = 0; i < 3; i++) { /* what is freed a round later */
        cw_loop_stop(loop);
        cw_loop_run(loop);
    }
    side_forget(&ours);
    side_forget(&theirs);
    return r;
}

static void fail_each(const char *at)
{
    struct cw_conn_options o = options();
    struct cw_listener *l = listen_at(at, &o);
    char address[100];
    snprintf(address, sizeof(address), "%s", cw_listener_address(l));
    bystander = (struct side){0};
    connect_to(address, &o, &bystander);
    run_until(bystander_open);
    struct side other_end = theirs;
    cw_conn_set_user(other_end.c, &side_ops, &other_end);
    other_end.echo = true;
    for (int i = 0; i < 3; i++) /* what libraries keep */
        assert_int_equal(one_request(address, &o), 0);
    int64_t live = alloc_fail_live();
    int fd = next_descriptor();
    unsigned n = 1, errors = 0;
    for (bool more = true; more; n++) {
        alloc_fail_arm(n);
        int r = one_request(address, &o);
        alloc_fail_disarm();
        more = alloc_fail_happened();
        errors += r < 0;
        if (in_the_resolver) /* glibc 2.36 itself leaves a block behind */
            live = alloc_fail_live();
        if (alloc_fail_live() > live || next_descriptor() != fd)
            fail_msg("allocation %u (%s): %d blocks, descriptor %d, expected %d", n, alloc_fail_what(),
                     (int)(alloc_fail_live() - live), next_descriptor(), fd);
        assert_true(more || r == 0);
    }
    print_message("%u allocations failed in turn, %u requests with them\n", n - 2, errors);
    assert_true(errors >= 10);
    assert_int_equal(send_query(&bystander, "still here", NULL, 0), 0);
    run_until(bystander_answered);
    assert_int_equal(bystander.closed, 0);
    cw_conn_close(bystander.c, NULL);
    cw_listener_free(l);
    while (!other_end.closed || !bystander.closed) {
        cw_loop_stop(loop);
        cw_loop_run(loop);
    }
    theirs.c = NULL;
}

static void test_unix(void **state)
{
    (void)state;
    fail_each(unix_address);
}

static void test_tcp(void **state)
{
    (void)state;
    fail_each("127.0.0.1:0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unix, net_setup, net_teardown),
        cmocka_unit_test_setup_teardown(test_tcp, net_setup, net_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
