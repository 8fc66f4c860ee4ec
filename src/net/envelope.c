/* Unpacks messages by protobuf-c with an allocator that takes its memory from a few large blocks, up to a
 * limit. This is fast and bounded, and all memory of a message is freed together. */
#include "net/envelope.h"

#include <stdalign.h>
#include <string.h>

/* bytes of the first block, including struct cw_envelope_block; most messages fit in it */
#define BLOCK_MIN ((size_t)2048)

struct cw_envelope_block {
    struct cw_envelope_block *next;
    size_t used, size; /* bytes of `data`, without this header */
    alignas(max_align_t) uint8_t data[];
};

static void *envelope_alloc(void *arg, size_t size)
{
    struct cw_envelope_memory *m = arg;
    struct cw_envelope_block *b = m->blocks;
    /* The limit counts the bytes of all allocations of a message, rounded up for alignment. Headers of
     * blocks, and what is unused in them, are not counted. */
    if (size > m->limit || m->used + size + alignof(max_align_t) > m->limit) {
        m->refused = true;
        return NULL;
    }
    size = CW_ALIGN_UP(CW_MAX(size, 1), alignof(max_align_t));
    if (!b || b->size - b->used < size) {
        size_t room = CW_MAX(size, b ? CW_MIN(b->size * 2, (size_t)1 << 20) : BLOCK_MIN - sizeof(*b));
        b = malloc(sizeof(*b) + room);
        if (!b) {
            m->exhausted = true;
            return NULL;
        }
        *b = (struct cw_envelope_block){.next = m->blocks, .size = room};
        m->blocks = b;
    }
    void *p = b->data + b->used;
    b->used += size;
    m->used += size;
    return p;
}

static void envelope_no_free(void *arg CW_UNUSED, void *p CW_UNUSED)
{
}

int cw_envelope_read(struct cw_envelope_memory *memory, size_t limit, const uint8_t *data, size_t size,
                     const Cachew__Envelope **ret, struct cw_error *err)
{
    ProtobufCAllocator allocator = {
        .alloc = envelope_alloc, .free = envelope_no_free, .allocator_data = memory};
    memory->limit = limit;
    const Cachew__Envelope *e = cachew__envelope__unpack(&allocator, size, data);
    if (e) {
        *ret = e;
        return 0;
    }
    if (memory->exhausted)
        return cw_error_nomem(err, size, "a message");
    if (memory->refused)
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side sent a message of %zu bytes that would take more than %zu bytes "
                            "of memory here" CW_OTHER_VERSION,
                            size, limit);
    return cw_error_set(err, CW_E_SERVICE,
                        "the other side sent a message of %zu bytes that can't be decoded" CW_OTHER_VERSION,
                        size);
}

void cw_envelope_clear(struct cw_envelope_memory *m)
{
    /* Frees all blocks but the oldest, which is the last of the list. Frees that one, too, if it was made
     * larger than usual for a large allocation. */
    while (m->blocks && (m->blocks->next || m->blocks->size > BLOCK_MIN))
        free(CW_POP(m->blocks));
    if (m->blocks)
        m->blocks->used = 0;
    m->used = 0;
    m->refused = m->exhausted = false;
}

void cw_envelope_deinit(struct cw_envelope_memory *m)
{
    cw_envelope_clear(m);
    free(m->blocks);
    m->blocks = NULL;
}
