/* Batches: what a client receives. Components lie in slabs, which a batch owns. */
#pragma once
#include "base/hash.h"
#include "data/block.h"
#include "data/slab.h"

struct cw_batch_component {
    const char *name; /* borrowed from the pipeline */
    enum cw_dtype dtype;
    int ndim;
    int64_t dims[CW_MAX_NDIM + 1];
    void *data;              /* C-contiguous; bytes: all strings one after the other */
    size_t size;             /* of data, in bytes */
    const uint64_t *lengths; /* bytes: one per string; else NULL */
};

struct cw_batch {
    uint64_t epoch, g;
    uint64_t index; /* on a worker: its number in its range, or that of its first element */
    uint32_t n;     /* records */
    uint32_t flags; /* enum cw_record_flag that hold for the whole batch */
    bool leading;   /* components have the batch dimension */
    unsigned n_components;
    struct cw_batch_component *components; /* in byte order of names */
    struct cw_record_id *ids;              /* n */
    struct cw_slab *slabs[2];
    void *memory;  /* of a copy; in a client: the loan of the memory that it lies in. Owned */
    bool disowned; /* its slabs are not in the budget */
};

void cw_batch_free(struct cw_batch *b);
/* It is a user's from now on (cw_slab_disown). */
void cw_batch_disown(struct cw_batch *b);
/* A copy in memory of its own, without slabs. */
int cw_batch_copy(const struct cw_batch *b, struct cw_batch **ret, struct cw_error *err) _must_check_;

/* `hash` of interface: H(epoch, g, n, then per component len(name), name, len(dtype), dtype, ndim, dims,
 * data). */
struct cw_hash128 cw_batch_hash(const struct cw_batch *b);
/* Sum over the records of the same without epoch and g, n = 1, and without the batch dimension. */
struct cw_hash128 cw_batch_set_hash(const struct cw_batch *b);
