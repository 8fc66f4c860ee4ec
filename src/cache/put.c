/* Putting entries into a set. Any thread. */
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cache/internal.h"
#include "cache/set.h"
#include "cache/sum.h"

/* Returns a new current chunk of the set; NULL: out of memory, or *ret_full, the queue is full. Mutex held.
 */
static struct cw_cache_chunk *set_begin_chunk(struct cw_cache_set *s, size_t bytes, bool *ret_full)
{
    struct cw_cache *c = s->cache;
    struct cw_cache_chunk *k = cw_cache_queue_chunk(&c->queue, bytes, atomic_load(&c->room.segment_bytes) / 2,
                                                    ret_full);
    if (k) {
        k->set = s;
        s->refs++;
    }
    return k;
}

/* Returns the set's chunk with room for so many bytes; NULL: the queue is full, or out of memory. A cache
 * that waits gives up only on storage that does not answer: once a step of the store's thread has taken too
 * long, no call waits until that step ends. The mutex is held, and released during waits. */
static struct cw_cache_chunk *set_chunk_with_room(struct cw_cache_set *s, size_t bytes)
{
    struct cw_cache *c = s->cache;
    for (;;) {
        bool full = false;
        if (s->current && s->current->used + bytes > s->current->capacity) {
            cw_cache_queue_push(&c->queue, s->current);
            if (!CW_STEAL(s->current)->pending)
                pthread_cond_signal(&c->monitor.work);
        }
        if (!s->current)
            s->current = set_begin_chunk(s, bytes, &full);
        uint64_t deadline_ns = cw_cache_monitor_deadline(&c->monitor, 0);
        if (!full || !c->waits || cw_now_ns() >= deadline_ns)
            return s->current;
        (void)cw_cond_wait(&c->monitor.progress, &c->monitor.mutex, deadline_ns);
    }
}

void *cw_cache_reserve(struct cw_cache_set *s, const struct cw_cache_key *key, size_t length, bool dropped,
                       uint64_t cost_ns, struct cw_cache_slot *ret)
{
    struct cw_cache *c = s->cache;
    size_t bytes = cw_cache_entry_bytes(length);
    if (length > UINT32_MAX / 2 || bytes > c->queue.limit) {
        atomic_fetch_add_explicit(&c->counters.skipped, 1, memory_order_relaxed);
        return NULL;
    }
    pthread_mutex_lock(&c->monitor.mutex);
    struct cw_cache_chunk *k = set_chunk_with_room(s, bytes);
    uint8_t *at = k ? k->data + k->used : NULL;
    if (k) {
        k->used += bytes;
        k->pending++;
    }
    pthread_mutex_unlock(&c->monitor.mutex);
    if (!k) {
        atomic_fetch_add_explicit(&c->counters.skipped, 1, memory_order_relaxed);
        return NULL;
    }
    const struct cw_cache_entry e = {.magic = CW_CACHE_ENTRY_MAGIC,
                                     .flags = dropped ? CW_CACHE_DROPPED : 0,
                                     .key = *key,
                                     .length = (uint32_t)length,
                                     .stored = (uint32_t)length,
                                     .cost_us = (uint32_t)CW_MIN(cost_ns / 1000, (uint64_t)UINT32_MAX)};
    memcpy(at, &e, sizeof(e));
    memset(at + sizeof(e) + length, 0, bytes - sizeof(e) - length);
    *ret = (struct cw_cache_slot){.set = s, .chunk = k, .entry = at};
    return at + sizeof(e);
}

void cw_cache_commit(const struct cw_cache_slot *slot)
{
    struct cw_cache *c = slot->set->cache;
    struct cw_cache_entry e;
    memcpy(&e, slot->entry, sizeof(e));
    e.hash = cw_sum(slot->entry + sizeof(e.hash), sizeof(e) - sizeof(e.hash) + e.length);
    memcpy(slot->entry, &e, sizeof(e));
    bool wake = CW_LOCKED(&c->monitor.mutex,
                          --slot->chunk->pending == 0 && slot->set->current != slot->chunk);
    if (wake)
        pthread_cond_signal(&c->monitor.work);
}

void cw_cache_missed(struct cw_cache_set *s, size_t n)
{
    atomic_fetch_add_explicit(&s->cache->counters.misses, n, memory_order_relaxed);
}
