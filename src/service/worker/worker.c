/* A worker as a whole: starts and stops it. Owns all parts and the loop's thread, and has the functions that
 * other threads may call. */
#include "service/worker/worker.h"

#include <errno.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "service/worker/control.h"
#include "service/worker/heartbeat.h"
#include "service/worker/pages.h"
#include "service/worker/status.h"
#include "service/worker/worker_impl.h"

/* peers that have not closed their connections after this time are cut off */
#define STOP_NS UINT64_C(1000000000)

/* ---- events ---- */

static void worker_on_changed(void *arg)
{
    struct cw_worker *w = arg;
    cw_streams_settle(&w->streams);
    cw_status_update(w);
    if (w->common.stopping && !w->uplink.conn && !w->clients.list && !w->streams.list)
        cw_loop_stop(w->common.loop);
}

static void worker_on_stop_timer(void *arg)
{
    struct cw_worker *w = arg;
    cw_clients_cut(&w->clients);
    cw_uplink_cut(&w->uplink);
}

static void worker_on_stop(void *arg)
{
    struct cw_worker *w = arg;
    w->common.stopping = true;
    cw_timer_start(w->stop_timer, STOP_NS, STOP_NS);
    cw_timer_stop(w->uplink.reconnect);
    cw_clients_close(&w->clients);
    cw_uplink_close(&w->uplink);
    for (struct cw_worker_stream *s = w->streams.list; s; s = s->next)
        cw_streams_end(s);
    cw_common_changed(&w->common);
}

/* ---- other threads ---- */

void cw_worker_status(struct cw_worker *w, struct cw_worker_status *ret)
{
    CW_GUARD(&w->mutex);
    *ret = w->status;
}

void cw_worker_drain(struct cw_worker *w)
{
    cw_loop_post(w->common.loop, &w->drain);
}

/* Returns whether a draining worker has nothing left to do, or neither a dispatcher nor clients. */
static bool status_is_drained(const struct cw_worker_status *s)
{
    return s->draining && ((!s->n_leases && !s->n_reports) || (!s->registered && !s->n_clients));
}

int cw_worker_wait_drained(struct cw_worker *w, uint64_t timeout_ns, struct cw_error *err)
{
    uint64_t deadline_ns = timeout_ns ? cw_now_ns() + timeout_ns : 0;
    const struct cw_worker_status *s = &w->status;
    int e = 0;
    CW_GUARD(&w->mutex);
    while (!status_is_drained(s) && e != ETIMEDOUT)
        e = cw_cond_wait(&w->status_changed, &w->mutex, deadline_ns);
    if (status_is_drained(s))
        return 0;
    return cw_error_set(err, CW_E_DEADLINE,
                        "the worker still has %zu ranges of data, and %zu finished ranges that the "
                        "dispatcher has not acknowledged",
                        s->n_leases, s->n_reports);
}

const char *cw_worker_address(const struct cw_worker *w)
{
    return w->clients.tcp ? cw_listener_address(w->clients.tcp) : NULL;
}

const char *cw_worker_http(const struct cw_worker *w)
{
    return w->http ? cw_http_address(w->http) : NULL;
}

const char *cw_worker_unix_path(const struct cw_worker *w)
{
    return w->clients.unix_path;
}

/* ---- start and end ---- */

static void *worker_main(void *arg)
{
    struct cw_worker *w = arg;
    cw_loop_run(w->common.loop);
    return NULL;
}

static struct cw_worker *worker_free(struct cw_worker *w)
{
    w->http = cw_http_free(w->http);
    cw_clients_close(&w->clients);
    cw_uplink_deinit(&w->uplink);
    cw_reports_deinit(&w->reports);
    w->heartbeat = w->heartbeat ? cw_timer_free(w->heartbeat) : NULL;
    w->stop_timer = w->stop_timer ? cw_timer_free(w->stop_timer) : NULL;
    cw_loop_free(w->common.loop);
    w->common.log_tail = cw_log_tail_free(w->common.log_tail);
    cw_clients_deinit(&w->clients);
    cw_work_deinit(&w->streams.work);
    cw_cache_close(w->cache);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->status_changed);
    free(w);
    return NULL;
}

static int worker_open_cache(struct cw_worker *w, struct cw_error *err)
{
    const struct cw_worker_options *o = &w->common.options;
    const struct cw_cache_options cache = {.dir = o->cache_dir, .quota = o->cache_bytes};
    int r = o->cache_dir ? cw_cache_open(&cache, &w->cache, err) : 0;
    return r < 0 ? err->status = CW_E_OPTION
                 : 0; /* at the start, a bad cache directory is an error of the option */
}

static int worker_start(struct cw_worker *w, const struct cw_worker_options *o, struct cw_error *err)
{
    struct cw_worker_common *c = &w->common;
    int r;
    if ((r = cw_common_init(c, o, err)) < 0 || (r = worker_open_cache(w, err)) < 0)
        return r;
    w->streams = (struct cw_streams){.common = c, .cache = w->cache, .on_answers = cw_control_on_answers};
    w->reports = (struct cw_reports){.streams = &w->streams, .uplink = &w->uplink};
    if ((r = cw_clients_init(&w->clients, c, &w->streams, err)) < 0 ||
        (r = cw_uplink_init(&w->uplink, c, &cw_control_ops, w, err)) < 0 ||
        (r = cw_timer_new(c->loop, worker_on_stop_timer, w, &w->stop_timer, err)) < 0 ||
        (r = cw_heartbeat_start(w, err)) < 0 ||
        (c->options.http &&
         (r = cw_http_new(c->loop, c->options.http, cw_worker_page, w, &w->http, err)) < 0))
        return r;
    c->changed = (struct cw_post){.fn = worker_on_changed, .arg = w};
    w->drain = (struct cw_post){.fn = cw_control_drain, .arg = w};
    w->stop = (struct cw_post){.fn = worker_on_stop, .arg = w};
    cw_uplink_connect(&w->uplink);
    cw_status_update(w);
    return cw_thread_start(&w->thread, worker_main, w, err);
}

int cw_worker_start(const struct cw_worker_options *o, struct cw_worker **ret, struct cw_error *err)
{
    struct cw_worker *w = calloc(1, sizeof(*w));
    if (!w)
        return cw_error_nomem(err, sizeof(*w), "a worker");
    pthread_mutex_init(&w->mutex, NULL);
    cw_cond_init(&w->status_changed);
    int r = worker_start(w, o, err);
    if (r < 0) {
        w->common.stopping = true;
        worker_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct cw_worker *cw_worker_stop(struct cw_worker *w)
{
    if (!w)
        return NULL;
    cw_loop_post(w->common.loop, &w->stop);
    pthread_join(w->thread, NULL);
    return worker_free(w);
}
