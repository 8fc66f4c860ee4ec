/*
 * Chunks: memory in which entries are put together before they are written. Full chunks wait in a queue for
 * the store's thread; written ones are kept as spares, because the kernel would zero new pages. Guarded by
 * the cache's mutex.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct cw_cache_chunk {
    struct cw_link link;      /* in a list of the queue */
    struct cw_cache_set *set; /* that its entries belong to; counted */
    size_t capacity, used;    /* bytes */
    size_t n;                 /* entries */
    unsigned pending;         /* of them: being filled in */
    uint64_t cost_us;         /* time that computing the entries took */
    uint64_t since_ns;        /* when it was begun */
    uint8_t *data;            /* aligned to CW_CACHE_BLOCK, and of so many whole blocks */
};

struct cw_cache_queue {
    struct cw_link full;   /* chunks, the oldest first */
    struct cw_link spares; /* written ones */
    size_t bytes;          /* of all chunks: current ones, full ones and spares */
    size_t limit;          /* of bytes; immutable */
};

void cw_cache_queue_init(struct cw_cache_queue *q, size_t limit);
void cw_cache_queue_deinit(struct cw_cache_queue *q);
/* Returns an empty chunk for an entry of this size; `usual`: capacity of a chunk of small entries. NULL: out
 * of memory, or *ret_full, the limit is reached. */
struct cw_cache_chunk *cw_cache_queue_chunk(struct cw_cache_queue *q, size_t bytes, size_t usual,
                                            bool *ret_full);
/* Returns the oldest full chunk whose entries are all filled in; NULL: there is none. */
struct cw_cache_chunk *cw_cache_queue_pop(struct cw_cache_queue *q);
