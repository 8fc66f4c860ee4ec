/* The queue of chunks, and their memory. */
#include "cache/queue.h"

#include <sys/mman.h>

#include "base/clock.h"
#include "cache/format.h"

/* Bytes written at a time: one large page of memory. Writing from small pages takes the kernel several times
 * the CPU time, and the kernel's time is most of the cost of keeping entries. */
#define CHUNK_BYTES ((size_t)2 << 20)

void cw_cache_queue_init(struct cw_cache_queue *q, size_t limit)
{
    *q = (struct cw_cache_queue){.limit = limit};
    cw_list_init(&q->full);
    cw_list_init(&q->spares);
}

static void chunk_free(struct cw_cache_chunk *k)
{
    free(k->data);
    free(k);
}

void cw_cache_queue_deinit(struct cw_cache_queue *q)
{
    CW_LIST_EACH_OF (k, struct cw_cache_chunk, link, &q->spares)
        chunk_free(k);
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
    while (!cw_list_empty(&q->spares) && !k) {
        k = CW_CONTAINER(q->spares.prev, struct cw_cache_chunk, link);
        cw_link_out(&k->link);
        if (k->capacity >= capacity)
            break;
        q->bytes -=
            k->capacity; /* the spare is too small for an unusually large entry: its memory is given up */
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

struct cw_cache_chunk *cw_cache_queue_pop(struct cw_cache_queue *q)
{
    CW_LIST_EACH_OF (k, struct cw_cache_chunk, link, &q->full)
        if (!k->pending) {
            cw_link_out(&k->link);
            return k;
        }
    return NULL;
}
