/*
 * The event loop, on top of libuv. One thread runs it and owns everything on it. Other threads reach it by a
 * list of posts under a mutex, and one uv_async that wakes the loop.
 */
#include "net/loop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"
#include "net/loop_impl.h"

struct cw_loop {
    uv_loop_t uv;
    uv_async_t wake;
    uv_prepare_t prepare; /* runs deferred work before the loop waits */
    uv_idle_t idle;       /* active while there is deferred work, so that the loop does not wait */
    uv_signal_t signals[2];
    int n_signals; /* initialised elements of `signals` */
    void (*on_signal)(void *arg, int signal);
    void *signal_arg;
    struct cw_defer *deferred, **deferred_end;
    _Atomic bool stop;
    pthread_mutex_t mutex;
    struct cw_post *posts, **posts_end; /* guarded by mutex */
    struct cw_post *running;            /* taken from `posts`, about to be called; loop thread only */
    uint8_t scratch[CW_LOOP_SCRATCH];
};

/* ---- deferred work ---- */

void cw_loop_defer(struct cw_loop *l, struct cw_defer *d)
{
    if (d->queued)
        return;
    d->queued = true;
    d->next = NULL;
    *l->deferred_end = d;
    l->deferred_end = &d->next;
}

/* Runs the work deferred until now. Work that it defers in turn runs in the next iteration, after receiving.
 */
static void loop_run_deferred(struct cw_loop *l)
{
    struct cw_defer *due = CW_STEAL(l->deferred);
    l->deferred_end = &l->deferred;
    while (due) {
        struct cw_defer *d = CW_POP(due);
        d->queued = false;
        d->fn(d->arg);
    }
}

static void loop_on_idle(uv_idle_t *h)
{
}

static void loop_on_prepare(uv_prepare_t *h)
{
    struct cw_loop *l = h->data;
    loop_run_deferred(l);
    if (l->deferred)
        uv_idle_start(&l->idle, loop_on_idle);
    else
        uv_idle_stop(&l->idle);
}

/* ---- posts ---- */

static void loop_run_posts(struct cw_loop *l)
{
    CW_WITH (&l->mutex) {
        l->running = CW_STEAL(l->posts);
        l->posts_end = &l->posts;
    }
    while (l->running) {
        struct cw_post *p = CW_POP(l->running);
        void (*fn)(void *arg) = p->fn;
        void *arg = p->arg;
        atomic_store(&p->posted, 0); /* from here on, p may be posted again, or be freed */
        fn(arg);
    }
}

static void loop_on_wake(uv_async_t *h)
{
    struct cw_loop *l = h->data;
    loop_run_posts(l);
    if (atomic_load(&l->stop))
        uv_stop(&l->uv);
}

void cw_loop_post(struct cw_loop *l, struct cw_post *post)
{
    if (atomic_exchange(&post->posted, 1))
        return;
    post->next = NULL;
    /* The loop is woken with the mutex held: once it is released, the loop's thread may call fn, which may
     * free the loop. */
    CW_GUARD(&l->mutex);
    *l->posts_end = post;
    l->posts_end = &post->next;
    uv_async_send(&l->wake);
}

static void post_unlink(struct cw_post **at, const struct cw_post *post)
{
    while (*at && *at != post)
        at = &(*at)->next;
    if (*at)
        *at = post->next;
}

void cw_loop_unpost(struct cw_loop *l, struct cw_post *post)
{
    CW_GUARD(&l->mutex);
    post_unlink(&l->running, post);
    post_unlink(&l->posts, post);
    for (l->posts_end = &l->posts; *l->posts_end;)
        l->posts_end = &(*l->posts_end)->next;
}

void cw_loop_stop(struct cw_loop *l)
{
    atomic_store(&l->stop, true);
    uv_async_send(&l->wake);
}

/* ---- the loop ---- */

int cw_loop_new(struct cw_loop **ret, struct cw_error *err)
{
    struct cw_loop *l = calloc(1, sizeof(*l));
    if (!l)
        return cw_error_nomem(err, sizeof(*l), "an event loop");
    int r = uv_loop_init(&l->uv);
    if (r >= 0 && (r = uv_async_init(&l->uv, &l->wake, loop_on_wake)) < 0)
        uv_loop_close(&l->uv);
    if (r < 0) {
        free(l);
        return cw_error_set(err, r == UV_ENOMEM ? CW_E_MEMORY : CW_E_IO, "an event loop can't be made: %s",
                            uv_strerror(r));
    }
    l->deferred_end = &l->deferred;
    l->posts_end = &l->posts;
    pthread_mutex_init(&l->mutex, NULL);
    uv_prepare_init(&l->uv, &l->prepare);
    uv_idle_init(&l->uv, &l->idle);
    l->prepare.data = l->idle.data = l->wake.data = l;
    uv_prepare_start(&l->prepare, loop_on_prepare);
    uv_unref((uv_handle_t *)&l->prepare); /* it does not keep the loop alive */
    *ret = l;
    return 0;
}

void cw_loop_run(struct cw_loop *l)
{
    do
        uv_run(&l->uv, UV_RUN_DEFAULT);
    while (!atomic_load(&l->stop));
    loop_run_deferred(l);
    atomic_store(&l->stop, false);
}

static void handle_close(void *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

struct cw_loop *cw_loop_free(struct cw_loop *l)
{
    if (!l)
        return NULL;
    for (int i = 0; i < l->n_signals; i++)
        handle_close(&l->signals[i]);
    uv_unref((uv_handle_t *)&l->wake);
    for (bool more = true;
         more;) { /* until all handles are closed, and no work is left that their closing causes */
        uv_run(&l->uv, UV_RUN_DEFAULT);
        loop_run_deferred(l);
        loop_run_posts(l);
        CW_WITH (&l->mutex)
            more = l->posts || l->deferred || uv_loop_alive(&l->uv);
    }
    handle_close(&l->wake);
    handle_close(&l->prepare);
    handle_close(&l->idle);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    uv_loop_close(&l->uv);
    pthread_mutex_destroy(&l->mutex);
    free(l);
    return NULL;
}

uv_loop_t *cw_loop_uv(struct cw_loop *l)
{
    return &l->uv;
}

uint8_t *cw_loop_scratch(struct cw_loop *l)
{
    return l->scratch;
}

uint64_t cw_loop_now_ms(struct cw_loop *l)
{
    return uv_now(&l->uv);
}

/* ---- signals ---- */

static void loop_on_signal(uv_signal_t *h, int signal)
{
    struct cw_loop *l = h->data;
    l->on_signal(l->signal_arg, signal);
}

int cw_loop_signals(struct cw_loop *l, void (*fn)(void *arg, int signal), void *arg, struct cw_error *err)
{
    static const int caught[2] = {SIGINT, SIGTERM};
    l->on_signal = fn;
    l->signal_arg = arg;
    while (l->n_signals < 2) {
        uv_signal_t *s = &l->signals[l->n_signals];
        uv_signal_init(&l->uv, s);
        s->data = l;
        int r = uv_signal_start(s, loop_on_signal, caught[l->n_signals++]);
        if (r < 0)
            return cw_error_set(err, CW_E_IO, "signals can't be caught: %s", uv_strerror(r));
        uv_unref((uv_handle_t *)s);
    }
    return 0;
}
