/*
 * The chunk store: computed elements, kept in a directory and read again by any process that has the
 * directory. It knows keys and bytes, neither operators nor types.
 *
 * Entries made by the same computation (operators, components) form a *set*; each set has its own directory.
 * Its entries lie in *segments*: files of many entries, written under a temporary name and renamed when
 * complete. Every entry carries its key and a checksum. An entry that fails the check is removed from the
 * index, counted and never delivered. Any thread may find, read and put entries. The *store's thread* writes
 * and publishes segments, finds the segments of other processes, and keeps the quota. No caller waits for the
 * store's thread: entries that it can't take in time are not kept.
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
    /* bytes that all files below dir may take; 0: the bytes at the start plus half of the free space, which
     * is determined anew for each segment */
    uint64_t quota;
    size_t segment_bytes; /* a segment of this size is published; 0: 16 MiB */
    bool plain;           /* nothing is compressed */
    /* limit of the memory for entries that wait to be written; 0: 32 MiB. Not charged to any budget */
    size_t queue_bytes;
    /* putting an entry waits for room in the queue. Then entries are skipped only if they are larger than the
     * queue, or while storage has not answered for 20 seconds */
    bool waits;
};

/* Fails only if memory is short, or dir is not a directory and can't be made. If the disk is full, or does
 * not answer within two seconds, the user gets a notice, and the cache has no content until the disk is
 * usable. */
int cw_cache_open(const struct cw_cache_options *o, struct cw_cache **ret, struct cw_error *err) _must_check_;
/* Writes and publishes the waiting entries, for a few seconds at most. If storage does not answer, the
 * entries that are not written yet are lost. The caller must have unreferenced all sets. Accepts NULL. */
#define cw_cache_close(c) cw_cache_close_facts(c, NULL)
uint64_t cw_cache_quota(const struct cw_cache *c); /* bytes; 0: not known until the directory is open */
struct cw_cache_facts;
/* Closes the cache like cw_cache_close, and stores the final counters in *ret unless ret is NULL. Returns
 * NULL. */
struct cw_cache *cw_cache_close_facts(struct cw_cache *c, struct cw_cache_facts *ret);

/* Returns the set of a key, with one more reference, which the caller gives back with cw_cache_set_unref.
 * meta (JSON, for people) is copied and kept beside the entries. The store's thread opens the set; the caller
 * waits for that at most two seconds. A set that is not open yet has no content. */
int cw_cache_set_open(struct cw_cache *c, struct cw_hash128 key, const char *meta, struct cw_cache_set **ret,
                      struct cw_error *err) _must_check_;
struct cw_cache_set *cw_cache_set_ref(struct cw_cache_set *s);
void cw_cache_set_unref(struct cw_cache_set *s);

/* Returns a new copy, which the caller frees, of the measurements that earlier runs stored: at most 4 KiB of
 * text that the caller must validate; NULL: none, or out of memory. */
char *cw_cache_set_profile(struct cw_cache_set *s);
/* Replaces the measurements by a copy of text. The store's thread writes them later. */
void cw_cache_set_put_profile(struct cw_cache_set *s, const char *text);

struct cw_cache_key {
    uint64_t file_key, row, variant;
};

struct cw_cache_place {
    /* NULL: no such entry exists. Valid while the caller holds a reference of the set */
    struct cw_cache_segment *segment;
    uint64_t offset;
    uint32_t length;      /* bytes of the content */
    uint32_t stored : 31; /* bytes stored for it */
    bool dropped : 1;     /* a filter rejected the element: there is no content */
};

/* Looks up n keys and stores the place of entry i in ret[i]. Returns how many of the entries exist. */
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
/* Reads n entries into their destinations. Sorts gets into the order of reading. Returns 0 if all entries
 * were read; 1: with CW_CACHE_AT_ONCE, some are not in memory; 2: an entry was damaged or gone, and is
 * removed from the index; 3: storage did not deliver the entries within patience_ns, or an earlier read that
 * exceeded its patience has not returned yet (the entries still exist). Negative: the arena, used for scratch
 * memory, could not allocate. Unless the result is 0, the content of the destinations is undefined. */
int cw_cache_read(struct cw_cache_set *s, struct cw_cache_get *gets, size_t n, struct cw_arena *arena,
                  uint64_t patience_ns, struct cw_error *err) _must_check_;

/* An entry that is being put: between cw_cache_reserve and cw_cache_commit. */
struct cw_cache_slot {
    struct cw_cache_chunk *chunk;
    uint8_t *entry;
};

/* Returns memory for the `length` bytes of an entry's content. The caller fills it in and calls
 * cw_cache_commit. NULL: the entry is not kept because the queue is full or memory is short; it is counted as
 * skipped. cost_ns: time that computing the element took. */
void *cw_cache_reserve(struct cw_cache_set *s, const struct cw_cache_key *key, size_t length, bool dropped,
                       uint64_t cost_ns, struct cw_cache_slot *ret);
void cw_cache_commit(const struct cw_cache_slot *slot);
/* Waits until the entries put so far are published or given up. CW_E_DEADLINE, with the name of the step, if
 * one step of the store's thread takes 20 s. */
int cw_cache_flush(struct cw_cache *c, struct cw_error *err) _must_check_;

struct cw_cache_facts {
    uint64_t hits, misses; /* entries read, and entries that did not exist */
    uint64_t bad, gone;    /* entries that were found, but damaged, or evicted meanwhile */
    uint64_t late;         /* entries that storage did not deliver in time */
    /* entries kept; skipped, because the store was behind or the entry is larger than its queue */
    uint64_t kept, skipped;
    uint64_t refused; /* entries not kept: no room, or the disk failed */
    uint64_t bytes_read, read_ns, bytes_written, write_ns;
    /* bytes that bytes_written take on the disk: fewer if entries are compressed */
    uint64_t bytes_stored;
    uint64_t published, evicted; /* segments */
    /* bytes (before compression) and time of the recent read-backs that measure storage; 0: none yet */
    uint64_t probe_bytes, probe_ns;
    uint64_t used; /* bytes of all files, when they were last counted: at opening, or before a new segment */
};

void cw_cache_facts(const struct cw_cache *c, struct cw_cache_facts *ret);
