/*
 * The index of a set: which entries exist and in which segment each lies. Owns the set's segments. Any thread
 * may look entries up; the store's thread adds them.
 */
#pragma once
#include "cache/segment.h"

struct cw_cache_index {
    /* Guards all fields. Only the store's thread adds segments, so it may list them without the lock. */
    pthread_rwlock_t lock;
    struct cw_cache_index_slot *slots; /* a hash table with open addressing; n_slots is a power of 2 or 0 */
    size_t n_slots, n_used;
    struct cw_cache_segment **segments;
    size_t n_segments, capacity;
};

#define CW_CACHE_INDEX {.lock = PTHREAD_RWLOCK_INITIALIZER}
void cw_cache_index_deinit(struct cw_cache_index *x);
/* Adds g, which the index owns from now on. CW_E_MEMORY: the caller still owns g. */
int cw_cache_index_add_segment(struct cw_cache_index *x, struct cw_cache_segment *g) _must_check_;
/* Adds the n entries of g, a segment of the index; leaves out entries whose key is in the index already. */
int cw_cache_index_insert(struct cw_cache_index *x, struct cw_cache_segment *g,
                          const struct cw_cache_row *rows, size_t n) _must_check_;
/* Looks up n keys and stores the place of entry i in ret[i] (segment NULL: it does not exist). Returns how
 * many of the entries exist. */
size_t cw_cache_index_find(struct cw_cache_index *x, const struct cw_cache_key *keys, size_t n,
                           struct cw_cache_place *ret);
/* Removes the entry of get, which turned out damaged or gone. Does nothing if the index has another place for
 * the key by now. */
void cw_cache_index_forget(struct cw_cache_index *x, const struct cw_cache_get *get);
