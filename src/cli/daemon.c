#include "cli/daemon.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void cli_block_signals(sigset_t *ret)
{
    sigemptyset(ret);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGTERM);
    sigprocmask(SIG_BLOCK, ret, NULL);
}

int cli_wait_signal(const sigset_t *signals)
{
    int s = 0;
    while (sigwait(signals, &s) != 0)
        ;
    return s;
}

void cli_daemon_log(void *role, const char *message)
{
    struct timespec now;
    struct tm utc;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    fprintf(stderr, "%s.%03ldZ cachew %s: %s\n", text, now.tv_nsec / 1000000, (const char *)role, message);
}

int cli_check_listen(const char *address, bool insecure, struct cw_error *err)
{
    static const char *const local[] = {"127.", "localhost:", "[::1]:", "unix:"};
    for (size_t i = 0; i < CW_COUNT_OF(local); i++)
        if (!address || strncmp(address, local[i], strlen(local[i])) == 0)
            return 0;
    if (insecure)
        return 0;
    cw_error_attribute(err, "listen", address, "a loopback address, or --insecure");
    return cw_error_set(err, CW_E_OPTION, "--listen %s: whoever reaches it could run pipelines and read their data, and nothing is encrypted; expected a loopback address, or "
                        "--insecure, said aloud", address);
}
