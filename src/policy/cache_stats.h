/*
 * Statistics of cache points: what a process measured of each way to use its cache. The engine fills them in,
 * a worker's heartbeat carries them, and the dispatcher and session/autocache.c sum them up into the facts
 * that a policy decides by.
 */
#pragma once
#include "policy/policy.h"

#define CW_CACHE_POINT_NAME 64
#define CW_CACHE_VARIANTS (CW_POLICY_CACHE_POINTS + 1)

/* Times are seconds of a position of the sequence, with all threads at it, as it was lately, storage as busy
 * as it is. */
struct cw_cache_variant_stats {
    /* as in Prepare: 1 + the cache point's number; -1: no cache point; 0: each source's own, where they are
     * not told apart */
    int32_t cache_point;
    char name[CW_CACHE_POINT_NAME];
    /* to compute it: threads' time or storage's, whichever is longer; 0: not known */
    double compute_s;
    double read_s, store_s; /* to read it: threads' time, and the cache storage's beside it */
    /* read_s and store_s were measured; else read_s follows from compute_s, and store_s is not known */
    bool was_read;
    bool stored;  /* an earlier run measured it */
    bool unread;  /* in use, but cached elements are recomputed, because that is faster */
    double bytes; /* in the cache */
    double cached,
        written; /* part of the epoch that the cache has; part of an epoch that was added in this one */
};

struct cw_cache_stats {
    int32_t cache_point; /* in use, as in Prepare */
    size_t n;            /* variants; less than 2: there is nothing to decide */
    /* the first: no cache point; then those that can be used, in the order of their numbers */
    struct cw_cache_variant_stats variants[CW_CACHE_VARIANTS];
};

/* Seconds to compute a position: without a cache point, or at the first one for which it is known; 0: for
 * none. */
double cw_cache_compute_s(const struct cw_cache_stats *s);
/* Whether reading takes so much longer than computing that cached elements are to be recomputed. n_read,
 * n_computed: positions that these times are of. While few were read the difference must be larger. */
bool cw_cache_is_slow(double n_read, double read_s, double n_computed, double compute_s);

/* What several processes measured of one cache point. Sums. */
struct cw_cache_sum {
    double workers, bytes, cached, written, unread;
    double known, saved_s;           /* processes that know what reading saves; the seconds */
    double computing, compute_s;     /* processes that know what computing takes; the seconds */
    double reading, read_s, store_s; /* processes that read; the seconds */
    double stored, speed;            /* of these, from storage; its bytes per second */
};

/* Adds what a process measured; sums: one for each cache point of `first`, in its order. */
void cw_cache_sums_add(struct cw_cache_sum *sums, const struct cw_cache_stats *first,
                       const struct cw_cache_stats *s);
/* Fills in f->cache_points, which is `points`, and which of them is in use. in_use: as in Prepare. The speed
 * of reading, which f->storage has by the cache's own measurement, is that of elements where these were read.
 * Names are those of `first`. */
void cw_cache_facts_of(const struct cw_cache_stats *first, const struct cw_cache_sum *sums, int32_t in_use,
                       double per_batch, struct cw_facts *f, struct cw_cache_point_facts *points);
