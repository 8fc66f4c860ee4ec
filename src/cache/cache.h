/*
 * The chunk store: what was computed of a record, kept in a directory and read again by any process that has
 * the directory. Knows keys and bytes, neither operators nor types.
 *
 * Entries of one identity (operators, components) form a *set*, a directory of its own; they lie in
 * *segments*, files of many entries that are written under a temporary name and renamed when complete. Every
 * entry carries its key and a checksum; one that does not fit is forgotten, counted and never handed out. Any
 * thread may find, read and put; a thread of the store's own writes, publishes, looks for what others
 * published, and keeps the quota. Nobody waits for it: what it can't take in time is not kept.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/hash.h"
#include "data/arena.h"

struct cw_cache;
struct cw_cache_set;
struct cw_cache_segment;

struct cw_cache_options {
    const char *dir; /* made if need be */
    /* bytes of all files below dir; 0: what is there, and half of what is free, as that changes */
    uint64_t quota;
    size_t segment_bytes; /* a segment is published when it is so large; 0: 16 MiB */
    bool plain;           /* nothing is compressed */
    size_t queue_bytes;   /* entries that wait to be written; 0: 32 MiB. Outside any budget */
    /* who puts an entry waits for room in the queue: nothing is skipped but entries larger than it, unless
     * storage does not answer for 20 seconds */
    bool waits;
};

/* A failure is that of an argument: what is no directory, and can't be made one. A disk that is full or does
 * not answer within two seconds is said, and the cache is without content until it is better. */
int cw_cache_open(const struct cw_cache_options *o, struct cw_cache **ret, struct cw_error *err) _must_check_;
/* Writes and publishes what waits, for a few seconds at most; storage that does not answer is left, with what
 * is at it. All sets must have been given back. NULL is fine. */
struct cw_cache *cw_cache_close(struct cw_cache *c);
uint64_t cw_cache_quota(const struct cw_cache *c); /* 0: not known yet, for it is not open yet */
struct cw_cache_facts;
/* The same; what it counted till its end. */
struct cw_cache *cw_cache_close_facts(struct cw_cache *c, struct cw_cache_facts *ret);

/* Entries under one identity. meta (JSON, for people) is kept beside them. The same set for the same key,
 * with one more reference. The store's thread opens it, which is waited for for two seconds; until then, and
 * where it can't be opened, it is without content. */
int cw_cache_set_open(struct cw_cache *c, struct cw_hash128 key, const char *meta, struct cw_cache_set **ret,
                      struct cw_error *err) _must_check_;
struct cw_cache_set *cw_cache_set_ref(struct cw_cache_set *s);
void cw_cache_set_unref(struct cw_cache_set *s);

/* What earlier runs measured of a set and left for later ones: text, the caller's, of at most 4 KiB, which
 * may be nonsense; NULL: none. */
char *cw_cache_set_profile(struct cw_cache_set *s);
void cw_cache_set_put_profile(struct cw_cache_set *s, const char *text); /* written soon */

struct cw_cache_key {
    uint64_t file_key, row, variant;
};

struct cw_cache_place {
    /* NULL: there is no such entry. Good as long as the caller has the set */
    struct cw_cache_segment *segment;
    uint64_t offset;
    uint32_t length, stored; /* of the content, and of what is stored of it */
    bool dropped;            /* a filter said no: no content */
};

/* Looks n keys up; returns how many there are. */
size_t cw_cache_find(struct cw_cache_set *s, const struct cw_cache_key *keys, size_t n,
                     struct cw_cache_place *ret);
/* Counts entries that were not there, and were computed. */
void cw_cache_missed(struct cw_cache_set *s, size_t n);

struct cw_cache_get {
    struct cw_cache_key key;
    struct cw_cache_place place;
    struct iovec *v; /* where the content goes: place.length bytes in all */
    int n_v;         /* at most CW_CACHE_PARTS */
};

#define CW_CACHE_PARTS 512
#define CW_CACHE_AT_ONCE UINT64_C(0) /* only what is in memory */
#define CW_CACHE_FOREVER UINT64_MAX  /* and in the caller's thread */
/* Reads entries, in whatever order is quickest. 0; 1: AT_ONCE, and they are not all in memory; 2: one of them
 * was damaged or gone, and is forgotten; 3: storage did not give them within patience_ns, or an earlier read
 * of others has not come back yet: they are still there. Unless it is 0, what the entries gave is undefined.
 * A negative result is the arena's (scratch). */
int cw_cache_read(struct cw_cache_set *s, struct cw_cache_get *gets, size_t n, struct cw_arena *arena,
                  uint64_t patience_ns, struct cw_error *err) _must_check_;

/* Room for an entry with so many bytes of content: fill it in, then commit it. NULL: not kept (the store is
 * behind, full, or in trouble), which is counted. */
struct cw_cache_chunk;

struct cw_cache_slot {
    struct cw_cache_set *set;
    struct cw_cache_chunk *chunk;
    uint8_t *entry;
};

void *cw_cache_reserve(struct cw_cache_set *s, const struct cw_cache_key *key, size_t length, bool dropped,
                       uint64_t cost_ns, struct cw_cache_slot *ret);
void cw_cache_commit(const struct cw_cache_slot *slot);
/* Waits until what was put so far is written and published, or given up. CW_E_DEADLINE, naming it, where one
 * step of that takes 20 s. */
int cw_cache_flush(struct cw_cache *c, struct cw_error *err) _must_check_;

struct cw_cache_facts {
    uint64_t hits, misses; /* of entries that were asked for */
    uint64_t bad, gone;    /* that were found, and then were damaged, or evicted meanwhile */
    uint64_t late;         /* that were there, and storage did not give them in time */
    /* entries put; not kept, because the store was behind or the entry is larger than its queue */
    uint64_t kept, skipped;
    uint64_t refused; /* not kept: no room, or the disk failed */
    uint64_t bytes_read, read_ns, bytes_written, write_ns;
    /* of bytes_written, as they lie on the disk: fewer where it pays to compress them */
    uint64_t bytes_stored;
    uint64_t published, evicted; /* segments */
    /* of what was published something was read again, lately; 0: not yet. Bytes as they were before they were
     * compressed */
    uint64_t probe_bytes, probe_ns;
    uint64_t used; /* bytes of all files, when it was opened or needed room last */
};

void cw_cache_facts(const struct cw_cache *c, struct cw_cache_facts *ret);
