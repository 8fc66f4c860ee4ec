/* The cache of a run in this process: opens it, chooses the cache point, and reports on both. cli/ and api/
 * call it. */
#pragma once
#include "cache/cache.h"
#include "session/local.h"

struct cw_caching {
    const char *dir;   /* NULL: none */
    const char *where; /* "auto", "off", or the number of a cache point; NULL: auto */
    uint64_t quota;    /* bytes; 0: what the cache has, and half of the free space */
    bool waits;        /* the run waits for storage that is slower; else elements are left out of the cache */
};

/* Whether a policy may choose the cache point: some can be used, and none is forced. */
bool cw_caching_open_to(const struct cw_compiled *c);

/* How fast a store is written. */
struct cw_write_rate {
    uint64_t bytes, ns; /* of the store, at the last call */
    double bytes_per_s;
};

/* Returns bytes per second: half the rate since the last call that found more written, half the rate before.
 * 0: nothing was written. */
double cw_write_rate(struct cw_write_rate *rate, const struct cw_cache_facts *now);
/* Opens l->cache, if the user wants one, and sets the cache point in *o, or that a policy decides.
 * CW_E_OPTION: the pipeline has no such cache point. The pipeline must be compiled. */
int cw_caching_open(struct cw_local *l, const struct cw_caching *c, struct cw_runner_options *o,
                    struct cw_error *err) _must_check_;
/* Tells the user which cache points can't be used, and why. */
void cw_caching_warn(const struct cw_compiled *c, void (*note)(void *arg, const char *text), void *arg);
/* Returns the cache points: [{number, op, position, draws, inert?}]. New reference; NULL: out of memory. */
json_t *cw_caching_cache_points(const struct cw_compiled *c);
/* Returns {hits, misses, bad, gone, late, kept, skipped, refused, bytes_read, read_s, bytes_written,
 * bytes_stored, write_s, published, evicted} so far, and what cw_autocache_report adds. New reference; NULL:
 * out of memory, or there is no cache. */
json_t *cw_caching_report(const struct cw_local *l);
/* Ends the iterator and closes the cache, if there is one. Updates the report, which was made before, by what
 * was still to be written. */
void cw_caching_end(struct cw_local *l, json_t *report);
