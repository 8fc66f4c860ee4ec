/*
 * What the store's thread is doing. With it callers can wait for the store's thread no longer than a step may
 * take, and name the step that they wait for. Owns the cache's mutex. Any thread may call.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds that one step of a flush may take: enough for 2 MiB on storage of 100 KB/s. */
#define CW_CACHE_STEP_NS UINT64_C(20000000000)

/* After trouble the directory or a set is left alone for a while, twice as long each time. */
struct cw_cache_backoff {
    uint64_t ns;       /* the current delay; 0: no trouble */
    uint64_t until_ns; /* when the next attempt may begin, by cw_now_ns */
};

struct cw_cache_monitor {
    const char *dir; /* of the cache, for notices; immutable */
    pthread_mutex_t mutex;
    pthread_cond_t work;     /* the store's thread has something to do */
    pthread_cond_t progress; /* the store's thread has done something that callers may wait for */
    /* all guarded by mutex: */
    const char *step;                              /* the step in progress that may take long; NULL: none */
    uint64_t step_ns;                              /* when the step began, by cw_now_ns */
    bool slow_noticed, file_noticed, disk_noticed; /* each notice is given once */
};

void cw_cache_monitor_init(struct cw_cache_monitor *m, const char *dir);
void cw_cache_monitor_deinit(struct cw_cache_monitor *m);
/* Begins a step that may take long; NULL: the step is over. Only the store's thread calls this. The cache's
 * mutex must not be held. */
void cw_cache_monitor_step(struct cw_cache_monitor *m, const char *step);
/* Starts or doubles the backoff b (NULL: none), and reports the trouble to the user, once per kind. file: the
 * name below the directory that can't be used; NULL: the directory can't be written. e: an errno; 0: there is
 * no room, which is not reported. The cache's mutex must not be held. */
void cw_cache_monitor_trouble(struct cw_cache_monitor *m, struct cw_cache_backoff *b, const char *file,
                              int e);
/* Returns the time (by cw_now_ns) at which a wait for the store's thread has become too long: 20 s after its
 * step began, or after began_ns, when the wait began, if that was later. The cache's mutex must be held. */
uint64_t cw_cache_monitor_deadline(const struct cw_cache_monitor *m, uint64_t began_ns);
