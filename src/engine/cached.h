/* What cached.c and cached_rows.c share: a cache point that can be used, and where its elements are kept. */
#pragma once
#include "cache/cache.h"
#include "engine/internal.h"

struct cached {
    const struct cw_cache_point *m;
    struct cw_cache *cache;
    struct cw_hash128 identity; /* the cache point's, with the source's context */
    char *meta;
    size_t fixed_bytes; /* of an entry; what follows varies */
    unsigned n_varying;
    uint8_t fixed[CW_MAX_COMPONENTS]; /* by component */
    pthread_mutex_t mutex;
    /* guarded by mutex, like the next two: the one last asked for; NULL: it could not be opened */
    struct cw_cache_set *set;
    struct cw_hash128 key;
    bool asked;
};

/* The set for an epoch, with a reference of its own; NULL: there is none to be had. */
struct cw_cache_set *cw_cached_set(const struct cw_runner *r, unsigned leaf, struct cached *c,
                                   const struct cw_epoch *e, struct cw_error *err);
/* As cw_cache_find, for n rows of one source: what was kept of a file that was changed since it was indexed
 * is not found. The file is read instead, which is an error. */
size_t cw_cached_find(const struct cw_runner *r, unsigned leaf, struct cw_cache_set *set,
                      const struct cw_epoch *e, const uint64_t *rows, const struct cw_cache_key *keys,
                      size_t n, struct cw_cache_place *ret);
/* Keys of n positions of one source; rows and ids: room for them. */
void cw_cached_keys(const struct cw_runner *r, unsigned leaf, const struct cached *c,
                    const struct cw_ref *refs, size_t n, uint64_t *rows, struct cw_record_id *ids,
                    struct cw_cache_key *ret);
