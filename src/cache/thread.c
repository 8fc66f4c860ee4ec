/* The store's thread: what it does, and when. It is the only one that waits for the directory. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/internal.h"

#define MS UINT64_C(1000000)
/* Between two looks at what others published. */
#define SCAN_NS (500 * MS)
/* What was put is written after so long, even if it is little. */
#define WRITE_NS (200 * MS)
/* A segment is published after a second, and as the set gets older less often: so that little waits for long,
 * and long runs leave no thousands of files. */
#define PUBLISH_NS (1000 * MS)
#define PUBLISH_SHARE 16
/* What is still to be written when the run ends may take so long. */
#define CLOSE_NS (5000 * MS)
#define TOUCH_NS (60000 * MS)

/* Opens a set that is not open yet, at the first time or when trouble was long enough ago. */
static void open_set(struct cw_cache_set *s, uint64_t now)
{
    struct cw_cache *c = s->cache;
    char name[33];
    if (s->dir || now < s->backoff.until_ns || c->dir_fd < 0)
        return;
    cw_cache_doing(c, "opening a set");
    int r = cw_cache_set_enter(s);
    cw_cache_doing(c, NULL);
    cw_hash128_print(s->key, name);
    if (r < 0)
        cw_cache_trouble(c, &s->backoff, name, -r);
    else
        s->backoff.ns = 0;
}

/* The first full chunk that is filled in. Mutex held. */
static struct cw_cache_chunk *next_chunk(struct cw_cache *c)
{
    for (struct cw_cache_chunk **at = &c->queue; *at; at = &(*at)->next)
        if (!(*at)->pending) {
            struct cw_cache_chunk *k = *at;
            *at = k->next;
            if (!*at)
                c->queue_tail = at;
            return k;
        }
    return NULL;
}

/* Mutex held. */
static void chunk_done(struct cw_cache *c, struct cw_cache_chunk *k)
{
    k->set->refs--;
    k->next = c->spare;
    c->spare = k;
    pthread_cond_broadcast(&c->told);
}

static void seal_old(struct cw_cache *c, struct cw_cache_set *s, uint64_t now)
{
    struct cw_cache_chunk *k = s->current;
    /* ours and the chunk's: nobody puts any more */
    if (!k || (!c->flush && !c->stop && s->refs > 2 && now - k->since_ns < WRITE_NS))
        return;
    s->current = NULL;
    *c->queue_tail = k;
    c->queue_tail = &k->next;
}

static void put_profile(struct cw_cache_set *s)
{
    _cleanup_free_ char *text = NULL;
    CW_WITH (&s->cache->mutex) {
        text = s->profiled ? strdup(s->profile) : NULL;
        s->profiled = false;
    }
    if (text)
        /* a full disk: those that come later measure themselves */
        (void)!cw_cache_put_text(s->dir_fd, CW_CACHE_PROFILE, text);
}

/* What is to be done for a set now and then. Mutex not held. */
static void look_after(struct cw_cache_set *s, uint64_t now, bool flush, bool last)
{
    struct cw_cache *c = s->cache;
    if (!s->dir)
        return;
    cw_cache_doing(c, "publishing a segment");
    if (s->w.segment &&
        (flush || last ||
         now - s->w.since_ns > CW_MAX(PUBLISH_NS, (s->w.since_ns - s->opened_ns) / PUBLISH_SHARE)))
        cw_cache_publish(s);
    if (s->used_fd >= 0 && (last || now - s->touched_ns > TOUCH_NS)) {
        (void)futimens(s->used_fd, NULL);
        s->touched_ns = now;
    }
    cw_cache_doing(c, "listing a set");
    put_profile(s);
    if (!last)
        cw_cache_set_scan(s, false);
    cw_cache_doing(c, NULL);
}

/* Trouble that may pass. Anything else is wrong with the directory's name. */
static bool passes(int e)
{
    static const int list[] = {ENOSPC, EDQUOT, EIO, ESTALE, ETIMEDOUT, EHOSTDOWN, EMFILE, ENFILE, ENOMEM};
    for (size_t i = 0; i < CW_COUNT_OF(list); i++)
        if (e == list[i])
            return true;
    return false;
}

/* Opens the directory. Mutex not held. */
static void open_dir(struct cw_cache *c)
{
    struct cw_error err = {0};
    if (c->dir_fd >= 0 || c->failed.status || cw_now_ns() < c->backoff.until_ns)
        return;
    cw_cache_doing(c, "opening the directory");
    int r = cw_cache_dir_open(c, &err);
    cw_cache_doing(c, NULL);
    if (r < 0 && passes(-r))
        cw_cache_trouble(c, &c->backoff, NULL, -r);
    CW_GUARD(&c->mutex);
    if (r < 0 && !passes(-r) && !c->tried)
        c->failed = err;
    c->tried = true;
    pthread_cond_broadcast(&c->told);
}

/* Opens what is to be opened; who waits for it is told. Called and left with the mutex held. */
static void open_all(struct cw_cache *c, uint64_t now)
{
    if (c->stop)
        return;
    pthread_mutex_unlock(&c->mutex);
    open_dir(c);
    pthread_mutex_lock(&c->mutex);
    for (struct cw_link *at = c->sets.next; at != &c->sets; at = at->next) {
        /* only this thread takes any out */
        struct cw_cache_set *s = CW_CONTAINER(at, struct cw_cache_set, link);
        pthread_mutex_unlock(&c->mutex);
        open_set(s, now);
        pthread_mutex_lock(&c->mutex);
        if (!s->tried) {
            s->tried = true;
            pthread_cond_broadcast(&c->told);
        }
    }
}

/* One came while the mutex was not held. */
static bool any_new(const struct cw_cache *c)
{
    CW_LIST_EACH (at, &c->sets)
        if (!CW_CONTAINER(at, struct cw_cache_set, link)->tried)
            return true;
    return false;
}

/* Sets one after the other; those that nobody has any more are closed. Called and left with the mutex held.
 */
static void tend(struct cw_cache *c, uint64_t now, bool all, bool flush)
{
    struct cw_link *at = c->sets.next;
    while (at != &c->sets) {
        struct cw_cache_set *s = CW_CONTAINER(at, struct cw_cache_set, link);
        bool last = s->refs == 1 && !s->current;
        if (last)
            cw_link_out(&s->link); /* who opens it again makes another */
        if (last || all) {
            pthread_mutex_unlock(&c->mutex);
            look_after(s, now, flush, last);
            pthread_mutex_lock(&c->mutex);
        }
        at = last ? c->sets.next : s->link.next;
        if (last)
            cw_cache_set_free(s);
    }
}

void *cw_cache_main(void *arg)
{
    struct cw_cache *c = arg;
    uint64_t tended = cw_now_ns(), closing = 0;
    pthread_mutex_lock(&c->mutex);
    for (;;) {
        uint64_t now = cw_now_ns();
        if (c->stop && !closing)
            closing = now;
        open_all(c, now);
        bool flush = c->flush; /* what is asked for from here on waits for another round */
        CW_LIST_EACH (at, &c->sets)
            seal_old(c, CW_CONTAINER(at, struct cw_cache_set, link), now);
        struct cw_cache_chunk *k = next_chunk(c);
        if (k) {
            bool late = closing && now - closing > cw_cost_patience_ns(CLOSE_NS);
            uint64_t cost_us;
            pthread_mutex_unlock(&c->mutex);
            if (late)
                atomic_fetch_add(&c->skipped, cw_cache_entries(k, &cost_us));
            else
                cw_cache_write(c, k);
            pthread_mutex_lock(&c->mutex);
            chunk_done(c, k);
            if (cw_now_ns() - tended < SCAN_NS)
                continue;
        }
        bool all = flush || cw_now_ns() - tended >= SCAN_NS, written = !c->queue;
        tend(c, cw_now_ns(), all, flush);
        if (all)
            tended = cw_now_ns();
        if (flush && written && !c->queue) {
            c->flush = false;
            pthread_cond_broadcast(&c->told);
        }
        if (c->stop && !c->queue && cw_list_empty(&c->sets))
            break;
        if (k || (!c->stop && any_new(c)))
            continue;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(WRITE_NS / 2);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&c->work, &c->mutex, &until);
    }
    c->ended = true;
    pthread_cond_broadcast(&c->told);
    pthread_mutex_unlock(&c->mutex);
    cw_cache_release(c);
    return NULL;
}
