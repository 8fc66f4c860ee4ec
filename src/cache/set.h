/*
 * A set: the entries of one identity. Its index and references belong to any thread; its directory and the
 * segment that is being written belong to the store's thread.
 */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "cache/index.h"
#include "cache/monitor.h"
#include "cache/pack.h"
#include "cache/writer.h"

#define CW_CACHE_PROFILE_BYTES ((size_t)4 << 10)

struct cw_cache_set {
    struct cw_cache *cache;
    struct cw_hash128 key;
    char name[33]; /* of its directory: the key in hex digits */
    char *meta;    /* JSON for people */
    struct cw_cache_index index;
    /* guarded by the cache's mutex: */
    struct cw_link link; /* in the cache's list */
    unsigned refs;       /* by users, by chunks, and by the store's thread while there are others */
    struct cw_cache_chunk *current; /* that entries are put into; NULL: none */
    char *profile;                  /* as it was found in the directory, or as it is to be */
    bool profile_changed;           /* the profile is to be written */
    bool tried;                     /* opening the set has succeeded or failed */
    /* the store's thread only: */
    int dir_fd;               /* -1: the set is not open */
    int used_fd;              /* of CW_CACHE_USED, locked shared; -1: none */
    struct cw_map names;      /* of published segments */
    int64_t scanned_mtime_ns; /* of the directory, when it was listed last */
    struct cw_cache_backoff backoff;
    uint64_t opened_ns, touched_ns;
    struct cw_cache_writing writing;
    struct cw_cache_packing packing;
};

/* Makes a set with one reference. NULL: out of memory. */
struct cw_cache_set *cw_cache_set_new(struct cw_cache *c, struct cw_hash128 key, const char *meta,
                                      struct cw_error *err);
/* By the store's thread, once no other thread refers to the set. */
void cw_cache_set_free(struct cw_cache_set *s);

/* ---- set_dir.c: the store's thread ---- */

/* Makes and opens the set's directory, marks it as used, and lists its segments. 0, or a negative errno. */
int cw_cache_set_enter(struct cw_cache_set *s) _must_check_;
/* Looks for segments that other processes published or removed. */
void cw_cache_set_scan(struct cw_cache_set *s);
/* Enters a published segment into the names, so that a scan knows it. */
void cw_cache_set_name_segment(struct cw_cache_set *s, struct cw_cache_segment *g);
/* Writes the profile if it changed. */
void cw_cache_set_write_profile(struct cw_cache_set *s);
