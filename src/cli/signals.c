/* Handles SIGINT and SIGTERM in a thread that waits for them, so that no work is done in signal handlers. The
 * caller owns the struct cli_signal_watch. Verbs that run until a signal comes call these functions. */
#include "cli/signals.h"

void cli_signals_block(sigset_t *ret)
{
    sigemptyset(ret);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGTERM);
    pthread_sigmask(SIG_BLOCK, ret, NULL);
}

const char *cli_signal_name(int number)
{
    return number == SIGINT ? "SIGINT" : "SIGTERM";
}

static void *signal_watch_run(void *arg)
{
    struct cli_signal_watch *w = arg;
    int number;
    while (sigwait(&w->signals, &number) == 0 && !atomic_load(&w->stopping))
        w->on_signal(w->arg, number, atomic_exchange(&w->seen, number) != 0);
    return NULL;
}

void cli_signal_watch_start(struct cli_signal_watch *w, void (*on_signal)(void *arg, int number, bool again),
                            void *arg)
{
    w->on_signal = on_signal;
    w->arg = arg;
    cli_signals_block(&w->signals);
    w->started = pthread_create(&w->thread, NULL, signal_watch_run, w) == 0;
}

void cli_signal_watch_stop(struct cli_signal_watch *w)
{
    if (w->started) {
        atomic_store(&w->stopping, true);
        pthread_kill(w->thread, SIGTERM);
        pthread_join(w->thread, NULL);
    }
    w->started = false;
}
