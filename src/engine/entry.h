/*
 * A place in an epoch between two records, and what waits there: all that the result behind it depends on. It
 * says nothing of ranges or threads, so any iterator can go on from it.
 */
#pragma once
#include "pipeline/program.h"

/* Elements that arrived at a `take` or `skip` that counts, in the pass of the repeats that it is in. */
struct cw_limit_count {
    bool started;
    uint64_t pass, count;
};

struct cw_entry {
    /* of the first record that is to be run; where batches follow from positions: a multiple of the batch
     * size, or the end */
    uint64_t position;
    /* [cw_n_keys], by key: the first elements from `position` on that are in earlier batches; NULL: none */
    uint64_t *skip;
    struct cw_limit_count *limits; /* [n_limits]: before `position`; NULL: nothing arrived yet */
};

/* Keys that batches are filled by: buckets, or 1. 0: batches follow from positions. */
static inline unsigned cw_n_keys(const struct cw_compiled *c)
{
    return c->counted ? 0 : CW_MAX(c->n_buckets, 1u);
}

/* Elements of a full batch of a key. */
static inline uint64_t cw_key_size(const struct cw_compiled *c, unsigned key)
{
    return c->n_buckets ? c->bucket_sizes[key] : 1;
}

/* The beginning of an epoch, with room for everything. */
int cw_entry_init(const struct cw_compiled *c, struct cw_entry *e, struct cw_error *err) _must_check_;
void cw_entry_deinit(struct cw_entry *e);
/* The same in one block of memory, which free() frees. NULL: out of memory. */
struct cw_entry *cw_entry_new(const struct cw_compiled *c);
/* *to, which has room, becomes a copy of *from (NULL: the beginning of an epoch). */
void cw_entry_set(const struct cw_compiled *c, struct cw_entry *to, const struct cw_entry *from);
bool cw_entry_is_begin(const struct cw_compiled *c, const struct cw_entry *e);
