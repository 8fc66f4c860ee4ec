/*
 * What the store's thread is doing, so that callers can wait for it, no longer than its step may take, and
 * say what they wait for. Owns the cache's mutex. Any thread.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What a step of a flush may take: 2 MiB on storage of 100 KB/s. */
#define CW_CACHE_STEP_NS UINT64_C(20000000000)

/* After trouble the directory or a set is left alone for a while, twice as long each time. */
struct cw_cache_backoff {
    uint64_t ns, until_ns;
};

struct cw_cache_monitor {
    const char *dir; /* of the cache, for notices; immutable */
    pthread_mutex_t mutex;
    pthread_cond_t work;     /* the store's thread has something to do */
    pthread_cond_t progress; /* the store's thread has done something that others may wait for */
    /* all guarded by mutex: */
    const char *step;                              /* that may take long; NULL: none */
    uint64_t step_ns;                              /* when it began */
    bool slow_noticed, file_noticed, disk_noticed; /* each notice is given once */
};

void cw_cache_monitor_init(struct cw_cache_monitor *m, const char *dir);
void cw_cache_monitor_deinit(struct cw_cache_monitor *m);
/* Begins a step that may take long; NULL: the step is over. The store's thread, mutex not held. */
void cw_cache_monitor_step(struct cw_cache_monitor *m, const char *step);
/* Gives a notice, once, and starts a backoff (NULL: none). file: a name below the directory that can't be
 * used; NULL: the directory can't be written. e: an errno; 0: there is no room, which is not noticed. Mutex
 * not held. */
void cw_cache_monitor_trouble(struct cw_cache_monitor *m, struct cw_cache_backoff *b, const char *file,
                              int e);
/* Returns the time at which a wait for the store's thread has become too long: 20 s after its step, or a wait
 * that began at began_ns if that was later. Mutex held. */
uint64_t cw_cache_monitor_deadline(const struct cw_cache_monitor *m, uint64_t began_ns);
