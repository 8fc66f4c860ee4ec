/* A run's cache: which directory, which cache point, and what to say about both. */
#pragma once
#include "cache/cache.h"
#include "session/local.h"

struct cw_caching {
    const char *dir;   /* NULL: none */
    const char *where; /* "auto", "off", or the number of a cache point; NULL: auto */
    uint64_t quota;    /* bytes; 0: what is there, and half of what is free */
    bool waits;        /* for storage that is slower than the run, which else is not kept up with */
};

/* Whether there is something to decide: cache points that can be used, and none that is forced. */
bool cw_caching_open_to(const struct cw_compiled *c);
/* For people: which one it is. */
#define CW_CACHE_POINT_NAME 64
void cw_caching_name(const struct cw_op *cache_point, char ret[CW_CACHE_POINT_NAME]);

/* How fast a store is written, in bytes per second: each look at it that finds more written counts half,
 * those before it the other half. 0: nothing was. */
struct cw_write_rate {
    uint64_t bytes, ns; /* of the store, at the last look */
    double bytes_per_s;
};

double cw_write_rate(struct cw_write_rate *rate, const struct cw_cache_facts *now);
/* Opens l->cache, where one is asked for, and says in *o where it is used, or that it is to be decided.
 * CW_E_OPTION for what the pipeline has no cache point for. The pipeline must be compiled. */
int cw_caching_open(struct cw_local *l, const struct cw_caching *c, struct cw_runner_options *o,
                    struct cw_error *err) _must_check_;
/* Tells which cache points can't be used, though there is a cache, and why. */
void cw_caching_warn(const struct cw_compiled *c, void (*note)(void *arg, const char *text), void *arg);
/* The cache points as JSON: [{number, op, position, draws, inert?}]. New reference, NULL: out of memory. */
json_t *cw_caching_cache_points(const struct cw_compiled *c);
/* {hits, misses, bad, gone, kept, skipped, refused, bytes_read, read_s, bytes_written, bytes_stored, write_s,
 * published, evicted} so far. New reference, NULL: out of memory, or there is no cache. Where cache points
 * are decided about, what cw_autocache_report adds too. */
json_t *cw_caching_report(const struct cw_local *l);
/* Ends the iterator and closes the cache, if there is one: what was still to be written is then counted in
 * the report too, which was made before. */
void cw_caching_end(struct cw_local *l, json_t *report);
