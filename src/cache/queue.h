/*
 * Chunks: memory in which entries are put together before they are written. Full chunks wait in a queue for
 * the store's thread; written ones are kept as spares, because the kernel would zero new pages. Guarded by
 * the cache's mutex.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cw_cache_set;

struct cw_cache_chunk {
    struct cw_cache_chunk *next;
    struct cw_cache_set *set; /* that its entries belong to; counted */
    size_t capacity, used;    /* bytes */
    unsigned pending;         /* entries that are being filled in */
    uint64_t since_ns;        /* when it was begun */
    uint8_t *data;            /* aligned to CW_CACHE_BLOCK, and of so many whole blocks */
};

struct cw_cache_queue {
    struct cw_cache_chunk *head, **tail; /* full chunks, the oldest first */
    struct cw_cache_chunk *spare;
    size_t bytes; /* of all chunks: current ones, full ones and spares */
    size_t limit; /* of bytes; immutable */
};

void cw_cache_queue_init(struct cw_cache_queue *q, size_t limit);
void cw_cache_queue_deinit(struct cw_cache_queue *q);
/* Returns an empty chunk for an entry of this size; `usual`: capacity of a chunk of small entries. NULL: out
 * of memory, or *ret_full, the limit is reached. */
struct cw_cache_chunk *cw_cache_queue_chunk(struct cw_cache_queue *q, size_t bytes, size_t usual,
                                            bool *ret_full);
void cw_cache_queue_push(struct cw_cache_queue *q, struct cw_cache_chunk *k);
/* Returns the oldest full chunk whose entries are all filled in; NULL: there is none. */
struct cw_cache_chunk *cw_cache_queue_pop(struct cw_cache_queue *q);
/* Takes back a chunk that was written. */
void cw_cache_queue_reuse(struct cw_cache_queue *q, struct cw_cache_chunk *k);
/* Returns how many entries a chunk has; *ret_cost_us: the time that computing them took. No lock. */
size_t cw_cache_chunk_entries(const struct cw_cache_chunk *k, uint64_t *ret_cost_us);
