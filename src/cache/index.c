/* The hash table from keys to places of entries, and the list of segments. */
#include "cache/index.h"

#include "base/array.h"

struct cw_cache_index_slot {
    uint64_t hash; /* of the key */
    /* segment NULL: the slot is free. offset 0: the entry was removed; the slot stays in use, because a
     * search for another key may pass it */
    struct cw_cache_place place;
};

_Static_assert(sizeof(struct cw_cache_index_slot) <= 32,
               "a cache line of the CPU must hold two slots of the index");

void cw_cache_index_deinit(struct cw_cache_index *x)
{
    for (size_t i = 0; i < x->n_segments; i++)
        cw_cache_segment_free(x->segments[i]);
    pthread_rwlock_destroy(&x->lock);
    free(x->segments);
    free(x->slots);
}

int cw_cache_index_add_segment(struct cw_cache_index *x, struct cw_cache_segment *g)
{
    pthread_rwlock_wrlock(&x->lock);
    int r = CW_ARRAY_ROOM(x->segments, x->capacity, x->n_segments + 1, "segments", NULL);
    if (r == 0)
        x->segments[x->n_segments++] = g;
    pthread_rwlock_unlock(&x->lock);
    return r;
}

/* Returns whether a slot holds an entry whose segment can be read. */
static bool slot_alive(const struct cw_cache_index_slot *i)
{
    return i->place.segment && !atomic_load_explicit(&i->place.segment->dead, memory_order_relaxed) &&
           i->place.offset;
}

/* Returns the slot that holds a hash, or the free slot into which the hash belongs. */
static struct cw_cache_index_slot *slot_of(struct cw_cache_index_slot *slots, size_t n_slots, uint64_t hash)
{
    size_t at = hash & (n_slots - 1);
    while (slots[at].place.segment && slots[at].hash != hash)
        at = (at + 1) & (n_slots - 1);
    return &slots[at];
}

/* Makes room for n more entries, so that at most 2/3 of the slots are in use. A larger table leaves out dead
 * entries. The caller holds the lock exclusively. */
static int index_grow(struct cw_cache_index *x, size_t n)
{
    size_t wanted = CW_MAX(x->n_slots, (size_t)1024);
    while ((x->n_used + n) * 3 > wanted * 2)
        wanted *= 2;
    if (wanted == x->n_slots)
        return 0;
    struct cw_cache_index_slot *slots = calloc(wanted, sizeof(*slots));
    if (!slots)
        return CW_E_MEMORY;
    x->n_used = 0;
    for (size_t i = 0; i < x->n_slots; i++)
        if (slot_alive(&x->slots[i])) {
            *slot_of(slots, wanted, x->slots[i].hash) = x->slots[i];
            x->n_used++;
        }
    free(x->slots);
    x->slots = slots;
    x->n_slots = wanted;
    return 0;
}

int cw_cache_index_insert(struct cw_cache_index *x, struct cw_cache_segment *g,
                          const struct cw_cache_row *rows, size_t n)
{
    pthread_rwlock_wrlock(&x->lock);
    int r = index_grow(x, n);
    for (size_t i = 0; i < n && r == 0; i++) {
        uint64_t hash = cw_hash64(&rows[i].key, sizeof(rows[i].key));
        struct cw_cache_index_slot *slot = slot_of(x->slots, x->n_slots, hash);
        if (slot_alive(slot)) /* another process computed the same entry */
            continue;
        x->n_used += !slot->place.segment;
        *slot = (struct cw_cache_index_slot){.hash = hash,
                                             .place = {.segment = g,
                                                       .length = rows[i].length,
                                                       .stored = rows[i].stored & INT32_MAX,
                                                       .offset = rows[i].offset,
                                                       .dropped = rows[i].flags & CW_CACHE_DROPPED}};
    }
    pthread_rwlock_unlock(&x->lock);
    return r;
}

size_t cw_cache_index_find(struct cw_cache_index *x, const struct cw_cache_key *keys, size_t n,
                           struct cw_cache_place *ret)
{
    size_t found = 0;
    pthread_rwlock_rdlock(&x->lock);
    for (size_t i = 0; i < n; i++) {
        ret[i].segment = NULL;
        if (!x->n_slots)
            continue;
        const struct cw_cache_index_slot *slot = slot_of(x->slots, x->n_slots,
                                                         cw_hash64(&keys[i], sizeof(keys[i])));
        if (!slot_alive(slot))
            continue;
        ret[i] = slot->place;
        found++;
    }
    pthread_rwlock_unlock(&x->lock);
    return found;
}

void cw_cache_index_forget(struct cw_cache_index *x, const struct cw_cache_get *get)
{
    pthread_rwlock_wrlock(&x->lock);
    struct cw_cache_index_slot *slot = slot_of(x->slots, x->n_slots, cw_hash64(&get->key, sizeof(get->key)));
    if (slot->place.segment == get->place.segment && slot->place.offset == get->place.offset)
        slot->place.offset = 0;
    pthread_rwlock_unlock(&x->lock);
}
