/*
 * Batches, remnants and what was quarantined as messages, and back (docs/protocol.md). Both directions lie here, so that they fit each other. Pure
 * functions, any thread. What comes from a peer is checked to the last byte before anything points to it.
 */
#pragma once
#include <stdint.h>
#include <sys/uio.h>

#include "engine/remnant.h"
#include "proto/cachew.pb-c.h"

#define CW_WIRE_ID 32     /* bytes of a record id */
#define CW_WIRE_ALIGN 64  /* components begin at multiples of it */

/* A message that was put together, and the payload that belongs to it: both point into what they were made from, which must outlive them. */
struct cw_wire {
    union {
        Cachew__Batch batch;
        Cachew__Remnant remnant;
    };
    struct iovec *payload;
    size_t n_payload, payload_bytes;
    void *memory; /* of all that is not borrowed */
};
void cw_wire_deinit(struct cw_wire *w);

/* slabs: one for each slab of the batch, which says where it lies; NULL: components become the payload. */
int cw_wire_batch_pack(const struct cw_batch *b, const struct cw_quarantined *quarantined, const Cachew__Slab *slabs, struct cw_wire *ret,
                       struct cw_error *err) _must_check_;

/* Where components lie: the payload, or the slabs of a message, as they are mapped. */
struct cw_wire_memory {
    void *data; /* aligned to CW_WIRE_ALIGN */
    size_t size;
};
/* A batch of this pipeline, pointing into the n_memory (1 or 2) pieces, which stay the caller's; g is 0. CW_E_DATA: not what the pipeline makes. */
int cw_wire_batch_unpack(const Cachew__Batch *m, const struct cw_compiled *c, const struct cw_wire_memory *memory, size_t n_memory, struct cw_batch **ret,
                         struct cw_quarantined **ret_quarantined, struct cw_error *err) _must_check_;

/* Elements from .. from + n - 1 of m (which begins with element 0 of the remnant), whose bytes are data[begin, end). Quarantined go with the last element. */
int cw_wire_remnant_pack(const struct cw_remnant *m, uint64_t from, uint64_t n, size_t begin, size_t end, struct cw_wire *ret, struct cw_error *err) _must_check_;
/* Takes payload over (malloc), in case of error too. What the elements are is checked when they are joined. */
int cw_wire_remnant_unpack(const Cachew__Remnant *m, const struct cw_compiled *c, void *payload, size_t size, struct cw_remnant *ret,
                           struct cw_error *err) _must_check_;
