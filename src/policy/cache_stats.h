/*
 * Statistics of cache points: what a process measured of each cache variant, that is, of using one of the
 * cache points or none. The engine fills them in, and a worker's heartbeat carries them. The dispatcher and
 * session/autocache.c sum them over processes into the facts for a policy. A position is an element of the
 * sequence, before filters. No locks: callers own all structs.
 */
#pragma once
#include "policy/policy.h"

#define CW_CACHE_POINT_NAME 64
#define CW_CACHE_VARIANTS (CW_POLICY_CACHE_POINTS + 1)

/* Times are recent means, in seconds per position: the time of one thread divided by the number of threads.
 * They include the present load of the storage. */
struct cw_cache_variant_stats {
    /* as in the message Prepare: 1 + the cache point's number; -1: no cache point; 0: the cache points of all
     * sources, where these are not told apart */
    int32_t cache_point;
    char name[CW_CACHE_POINT_NAME];
    /* to compute a position: the time of threads or of storage, whichever is longer; 0: not known */
    double compute_s;
    /* to read a position: the time of threads, and at the same time that of the cache's storage */
    double read_s, store_s;
    /* read_s and store_s were measured; else read_s follows from compute_s, and store_s is not known */
    bool was_read;
    bool stored;    /* an earlier run measured it */
    bool unread;    /* in use, but cached elements are recomputed, because that is faster */
    double bytes;   /* of a position in the cache */
    double cached;  /* part of the epoch that can be read from the cache */
    double written; /* part of an epoch that this epoch has added */
};

struct cw_cache_stats {
    int32_t cache_point; /* in use, as in the message Prepare */
    size_t n;            /* variants; less than 2: there is no choice */
    /* the first: no cache point; then the usable cache points, in the order of their numbers */
    struct cw_cache_variant_stats variants[CW_CACHE_VARIANTS];
};

/* Returns the seconds to compute a position: without a cache point, or else of the first variant for which
 * the time is known; 0: it is known for no variant. */
double cw_cache_compute_s(const struct cw_cache_stats *s);
/* Whether reading takes so much longer than computing that cached elements are to be recomputed. n_read,
 * n_computed: number of positions whose mean times are read_s and compute_s. If few were read, the difference
 * must be larger. */
bool cw_cache_is_slow(double n_read, double read_s, double n_computed, double compute_s);

/* Sums over several processes (workers) of their measurements of one cache point. */
struct cw_cache_sum {
    double workers, bytes, cached, written, unread; /* processes; sums of cw_cache_variant_stats fields */
    double known, saved_s;           /* processes that know how much time reading saves; sum of it */
    double computing, compute_s;     /* processes that know their computing time; sum of it */
    double reading, read_s, store_s; /* processes that measured reading; sums of their times */
    double stored, speed;            /* processes that read from storage; sum of their bytes per second */
};

/* Adds the measurements of a process. sums: one entry for each cache point of `first`, in its order. */
void cw_cache_sums_add(struct cw_cache_sum *sums, const struct cw_cache_stats *first,
                       const struct cw_cache_stats *s);
/* Sets f->cache_points to `points` and fills them in, and sets f->cache_point, the index of the cache point
 * in use. in_use: as in the message Prepare. per_batch: positions per batch. Names are those of `first`, and
 * are not copied. If elements were read from the cache, their speed replaces f->storage.read_bytes_per_s. */
void cw_cache_facts_of(const struct cw_cache_stats *first, const struct cw_cache_sum *sums, int32_t in_use,
                       double per_batch, struct cw_facts *f, struct cw_cache_point_facts *points);
