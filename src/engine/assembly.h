/*
 * A batch under construction. Rows get their slots in order; their contents are written in any order, from
 * any thread, components of fixed type straight into the slab. Complete when closed and every row given out
 * is done.
 */
#pragma once
#include "data/batch.h"
#include "pipeline/program.h"

/* Where components of fixed type lie in a batch's first slab, for a full batch. Immutable. */
struct cw_layout {
    const struct cw_compiled *compiled;
    struct cw_budget *budget;
    uint64_t capacity;
    unsigned n;
    size_t *offset; /* by output component; SIZE_MAX: staged, because its size varies */
    size_t *row_bytes;
    size_t slab_bytes; /* 0: nothing is fixed */
    unsigned n_staged;
    bool leading;
};

int cw_layout_init(struct cw_layout *l, const struct cw_compiled *c, struct cw_budget *budget,
                   struct cw_error *err) _must_check_;
void cw_layout_deinit(struct cw_layout *l);

struct cw_entry;

struct cw_quarantined { /* a record that was skipped or replaced, or that there is a note about */
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
    uint64_t n_assigned; /* guarded by the runner's mutex, like the next four */
    uint64_t n_done;
    bool closed;    /* no more rows will be given out */
    bool finishing; /* a thread is at it */
    bool part;      /* other ranges have the batch's other rows: it is not finished, its rows are read */
    struct cw_error *error; /* instead of a batch: the first by error_at */
    uint64_t error_at;
    struct cw_quarantined *quarantined;
    bool compacted;  /* while it is finished: holes are closed, */
    uint64_t n_rows; /* and so many rows are left */
    struct cw_slab *slab;
    struct cw_record_id *ids;       /* by slot; each written by one thread */
    uint8_t *present;               /* by slot: 0 where the record was skipped */
    struct cw_tensor *staged;       /* [n_staged][capacity] */
    struct cw_staged_chunk *chunks; /* guarded by the runner's mutex */
    struct cw_entry *from;          /* owned: the entry before its first element; NULL: not needed */
    /* ready before its turn: batches of the epoch before it that are still to come; 0: it is the next one */
    uint64_t n_before;
    bool lost; /* at-most-once: the next one, which is left out */
    /* owned: the entry behind this batch; NULL: not known, or batches follow from positions */
    struct cw_entry *after;
    struct cw_batch *batch;     /* once finished, */
    unsigned n_applied;         /* and so many operators on batches were applied */
    struct cw_batch_call *call; /* of the next one of them (batch_ops.h); NULL: none is under way */
    size_t charged;             /* for ids, present, staged, from and after */
};

/* Every row is there, and no more will come. Mutex held. */
static inline bool cw_assembly_complete(const struct cw_assembly *a)
{
    return a->closed && a->n_done == a->n_assigned;
}

/* What an assembly takes beside its slab and staged values: it grows with the batch. */
size_t cw_assembly_bytes(const struct cw_layout *l, uint64_t capacity);
/* Takes the slab. CW_E_BUDGET when there is none now. */
int cw_assembly_new(const struct cw_layout *l, struct cw_slab_pool *pool, uint64_t capacity, unsigned bucket,
                    struct cw_assembly **ret, struct cw_error *err) _must_check_;
struct cw_assembly *cw_assembly_free(struct cw_assembly *a);
/* Keeps the error that stands first. */
void cw_assembly_poison(struct cw_assembly *a, const struct cw_error *error, uint64_t at);

/* Rows on their way into slots: for each component that is staged, memory of its own, attached later by
 * cw_assembly_attach. */
struct cw_staged_chunk {
    struct cw_staged_chunk *next;
    size_t size;
    struct cw_budget *budget;
};

/* Copies component k of a row into its slot; staged ones into *at, which is moved on. */
void cw_assembly_put(struct cw_assembly *a, unsigned k, uint64_t slot, const struct cw_tensor *value,
                     uint8_t **at);
/* Component k of a row that is there, where it lies; NULL data where it has no bytes. */
void cw_assembly_row(const struct cw_assembly *a, unsigned k, uint64_t slot, struct cw_tensor *ret);
int cw_staged_chunk_new(struct cw_budget *budget, size_t bytes, struct cw_staged_chunk **ret,
                        uint8_t **ret_data, struct cw_error *err) _must_check_;
/* Adds a chunk to an assembly that no other thread sees; no bytes: none, and *ret stays as it is. */
int cw_assembly_add_chunk(struct cw_assembly *a, size_t bytes, uint8_t **ret,
                          struct cw_error *err) _must_check_;
/* Bytes that a value takes in a staged chunk. */
size_t cw_staged_bytes(const struct cw_tensor *value);

/* Moves n rows from slot `from` of src to the end of dst (place, id, contents). */
int cw_assembly_join(struct cw_assembly *dst, const struct cw_assembly *src, uint64_t from, uint64_t n,
                     struct cw_error *err) _must_check_;
/* Makes a->batch from the rows. CW_E_BUDGET: try again when there is memory. Other errors are the batch's. */
int cw_assembly_finish(struct cw_assembly *a, struct cw_slab_pool *pool, struct cw_error *err) _must_check_;
