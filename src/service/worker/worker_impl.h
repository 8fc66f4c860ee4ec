/*
 * The parts of a worker, for worker.c and what looks at all parts: control.c, heartbeat.c, tuning.c, status.c
 * and pages.c. The loop's thread only, but for what `mutex` guards.
 */
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
    struct cw_cache *cache;       /* of all streams, or NULL */
    struct cw_http *http;         /* or NULL */
    struct cw_write_rate written; /* to the cache */
    struct cw_timer *heartbeat, *stop_timer;
    struct cw_post drain, stop;
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t status_changed;
    struct cw_worker_status status; /* guarded by mutex: as of the last change */
};
