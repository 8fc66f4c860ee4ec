/*
 * Batches and parts as messages, and back (docs/protocol.md). What is read comes from another process:
 * everything in it is checked against what the pipeline makes, and against the memory that came with it. Any
 * thread.
 */
#pragma once
#include <sys/uio.h>

#include "engine/part.h"
#include "proto/cachew.pb-c.h"

struct cw_memory {
    uint8_t *data;
    size_t size;
};

/* A batch on its way out. message is what is sent; it borrows from this struct and from the batch. */
struct cw_wire_batch {
    Cachew__Batch message;
    /* the payload, where the components do not stay in their slabs: components at multiples of 64 bytes */
    struct iovec *pieces;
    size_t n_pieces;
    void *memory;
};

/* epoch and index are the batch's. in_slabs: components are named by their places in b->slabs (of the slabs
 * that are there), and there is no payload; the caller fills message.slabs in. */
int cw_wire_batch_write(const struct cw_batch *b, const struct cw_quarantined *q, bool in_slabs,
                        struct cw_wire_batch *ret, struct cw_error *err) _must_check_;
void cw_wire_batch_deinit(struct cw_wire_batch *w);
/* memory: by slab, or memory[0] the payload. *b has new components and ids, its data in the memory, and no
 * slabs; fills also *ret_quarantined. CW_E_SERVICE: it is not a batch of this pipeline. */
int cw_wire_batch_read(const Cachew__Batch *m, const struct cw_compiled *c, const struct cw_memory memory[2],
                       struct cw_batch *b, struct cw_quarantined **ret_quarantined,
                       struct cw_error *err) _must_check_;

/* A part on its way out: the payload is its data. */
struct cw_wire_part {
    Cachew__Part message;
    void *memory;
};

int cw_wire_part_write(const struct cw_part *r, struct cw_wire_part *ret, struct cw_error *err) _must_check_;
void cw_wire_part_deinit(struct cw_wire_part *w);
/* Copies; *ret is new. Whether the rows fit the pipeline, cw_part_join looks at. */
int cw_wire_part_read(const Cachew__Part *m, const void *payload, size_t size, const struct cw_compiled *c,
                      struct cw_part *ret, struct cw_error *err) _must_check_;
