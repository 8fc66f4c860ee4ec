/* The queue of chunks, and their memory. */
#include "cache/queue.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cache/format.h"

/* Bytes written at a time: a large page, which storage takes in one go. Writing small pages takes the kernel
 * several times the CPU time, and that is most of what keeping entries costs. */
#define CHUNK_BYTES ((size_t)2 << 20)

void cw_cache_queue_init(struct cw_cache_queue *q, size_t limit)
{
    *q = (struct cw_cache_queue){.limit = limit, .tail = &q->head};
}

static void chunk_free(struct cw_cache_chunk *k)
{
    free(k->data);
    free(k);
}

void cw_cache_queue_deinit(struct cw_cache_queue *q)
{
    while (q->spare)
        chunk_free(CW_POP(q->spare));
}

static struct cw_cache_chunk *chunk_new(size_t capacity)
{
    struct cw_cache_chunk *k = calloc(1, sizeof(*k));
    bool large = capacity % CHUNK_BYTES == 0;
    if (!k || !(k->data = aligned_alloc(large ? CHUNK_BYTES : CW_CACHE_BLOCK, capacity))) {
        free(k);
        return NULL;
    }
    k->capacity = capacity;
    if (large)
        (void)madvise(k->data, capacity, MADV_HUGEPAGE);
    return k;
}

struct cw_cache_chunk *cw_cache_queue_chunk(struct cw_cache_queue *q, size_t bytes, size_t usual,
                                            bool *ret_full)
{
    size_t capacity = CW_ALIGN_UP(CW_MAX(bytes, CW_MIN(CHUNK_BYTES, CW_MIN(usual, q->limit))),
                                  CW_CACHE_BLOCK);
    struct cw_cache_chunk *k = NULL;
    *ret_full = false;
    while (q->spare && !k) {
        k = CW_POP(q->spare);
        if (k->capacity >= capacity)
            break;
        q->bytes -=
            k->capacity; /* a spare is too small for an unusually large entry, which takes its place */
        chunk_free(CW_STEAL(k));
    }
    if (!k) {
        *ret_full = q->bytes + capacity > q->limit;
        if (*ret_full || !(k = chunk_new(capacity)))
            return NULL;
        q->bytes += capacity;
    }
    *k = (struct cw_cache_chunk){.capacity = k->capacity, .data = k->data, .since_ns = cw_now_ns()};
    return k;
}

void cw_cache_queue_push(struct cw_cache_queue *q, struct cw_cache_chunk *k)
{
    *q->tail = k;
    q->tail = &k->next;
}

struct cw_cache_chunk *cw_cache_queue_pop(struct cw_cache_queue *q)
{
    for (struct cw_cache_chunk **at = &q->head; *at; at = &(*at)->next)
        if (!(*at)->pending) {
            struct cw_cache_chunk *k = CW_POP(*at);
            if (!*at)
                q->tail = at;
            return k;
        }
    return NULL;
}

void cw_cache_queue_reuse(struct cw_cache_queue *q, struct cw_cache_chunk *k)
{
    k->next = q->spare;
    q->spare = k;
}

size_t cw_cache_chunk_entries(const struct cw_cache_chunk *k, uint64_t *ret_cost_us)
{
    size_t n = 0;
    *ret_cost_us = 0;
    for (size_t at = 0; at < k->used; n++) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        *ret_cost_us += e.cost_us;
        at += cw_cache_entry_bytes(e.stored);
    }
    return n;
}
