/* Putting entries into a set. Any thread. */
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cache/internal.h"
#include "cache/set.h"
#include "cache/sum.h"

/* Returns the set's current chunk, with room for `bytes` bytes; NULL: the queue is full, or out of memory. A
 * cache with `waits` waits for room in the queue instead. It gives up only if storage does not answer: once a
 * step of the store's thread has taken too long, calls do not wait until that step ends. The cache's mutex is
 * held, and released during waits. */
static struct cw_cache_chunk *set_chunk_with_room(struct cw_cache_set *s, size_t bytes)
{
    struct cw_cache *c = s->cache;
    for (;;) {
        bool full = false;
        if (s->current && s->current->used + bytes > s->current->capacity) {
            cw_list_add(&c->queue.full, &s->current->link);
            if (!CW_STEAL(s->current)->pending)
                pthread_cond_signal(&c->monitor.work);
        }
        if (!s->current && (s->current = cw_cache_queue_chunk(
                                &c->queue, bytes, atomic_load(&c->room.segment_bytes) / 2, &full))) {
            s->current->set = s;
            s->refs++;
        }
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
    struct cw_cache_chunk *k = NULL;
    size_t bytes = cw_cache_entry_bytes(length);
    const struct cw_cache_entry e = {.magic = CW_CACHE_ENTRY_MAGIC,
                                     .flags = dropped ? CW_CACHE_DROPPED : 0,
                                     .key = *key,
                                     .length = (uint32_t)length,
                                     .stored = (uint32_t)length,
                                     .cost_us = (uint32_t)CW_MIN(cost_ns / 1000, (uint64_t)UINT32_MAX)};
    uint8_t *at = NULL;
    if (length <= UINT32_MAX / 2 && bytes <= c->queue.limit)
        CW_WITH (&c->monitor.mutex) {
            if (!(k = set_chunk_with_room(s, bytes)))
                break;
            at = k->data + k->used;
            k->used += bytes;
            k->cost_us += e.cost_us;
            k->n++;
            k->pending++;
        }
    if (!k) {
        atomic_fetch_add_explicit(&c->counters.skipped, 1, memory_order_relaxed);
        return NULL;
    }
    memcpy(at, &e, sizeof(e));
    memset(at + sizeof(e) + length, 0, bytes - sizeof(e) - length);
    *ret = (struct cw_cache_slot){.chunk = k, .entry = at};
    return at + sizeof(e);
}

void cw_cache_commit(const struct cw_cache_slot *slot)
{
    struct cw_cache_set *s = slot->chunk->set;
    struct cw_cache_entry e;
    memcpy(&e, slot->entry, sizeof(e));
    e.hash = cw_sum(slot->entry + sizeof(e.hash), sizeof(e) - sizeof(e.hash) + e.length);
    memcpy(slot->entry, &e, sizeof(e));
    CW_GUARD(&s->cache->monitor.mutex);
    if (--slot->chunk->pending == 0 && s->current != slot->chunk)
        pthread_cond_signal(&s->cache->monitor.work);
}

void cw_cache_missed(struct cw_cache_set *s, size_t n)
{
    atomic_fetch_add_explicit(&s->cache->counters.misses, n, memory_order_relaxed);
}
