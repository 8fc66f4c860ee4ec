/*
 * Cache statistics. A variant is a way to run the pipeline: without a cache point, or with a certain one.
 * This file measures what each variant takes and chooses the variant of each block. With options.adaptive, at
 * most 1/64 of the time goes to probes: blocks that run under a variant that is not in use, so that its speed
 * stays known when conditions change. Rows that take longer to read than to compute are computed, and so are
 * rows whose storage is too busy.
 */
#pragma once
#include "engine/runner.h"
#include "exec/cached.h"

struct block;
struct piece;

/* Recent costs of positions: sums, which are halved now and then, so that older costs count less. */
struct pace {
    double rows, ns;  /* rows, and the time of compute threads for them */
    double cold_ns;   /* time of storage for all reads together: while at least one read thread was reading */
    double prefix_ns; /* part of ns that was spent before the cache point */
};

/* The runner's mutex guards all but the first two fields, which are immutable. */
struct cache_variant {
    /* number of the cache point, CW_CACHE_POINT_AUTO or CW_CACHE_POINT_NONE */
    int64_t number;
    struct cw_exec_variant *programs; /* by leaf */
    struct pace computed, hit;
    double content_rows, content_bytes;
    uint64_t epoch;       /* the epoch that is being planned; the next three are about it */
    double looked, found; /* positions that were looked up recently, and those of them that the cache has */
    uint64_t n_kept;      /* positions written to the cache */
    /* share of the previous epoch's positions that the cache had, 0 to 1; negative: not known */
    double found_before;
    /* probed: a probe has run; probed_reading: a probe has run since the cache has something to read; stored:
     * measured by an earlier run */
    bool probed, probed_reading, stored;
    bool stale; /* a probe begins: earlier measurements are dropped as soon as there is a new one */
};

struct cw_cache_variants {
    struct cache_variant *variants; /* variant 0 uses no cache point */
    unsigned n;
    atomic_uint in_use;        /* the variant of pieces that are planned from now on */
    unsigned probing;          /* the variant of the last probe */
    unsigned probe_left;       /* blocks of the probe that are still to be carved */
    unsigned n_probes;         /* the probe's blocks that are carved and not done */
    double probe_ns, spent_ns; /* time of compute threads and storage: for probes, and for all blocks */
    uint64_t busy_ns;          /* time of compute threads for blocks that are done */
    /* positions of the blocks that are done; positions among them that were read from the cache */
    uint64_t n_done, n_cached;
};

/* Makes the variants, and reads the measurements of earlier runs. Before threads start. */
int cw_cache_stats_new(struct cw_runner *r, struct cw_error *err) _must_check_;
/* Stores the measurements for later runs, and frees everything. */
void cw_cache_stats_free(struct cw_runner *r);

/* Chooses the variant of block b, and whether it uses the cache. The block begins at the first position of p
 * that is not carved. Mutex held, also for the next three. */
void cw_cache_stats_choose(struct cw_runner *r, struct block *b, const struct piece *p);
/* Returns how long, in ns, it is worth waiting for the block's rows from the cache. */
uint64_t cw_cache_stats_patience(const struct cw_runner *r, const struct block *b);
/* Adds the costs of a block that is done. */
void cw_cache_stats_measured(struct cw_runner *r, const struct block *b);
/* Counts positions of an epoch that were looked up in the cache under a variant, and those that were
 * found. */
void cw_cache_variant_looked(struct cache_variant *v, uint64_t epoch, uint64_t looked, uint64_t found);
/* Sets the costs that earlier runs measured, for v and for running without a cache point (none), from JSON.
 * text NULL: does nothing. */
void cw_cache_variant_recall(struct cache_variant *none, struct cache_variant *v, const char *text);
