/*
 * Batches and parts as messages, and back (docs/protocol.md). Messages come from another process: everything
 * in them is checked against what the pipeline makes, and against the memory that came with it. Workers write
 * them, clients read them. Any thread.
 */
#pragma once
#include <sys/uio.h>

#include "engine/part.h"
#include "proto/cachew.pb-c.h"

struct cw_memory {
    uint8_t *data;
    size_t size;
};

/* A batch to be sent. The message borrows from this struct and from the batch. */
struct cw_wire_batch {
    Cachew__Batch message;
    /* the payload, where the components do not stay in their slabs: components at multiples of 64 bytes */
    struct iovec *pieces;
    size_t n_pieces;
    void *memory; /* of the message; the caller frees it once that was sent */
};

/* Makes the message of a batch. in_slabs: components are named by their places in b->slabs (numbered without
 * those that are NULL), and there is no payload; the caller fills message.slabs in. */
int cw_wire_batch_write(const struct cw_batch *b, const struct cw_quarantined *q, bool in_slabs,
                        struct cw_wire_batch *ret, struct cw_error *err) _must_check_;
/* Makes a batch from its message. memory: by slab, or memory[0] is the payload. *b has new components and
 * ids, its data lie in the memory, and it has no slabs. CW_E_SERVICE: it is no batch of this pipeline. */
int cw_wire_batch_read(const Cachew__Batch *m, const struct cw_compiled *c, const struct cw_memory memory[2],
                       struct cw_batch *b, struct cw_quarantined **ret_quarantined,
                       struct cw_error *err) _must_check_;

/* A part to be sent; the payload is its data. */
struct cw_wire_part {
    Cachew__Part message;
    void *memory; /* as above */
};

int cw_wire_part_write(const struct cw_part *r, struct cw_wire_part *ret, struct cw_error *err) _must_check_;
/* Makes a part from its message, as a copy. cw_part_join checks that the rows fit the pipeline. */
int cw_wire_part_read(const Cachew__Part *m, const void *payload, size_t size, const struct cw_compiled *c,
                      struct cw_part *ret, struct cw_error *err) _must_check_;
