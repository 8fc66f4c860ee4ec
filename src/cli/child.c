/* Starts daemons as child processes: runs this program again with another verb, and waits until it is ready.
 * Called by `up`. */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/patience.h"

/* A daemon gives up waiting for another daemon after cw_patience_start_ns, and says why. If a daemon is not
 * ready SLOW_NS after that, a warning is logged. */
#define SLOW_NS UINT64_C(5000000000)
/* A daemon that is not ready after this time is taken to hang, and is killed. The limit is longer if
 * CACHEW_START_S is. */
#define HANGS_NS UINT64_C(600000000000)
#define POLL_MS 100 /* interval of checks for a pending SIGINT or SIGTERM, which are blocked */

static bool child_start_interrupted(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM));
}

/* Runs in the child: connects stdin to /dev/null, and stdout to the pipe. */
static void child_prepare(pid_t parent, const int out[2])
{
    cw_child_begin(parent);
    int null = open("/dev/null", O_RDONLY);
    if (null > 0) {
        dup2(null, 0);
        close(null);
    }
    dup2(out[1], 1);
    close(out[0]);
    close(out[1]);
}

static int child_spawn(const char *const *argv, pid_t *ret, int *ret_out, struct cw_error *err)
{
    int out[2];
    pid_t parent = getpid();
    if (pipe(out) < 0)
        return cw_error_errno(err, CW_E_IO, errno, "can't make a pipe");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        child_prepare(parent, out);
        execv("/proc/self/exe", (char **)(uintptr_t)argv);
        fprintf(stderr, "cachew: can't start cachew %s: %s\n", argv[1], strerror(errno));
        _exit(127);
    }
    int e = errno;
    close(out[1]);
    if (pid < 0) {
        close(out[0]);
        return cw_error_errno(err, CW_E_IO, e, "can't start cachew %s", argv[1]);
    }
    *ret = pid;
    *ret_out = out[0];
    return 0;
}

/* Reads the line {"ready": ...} that the daemon prints when it is ready. */
static int child_read_ready(int out, const char *what, const struct cli_log *log, json_t **ret,
                            struct cw_error *err)
{
    char line[4096];
    size_t n = 0;
    uint64_t slow_ns = cw_patience_start_ns() + SLOW_NS, hangs_ns = CW_MAX(slow_ns, HANGS_NS),
             began_ns = cw_now_ns();
    bool warned = false;
    while (n + 1 < sizeof(line) && !memchr(line, '\n', n)) {
        uint64_t waited_ns = cw_now_ns() - began_ns;
        struct pollfd p = {.fd = out, .events = POLLIN};
        if (waited_ns >= hangs_ns)
            return cw_error_set(err, CW_E_DEADLINE, "the process cachew %s did not become ready within %g s",
                                what, (double)hangs_ns / 1e9);
        if (waited_ns >= slow_ns && !warned) {
            warned = true;
            cli_log(log, true, "the process cachew %s is not ready after %g s; still waiting for it", what,
                    (double)slow_ns / 1e9);
        }
        if (child_start_interrupted())
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted while the process cachew %s was starting",
                                what);
        if (poll(&p, 1, POLL_MS) < 0 && errno != EINTR)
            return cw_error_errno(err, CW_E_IO, errno, "can't wait for the process cachew %s", what);
        ssize_t got = p.revents ? read(out, line + n, sizeof(line) - 1 - n) : -1;
        if (got == 0)
            return cw_error_set(err, CW_E_SERVICE,
                                "the process cachew %s ended before it was ready; its error message is above",
                                what);
        n += got > 0 ? (size_t)got : 0;
    }
    json_auto_t *object = json_loadb(line, n, JSON_DISABLE_EOF_CHECK, NULL);
    *ret = json_incref(json_object_get(object, "ready"));
    return *ret ? 0
                : cw_error_set(err, CW_E_SERVICE,
                               "the process cachew %s printed \"%.*s\" on standard output: expected the line "
                               "{\"ready\": ...}",
                               what, (int)CW_MIN(n, 80), line);
}

int cli_child_start(const char *const *argv, const struct cli_log *log, pid_t *ret, json_t **ret_ready,
                    struct cw_error *err)
{
    int out = -1;
    pid_t pid = 0;
    int r = child_spawn(argv, &pid, &out, err);
    if (r < 0)
        return r;
    r = child_read_ready(out, argv[1], log, ret_ready, err);
    close(out);
    if (r < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return r;
    }
    *ret = pid;
    return 0;
}
