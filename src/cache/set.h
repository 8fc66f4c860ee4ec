/*
 * A set: all entries that were made by the same computation. Any thread may use its index and its references;
 * only the store's thread uses its directory and the segment that is being written.
 */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "cache/index.h"
#include "cache/monitor.h"
#include "cache/pack.h"
#include "cache/writer.h"

#define CW_CACHE_PROFILE_BYTES ((size_t)4 << 10) /* bytes that are read of a set's profile.json */

struct cw_cache_set {
    struct cw_cache *cache;
    struct cw_hash128 key;
    char name[33]; /* of its directory: the key in hex digits */
    char *meta;    /* JSON for people */
    struct cw_cache_index index;
    /* guarded by the cache's mutex: */
    struct cw_link link; /* in the cache's list */
    /* references: one per user, one per chunk with entries of the set, and one of the store's thread */
    unsigned refs;
    struct cw_cache_chunk *current; /* the chunk that entries are put into; NULL: none */
    char *profile;                  /* read from the directory, or put by a user since; NULL: none. Owned */
    bool profile_changed;           /* the profile must be written to the directory */
    bool tried;                     /* opening the set has succeeded or failed at least once */
    /* the store's thread only: */
    int dir_fd;                      /* -1: the set is not open */
    int used_fd;                     /* of CW_CACHE_USED, locked shared; -1: none */
    struct cw_map names;             /* of published segments */
    int64_t scanned_mtime_ns;        /* modification time of the directory when it was last listed */
    struct cw_cache_backoff backoff; /* after trouble with the directory */
    uint64_t opened_ns;              /* when the set was made, by cw_now_ns */
    uint64_t touched_ns;             /* when the time of the file `used` was last updated, by cw_now_ns */
    struct cw_cache_writing writing;
    struct cw_cache_packing packing;
};

/* Makes a set with one reference. NULL: out of memory. */
struct cw_cache_set *cw_cache_set_new(struct cw_cache *c, struct cw_hash128 key, const char *meta,
                                      struct cw_error *err);
/* Called by the store's thread, once no other thread refers to the set. */
void cw_cache_set_free(struct cw_cache_set *s);

/* ---- set_dir.c: the store's thread ---- */

/* Makes and opens the set's directory, marks it as used, and lists its segments. 0, or a negative errno. */
int cw_cache_set_enter(struct cw_cache_set *s) _must_check_;
/* Looks for segments that other processes published or removed since the last scan. */
void cw_cache_set_scan(struct cw_cache_set *s);
/* Adds a published segment to s->names, so that a scan does not load it again. */
void cw_cache_set_name_segment(struct cw_cache_set *s, struct cw_cache_segment *g);
/* Writes the profile to the directory if it changed. */
void cw_cache_set_write_profile(struct cw_cache_set *s);
