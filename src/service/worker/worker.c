/* A worker from its start to its end: options, sockets, the loop's thread, and what others may ask of it. */
#include "cache/cache.h"
#include "service/worker/worker_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/patience.h"
#include "base/text.h"
#include "base/thread.h"
#include "service/worker/pages.h"
#include "service/worker/socket_dir.h"

/* Peers that do not close their side within this are cut off. */
#define STOP_NS UINT64_C(1000000000)
#define MEMORY_MIN ((size_t)16 << 20)

void cw_worker_log(struct cw_worker *w, const char *format, ...)
{
    char message[1000];
    if (!w->options.log)
        return;
    CW_FORMAT(message, format);
    w->options.log(w->options.log_arg, message);
}

void cw_worker_changed(struct cw_worker *w)
{
    cw_loop_post(w->loop, &w->changed_post);
}

static void on_changed(void *arg)
{
    struct cw_worker *w = arg;
    cw_streams_settle(w);
    cw_worker_look(w);
}

void cw_worker_look(struct cw_worker *w)
{
    struct cw_worker_status s = {.registered = w->registered,
                                 .draining = w->draining,
                                 .id = w->id,
                                 .n_out = w->n_out,
                                 .n_batches = w->n_batches,
                                 .n_bytes = w->n_bytes,
                                 .memory_used = atomic_load(&w->handed_out.used)};
    s.refused = w->refused;
    snprintf(s.why, sizeof(s.why), "%s", w->why);
    for (const struct worker_stream *t = w->streams; t; t = t->next) {
        s.n_streams++;
        s.n_leases += t->n_leases;
        s.memory_used += cw_stream_memory_used(t->stream);
    }
    for (const struct client *c = w->clients; c; c = c->next)
        s.n_clients++;
    for (const struct report *r = w->reports; r; r = r->next)
        s.n_reports++;
    CW_GUARD(&w->mutex);
    w->status = s;
    pthread_cond_broadcast(&w->changed);
}

void cw_worker_status(struct cw_worker *w, struct cw_worker_status *ret)
{
    CW_GUARD(&w->mutex);
    *ret = w->status;
}

void cw_worker_maybe_over(struct cw_worker *w)
{
    if (w->stopping && !w->dispatcher && !w->clients && !w->streams)
        cw_loop_stop(w->loop);
}

/* ---- what others ask for ---- */

static void on_drain(void *arg)
{
    cw_control_drain(arg);
}

void cw_worker_drain(struct cw_worker *w)
{
    cw_loop_post(w->loop, &w->drain_post);
}

/* Nothing is left to be done, or nobody is there to do it for. */
static bool is_drained(const struct cw_worker_status *s)
{
    return s->draining && ((!s->n_leases && !s->n_reports) || (!s->registered && !s->n_clients));
}

int cw_worker_wait_drained(struct cw_worker *w, uint64_t timeout_ns, struct cw_error *err)
{
    uint64_t deadline_ns = timeout_ns ? cw_now_ns() + timeout_ns : 0;
    const struct cw_worker_status *s = &w->status;
    int e = 0;
    CW_GUARD(&w->mutex);
    while (!is_drained(s) && e != ETIMEDOUT)
        e = cw_cond_wait(&w->changed, &w->mutex, deadline_ns);
    if (is_drained(s))
        return 0;
    return cw_error_set(err, CW_E_DEADLINE,
                        "the worker still has %zu ranges, and %zu completions that are not acknowledged",
                        s->n_leases, s->n_reports);
}

static void on_stop_timer(void *arg)
{
    struct cw_worker *w = arg;
    cw_clients_cut(w);
    cw_control_cut(w);
}

static void on_stop(void *arg)
{
    struct cw_worker *w = arg;
    w->stopping = true;
    cw_timer_start(w->stop_timer, STOP_NS, STOP_NS);
    cw_timer_stop(w->reconnect);
    cw_clients_close(w);
    cw_control_close(w);
    for (struct worker_stream *s = w->streams; s; s = s->next)
        cw_streams_end(w, s);
    cw_worker_maybe_over(w);
}

const char *cw_worker_address(const struct cw_worker *w)
{
    return w->tcp ? cw_listener_address(w->tcp) : NULL;
}

const char *cw_worker_http(const struct cw_worker *w)
{
    return w->http ? cw_http_address(w->http) : NULL;
}

const char *cw_worker_unix_path(const struct cw_worker *w)
{
    return w->unix_path;
}

/* ---- start and end ---- */

static char *copy(const char *text, bool *failed)
{
    char *c = text ? strdup(text) : NULL;
    *failed |= text && !c;
    return c;
}

static const char *const *copy_list(const char *const *list, size_t n, bool *failed)
{
    char **c = calloc(n + 1, sizeof(*c));
    *failed |= !c;
    for (size_t i = 0; c && i < n; i++)
        c[i] = copy(list[i], failed);
    return (const char *const *)c;
}

static void free_list(const char *const *list, size_t n)
{
    for (size_t i = 0; list && i < n; i++)
        free((void *)(uintptr_t)list[i]);
    free((void *)(uintptr_t)list);
}

static int copy_options(struct cw_worker *w, const struct cw_worker_options *o, struct cw_error *err)
{
    struct cw_worker_options *c = &w->options;
    char host[128] = "", name[160];
    bool failed = false;
    if (!o->dispatcher)
        return cw_error_set(err, CW_E_OPTION, "a worker needs the address of a dispatcher");
    if (o->memory < MEMORY_MIN) {
        char value[32];
        snprintf(value, sizeof(value), "%zu", o->memory);
        return cw_error_value(err, CW_E_OPTION, "memory", value, "at least 16 MiB",
                              "--memory %zu: expected at least %zu bytes, 16 MiB", o->memory, MEMORY_MIN);
    }
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(name, sizeof(name), "%s:%ld", host, (long)getpid());
    *c = *o;
    c->threads = o->threads ? o->threads : cw_cpu_budget();
    c->dispatcher = copy(o->dispatcher, &failed);
    c->listen = copy(o->listen, &failed);
    c->unix_path = copy(o->unix_path, &failed);
    c->name = copy(o->name ? o->name : name, &failed);
    c->pool = copy(o->pool, &failed);
    c->http = copy(o->http, &failed);
    c->index_dir = copy(o->index_dir, &failed);
    c->cache_dir = copy(o->cache_dir, &failed);
    c->token = copy(o->token, &failed);
    c->advertise = copy_list(o->advertise, o->n_advertise, &failed);
    c->data_roots = copy_list(o->data_roots, o->n_data_roots, &failed);
    cw_budget_init(&w->handed_out, c->memory / CW_HANDED_OUT_PART);
    w->stream_options = (struct cw_stream_options){.threads = c->threads,
                                                   .memory = c->memory,
                                                   .index_dir = c->index_dir,
                                                   .data_roots = c->data_roots,
                                                   .n_data_roots = c->n_data_roots,
                                                   .allow_python = c->allow_python,
                                                   .trace = c->trace,
                                                   .range_ns = cw_patience_range_ns()};
    return failed ? cw_error_nomem(err, 0, "a worker") : 0;
}

static void free_options(struct cw_worker_options *c)
{
    const char *all[] = {c->dispatcher, c->listen,    c->unix_path, c->name, c->pool,
                         c->http,       c->index_dir, c->cache_dir, c->token};
    for (size_t i = 0; i < CW_COUNT_OF(all); i++)
        free((void *)(uintptr_t)all[i]);
    free_list(c->advertise, c->n_advertise);
    free_list(c->data_roots, c->n_data_roots);
}

/* The socket's path: the one that was given, or in a directory of its own. */
static int choose_path(struct cw_worker *w, struct cw_error *err)
{
    int r = w->options.unix_path ? 0 : cw_socket_dir_new(&w->unix_dir, &w->unix_dir_lock, err);
    if (r < 0)
        return r;
    const char *dir = w->unix_dir;
    if (asprintf(&w->unix_path, "%s%s", dir ? dir : w->options.unix_path, dir ? "/socket" : "") < 0) {
        w->unix_path = NULL;
        return cw_error_nomem(err, 0, "a path");
    }
    return 0;
}

static void *loop_main(void *arg)
{
    struct cw_worker *w = arg;
    cw_loop_run(w->loop);
    return NULL;
}

static void worker_free(struct cw_worker *w)
{
    w->http = cw_http_free(w->http);
    w->tcp = cw_listener_free(w->tcp);
    w->local = cw_listener_free(w->local);
    cw_control_deinit(w);
    w->stop_timer = w->stop_timer ? cw_timer_free(w->stop_timer) : NULL;
    cw_loop_free(w->loop);
    w->unix_dir = cw_socket_dir_free(w->unix_dir, w->unix_dir_lock);
    free(w->unix_path);
    cw_work_deinit(&w->work);
    cw_cache_close(w->cache);
    free_options(&w->options);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->changed);
    free(w);
}

static int open_cache(struct cw_worker *w, struct cw_error *err)
{
    const struct cw_cache_options o = {.dir = w->options.cache_dir, .quota = w->options.cache_bytes};
    int r = cw_cache_open(&o, &w->cache, err);
    w->stream_options.cache = w->cache;
    return r < 0 ? err->status = CW_E_OPTION : 0; /* so far it is but an argument */
}

static int start(struct cw_worker *w, struct cw_error *err)
{
    if (getrandom(w->incarnation, sizeof(w->incarnation), 0) != sizeof(w->incarnation))
        return cw_error_set(err, CW_E_IO, "the system gives no random bytes");
    cw_host_identity(w->host);
    w->started_ns = cw_now_ns();
    w->changed_post = (struct cw_post){.fn = on_changed, .arg = w};
    int r = cw_loop_new(&w->loop, err);
    if (r >= 0 && w->options.cache_dir)
        r = open_cache(w, err);
    if (r >= 0)
        r = choose_path(w, err);
    if (r >= 0)
        r = cw_control_init(w, err);
    if (r >= 0)
        r = cw_timer_new(w->loop, on_stop_timer, w, &w->stop_timer, err);
    if (r >= 0)
        r = cw_clients_listen(w, err);
    if (r >= 0 && w->options.http)
        r = cw_http_new(w->loop, w->options.http, cw_worker_page, w, &w->http, err);
    if (r < 0)
        return r;
    w->drain_post = (struct cw_post){.fn = on_drain, .arg = w};
    w->stop_post = (struct cw_post){.fn = on_stop, .arg = w};
    cw_control_start(w);
    cw_worker_look(w);
    return cw_thread_start(&w->thread, loop_main, w, err);
}

int cw_worker_start(const struct cw_worker_options *o, struct cw_worker **ret, struct cw_error *err)
{
    struct cw_worker *w = calloc(1, sizeof(*w));
    if (!w)
        return cw_error_nomem(err, sizeof(*w), "a worker");
    w->unix_dir_lock = -1;
    pthread_mutex_init(&w->mutex, NULL);
    cw_cond_init(&w->changed);
    int r = copy_options(w, o, err);
    if (r >= 0)
        r = start(w, err);
    if (r < 0) {
        if (w->dispatcher)
            cw_conn_close(w->dispatcher, NULL); /* the loop's end waits for it */
        w->stopping = true;
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
    cw_loop_post(w->loop, &w->stop_post);
    pthread_join(w->thread, NULL);
    worker_free(w);
    return NULL;
}
