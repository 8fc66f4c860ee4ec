/*
 * For `cachew cache`: lists, verifies, removes and pins the sets of a cache directory, also while runs use
 * the directory.
 */
#pragma once
#include "base/error.h"

#include <stddef.h>

struct cw_cache_listed {
    char key[33];
    char *path, *meta;                 /* meta: the text of meta.json; NULL: it can't be read */
    uint64_t bytes, segments, entries; /* bytes of all files; numbers of published segments and entries */
    uint64_t content, stored;          /* bytes of the entries' content, and bytes stored for it */
    uint64_t cost_us;                  /* time that computing the entries took */
    uint64_t unfinished;               /* number of segments that are being written */
    bool used, pinned;                 /* a process uses the set now; the set is never evicted */
    int64_t used_at_s;                 /* the last use, in seconds since 1970 */
};

struct cw_cache_list {
    struct cw_cache_listed *sets; /* in the order of their keys */
    size_t n;
};

/* Lists the sets whose key begins with `key` (NULL: all sets). CW_E_OPTION if dir is not a cache directory.
 * The caller calls cw_cache_list_deinit on *ret. */
int cw_cache_list(const char *dir, const char *key, struct cw_cache_list *ret,
                  struct cw_error *err) _must_check_;
void cw_cache_list_deinit(struct cw_cache_list *l);

struct cw_cache_verified {
    uint64_t segments, entries, bytes;  /* counts of segments without damage */
    uint64_t bad_segments, bad_entries; /* segments with damage, and their damaged entries */
};

/* Reads all entries of a set and adds to the counts in *ret. repair: also removes damaged segments. */
int cw_cache_verify(const struct cw_cache_listed *s, bool repair, struct cw_cache_verified *ret,
                    struct cw_error *err) _must_check_;
/* Removes a set. Returns 0; 1: a process uses the set, which stays; negative: the set can't be removed. */
int cw_cache_remove(const char *dir, const struct cw_cache_listed *s, struct cw_error *err) _must_check_;
/* Pins a set (on) or unpins it. */
int cw_cache_pin(const struct cw_cache_listed *s, bool on, struct cw_error *err) _must_check_;
