/* Children that go with their parent, however it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"

#define WAIT_MS 900000 /* longer than anything takes, on however slow a machine: then the test failed */

static void swallow(int signal)
{
    (void)signal;
}

/* A child that has begun, says so with a byte, and never ends by itself. */
static void live(int out, pid_t parent)
{
    cw_child_begin(parent);
    (void)!write(out, "b", 1);
    for (;;)
        pause();
}

/* A parent that catches SIGTERM, as every daemon does. Whether it dies before its child has begun, or after.
 */
static pid_t start_parent(int out, bool before)
{
    pid_t parent = fork();
    if (parent != 0)
        return parent;
    pid_t self = getpid();
    signal(SIGTERM, swallow);
    if (fork() == 0) {
        while (before && getppid() == self)
            ;
        live(out, self);
    }
    if (before)
        _exit(0);
    close(out);
    for (;;)
        pause();
}

/* Until all who may write have ended. Returns what was written, or -1. */
static int read_byte(int in)
{
    char byte;
    struct pollfd p = {.fd = in, .events = POLLIN};
    if (poll(&p, 1, WAIT_MS) != 1)
        fail_msg("somebody is there still");
    return read(in, &byte, 1) == 1 ? byte : -1;
}

/* Between fork and exec it had its parent's handler, which took the SIGTERM that says that the parent is
 * dead, and did nothing. */
static void test_the_end_of_a_parent_that_catches_signals_ends_its_child(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t parent = start_parent(ends[1], false);
    close(ends[1]);
    assert_int_equal(read_byte(ends[0]), 'b');
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_int_equal(read_byte(ends[0]), -1);
    close(ends[0]);
}

static void test_a_child_of_a_parent_that_is_dead_already_ends(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t parent = start_parent(ends[1], true);
    close(ends[1]);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_int_equal(read_byte(ends[0]), -1);
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_end_of_a_parent_that_catches_signals_ends_its_child),
        cmocka_unit_test(test_a_child_of_a_parent_that_is_dead_already_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
