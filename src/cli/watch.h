/* Signals that end a command. A thread waits for them; nothing is done in handlers. */
#pragma once
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct cli_watch {
    /* What is to be done, on the watcher's thread. again: there was one before. */
    void (*on_signal)(void *arg, int number, bool again);
    void *arg;
    atomic_int seen; /* the last one; 0: none */
    atomic_bool stopping;
    pthread_t thread;
    sigset_t signals;
    bool started;
};

/* From here on SIGINT and SIGTERM are the watcher's, in this thread and those it starts. w: zeros, or after
 * _stop; outlives the watcher. */
void cli_watch_start(struct cli_watch *w, void (*on_signal)(void *arg, int number, bool again), void *arg);
void cli_watch_stop(struct cli_watch *w);
const char *cli_signal_name(int number);
