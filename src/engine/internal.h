/*
 * The runner, with the data that its modules share. It has three kinds of threads: compute threads
 * (compute.c) plan pieces, carve blocks and run them; read threads fetch the bytes of blocks that are not in
 * memory; the consumer, the caller's thread, takes batches. sched.mutex guards all data that they share. A
 * running block belongs to its thread alone.
 */
#pragma once
#include "engine/block.h"
#include "engine/block_size.h"
#include "engine/cache_stats.h"
#include "engine/memory.h"
#include "engine/piece.h"
#include "engine/range.h"
#include "engine/read_in.h"
#include "engine/reads.h"
#include "engine/runner.h"
#include "engine/sched.h"
#include "engine/width.h"

struct cw_runner {
    /* immutable after cw_runner_new: */
    const struct cw_sequence *sequence;
    const struct cw_compiled *compiled;
    struct cw_runner_options options;
    struct cw_layout layout;
    struct cw_exec_env env;
    uint64_t started_ns;
    /* guarded by sched.mutex: */
    struct cw_range *ranges; /* in the order of (epoch, begin) */
    struct epoch_ref *epoch; /* the epoch of the range opened last */
    /* [2 * leaf]: for blocks that are computed; [2 * leaf + 1]: for blocks read from the cache */
    struct block_size *block_sizes;
    struct cw_sched sched;
    struct cw_width width;
    struct cw_memory memory;
    struct cw_reads reads;
    struct cw_read_in read_in;
    struct cw_cache_variants cache;
    struct cw_profile profile;
    struct cw_tuned_log tuned; /* tuning records */
};

/* Returns how the program of a leaf runs under a cache variant. */
static inline const struct cw_exec_variant *cw_runner_variant(const struct cw_runner *r, unsigned variant,
                                                              unsigned leaf)
{
    return &r->cache.variants[variant].programs[leaf];
}

static inline struct cw_place cw_range_place(const struct cw_range *s, uint64_t position)
{
    return (struct cw_place){s->epoch->epoch.seed, s->epoch->epoch.epoch, position};
}

/* Frees a batch that was under way. a may be NULL. Mutex held. */
static inline void cw_memory_drop_assembly(struct cw_runner *r, struct cw_assembly *a)
{
    r->memory.n_assemblies -= a != NULL;
    cw_assembly_free(a);
}

/* Returns where the rows of a batch from slot0 on are written. */
static inline struct cw_exec_dest cw_assembly_dest(const struct cw_assembly *a, uint64_t slot0)
{
    return (struct cw_exec_dest){.offset = a->layout->offset,
                                 .row_bytes = a->layout->row_bytes,
                                 .data = a->slab ? a->slab->data : NULL,
                                 .slot0 = slot0};
}
