/*
 * A batch under construction. Rows get their slots in order; any thread then writes their contents, in any
 * order. Components of fixed size go straight into the slab; values of varying size are staged (kept in other
 * memory until the batch is finished). A batch is complete when it is closed and every row that has a slot is
 * done.
 */
#pragma once
#include "data/batch.h"
#include "pipeline/program.h"

/* Where components of fixed size lie in the slab of a full batch. Immutable. */
struct cw_layout {
    const struct cw_compiled *compiled;
    struct cw_budget *budget;
    uint64_t capacity;
    unsigned n;
    /* by output component: bytes from the slab's begin; SIZE_MAX: staged, because its size varies */
    size_t *offset;
    size_t *row_bytes;
    size_t slab_bytes; /* 0: no component has a fixed size */
    unsigned n_staged;
    bool leading;
};

int cw_layout_init(struct cw_layout *l, const struct cw_compiled *c, struct cw_budget *budget,
                   struct cw_error *err) _must_check_;
void cw_layout_deinit(struct cw_layout *l);

struct cw_entry;

struct cw_quarantined { /* a record that was skipped or replaced, or a note about a record */
    struct cw_quarantined *next;
    struct cw_record_id id;
    const char *op; /* static */
    char *file;     /* may be NULL */
    bool note, replaced;
    struct cw_record_id by;
    char message[400];
};

struct cw_quarantined *cw_quarantined_free(struct cw_quarantined *list);
/* Moves a list to the end of another. */
void cw_quarantined_move(struct cw_quarantined **from, struct cw_quarantined **to);

struct cw_assembly {
    struct cw_assembly *next; /* in the order of delivery */
    const struct cw_layout *layout;
    uint64_t capacity;
    unsigned bucket;
    uint64_t n_assigned; /* slots given out; the runner's mutex guards this and the next four */
    uint64_t n_done;
    bool closed;    /* no more slots will be given out */
    bool finishing; /* a thread finishes it at the moment */
    /* true: other ranges have the other rows of this batch, so it is not finished here; its rows are sent to
     * the client */
    bool part;
    struct cw_error *error; /* the error that takes the place of the batch: that with the smallest error_at */
    uint64_t error_at;
    struct cw_quarantined *quarantined;
    bool compacted;  /* finishing has closed the holes of skipped rows, */
    uint64_t n_rows; /* and n_rows rows are left */
    struct cw_slab *slab;
    struct cw_record_id *ids;       /* by slot; each written by one thread */
    uint8_t *present;               /* by slot: 0 where the record was skipped */
    struct cw_tensor *staged;       /* [n_staged][capacity] */
    struct cw_staged_chunk *chunks; /* guarded by the runner's mutex */
    struct cw_entry *from;          /* owned: the entry before the batch's first element; NULL: not needed */
    /* order any: the number of batches of the epoch before this one that are still to come; 0: this is the
     * next one */
    uint64_t n_before;
    bool lost; /* at-most-once: this batch is lost, and the iterator leaves it out */
    /* owned: the entry after this batch; NULL: not known, or batches follow from positions */
    struct cw_entry *after;
    struct cw_batch *batch;     /* once it is finished, */
    struct cw_tail *tail;       /* operators on elements that did not run on it yet (tail.h); NULL: none */
    unsigned n_applied;         /* and n_applied operators on batches were applied */
    struct cw_batch_call *call; /* the call of the next operator (batch_ops.h); NULL: none is under way */
    size_t charged;             /* bytes charged to the budget for ids, present, staged, from and after */
};

/* Returns whether all rows are done and no more will come. Mutex held. */
static inline bool cw_assembly_complete(const struct cw_assembly *a)
{
    return a->closed && a->n_done == a->n_assigned;
}

/* Returns the bytes that an assembly takes in addition to its slab and staged values. */
size_t cw_assembly_bytes(const struct cw_layout *l, uint64_t capacity);
/* Makes an assembly with its slab. CW_E_BUDGET: there is no memory for it now. */
int cw_assembly_new(const struct cw_layout *l, struct cw_slab_pool *pool, uint64_t capacity, unsigned bucket,
                    struct cw_assembly **ret, struct cw_error *err) _must_check_;
struct cw_assembly *cw_assembly_free(struct cw_assembly *a);
/* Sets the error of the batch, unless it has one from an earlier place. */
void cw_assembly_poison(struct cw_assembly *a, const struct cw_error *error, uint64_t at);

/* Memory for staged values, in addition to the slab; it belongs to the assembly that it is added to. */
struct cw_staged_chunk {
    struct cw_staged_chunk *next;
    size_t size;
    struct cw_budget *budget;
};

/* Copies component k of a row into its slot. A staged value goes to *at, which is then moved past it. */
void cw_assembly_put(struct cw_assembly *a, unsigned k, uint64_t slot, const struct cw_tensor *value,
                     uint8_t **at);
/* Sets *ret to component k of a row that was not skipped, without a copy. data is NULL if the value has no
 * bytes. */
void cw_assembly_row(const struct cw_assembly *a, unsigned k, uint64_t slot, struct cw_tensor *ret);
int cw_staged_chunk_new(struct cw_budget *budget, size_t bytes, struct cw_staged_chunk **ret,
                        uint8_t **ret_data, struct cw_error *err) _must_check_;
/* Adds a chunk to an assembly that no other thread uses, and sets *ret to its memory. bytes 0: does
 * nothing. */
int cw_assembly_add_chunk(struct cw_assembly *a, size_t bytes, uint8_t **ret,
                          struct cw_error *err) _must_check_;
/* Returns the bytes that a value takes in a staged chunk. */
size_t cw_staged_bytes(const struct cw_tensor *value);

/* Copies n rows (places, ids and contents) from slot `from` of src to the end of dst. */
int cw_assembly_join(struct cw_assembly *dst, const struct cw_assembly *src, uint64_t from, uint64_t n,
                     struct cw_error *err) _must_check_;
/* Makes a->batch from the rows. CW_E_BUDGET: try again when there is memory. Any other error becomes the
 * error of the batch. */
int cw_assembly_finish(struct cw_assembly *a, struct cw_slab_pool *pool, struct cw_error *err) _must_check_;
