/* A batch: what a client receives. Its components lie in slabs, which the batch owns. */
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
    size_t size;             /* bytes of data */
    const uint64_t *lengths; /* for bytes: the length of each string; else NULL */
};

struct cw_batch {
    uint64_t epoch, g;    /* g: number of the batch in the epoch */
    uint64_t index;       /* on a worker: number of the batch, or of its first element, within its range */
    uint32_t n;           /* number of records */
    uint32_t flags;       /* enum cw_record_flag that hold for the whole batch */
    bool leading;         /* components have the leading (batch) dimension */
    size_t padding_bytes; /* bytes of the components that are padding; 0 after operators on batches */
    unsigned n_components;
    struct cw_batch_component *components; /* in byte order of names */
    struct cw_record_id *ids;              /* by row: n entries */
    struct cw_slab *slabs[2];
    void *memory;  /* owned. Of a copy: its memory. In a client: the loan of the shared memory it lies in */
    bool disowned; /* its slabs are not charged to the budget (cw_batch_disown) */
};

/* Frees a batch and gives its slabs back. */
void cw_batch_free(struct cw_batch *b);
/* Marks the batch as handed to the user: its slabs are no longer charged to the budget (cw_slab_disown). */
void cw_batch_disown(struct cw_batch *b);
/* Makes a copy that has its own memory and no slabs. */
int cw_batch_copy(const struct cw_batch *b, struct cw_batch **ret, struct cw_error *err) _must_check_;

/* Returns the hash of a batch: the XXH3 128-bit hash of (epoch, g, n, then per component len(name), name,
 * len(dtype), dtype, ndim, dims, data). */
struct cw_hash128 cw_batch_hash(const struct cw_batch *b);

/* An iteration over the rows of a batch; the caller sets b. */
struct cw_batch_rows {
    const struct cw_batch *b;
    uint32_t next;                /* number of the next row */
    size_t at[CW_MAX_COMPONENTS]; /* by component: where its value begins in the data */
};

/* Stores the values of the next row, by component and without the batch dimension, in values. False: there is
 * no further row. */
bool cw_batch_next_row(struct cw_batch_rows *rows, struct cw_tensor *values) _must_check_;
/* Returns the hash of a record, given its values. It is computed as for a batch with n = 1, but without
 * epoch, g and the batch dimension. */
struct cw_hash128 cw_batch_row_hash(const struct cw_batch *b, const struct cw_tensor *values);
/* Returns the sum over the records of their hashes. */
struct cw_hash128 cw_batch_set_hash(const struct cw_batch *b);
