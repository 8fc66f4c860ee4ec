/* The cache of a run in this process: opens it, chooses the cache point, and makes JSON about both. cli/ and
 * api/ call it. */
#pragma once
#include "cache/cache.h"
#include "session/local.h"

struct cw_caching {
    const char *dir;   /* NULL: none */
    const char *where; /* "auto", "off", or the number of a cache point; NULL: auto */
    /* bytes of the cache at most; 0: what the cache has now, plus half of the free space */
    uint64_t quota;
    /* true: the run waits for storage that is slower than computing; false: elements are left out of the
     * cache instead */
    bool waits;
};

/* Returns whether a policy may choose the cache point: at least one can be used, and none is forced (operator
 * `cache`). */
bool cw_caching_open_to(const struct cw_compiled *c);

/* A running mean of the rate at which a cache's store is written. */
struct cw_write_rate {
    uint64_t bytes, ns; /* the store's totals at the last call */
    double bytes_per_s;
};

/* Updates *rate from the store's totals. Returns bytes per second: the mean of the previous result and the
 * rate since the last call that found more written. 0: nothing was written yet. */
double cw_write_rate(struct cw_write_rate *rate, const struct cw_cache_facts *now);
/* Opens l->cache if c->dir is set, and sets in *o the cache point, or that a policy chooses it. CW_E_OPTION:
 * the pipeline has no such cache point. The pipeline must be compiled. */
int cw_caching_open(struct cw_local *l, const struct cw_caching *c, struct cw_runner_options *o,
                    struct cw_error *err) _must_check_;
/* Calls `note` with a text for each cache point that can't be used, and the reason. */
void cw_caching_warn(const struct cw_compiled *c, void (*note)(void *arg, const char *text), void *arg);
/* Returns the cache points: [{number, op, position, draws, inert?}]. New reference; NULL: out of memory. */
json_t *cw_caching_cache_points(const struct cw_compiled *c);
/* Returns {hits, misses, bad, gone, late, kept, skipped, refused, bytes_read, read_s, bytes_written,
 * bytes_stored, write_s, published, evicted} so far, and the fields that cw_autocache_report adds. New
 * reference; NULL: out of memory, or there is no cache. */
json_t *cw_caching_report(const struct cw_local *l);
/* Ends the iterator and closes the cache, if there is one. Adds to `report`, which cw_caching_report made
 * before, what was written only now. */
void cw_caching_end(struct cw_local *l, json_t *report);
