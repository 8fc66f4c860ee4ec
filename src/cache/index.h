/*
 * The index of a set: which entries exist and in which segment each lies. Owns the set's segments. Any thread
 * may look entries up; the store's thread adds them.
 */
#pragma once
#include "cache/segment.h"

struct cw_cache_index {
    pthread_rwlock_t
        lock; /* guards all fields; the store's thread, which alone adds segments, may list them without it */
    struct cw_cache_index_slot *slots; /* a hash table with open addressing; n_slots is a power of 2 or 0 */
    size_t n_slots, n_used;
    struct cw_cache_segment **segments;
    size_t n_segments, capacity;
};

#define CW_CACHE_INDEX {.lock = PTHREAD_RWLOCK_INITIALIZER}
void cw_cache_index_deinit(struct cw_cache_index *x);
/* Takes g over unless memory runs out. */
int cw_cache_index_add_segment(struct cw_cache_index *x, struct cw_cache_segment *g) _must_check_;
/* Adds entries of a segment that was added; those that exist already are left out. */
int cw_cache_index_insert(struct cw_cache_index *x, struct cw_cache_segment *g,
                          const struct cw_cache_row *rows, size_t n) _must_check_;
/* As cw_cache_find. */
size_t cw_cache_index_find(struct cw_cache_index *x, const struct cw_cache_key *keys, size_t n,
                           struct cw_cache_place *ret);
/* Removes an entry that turned out damaged or gone, unless it lies elsewhere by now. */
void cw_cache_index_forget(struct cw_cache_index *x, const struct cw_cache_get *get);
