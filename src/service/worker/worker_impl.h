/* The parts of a worker: for worker.c, and for the files that use several parts (control.c, heartbeat.c,
 * tuning.c, status.c, pages.c). The loop's thread only, except what `mutex` guards. */
#pragma once
#include <pthread.h>

#include "net/http.h"
#include "service/worker/clients.h"
#include "service/worker/reports.h"
#include "session/caching.h"

struct cw_worker {
    struct cw_worker_common common;
    struct cw_streams streams;
    struct cw_clients clients;
    struct cw_uplink uplink;
    struct cw_reports reports;
    struct cw_cache *cache;       /* shared by all streams; NULL: no cache */
    struct cw_http *http;         /* the HTTP server; NULL: none */
    struct cw_write_rate written; /* rate of writing to the cache */
    struct cw_timer *heartbeat, *stop_timer;
    struct cw_post drain, stop;
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t status_changed;
    struct cw_worker_status status; /* guarded by mutex: the status at the last change */
};
