/*
 * struct cw_cache, which all of the store shares. Everything in it belongs to a module of its own; the mutex
 * is the monitor's.
 */
#pragma once
#include "base/list.h"
#include "cache/monitor.h"
#include "cache/pack.h"
#include "cache/probe.h"
#include "cache/queue.h"
#include "cache/readers.h"
#include "cache/room.h"
#include "cache/unpack.h"

/* What cw_cache_facts reports, counted by any thread. */
struct cw_cache_counters {
    atomic_uint_fast64_t hits, misses, bad, gone, late, kept, skipped, refused, bytes_read, read_ns,
        bytes_written, bytes_stored, write_ns, published, probe_bytes, probe_ns;
};

struct cw_cache {
    char *dir;           /* absolute; immutable, like the next two */
    bool waits;          /* for room in the queue, instead of skipping entries */
    bool plain;          /* nothing is compressed */
    atomic_uint holders; /* the opener and the threads of the cache: the last one frees it */
    void (*free)(struct cw_cache *c);
    struct cw_cache_counters counters;
    struct cw_cache_monitor monitor;
    struct cw_cache_readers readers;
    struct cw_cache_unpackers unpackers;
    struct cw_cache_room room;
    /* the store's thread only: */
    struct cw_cache_backoff backoff; /* of opening the directory */
    struct cw_cache_packer packer;
    struct cw_cache_probes probes;
    struct cw_cache_speed written; /* past the page cache */
    /* guarded by monitor.mutex: */
    struct cw_link sets;
    struct cw_cache_queue queue;
    struct cw_error failed; /* why the directory can't be opened */
    bool tried;             /* opening the directory has succeeded or failed */
    bool stop, flush;       /* requests to the store's thread */
    bool ended;             /* the store's thread has */
    pthread_t thread;       /* immutable */
};

/* Ends the hold of one holder. */
static inline void cw_cache_release(struct cw_cache *c)
{
    if (atomic_fetch_sub(&c->holders, 1) == 1)
        c->free(c);
}
