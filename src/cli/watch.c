/* Signals that end a command: a thread that waits for them. */
#include "cli/watch.h"

const char *cli_signal_name(int number)
{
    return number == SIGINT ? "SIGINT" : "SIGTERM";
}

static void *watch(void *arg)
{
    struct cli_watch *w = arg;
    int number;
    while (sigwait(&w->signals, &number) == 0 && !atomic_load(&w->stopping))
        w->on_signal(w->arg, number, atomic_exchange(&w->seen, number) != 0);
    return NULL;
}

void cli_watch_start(struct cli_watch *w, void (*on_signal)(void *arg, int number, bool again), void *arg)
{
    w->on_signal = on_signal;
    w->arg = arg;
    sigemptyset(&w->signals);
    sigaddset(&w->signals, SIGINT);
    sigaddset(&w->signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &w->signals, NULL);
    w->started = pthread_create(&w->thread, NULL, watch, w) == 0;
}

void cli_watch_stop(struct cli_watch *w)
{
    if (w->started) {
        atomic_store(&w->stopping, true);
        pthread_kill(w->thread, SIGTERM);
        pthread_join(w->thread, NULL);
    }
    w->started = false;
}
