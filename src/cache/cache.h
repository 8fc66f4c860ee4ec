/*
 * The chunk store: computed elements, kept in a directory and read again by any process that has the
 * directory. It knows keys and bytes, neither operators nor types.
 *
 * Entries of one identity (operators, components) form a *set*, which is a directory of its own. They lie in
 * *segments*: files of many entries, written under a temporary name and renamed when complete. Every entry
 * carries its key and a checksum. An entry that fails the check is forgotten, counted and never delivered.
 * Any thread may find, read and put entries. The store's own thread writes, publishes, finds segments of
 * other processes, and keeps the quota. No caller waits for it: entries that it can't take in time are not
 * kept.
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

struct cw_cache_options {
    const char *dir; /* made if need be */
    /* bytes of all files below dir; 0: the bytes that are there and half of the free ones, as these change */
    uint64_t quota;
    size_t segment_bytes; /* a segment of this size is published; 0: 16 MiB */
    bool plain;           /* nothing is compressed */
    size_t queue_bytes;   /* of entries that wait to be written; 0: 32 MiB. Outside any budget */
    /* putting an entry waits for room in the queue: only entries larger than the queue are skipped, unless
     * storage does not answer for 20 seconds */
    bool waits;
};

/* Fails only for a wrong argument: dir is no directory and can't be made one. A disk that is full, or does
 * not answer within two seconds, gives a notice, and the cache has no content until it is usable. */
int cw_cache_open(const struct cw_cache_options *o, struct cw_cache **ret, struct cw_error *err) _must_check_;
/* Writes and publishes the waiting entries, for a few seconds at most. Storage that does not answer is left,
 * with the entries under way. All sets must have been given back. Accepts NULL. */
#define cw_cache_close(c) cw_cache_close_facts(c, NULL)
uint64_t cw_cache_quota(const struct cw_cache *c); /* bytes; 0: not known until the directory is open */
struct cw_cache_facts;
/* The same, and reports what the cache counted until its end, unless ret is NULL. */
struct cw_cache *cw_cache_close_facts(struct cw_cache *c, struct cw_cache_facts *ret);

/* Returns the set of a key with one more reference. meta (JSON, for people) is kept beside the entries. The
 * store's thread opens the set, and the caller waits for that at most two seconds. Until it is open it has no
 * content. */
int cw_cache_set_open(struct cw_cache *c, struct cw_hash128 key, const char *meta, struct cw_cache_set **ret,
                      struct cw_error *err) _must_check_;
struct cw_cache_set *cw_cache_set_ref(struct cw_cache_set *s);
void cw_cache_set_unref(struct cw_cache_set *s);

/* Returns a new copy of what earlier runs measured and left for later ones: at most 4 KiB of text, which may
 * be nonsense; NULL: none. */
char *cw_cache_set_profile(struct cw_cache_set *s);
void cw_cache_set_put_profile(struct cw_cache_set *s, const char *text); /* is written soon */

struct cw_cache_key {
    uint64_t file_key, row, variant;
};

struct cw_cache_place {
    /* NULL: there is no such entry. Valid while the caller has a reference of the set */
    struct cw_cache_segment *segment;
    uint64_t offset;
    uint32_t length;      /* bytes of the content */
    uint32_t stored : 31; /* bytes stored for it */
    bool dropped : 1;     /* a filter rejected the element: there is no content */
};

/* Looks n keys up; returns how many entries exist. */
size_t cw_cache_find(struct cw_cache_set *s, const struct cw_cache_key *keys, size_t n,
                     struct cw_cache_place *ret);
/* Counts n entries that did not exist and were computed. */
void cw_cache_missed(struct cw_cache_set *s, size_t n);

struct cw_cache_get {
    struct cw_cache_key key;
    struct cw_cache_place place;
    struct iovec *v; /* the destination, place.length bytes in all */
    int n_v;         /* at most CW_CACHE_PARTS */
};

#define CW_CACHE_PARTS 512
#define CW_CACHE_AT_ONCE UINT64_C(0) /* only entries that are in memory */
#define CW_CACHE_FOREVER UINT64_MAX  /* without a limit, in the caller's thread */
/* Reads entries in the fastest order, which reorders gets. 0; 1: AT_ONCE, and some are not in memory; 2: one
 * was damaged or gone, and is forgotten; 3: storage did not give them within patience_ns, or an earlier read
 * of others has not come back, but the entries still exist. Unless the result is 0, the destinations are
 * undefined. A negative result is the arena's, which is used for scratch. */
int cw_cache_read(struct cw_cache_set *s, struct cw_cache_get *gets, size_t n, struct cw_arena *arena,
                  uint64_t patience_ns, struct cw_error *err) _must_check_;

/* Returns memory for an entry with so many bytes of content, to be filled in and then committed. NULL: the
 * entry is not kept (the store is behind, full, or in trouble), which is counted. */
struct cw_cache_slot {
    struct cw_cache_chunk *chunk;
    uint8_t *entry;
};

void *cw_cache_reserve(struct cw_cache_set *s, const struct cw_cache_key *key, size_t length, bool dropped,
                       uint64_t cost_ns, struct cw_cache_slot *ret);
void cw_cache_commit(const struct cw_cache_slot *slot);
/* Waits until the entries put so far are published or given up. CW_E_DEADLINE, naming the step, where one
 * step takes 20 s. */
int cw_cache_flush(struct cw_cache *c, struct cw_error *err) _must_check_;

struct cw_cache_facts {
    uint64_t hits, misses; /* entries read, and entries that did not exist */
    uint64_t bad, gone;    /* entries that were found, but damaged, or evicted meanwhile */
    uint64_t late;         /* entries that storage did not give in time */
    /* entries kept; skipped, because the store was behind or the entry is larger than its queue */
    uint64_t kept, skipped;
    uint64_t refused; /* entries not kept: no room, or the disk failed */
    uint64_t bytes_read, read_ns, bytes_written, write_ns;
    /* of bytes_written, on the disk: fewer where compression pays */
    uint64_t bytes_stored;
    uint64_t published, evicted; /* segments */
    /* read back lately to measure storage, in bytes before compression; 0: not yet */
    uint64_t probe_bytes, probe_ns;
    uint64_t used; /* bytes of all files, when the cache was opened or made room last */
};

void cw_cache_facts(const struct cw_cache *c, struct cw_cache_facts *ret);
