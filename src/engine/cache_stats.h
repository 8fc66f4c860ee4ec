/*
 * Cache statistics: the variants (no cache point, or a certain one), what each takes as measured, and which
 * one a block runs under. With options.adaptive at most 1/64 of the time goes to probes of variants that are
 * not in use, so that it is known what they would give when conditions change. What takes longer to read than
 * to compute is computed, as is what storage is too far behind to read.
 */
#pragma once
#include "engine/runner.h"
#include "exec/cached.h"

struct block;
struct piece;

/* What positions took lately: sums, halved now and then. */
struct pace {
    double rows, ns;  /* of compute threads */
    double cold_ns;   /* of storage, for all reads together: time during which read threads were at it */
    double prefix_ns; /* of ns, up to the cache point */
};

/* Guarded by the runner's mutex, but for the first two, which are immutable. */
struct cache_variant {
    int64_t number;                   /* of the cache point, CW_CACHE_POINT_AUTO or CW_CACHE_POINT_NONE */
    struct cw_exec_variant *programs; /* by leaf */
    struct pace computed, hit;
    double content_rows, content_bytes;
    uint64_t epoch;       /* that is planned: */
    double looked, found; /* positions of it, lately, and those that the cache has */
    uint64_t n_kept;      /* of it, written to the cache */
    double found_before;  /* part of the epoch before it; negative: not known */
    /* probed_reading: since there was something to read; stored: by an earlier run */
    bool probed, probed_reading, stored;
    bool stale; /* a probe begins: what was measured before is forgotten, once there is something new */
};

struct cw_cache_variants {
    struct cache_variant *variants; /* the first uses no cache point */
    unsigned n;
    atomic_uint in_use;        /* for pieces that are planned from now on */
    unsigned probing;          /* the variant of the last probe */
    unsigned probe_left;       /* blocks of the probe that are still to be carved */
    unsigned n_probes;         /* its blocks that are carved, and not done */
    double probe_ns, spent_ns; /* of compute threads and storage: by probes, and by all blocks */
    uint64_t busy_ns;          /* of compute threads, by blocks that are done */
    uint64_t n_done, n_cached; /* positions of these blocks; of these, read from the cache */
};

int cw_cache_stats_new(struct cw_runner *r, struct cw_error *err) _must_check_;
/* Stores what was measured, for later runs. */
void cw_cache_stats_free(struct cw_runner *r);

/* Decides what block b, which begins at the first position of p that is not carved, does about the cache.
 * Mutex held, like the next three. */
void cw_cache_stats_choose(struct cw_runner *r, struct block *b, const struct piece *p);
/* Returns how long it is worth waiting for what the cache has of a block. */
uint64_t cw_cache_stats_patience(const struct cw_runner *r, const struct block *b);
/* Counts what a block took that is done. */
void cw_cache_stats_measured(struct cw_runner *r, const struct block *b);
/* Counts positions of an epoch that were looked up under a variant, and those that were found. */
void cw_cache_variant_looked(struct cache_variant *v, uint64_t epoch, uint64_t looked, uint64_t found);
/* Takes over what earlier runs measured of v, and of no cache point, from JSON; NULL: nothing. */
void cw_cache_variant_recall(struct cache_variant *none, struct cache_variant *v, const char *text);
