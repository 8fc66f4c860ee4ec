/* A cache directory from outside: what lies there, whether it is sound, what is to go. Works beside runs that
 * use it. */
#pragma once
#include "base/error.h"

#include <stddef.h>

struct cw_cache_listed {
    char key[33];
    char *path, *meta; /* meta: JSON text; NULL: none that can be read */
    uint64_t bytes, segments, entries;
    uint64_t content, stored; /* bytes of entries, and what is stored of them */
    uint64_t cost_us;         /* what it took to compute */
    uint64_t unfinished;      /* segments that are being written */
    bool used, pinned;        /* a run uses it now; it never gives way to others */
    int64_t used_at_s;        /* last, in seconds since 1970 */
};

struct cw_cache_list {
    struct cw_cache_listed *sets; /* in the order of their keys */
    size_t n;
};

/* CW_E_OPTION where dir is no cache. key: only sets whose key begins so; NULL: all. */
int cw_cache_list(const char *dir, const char *key, struct cw_cache_list *ret,
                  struct cw_error *err) _must_check_;
void cw_cache_list_deinit(struct cw_cache_list *l);

struct cw_cache_verified {
    uint64_t segments, entries, bytes; /* that are sound */
    uint64_t bad_segments, bad_entries;
};

/* Reads everything of a set. repair: segments with anything bad in them are removed. Adds to *ret. */
int cw_cache_verify(const struct cw_cache_listed *s, bool repair, struct cw_cache_verified *ret,
                    struct cw_error *err) _must_check_;
/* 0; 1: a run uses it. A negative result: it can't be removed. */
int cw_cache_remove(const char *dir, const struct cw_cache_listed *s, struct cw_error *err) _must_check_;
int cw_cache_pin(const struct cw_cache_listed *s, bool on, struct cw_error *err) _must_check_;
