/*
 * A cache directory from outside, for `cachew cache`: its sets are listed, verified, removed and pinned while
 * runs use it.
 */
#pragma once
#include "base/error.h"

#include <stddef.h>

struct cw_cache_listed {
    char key[33];
    char *path, *meta; /* meta: JSON text; NULL: it can't be read */
    uint64_t bytes, segments, entries;
    uint64_t content, stored; /* bytes of the entries, and bytes stored for them */
    uint64_t cost_us;         /* time that computing the entries took */
    uint64_t unfinished;      /* segments that are being written */
    bool used, pinned;        /* a process uses the set now; the set is never evicted */
    int64_t used_at_s;        /* the last use, in seconds since 1970 */
};

struct cw_cache_list {
    struct cw_cache_listed *sets; /* in the order of their keys */
    size_t n;
};

/* Lists the sets whose key begins with `key` (NULL: all). CW_E_OPTION where dir is no cache. The caller
 * deinits *ret. */
int cw_cache_list(const char *dir, const char *key, struct cw_cache_list *ret,
                  struct cw_error *err) _must_check_;
void cw_cache_list_deinit(struct cw_cache_list *l);

struct cw_cache_verified {
    uint64_t segments, entries, bytes; /* of sound segments */
    uint64_t bad_segments, bad_entries;
};

/* Reads all entries of a set and adds the outcome to *ret. repair: removes segments with a damaged part. */
int cw_cache_verify(const struct cw_cache_listed *s, bool repair, struct cw_cache_verified *ret,
                    struct cw_error *err) _must_check_;
/* Removes a set. 0; 1: a process uses it; negative: it can't be removed. */
int cw_cache_remove(const char *dir, const struct cw_cache_listed *s, struct cw_error *err) _must_check_;
/* Pins or unpins a set. */
int cw_cache_pin(const struct cw_cache_listed *s, bool on, struct cw_error *err) _must_check_;
