/* Sets up a child process between fork and exec. */
#include "base/child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

void cw_child_begin(pid_t parent)
{
    sigset_t none;
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    sigaction(SIGTERM, &normal, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
}
