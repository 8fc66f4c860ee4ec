/*
 * An entry: a place in an epoch between two records, and all that the batches after it depend on. It names no
 * range or thread, so any iterator can continue from it.
 */
#pragma once
#include "pipeline/program.h"

/* What a counting `take` or `skip` has counted in the present pass of the repeats before it. */
struct cw_limit_count {
    bool started;
    uint64_t pass, count;
};

struct cw_entry {
    /* the position from which the epoch is run; where batches follow from positions, it is a multiple of the
     * batch size, or the end of the epoch */
    uint64_t position;
    /* [cw_n_keys], by key: how many elements from `position` on are already in earlier batches, and are left
     * out; NULL: none */
    uint64_t *skip;
    /* [n_limits]: what each limit counted before `position`; NULL: nothing yet */
    struct cw_limit_count *limits;
    /* the earlier batches include this many of a group of this key (cw_grouping); 0: no group has begun */
    unsigned group_given, group_key;
};

/* Returns the number of keys: the number of buckets, or 1 without buckets. 0: batches follow from positions,
 * so entries need no keys. */
static inline unsigned cw_n_keys(const struct cw_compiled *c)
{
    return c->counted ? 0 : CW_MAX(c->n_buckets, 1u);
}

/* Returns the number of elements of a full batch of a key. */
static inline uint64_t cw_key_size(const struct cw_compiled *c, unsigned key)
{
    return c->n_buckets ? c->bucket_sizes[key] : 1;
}

/* Makes *e the entry at the beginning of an epoch, with room for all keys and limits. */
int cw_entry_init(const struct cw_compiled *c, struct cw_entry *e, struct cw_error *err) _must_check_;
void cw_entry_deinit(struct cw_entry *e);
/* Returns a new entry at the beginning of an epoch, in one allocation, which free() frees. NULL: out of
 * memory. */
struct cw_entry *cw_entry_new(const struct cw_compiled *c);
/* Makes *to, which must have room for all keys and limits, a copy of *from (NULL: the beginning of an
 * epoch). */
void cw_entry_set(const struct cw_compiled *c, struct cw_entry *to, const struct cw_entry *from);
/* Returns whether an entry is that at the beginning of an epoch. */
bool cw_entry_is_begin(const struct cw_compiled *c, const struct cw_entry *e);
