/* Threads of the library. */
#pragma once
#include <pthread.h>

#include "base/error.h"

/* Starts a thread that gets no signals, which are the main thread's, but those that it causes itself. */
int cw_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg, struct cw_error *err) _must_check_;
