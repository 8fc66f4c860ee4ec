/* Threads without signals, and conditions on the monotonic clock. */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

int cw_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg, struct cw_error *err)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < CW_COUNT_OF(own); i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e ? cw_error_errno(err, CW_E_MEMORY, e, "can't start a thread") : 0;
}

void cw_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int cw_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                   .tv_nsec = (long)(deadline_ns % 1000000000u)};
    return deadline_ns ? pthread_cond_timedwait(c, m, &until) : pthread_cond_wait(c, m);
}
