/* The store's thread: what it does, and when. Only this thread waits for the cache directory. */
#include "cache/thread.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/internal.h"
#include "cache/set.h"

#define MS UINT64_C(1000000)
/* Time between two scans for segments of other processes. */
#define SCAN_NS (500 * MS)
/* A chunk is queued for writing this long after its first entry, even if it is not full. */
#define WRITE_NS (200 * MS)
/* A segment is published a second after it was begun, or after 1/PUBLISH_SHARE of the set's age if that is
 * more. So entries become visible soon, and long runs do not make thousands of files. */
#define PUBLISH_NS (1000 * MS)
#define PUBLISH_SHARE 16
/* After the run has ended, chunks are written for at most this long. */
#define CLOSE_NS (5000 * MS)
/* Time between two updates of the modification time of `used`. */
#define TOUCH_NS (60000 * MS)

/* Opens a set if it is not open, unless its backoff after trouble lasts. The cache's mutex is not held. */
static void set_open(struct cw_cache_set *s, uint64_t now)
{
    struct cw_cache *c = s->cache;
    if (s->dir_fd >= 0 || now < s->backoff.until_ns || c->room.dir_fd < 0)
        return;
    cw_cache_monitor_step(&c->monitor, "opening a set");
    int r = cw_cache_set_enter(s);
    cw_cache_monitor_step(&c->monitor, NULL);
    if (r < 0)
        cw_cache_monitor_trouble(&c->monitor, &s->backoff, s->name, -r);
    else
        s->backoff.ns = 0;
}

/* Queues the set's current chunk if it is old, or if no user is left that could add to it. The cache's mutex
 * is held. */
static void set_seal(struct cw_cache *c, struct cw_cache_set *s, uint64_t now)
{
    struct cw_cache_chunk *k = s->current;
    /* 2 references are this thread's and the chunk's: no user is left */
    if (!k || (!c->flush && !c->stop && s->refs > 2 && now - k->since_ns < WRITE_NS))
        return;
    s->current = NULL;
    cw_list_add(&c->queue.full, &k->link);
}

/* Publishes the set's segment, updates its time of use and scans its directory, each if due. last: the set is
 * about to be closed. The cache's mutex is not held. */
static void set_tend(struct cw_cache_set *s, uint64_t now, bool flush, bool last)
{
    struct cw_cache *c = s->cache;
    if (s->dir_fd < 0)
        return;
    cw_cache_monitor_step(&c->monitor, "publishing a segment");
    if (s->writing.segment && (flush || last ||
                               now - s->writing.since_ns >
                                   CW_MAX(PUBLISH_NS, (s->writing.since_ns - s->opened_ns) / PUBLISH_SHARE)))
        cw_cache_publish(s);
    if (s->used_fd >= 0 && (last || now - s->touched_ns > TOUCH_NS)) {
        (void)futimens(s->used_fd, NULL);
        s->touched_ns = now;
    }
    cw_cache_monitor_step(&c->monitor, "listing a set");
    cw_cache_set_write_profile(s);
    if (!last)
        cw_cache_set_scan(s);
    cw_cache_monitor_step(&c->monitor, NULL);
}

/* Returns whether the trouble that this errno names may pass. Any other errno means that the directory's name
 * is wrong.
 */
static bool trouble_may_pass(int e)
{
    static const int list[] = {ENOSPC, EDQUOT, EIO, ESTALE, ETIMEDOUT, EHOSTDOWN, EMFILE, ENFILE, ENOMEM};
    for (size_t i = 0; i < CW_COUNT_OF(list); i++)
        if (e == list[i])
            return true;
    return false;
}

/* Opens the cache directory if it is not open. The cache's mutex is not held. */
static void dir_open(struct cw_cache *c)
{
    struct cw_error err = {0};
    if (c->room.dir_fd >= 0 || c->failed.status || cw_now_ns() < c->backoff.until_ns)
        return;
    cw_cache_monitor_step(&c->monitor, "opening the directory");
    int r = cw_cache_room_open(&c->room, &err);
    cw_cache_monitor_step(&c->monitor, NULL);
    if (r < 0 && trouble_may_pass(-r))
        cw_cache_monitor_trouble(&c->monitor, &c->backoff, NULL, -r);
    CW_GUARD(&c->monitor.mutex);
    if (r < 0 && !trouble_may_pass(-r) && !c->tried)
        c->failed = err;
    c->tried = true;
    pthread_cond_broadcast(&c->monitor.progress);
}

/* Opens the directory and all sets that are not open. The cache's mutex is held, and released during I/O. */
static void open_all(struct cw_cache *c, uint64_t now)
{
    if (c->stop)
        return;
    pthread_mutex_unlock(&c->monitor.mutex);
    dir_open(c);
    pthread_mutex_lock(&c->monitor.mutex);
    for (struct cw_link *at = c->sets.next; at != &c->sets; at = at->next) {
        /* only this thread removes sets from the list */
        struct cw_cache_set *s = CW_CONTAINER(at, struct cw_cache_set, link);
        pthread_mutex_unlock(&c->monitor.mutex);
        set_open(s, now);
        pthread_mutex_lock(&c->monitor.mutex);
        if (!s->tried) {
            s->tried = true;
            pthread_cond_broadcast(&c->monitor.progress);
        }
    }
}

/* Returns whether there is a set that open_all has not tried to open yet. The cache's mutex is held. */
static bool has_new_set(const struct cw_cache *c)
{
    CW_LIST_EACH (at, &c->sets)
        if (!CW_CONTAINER(at, struct cw_cache_set, link)->tried)
            return true;
    return false;
}

/* Calls set_tend for the sets without users, which are then closed, and if `all` also for the other sets. The
 * cache's mutex is held, and released during I/O. */
static void tend_sets(struct cw_cache *c, uint64_t now, bool all, bool flush)
{
    struct cw_link *at = c->sets.next;
    while (at != &c->sets) {
        struct cw_cache_set *s = CW_CONTAINER(at, struct cw_cache_set, link);
        bool last = s->refs == 1 && !s->current;
        if (last)
            cw_link_out(&s->link); /* from now on cw_cache_set_open makes a new set for this key */
        if (last || all) {
            pthread_mutex_unlock(&c->monitor.mutex);
            set_tend(s, now, flush, last);
            pthread_mutex_lock(&c->monitor.mutex);
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
    pthread_mutex_lock(&c->monitor.mutex);
    for (;;) {
        uint64_t now = cw_now_ns();
        if (c->stop && !closing)
            closing = now;
        open_all(c, now);
        bool flush = c->flush; /* a request that comes later than this is served in the next round */
        CW_LIST_EACH (at, &c->sets)
            set_seal(c, CW_CONTAINER(at, struct cw_cache_set, link), now);
        struct cw_cache_chunk *k = cw_cache_queue_pop(&c->queue);
        if (k) {
            bool late = closing && now - closing > cw_cost_patience_ns(CLOSE_NS);
            pthread_mutex_unlock(&c->monitor.mutex);
            if (late)
                atomic_fetch_add(&c->counters.skipped, k->n);
            else
                cw_cache_write(k);
            pthread_mutex_lock(&c->monitor.mutex);
            k->set->refs--;
            cw_list_add(&c->queue.spares, &k->link);
            pthread_cond_broadcast(&c->monitor.progress);
            if (cw_now_ns() - tended < SCAN_NS)
                continue;
        }
        bool all = flush || cw_now_ns() - tended >= SCAN_NS, written = cw_list_empty(&c->queue.full);
        tend_sets(c, cw_now_ns(), all, flush);
        if (all)
            tended = cw_now_ns();
        if (flush && written && cw_list_empty(&c->queue.full)) {
            c->flush = false;
            pthread_cond_broadcast(&c->monitor.progress);
        }
        if (c->stop && cw_list_empty(&c->queue.full) && cw_list_empty(&c->sets))
            break;
        if (k || (!c->stop && has_new_set(c)))
            continue;
        (void)cw_cond_wait(&c->monitor.work, &c->monitor.mutex, cw_now_ns() + WRITE_NS / 2);
    }
    c->ended = true;
    pthread_cond_broadcast(&c->monitor.progress);
    pthread_mutex_unlock(&c->monitor.mutex);
    cw_cache_release(c);
    return NULL;
}
