/* Converts batches and parts (rows of a batch that lie in one range) to messages, and back
 * (docs/protocol.md). Messages come from another process, so reading checks a message against the pipeline's
 * output types and against the memory that came with it. Workers write messages, clients read them. Any
 * thread. */
#pragma once
#include <sys/uio.h>

#include "engine/part.h"
#include "proto/cachew.pb-c.h"

struct cw_memory {
    uint8_t *data;
    size_t size;
};

/* A batch to be sent. The message points into this struct, which must not be moved, and into the batch. */
struct cw_wire_batch {
    Cachew__Batch message;
    /* the payload: the components, each at a multiple of 64 bytes; unused if the batch is sent in slabs */
    struct iovec *pieces;
    size_t n_pieces;
    void *memory; /* memory of the message; the caller frees it when the message is sent */
};

/* Makes the message for a batch. in_slabs: the data stay in the batch's slabs (shared memory), and there is
 * no payload. The message gives the slab and offset of each component; slabs are numbered without those that
 * are NULL. The caller fills in message.slabs. */
int cw_wire_batch_write(const struct cw_batch *b, const struct cw_quarantined *q, bool in_slabs,
                        struct cw_wire_batch *ret, struct cw_error *err) _must_check_;
/* Makes a batch from its message. memory: if the message names slabs, the memory of each of them; else
 * memory[0] is the payload. *b gets new components and ids, which point into `memory`, and it has no slabs.
 * The caller owns *ret_quarantined. CW_E_SERVICE: the message is not a valid batch of this pipeline. */
int cw_wire_batch_read(const Cachew__Batch *m, const struct cw_compiled *c, const struct cw_memory memory[2],
                       struct cw_batch *b, struct cw_quarantined **ret_quarantined,
                       struct cw_error *err) _must_check_;

/* A part to be sent. The payload is the part's data. */
struct cw_wire_part {
    Cachew__Part message;
    void *memory; /* memory of the message; the caller frees it when the message is sent */
};

int cw_wire_part_write(const struct cw_part *r, struct cw_wire_part *ret, struct cw_error *err) _must_check_;
/* Makes a part from its message; copies the payload. The sizes of rows are not checked here, but by
 * cw_part_join, against the pipeline. */
int cw_wire_part_read(const Cachew__Part *m, const void *payload, size_t size, const struct cw_compiled *c,
                      struct cw_part *ret, struct cw_error *err) _must_check_;
