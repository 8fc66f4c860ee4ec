/* Threads of the library, and locks that are released at the end of a block. */
#pragma once
#include <pthread.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"

/* Starts a thread that receives only signals that it causes itself; the main thread gets all others. */
int cw_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg, struct cw_error *err) _must_check_;

/* Initialises a condition whose deadlines are times of cw_now_ns. */
void cw_cond_init(pthread_cond_t *c);
/* Waits until the condition is signalled, or until deadline_ns (0: for ever). Returns 0 or ETIMEDOUT, as
 * pthread_cond_timedwait does. */
int cw_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t deadline_ns);

/* Locks a mutex until the block ends. */
#define CW_GUARD(mutex) _cleanup_(cw_guard_end) CW_UNUSED pthread_mutex_t *cw_guard_ = cw_guard_begin(mutex)

static inline pthread_mutex_t *cw_guard_begin(pthread_mutex_t *m)
{
    pthread_mutex_lock(m);
    return m;
}

static inline void cw_guard_end(pthread_mutex_t **m)
{
    pthread_mutex_unlock(*m);
}

/* The value of an expression that is evaluated under a mutex. */
#define CW_LOCKED(mutex, value) \
    __extension__({ \
        CW_GUARD(mutex); \
        (value); \
    })

/* Runs the statement that follows under a mutex. `break` and `continue` leave that statement. */
#define CW_WITH(mutex) \
    for (pthread_mutex_t * cw_with_ _cleanup_(cw_guard_end) = cw_guard_begin(mutex), *cw_once_ = cw_with_; \
         cw_once_; cw_once_ = NULL)
