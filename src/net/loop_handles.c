/* Timers and watched descriptors of a loop. Freed ones stay in memory until libuv has closed them, in the
 * loop's next iteration. */
#include <stdlib.h>

#include "net/loop_impl.h"

static void handle_on_closed(uv_handle_t *h)
{
    free(h->data);
}

/* ---- timers ---- */

struct cw_timer {
    uv_timer_t uv;
    void (*fn)(void *arg);
    void *arg;
};

static void timer_on_due(uv_timer_t *h)
{
    struct cw_timer *t = h->data;
    t->fn(t->arg);
}

int cw_timer_new(struct cw_loop *l, void (*fn)(void *arg), void *arg, struct cw_timer **ret,
                 struct cw_error *err)
{
    struct cw_timer *t = calloc(1, sizeof(*t));
    if (!t)
        return cw_error_nomem(err, sizeof(*t), "a timer");
    uv_timer_init(cw_loop_uv(l), &t->uv);
    t->uv.data = t;
    t->fn = fn;
    t->arg = arg;
    *ret = t;
    return 0;
}

/* Returns the time in ms, which libuv counts in, rounded up so that a timer is never early. */
static uint64_t timer_ms(uint64_t ns)
{
    return ns / 1000000 + (ns % 1000000 != 0);
}

void cw_timer_start(struct cw_timer *t, uint64_t first_ns, uint64_t repeat_ns)
{
    uv_update_time(t->uv.loop); /* the callback may have run for long */
    uv_timer_start(&t->uv, timer_on_due, timer_ms(first_ns), timer_ms(repeat_ns));
}

void cw_timer_stop(struct cw_timer *t)
{
    uv_timer_stop(&t->uv);
}

struct cw_timer *cw_timer_free(struct cw_timer *t)
{
    if (t)
        uv_close((uv_handle_t *)&t->uv, handle_on_closed);
    return NULL;
}

/* ---- descriptors ---- */

struct cw_watch {
    uv_poll_t uv;
    void (*fn)(void *arg, int events);
    void *arg;
    int events;
};

static void watch_on_poll(uv_poll_t *h, int status, int events)
{
    struct cw_watch *w = h->data;
    /* On an error libuv stops watching the descriptor. fn is told that both events happened, and finds the
     * error when it uses the descriptor. */
    if (status < 0)
        w->events = 0;
    w->fn(w->arg, status < 0 ? 3 : (events & UV_READABLE ? 1 : 0) | (events & UV_WRITABLE ? 2 : 0));
}

int cw_watch_new(struct cw_loop *l, int fd, void (*fn)(void *arg, int events), void *arg,
                 struct cw_watch **ret, struct cw_error *err)
{
    struct cw_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return cw_error_nomem(err, sizeof(*w), "a watched descriptor");
    int r = uv_poll_init(cw_loop_uv(l), &w->uv, fd);
    if (r < 0) {
        free(w);
        return cw_error_set(err, CW_E_IO, "file descriptor %d can't be watched for events: %s", fd,
                            uv_strerror(r));
    }
    w->uv.data = w;
    w->fn = fn;
    w->arg = arg;
    *ret = w;
    return 0;
}

void cw_watch_set(struct cw_watch *w, int events)
{
    if (events == w->events)
        return;
    w->events = events;
    if (events)
        uv_poll_start(&w->uv, (events & 1 ? UV_READABLE : 0) | (events & 2 ? UV_WRITABLE : 0), watch_on_poll);
    else
        uv_poll_stop(&w->uv);
}

struct cw_watch *cw_watch_free(struct cw_watch *w)
{
    if (w)
        uv_close((uv_handle_t *)&w->uv, handle_on_closed);
    return NULL;
}
