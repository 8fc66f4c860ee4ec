/*
 * Chunks: memory in which entries are collected before they are written. Full chunks wait in a queue for the
 * store's thread. Chunks that were written are kept as spares, because the kernel would have to zero new
 * pages. All functions but init and deinit require the cache's mutex (monitor.mutex).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct cw_cache_chunk {
    struct cw_link link;      /* in a list of the queue */
    struct cw_cache_set *set; /* the set that its entries belong to; a counted reference */
    size_t capacity, used;    /* bytes */
    size_t n;                 /* number of entries */
    unsigned pending;         /* number of entries that are reserved but not committed yet */
    uint64_t cost_us;         /* time that computing the entries took */
    uint64_t since_ns;        /* when the chunk was begun, by cw_now_ns */
    uint8_t *data;            /* capacity bytes, aligned to CW_CACHE_BLOCK */
};

struct cw_cache_queue {
    struct cw_link full;   /* chunks to be written, the oldest first */
    struct cw_link spares; /* chunks that were written and can be used again */
    size_t bytes;          /* capacity of all chunks: current, full and spare chunks */
    size_t limit;          /* upper limit of `bytes`; immutable */
};

void cw_cache_queue_init(struct cw_cache_queue *q, size_t limit);
void cw_cache_queue_deinit(struct cw_cache_queue *q);
/* Returns an empty chunk with room for an entry of this size. `usual`: bytes that a chunk of small entries
 * holds at most. NULL: the limit is reached (*ret_full is true) or out of memory. */
struct cw_cache_chunk *cw_cache_queue_chunk(struct cw_cache_queue *q, size_t bytes, size_t usual,
                                            bool *ret_full);
/* Takes the oldest full chunk whose entries are all committed out of the queue. NULL: there is none. */
struct cw_cache_chunk *cw_cache_queue_pop(struct cw_cache_queue *q);
