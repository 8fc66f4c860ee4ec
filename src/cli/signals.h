/* Handles SIGINT and SIGTERM in a thread that waits for them, so that no work is done in signal handlers. The
 * caller owns the struct cli_signal_watch. Verbs that run until a signal comes call these functions. */
#pragma once
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct cli_signal_watch {
    /* Called on the watcher's thread for each signal. again: SIGINT or SIGTERM came before this one. */
    void (*on_signal)(void *arg, int number, bool again);
    void *arg;
    atomic_int seen; /* the last signal; 0: none */
    atomic_bool stopping;
    pthread_t thread;
    sigset_t signals;
    bool started;
};

/* Blocks SIGINT and SIGTERM in the calling thread and in the threads that it starts later. *ret is the set of
 * the two signals. */
void cli_signals_block(sigset_t *ret);
/* "SIGINT" or "SIGTERM". */
const char *cli_signal_name(int number);

/* Blocks SIGINT and SIGTERM and starts the thread that waits for them. *w must be zeroed, or was stopped
 * before. The caller must keep it until cli_signal_watch_stop has returned. */
void cli_signal_watch_start(struct cli_signal_watch *w, void (*on_signal)(void *arg, int number, bool again),
                            void *arg);
/* Ends the thread, if it runs. The signals stay blocked. */
void cli_signal_watch_stop(struct cli_signal_watch *w);
