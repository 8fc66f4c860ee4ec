/*
 * The I/O thread, which does all requests of the process, and the lists of requests. The thread runs from the
 * first request to the end of the process; a forked child starts its own. `io.mutex` guards the list of new
 * requests and the flags of all requests; the other lists are the thread's.
 */
#include "objects/transfer.h"

#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "objects/exchange.h"
#include "objects/object.h"

/* Requests at a time: as many as the engine and the builders of indexes want. More would not be faster, as
 * 64 requests of 64 KiB at 20 ms each are 200 MB/s. */
#define MOST_ACTIVE 128u
/* How long a request waits before it is sent again: at first a random time between half of FIRST_WAIT_NS and
 * FIRST_WAIT_NS. Both limits double with each try, up to MOST_WAIT_NS. */
#define FIRST_WAIT_NS UINT64_C(100000000)
#define MOST_WAIT_NS UINT64_C(10000000000)
/* A server may ask for a wait (Retry-After). This is the longest wait that is granted. */
#define MOST_RETRY_AFTER_S 60.0
/* A request for a status or a listing that does not reach its server ends after this many tries: the address
 * is probably wrong. A run that reads ranges has reached its server before. */
#define UNREACHED_TRIES 4u
/* The thread looks at its lists at least this often; a new request wakes it at once. */
#define IDLE_MS 60000

static struct {
    pthread_mutex_t mutex;
    pthread_t thread;
    CURLM *multi;
    struct cw_transfer *fresh; /* new requests, the last one first; guarded by mutex */
    bool running, stop;        /* guarded by mutex */
    bool cancelled;            /* a caller gave a request up; guarded by mutex */
    bool set_up;               /* libcurl and the handlers; guarded by mutex */
} io = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* What the thread owns. */
struct io_lists {
    struct cw_transfer *waiting, **waiting_end; /* to be begun, at not_before_ns or later */
    struct cw_transfer *active;
    unsigned n_active;
    CURL *spare[MOST_ACTIVE];
    unsigned n_spare;
    uint64_t draw; /* state of the random waits, which need not be good */
};

/* ---- the thread ---- */

static void io_finish(struct cw_transfer *t, enum cw_transfer_outcome outcome)
{
    CW_GUARD(&io.mutex);
    t->outcome = outcome;
    t->over = true;
    pthread_cond_signal(&t->ended);
}

static void io_wait_for(struct io_lists *l, struct cw_transfer *t)
{
    t->next = NULL;
    *l->waiting_end = t;
    l->waiting_end = &t->next;
}

static double io_draw(struct io_lists *l)
{
    l->draw ^= l->draw << 13;
    l->draw ^= l->draw >> 7;
    l->draw ^= l->draw << 17;
    return (double)(l->draw >> 11) * 0x1p-53;
}

static void io_begin(struct io_lists *l, struct cw_transfer *t, uint64_t now_ns)
{
    CURL *easy = l->n_spare > 0 ? l->spare[--l->n_spare] : curl_easy_init();
    if (!easy || !cw_exchange_begin(t, easy, now_ns)) {
        if (easy)
            curl_easy_cleanup(easy);
        snprintf(t->why, sizeof(t->why), "memory is short, or the URL is wrong");
        io_finish(t, CW_TRANSFER_FAILED);
        return;
    }
    curl_multi_add_handle(io.multi, easy);
    t->next = l->active;
    l->active = t;
    l->n_active++;
}

/* Takes an active request out of the list and frees its exchange. */
static void io_retire(struct io_lists *l, struct cw_transfer *t)
{
    CW_UNLINK(l->active, t);
    l->n_active--;
    curl_multi_remove_handle(io.multi, t->exchange->easy);
    CURL *easy = cw_exchange_free(t);
    if (l->n_spare < MOST_ACTIVE)
        l->spare[l->n_spare++] = easy;
    else
        curl_easy_cleanup(easy);
}

static void io_end(struct io_lists *l, struct cw_transfer *t, CURLcode code)
{
    double asked_s;
    uint64_t now_ns = cw_now_ns();
    enum cw_exchange_next next = cw_exchange_end(t, code, &asked_s);
    io_retire(l, t);
    bool progress = t->got > t->got_before;
    t->wait_ns = t->wait_ns && !progress ? CW_MIN(2 * t->wait_ns, MOST_WAIT_NS) : FIRST_WAIT_NS;
    uint64_t wait_ns = (uint64_t)((double)t->wait_ns * (0.5 + 0.5 * io_draw(l)));
    if (asked_s > 0)
        wait_ns = CW_MAX(wait_ns, (uint64_t)(CW_MIN(asked_s, MOST_RETRY_AFTER_S) * 1e9));
    t->not_before_ns = now_ns + wait_ns;
    if (next == CW_EXCHANGE_OVER || t->not_before_ns >= t->deadline_ns ||
        (next == CW_EXCHANGE_AGAIN_SOON && t->kind != CW_TRANSFER_RANGE && t->n_tries >= UNREACHED_TRIES))
        io_finish(t, t->outcome);
    else
        io_wait_for(l, t);
}

/* Ends the requests that their callers gave up, or all of them. */
static void io_cancel(struct io_lists *l, bool all)
{
    struct cw_transfer *waiting = l->waiting, *next;
    l->waiting = NULL;
    l->waiting_end = &l->waiting;
    for (struct cw_transfer *t = waiting; t; t = next) {
        next = t->next;
        if (all || CW_LOCKED(&io.mutex, t->cancel))
            io_finish(t, CW_TRANSFER_CANCELLED);
        else
            io_wait_for(l, t);
    }
    for (struct cw_transfer *t = l->active; t; t = next) {
        next = t->next;
        if (!all && !CW_LOCKED(&io.mutex, t->cancel))
            continue;
        io_retire(l, t);
        io_finish(t, CW_TRANSFER_CANCELLED);
    }
}

/* Begins the waiting requests that are due. Returns in how many milliseconds the next one is due. */
static int io_begin_due(struct io_lists *l)
{
    uint64_t now_ns = cw_now_ns(), least_ns = (uint64_t)IDLE_MS * 1000000;
    struct cw_transfer *waiting = l->waiting, *next;
    l->waiting = NULL;
    l->waiting_end = &l->waiting;
    for (struct cw_transfer *t = waiting; t; t = next) {
        next = t->next;
        if (t->not_before_ns > now_ns) {
            least_ns = CW_MIN(least_ns, t->not_before_ns - now_ns);
            io_wait_for(l, t);
        } else if (l->n_active == MOST_ACTIVE) {
            io_wait_for(l, t);
        } else {
            io_begin(l, t, now_ns);
        }
    }
    return (int)(least_ns / 1000000) + 1;
}

static void *io_main(void *arg)
{
    struct io_lists l = {.draw = cw_now_ns() | 1};
    bool stop = false, cancelled = false;
    l.waiting_end = &l.waiting;
    while (!stop) {
        struct cw_transfer *fresh, *in_order = NULL;
        int n, left;
        CW_WITH (&io.mutex) {
            stop = io.stop;
            cancelled = io.cancelled;
            io.cancelled = false;
            fresh = CW_STEAL(io.fresh);
        }
        while (fresh) { /* the list has the last one first */
            struct cw_transfer *t = CW_POP(fresh);
            t->next = in_order;
            in_order = t;
        }
        while (in_order)
            io_wait_for(&l, CW_POP(in_order));
        if (stop || cancelled)
            io_cancel(&l, stop);
        int due_ms = io_begin_due(&l);
        curl_multi_perform(io.multi, &n);
        bool ended = false;
        for (const CURLMsg *m; (m = curl_multi_info_read(io.multi, &left)); ended = true) {
            char *t;
            CURLcode code = m->data.result;
            if (m->msg == CURLMSG_DONE && curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t) == CURLE_OK)
                io_end(&l, (struct cw_transfer *)(void *)t, code);
        }
        if (!stop && !ended)
            curl_multi_poll(io.multi, NULL, 0, due_ms, NULL);
    }
    while (l.n_spare > 0)
        curl_easy_cleanup(l.spare[--l.n_spare]);
    return arg;
}

/* ---- its start and end ---- */

static void io_before_fork(void)
{
    pthread_mutex_lock(&io.mutex);
}

static void io_in_parent(void)
{
    pthread_mutex_unlock(&io.mutex);
}

/* The child has no I/O thread, and must not use the parent's connections. */
static void io_in_child(void)
{
    io.multi = NULL;
    io.fresh = NULL;
    io.running = io.stop = io.cancelled = false;
    pthread_mutex_unlock(&io.mutex);
}

/* Ends the thread before the handlers of OpenSSL free what it uses. */
static void io_at_exit(void)
{
    bool running = false;
    CW_WITH (&io.mutex) {
        running = io.running;
        io.stop = true;
        if (running)
            curl_multi_wakeup(io.multi);
    }
    if (!running)
        return;
    pthread_join(io.thread, NULL);
    curl_multi_cleanup(io.multi);
    io.running = false;
}

/* Starts the thread unless it runs. The mutex is held. */
static int io_start(struct cw_error *err)
{
    if (io.running || io.stop)
        return io.stop ? cw_error_set(err, CW_E_INTERRUPTED, "the process ends") : 0;
    if (!io.set_up) {
        if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
            return cw_error_nomem(err, 0, "libcurl");
        io.set_up = pthread_atfork(io_before_fork, io_in_parent, io_in_child) == 0 && atexit(io_at_exit) == 0;
        if (!io.set_up)
            return cw_error_nomem(err, 0, "libcurl");
    }
    io.multi = curl_multi_init();
    if (!io.multi)
        return cw_error_nomem(err, 0, "libcurl");
    curl_multi_setopt(io.multi, CURLMOPT_MAXCONNECTS, (long)MOST_ACTIVE);
    int r = cw_thread_start(&io.thread, io_main, NULL, err);
    if (r < 0)
        curl_multi_cleanup(io.multi);
    io.running = r >= 0;
    return r;
}

const char *cw_object_library(void)
{
    return curl_version();
}

int cw_transfer_begin(struct cw_transfer *t, struct cw_error *err)
{
    CW_GUARD(&io.mutex);
    int r = io_start(err);
    if (r < 0) {
        cw_location_deinit(&t->at);
        return r;
    }
    cw_cond_init(&t->ended);
    t->deadline_ns = cw_now_ns() + t->patience_ns;
    t->next = io.fresh;
    io.fresh = t;
    curl_multi_wakeup(io.multi);
    return 0;
}

void cw_transfer_end(struct cw_transfer *t, bool cancel)
{
    CW_GUARD(&io.mutex);
    if (cancel && !t->over) {
        t->cancel = io.cancelled = true;
        curl_multi_wakeup(io.multi);
    }
    while (!t->over)
        (void)cw_cond_wait(&t->ended, &io.mutex, 0);
}

void cw_transfer_deinit(struct cw_transfer *t)
{
    pthread_cond_destroy(&t->ended);
    cw_text_deinit(&t->body);
    cw_location_deinit(&t->at);
}
