/* Signals that end a command. A thread waits for them, so that nothing is done in signal handlers. */
#pragma once
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct cli_signal_watch {
    /* Called on the watcher's thread. again: it is not the first one. */
    void (*on_signal)(void *arg, int number, bool again);
    void *arg;
    atomic_int seen; /* the last signal; 0: none */
    atomic_bool stopping;
    pthread_t thread;
    sigset_t signals;
    bool started;
};

/* Blocks SIGINT and SIGTERM in this thread and those it starts; *ret: these two. */
void cli_signals_block(sigset_t *ret);
/* "SIGINT" or "SIGTERM". */
const char *cli_signal_name(int number);

/* Blocks SIGINT and SIGTERM and starts a thread that waits for them. w: zeros, or stopped; it must outlive
 * the thread. */
void cli_signal_watch_start(struct cli_signal_watch *w, void (*on_signal)(void *arg, int number, bool again),
                            void *arg);
void cli_signal_watch_stop(struct cli_signal_watch *w);
