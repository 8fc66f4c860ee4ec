/* A set in memory: which entries there are and where they lie. */
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "cache/internal.h"
#include "storage/file.h"

/* ---- segments ---- */

struct cw_cache_segment *cw_cache_segment_new(void)
{
    struct cw_cache_segment *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    pthread_rwlock_init(&g->lock, NULL);
    g->fd = -1;
    return g;
}

void cw_cache_segment_free(struct cw_cache_segment *g)
{
    if (!g)
        return;
    if (g->fd >= 0)
        close(g->fd);
    cw_file_free(g->file);
    pthread_rwlock_destroy(&g->lock);
    free(g->name);
    free(g);
}

int cw_cache_set_add_segment(struct cw_cache_set *s, struct cw_cache_segment *g, uint32_t *ret,
                             struct cw_error *err)
{
    pthread_rwlock_wrlock(&s->lock);
    int r = CW_ARRAY_ROOM(s->segments, s->capacity, s->n_segments + (size_t)1, "segments", err);
    if (r == 0) {
        *ret = s->n_segments;
        s->segments[s->n_segments++] = g;
    }
    pthread_rwlock_unlock(&s->lock);
    if (r < 0)
        cw_cache_segment_free(g);
    return r;
}

/* ---- index ---- */

static bool alive(const struct cw_cache_set *s, const struct cw_cache_index_slot *i)
{
    return i->segment && !atomic_load_explicit(&s->segments[i->segment - 1]->dead, memory_order_relaxed) &&
           i->offset;
}

/* The slot of a hash, or the free one where it would be. */
static struct cw_cache_index_slot *slot_of(struct cw_cache_index_slot *slots, size_t n_slots, uint64_t hash)
{
    size_t at = hash & (n_slots - 1);
    while (slots[at].segment && slots[at].hash != hash)
        at = (at + 1) & (n_slots - 1);
    return &slots[at];
}

static int grow(struct cw_cache_set *s, size_t n)
{
    size_t wanted = CW_MAX(s->n_slots, (size_t)1024);
    while ((s->n_used + n) * 3 > wanted * 2)
        wanted *= 2;
    if (wanted == s->n_slots)
        return 0;
    struct cw_cache_index_slot *slots = calloc(wanted, sizeof(*slots));
    if (!slots)
        return -1;
    s->n_used = 0;
    for (size_t i = 0; i < s->n_slots; i++)
        if (alive(s, &s->slots[i])) {
            *slot_of(slots, wanted, s->slots[i].hash) = s->slots[i];
            s->n_used++;
        }
    free(s->slots);
    s->slots = slots;
    s->n_slots = wanted;
    return 0;
}

int cw_cache_set_insert(struct cw_cache_set *s, uint32_t segment, const struct cw_cache_row *rows, size_t n,
                        struct cw_error *err)
{
    pthread_rwlock_wrlock(&s->lock);
    if (grow(s, n) < 0) {
        pthread_rwlock_unlock(&s->lock);
        return cw_error_nomem(err, n * sizeof(*s->slots), "the index of a cache");
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = cw_hash64(&rows[i].key, sizeof(rows[i].key));
        struct cw_cache_index_slot *slot = slot_of(s->slots, s->n_slots, hash);
        if (alive(s, slot))
            continue; /* somebody else computed it too */
        s->n_used += !slot->segment;
        *slot = (struct cw_cache_index_slot){.hash = hash,
                                             .segment = segment + 1,
                                             .length = rows[i].length,
                                             .stored = rows[i].stored,
                                             .offset = rows[i].offset,
                                             .dropped = rows[i].flags & CW_CACHE_DROPPED};
    }
    pthread_rwlock_unlock(&s->lock);
    return 0;
}

size_t cw_cache_find(struct cw_cache_set *s, const struct cw_cache_key *keys, size_t n,
                     struct cw_cache_place *ret)
{
    size_t found = 0;
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < n; i++) {
        ret[i].segment = NULL;
        if (!s->n_slots)
            continue;
        const struct cw_cache_index_slot *slot = slot_of(s->slots, s->n_slots,
                                                         cw_hash64(&keys[i], sizeof(keys[i])));
        if (!alive(s, slot))
            continue;
        ret[i] = (struct cw_cache_place){.segment = s->segments[slot->segment - 1],
                                         .offset = slot->offset,
                                         .length = slot->length,
                                         .stored = slot->stored,
                                         .dropped = slot->dropped};
        found++;
    }
    pthread_rwlock_unlock(&s->lock);
    return found;
}

void cw_cache_set_forget(struct cw_cache_set *s, const struct cw_cache_get *get)
{
    pthread_rwlock_wrlock(&s->lock);
    struct cw_cache_index_slot *slot = slot_of(s->slots, s->n_slots, cw_hash64(&get->key, sizeof(get->key)));
    if (slot->segment && s->segments[slot->segment - 1] == get->place.segment &&
        slot->offset == get->place.offset)
        slot->offset = 0; /* the slot stays, for others are found through it */
    pthread_rwlock_unlock(&s->lock);
}

/* ---- from the start to the end ---- */

void cw_cache_set_free(struct cw_cache_set *s)
{
    for (uint32_t i = 0; i < s->n_segments; i++)
        cw_cache_segment_free(s->segments[i]);
    if (s->used_fd >= 0)
        close(s->used_fd);
    if (s->dir_fd >= 0)
        close(s->dir_fd);
    pthread_rwlock_destroy(&s->lock);
    free(s->segments);
    free(s->slots);
    cw_map_deinit(&s->names);
    free(s->w.rows);
    free(s->w.temporary);
    free(s->dir);
    free(s->meta);
    free(s->profile);
    free(s);
}

struct cw_cache_set *cw_cache_set_new(struct cw_cache *c, struct cw_hash128 key, const char *meta,
                                      struct cw_error *err)
{
    struct cw_cache_set *s = calloc(1, sizeof(*s));
    if (!s || !(s->meta = strdup(meta))) {
        free(s);
        cw_error_nomem(err, sizeof(*s), "a cache");
        return NULL;
    }
    s->cache = c;
    s->key = key;
    s->refs = 1;
    s->dir_fd = s->used_fd = s->w.direct_fd = -1;
    s->opened_ns = s->touched_ns = cw_now_ns();
    pthread_rwlock_init(&s->lock, NULL);
    return s;
}
