/*
 * struct cw_cache, which all files of this folder share. Each of its members of a struct type belongs to the
 * module that declares the type. The mutex of the cache is monitor.mutex.
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

/* The counters that cw_cache_facts reports (see struct cw_cache_facts). Any thread counts. */
struct cw_cache_counters {
    atomic_uint_fast64_t hits, misses, bad, gone, late, kept, skipped, refused, bytes_read, read_ns,
        bytes_written, bytes_stored, write_ns, published, probe_bytes, probe_ns;
};

struct cw_cache {
    char *dir;           /* absolute; immutable, like the next two */
    bool waits;          /* putting an entry waits for room in the queue instead of skipping the entry */
    bool plain;          /* nothing is compressed */
    atomic_uint holders; /* references: of the opener and of each thread; the last one to go calls free */
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
    struct cw_cache_speed written; /* the speed of writing */
    /* guarded by monitor.mutex: */
    struct cw_link sets; /* list of all sets */
    struct cw_cache_queue queue;
    struct cw_error failed; /* why the directory can never be opened; status 0: no such reason */
    bool tried;             /* opening the directory has succeeded or failed at least once */
    bool stop, flush;       /* requests to the store's thread */
    bool ended;             /* the store's thread has ended */
    pthread_t thread;       /* the store's thread; immutable */
};

/* Gives back one reference of `holders`; frees the cache with the last one. */
static inline void cw_cache_release(struct cw_cache *c)
{
    if (atomic_fetch_sub(&c->holders, 1) == 1)
        c->free(c);
}
