/* The cache as a whole: opening and closing it, its sets, and its counters. */
#include <errno.h>
#include <string.h>

#include "base/cost_clock.h"
#include "base/notice.h"
#include "base/thread.h"
#include "cache/internal.h"
#include "cache/set.h"
#include "cache/thread.h"
#include "storage/file.h"

#define SEGMENT_BYTES ((size_t)16 << 20)
#define QUEUE_BYTES ((size_t)32 << 20)
/* Closing waits for the store's thread up to END_NS: writing may take some seconds (CLOSE_NS in thread.c),
 * and its last step takes time, too. If storage is already known not to answer, closing waits up to STUCK_NS.
 */
#define END_NS UINT64_C(20000000000)
#define STUCK_NS UINT64_C(1000000000)
/* Time that a caller waits until a directory is opened. That takes milliseconds, for large directories across
 * a network up to a second. A longer wait would cost more than computing without the cache. */
#define OPEN_NS UINT64_C(2000000000)

/* ---- waiting for the store's thread; the cache's mutex is held ---- */

/* Waits until the store's thread has made progress. False: deadline_ns has passed. */
static bool cache_wait(struct cw_cache *c, uint64_t deadline_ns)
{
    return cw_cond_wait(&c->monitor.progress, &c->monitor.mutex, deadline_ns) != ETIMEDOUT;
}

/* Returns whether the current step of the store's thread has taken too long already. */
static bool cache_is_stuck(const struct cw_cache *c)
{
    return c->monitor.step && cw_now_ns() - c->monitor.step_ns > cw_cost_patience_ns(OPEN_NS);
}

/* Returns the name of the step that the cache waits for, for messages. */
static const char *cache_step(const struct cw_cache *c)
{
    return c->monitor.step                  ? c->monitor.step
           : atomic_load(&c->readers.stuck) ? "a read"
                                            : "waiting for a CPU";
}

/* Waits until opening the directory or a set has succeeded or failed (*tried), at most OPEN_NS. Reports a
 * slow step to the user, once. */
static void cache_wait_opened(struct cw_cache *c, const bool *tried)
{
    uint64_t deadline_ns = cw_now_ns() + cw_cost_patience_ns(OPEN_NS);
    while (!*tried && !cache_is_stuck(c) && cache_wait(c, deadline_ns))
        ;
    if (!*tried && !c->monitor.slow_noticed) {
        cw_notice("cachew: cache %s: %s takes longer than %.0f s; going on without the cache until this ends",
                  c->dir, cache_step(c), (double)OPEN_NS * 1e-9);
        c->monitor.slow_noticed = true;
    }
}

/* ---- opening and closing ---- */

/* Frees a cache without holders. */
static void cache_free(struct cw_cache *c)
{
    cw_cache_room_deinit(&c->room);
    cw_cache_packer_deinit(&c->packer);
    cw_cache_unpackers_deinit(&c->unpackers);
    cw_cache_queue_deinit(&c->queue);
    cw_cache_monitor_deinit(&c->monitor);
    cw_cache_readers_deinit(&c->readers);
    free(c->dir);
    free(c);
}

int cw_cache_open(const struct cw_cache_options *o, struct cw_cache **ret, struct cw_error *err)
{
    /* absolute, because segments are opened by name whenever they are needed */
    _cleanup_free_ char *dir = cw_absolute(o->dir);
    struct cw_cache *c = dir ? malloc(sizeof(*c)) : NULL;
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a cache");
    *c = (struct cw_cache){
        .dir = CW_STEAL(dir),
        .waits = o->waits,
        .plain = o->plain,
        .free = cache_free,
        .holders = 2, /* the caller and the store's thread */
        .readers = CW_CACHE_READERS,
        .unpackers = CW_CACHE_UNPACKERS,
    };
    cw_list_init(&c->sets);
    cw_cache_monitor_init(&c->monitor, c->dir);
    cw_cache_queue_init(&c->queue, o->queue_bytes ? o->queue_bytes : QUEUE_BYTES);
    cw_cache_room_init(&c->room, &c->monitor, o->quota, o->segment_bytes ? o->segment_bytes : SEGMENT_BYTES);
    int r = cw_thread_start(&c->thread, cw_cache_main, c, err);
    if (r < 0) {
        cache_free(c);
        return r;
    }
    CW_WITH (&c->monitor.mutex) {
        cache_wait_opened(c, &c->tried);
        r = c->failed.status ? cw_error_copy(err, &c->failed) : 0;
    }
    if (r < 0) {
        cw_error_file(err, o->dir);
        cw_cache_close(c);
        return r;
    }
    *ret = c;
    return 0;
}

uint64_t cw_cache_quota(const struct cw_cache *c)
{
    return atomic_load(&c->room.quota);
}

/* Tells the store's thread to end, and waits for that. If storage does not answer in time, the thread is
 * detached and ends later. */
static void cache_end_thread(struct cw_cache *c)
{
    pthread_mutex_lock(&c->monitor.mutex);
    c->stop = true;
    pthread_cond_broadcast(&c->monitor.work);
    uint64_t patience_ns = atomic_load(&c->readers.stuck) || cache_is_stuck(c) ? STUCK_NS : END_NS;
    uint64_t deadline_ns = cw_now_ns() + cw_cost_patience_ns(patience_ns);
    while (!c->ended && cache_wait(c, deadline_ns))
        ;
    bool ended = c->ended;
    if (!ended)
        cw_notice("cachew: cache %s: %s does not end, and the run no longer waits for it; cache entries that "
                  "are not written yet are lost",
                  c->dir, cache_step(c));
    pthread_mutex_unlock(&c->monitor.mutex);
    (void)(ended ? pthread_join(c->thread, NULL) : pthread_detach(c->thread));
}

struct cw_cache *cw_cache_close_facts(struct cw_cache *c, struct cw_cache_facts *ret)
{
    if (!c)
        return NULL;
    cw_cache_readers_stop(&c->readers);
    cache_end_thread(c);
    if (ret)
        cw_cache_facts(c, ret);
    cw_cache_release(c);
    return NULL;
}

int cw_cache_set_open(struct cw_cache *c, struct cw_hash128 key, const char *meta, struct cw_cache_set **ret,
                      struct cw_error *err)
{
    struct cw_cache_set *s = NULL;
    CW_GUARD(&c->monitor.mutex);
    CW_LIST_EACH_OF (have, struct cw_cache_set, link, &c->sets)
        if (have->key.lo == key.lo && have->key.hi == key.hi)
            s = have;
    if (!s) {
        if (!(s = cw_cache_set_new(c, key, meta, err)))
            return err->status;
        cw_list_add(&c->sets, &s->link); /* the set's first reference belongs to the store's thread */
        pthread_cond_signal(&c->monitor.work);
    }
    s->refs++;
    cache_wait_opened(c, &s->tried);
    *ret = s;
    return 0;
}

/* ---- what was put so far ---- */

int cw_cache_flush(struct cw_cache *c, struct cw_error *err)
{
    CW_GUARD(&c->monitor.mutex);
    c->flush = true;
    pthread_cond_signal(&c->monitor.work);
    for (uint64_t began_ns = cw_now_ns(); c->flush;) {
        uint64_t deadline_ns = cw_cache_monitor_deadline(&c->monitor, began_ns);
        if (cw_now_ns() >= deadline_ns)
            return cw_error_set(err, CW_E_DEADLINE, "cache %s: %s takes longer than %.0f s", c->dir,
                                cache_step(c), (double)CW_CACHE_STEP_NS * 1e-9);
        (void)cache_wait(c, deadline_ns);
    }
    return 0;
}

void cw_cache_facts(const struct cw_cache *c, struct cw_cache_facts *ret)
{
    const struct cw_cache_counters *n = &c->counters;
#define FACT(name) .name = atomic_load_explicit(&n->name, memory_order_relaxed)
    *ret = (struct cw_cache_facts){FACT(hits),
                                   FACT(misses),
                                   FACT(bad),
                                   FACT(gone),
                                   FACT(late),
                                   FACT(kept),
                                   FACT(skipped),
                                   FACT(refused),
                                   FACT(bytes_read),
                                   FACT(read_ns),
                                   FACT(bytes_written),
                                   FACT(bytes_stored),
                                   FACT(write_ns),
                                   FACT(published),
                                   FACT(probe_bytes),
                                   FACT(probe_ns),
                                   .evicted = atomic_load(&c->room.evicted),
                                   .used = atomic_load(&c->room.used)};
#undef FACT
}
