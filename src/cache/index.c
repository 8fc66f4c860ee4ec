/* The hash table from keys to places, and the list of segments. */
#include "cache/index.h"

#include "base/array.h"

struct cw_cache_index_slot {
    uint64_t hash;    /* of the key */
    uint32_t segment; /* 0: free; else its number + 1 */
    uint32_t length, stored;
    bool dropped;
    uint64_t offset; /* 0: the entry was forgotten; the slot stays, because others are found through it */
};

void cw_cache_index_init(struct cw_cache_index *x)
{
    *x = (struct cw_cache_index){0};
    pthread_rwlock_init(&x->lock, NULL);
}

void cw_cache_index_deinit(struct cw_cache_index *x)
{
    for (uint32_t i = 0; i < x->n_segments; i++)
        cw_cache_segment_free(x->segments[i]);
    pthread_rwlock_destroy(&x->lock);
    free(x->segments);
    free(x->slots);
}

int cw_cache_index_add_segment(struct cw_cache_index *x, struct cw_cache_segment *g, uint32_t *ret,
                               struct cw_error *err)
{
    pthread_rwlock_wrlock(&x->lock);
    int r = CW_ARRAY_ROOM(x->segments, x->capacity, x->n_segments + (size_t)1, "segments", err);
    if (r == 0) {
        *ret = x->n_segments;
        x->segments[x->n_segments++] = g;
    }
    pthread_rwlock_unlock(&x->lock);
    if (r < 0)
        cw_cache_segment_free(g);
    return r;
}

/* Returns whether a slot holds an entry whose segment can be read. */
static bool slot_alive(const struct cw_cache_index *x, const struct cw_cache_index_slot *i)
{
    return i->segment && !atomic_load_explicit(&x->segments[i->segment - 1]->dead, memory_order_relaxed) &&
           i->offset;
}

/* Returns the slot of a hash, or the free slot where it would be. */
static struct cw_cache_index_slot *slot_of(struct cw_cache_index_slot *slots, size_t n_slots, uint64_t hash)
{
    size_t at = hash & (n_slots - 1);
    while (slots[at].segment && slots[at].hash != hash)
        at = (at + 1) & (n_slots - 1);
    return &slots[at];
}

/* Makes room for n more entries: at most 2/3 of the slots are used. Dead entries go. The lock is held. */
static int index_grow(struct cw_cache_index *x, size_t n, struct cw_error *err)
{
    size_t wanted = CW_MAX(x->n_slots, (size_t)1024);
    while ((x->n_used + n) * 3 > wanted * 2)
        wanted *= 2;
    if (wanted == x->n_slots)
        return 0;
    struct cw_cache_index_slot *slots = calloc(wanted, sizeof(*slots));
    if (!slots)
        return cw_error_nomem(err, wanted * sizeof(*slots), "the index of a cache");
    x->n_used = 0;
    for (size_t i = 0; i < x->n_slots; i++)
        if (slot_alive(x, &x->slots[i])) {
            *slot_of(slots, wanted, x->slots[i].hash) = x->slots[i];
            x->n_used++;
        }
    free(x->slots);
    x->slots = slots;
    x->n_slots = wanted;
    return 0;
}

int cw_cache_index_insert(struct cw_cache_index *x, uint32_t segment, const struct cw_cache_row *rows,
                          size_t n, struct cw_error *err)
{
    pthread_rwlock_wrlock(&x->lock);
    int r = index_grow(x, n, err);
    for (size_t i = 0; i < n && r == 0; i++) {
        uint64_t hash = cw_hash64(&rows[i].key, sizeof(rows[i].key));
        struct cw_cache_index_slot *slot = slot_of(x->slots, x->n_slots, hash);
        if (slot_alive(x, slot)) /* another process computed it too */
            continue;
        x->n_used += !slot->segment;
        *slot = (struct cw_cache_index_slot){.hash = hash,
                                             .segment = segment + 1,
                                             .length = rows[i].length,
                                             .stored = rows[i].stored,
                                             .offset = rows[i].offset,
                                             .dropped = rows[i].flags & CW_CACHE_DROPPED};
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
        if (!slot_alive(x, slot))
            continue;
        ret[i] = (struct cw_cache_place){.segment = x->segments[slot->segment - 1],
                                         .offset = slot->offset,
                                         .length = slot->length,
                                         .stored = slot->stored,
                                         .dropped = slot->dropped};
        found++;
    }
    pthread_rwlock_unlock(&x->lock);
    return found;
}

void cw_cache_index_forget(struct cw_cache_index *x, const struct cw_cache_get *get)
{
    pthread_rwlock_wrlock(&x->lock);
    struct cw_cache_index_slot *slot = slot_of(x->slots, x->n_slots, cw_hash64(&get->key, sizeof(get->key)));
    if (slot->segment && x->segments[slot->segment - 1] == get->place.segment &&
        slot->offset == get->place.offset)
        slot->offset = 0;
    pthread_rwlock_unlock(&x->lock);
}
