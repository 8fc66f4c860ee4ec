/* Converts batches and parts to messages, and back (docs/protocol.md). Messages come from another process, so
 * everything in them is checked: against the pipeline's output types, and against the memory that came with
 * the message. Workers write, clients read. Any thread. */
#pragma once
#include <sys/uio.h>

#include "engine/part.h"
#include "proto/cachew.pb-c.h"

struct cw_memory {
    uint8_t *data;
    size_t size;
};

/* A batch to be sent. The message points into this struct and into the batch. */
struct cw_wire_batch {
    Cachew__Batch message;
    /* the payload, unless the components are sent in slabs: components at multiples of 64 bytes */
    struct iovec *pieces;
    size_t n_pieces;
    void *memory; /* memory of the message; the caller frees it when the message is sent */
};

/* Makes the message for a batch. in_slabs: components are described by their offsets in b->slabs (numbered
 * without those that are NULL), and there is no payload; the caller fills in message.slabs. */
int cw_wire_batch_write(const struct cw_batch *b, const struct cw_quarantined *q, bool in_slabs,
                        struct cw_wire_batch *ret, struct cw_error *err) _must_check_;
/* Makes a batch from its message. memory: one for each slab, or memory[0] is the payload. *b gets new
 * components and ids; its data stay in `memory`, and it has no slabs. CW_E_SERVICE: the message is not a
 * valid batch of this pipeline. */
int cw_wire_batch_read(const Cachew__Batch *m, const struct cw_compiled *c, const struct cw_memory memory[2],
                       struct cw_batch *b, struct cw_quarantined **ret_quarantined,
                       struct cw_error *err) _must_check_;

/* A part to be sent. The payload is the part's data. */
struct cw_wire_part {
    Cachew__Part message;
    void *memory; /* memory of the message; the caller frees it when the message is sent */
};

int cw_wire_part_write(const struct cw_part *r, struct cw_wire_part *ret, struct cw_error *err) _must_check_;
/* Makes a part from its message; copies the payload. cw_part_join later checks that the rows fit the
 * pipeline. */
int cw_wire_part_read(const Cachew__Part *m, const void *payload, size_t size, const struct cw_compiled *c,
                      struct cw_part *ret, struct cw_error *err) _must_check_;
