/* What the files of the chunk store share. */
#pragma once
#include <pthread.h>

#include "base/list.h"
#include "base/map.h"
#include "cache/format.h"

struct cw_file;

struct cw_cache_segment {
    struct cw_map_node node;  /* by name, once published; the store's thread (and the opener) only */
    char *name;               /* in the set's directory, once published */
    atomic_bool dead;         /* gone or not to be trusted: its entries are none */
    pthread_rwlock_t lock;    /* who reads: fd or file; who publishes changes them */
    int fd;                   /* while it is written, else -1 */
    struct cw_file *file;     /* once it is published */
    bool seen;                /* by the scan under way; the store's thread only */
};

struct cw_cache_index_slot {
    uint64_t hash;            /* of the key */
    uint32_t segment;         /* 0: free; else its number + 1 */
    uint32_t length;
    uint64_t offset;
    bool dropped;
};

/* A segment under construction. The store's thread only. */
struct writing {
    struct cw_cache_segment *segment; /* NULL: none */
    uint32_t number;
    char *temporary;          /* path */
    int direct_fd;            /* past the page cache; -1: the file system can't. What is kept is read again in an epoch's time: writing it there costs twenty times the CPU */
    uint64_t size, reserved;  /* bytes written; size of the file, which is what counts against the quota */
    uint64_t cost_us, filled; /* of the entries, and their bytes without what fills blocks up: what a segment is worth is not to depend on how full it got */
    struct cw_cache_row *rows;
    size_t n, capacity;
    uint64_t since_ns;
};

struct cw_cache_set {
    struct cw_link link;      /* in the cache's list; guarded by its mutex, like the next two */
    unsigned refs;            /* by users, by chunks, and by the store's thread while it is at it */
    struct cw_cache_chunk *current; /* entries go there */
    struct cw_cache *cache;
    struct cw_hash128 key;
    char *dir;
    int used_fd;              /* held with a shared lock: the set is in use */
    uint64_t opened_ns;
    pthread_rwlock_t lock;    /* index and segments */
    struct cw_cache_index_slot *slots;
    size_t n_slots, n_used;
    struct cw_cache_segment **segments;
    uint32_t n_segments, capacity;
    /* the store's thread only (and the opener): */
    struct writing w;
    struct cw_map names;      /* of published segments */
    int64_t scanned_mtime_ns, scanned_at_ns;
    uint64_t backoff_ns, paused_until_ns;
    uint64_t touched_ns;
};

struct cw_cache_chunk {
    struct cw_cache_chunk *next;
    struct cw_cache_set *set; /* with a reference */
    size_t capacity, used;
    unsigned pending;         /* entries that are being filled in */
    uint64_t since_ns;
    uint8_t *data;            /* a multiple of blocks, aligned to one */
};

struct cw_cache {
    char *dir;
    uint64_t quota;
    size_t segment_bytes, queue_bytes;
    int lock_fd;              /* who publishes or evicts locks it */
    pthread_mutex_t mutex;
    pthread_cond_t work, flushed;
    struct cw_link sets;      /* guarded by mutex, like everything from here on */
    struct cw_cache_chunk *queue, **queue_tail; /* full ones */
    struct cw_cache_chunk *spare; /* kept, for the kernel would zero their pages again */
    size_t chunk_bytes;       /* of all chunks there are */
    bool stop, flush, warned;
    pthread_t thread;
    bool started, ended;
    atomic_uint holders;      /* who opened it, and its threads: the last one frees it */
    struct {                  /* readers.c; guarded by its own mutex, inside which the other one may be taken */
        pthread_mutex_t mutex;
        pthread_cond_t gone;
        struct cw_cache_reader *idle;
        unsigned n;
        bool stop, warned;
        atomic_uint stuck;    /* reads that nobody waited for, and that have not come back */
    } readers;
    atomic_uint_fast64_t hits, misses, bad, gone, late, kept, skipped, refused, bytes_read, read_ns, bytes_written, write_ns, published, evicted, probe_bytes, probe_ns, used;
    uint64_t probed_ns;       /* the store's thread only */
};

/* set.c */
struct cw_cache_set *cw_cache_set_new(struct cw_cache *c, struct cw_hash128 key, const char *meta, struct cw_error *err);
void cw_cache_set_free(struct cw_cache_set *s);
/* Looks for segments that others published or removed. always: without looking whether anything changed. The store's thread, and the opener. */
void cw_cache_set_scan(struct cw_cache_set *s, bool always);
int cw_cache_set_add_segment(struct cw_cache_set *s, struct cw_cache_segment *g, uint32_t *ret, struct cw_error *err); /* takes g over, also on failure */
int cw_cache_set_insert(struct cw_cache_set *s, uint32_t segment, const struct cw_cache_row *rows, size_t n, struct cw_error *err);
void cw_cache_set_forget(struct cw_cache_set *s, const struct cw_cache_get *get);
struct cw_cache_segment *cw_cache_segment_new(void);
void cw_cache_segment_named(struct cw_cache_set *s, struct cw_cache_segment *g); /* it has its name now */
void cw_cache_segment_free(struct cw_cache_segment *g);

/* segment.c: the table of a published segment. 0; 1: it is damaged, torn or of another set. A negative result: it can't be read. */
int cw_cache_table_read(const char *path, struct cw_hash128 set, struct cw_cache_row **ret, size_t *ret_n, struct cw_cache_trailer *ret_trailer, struct cw_error *err);
/* Writes table and trailer behind the entries. Returns the size of the file, or a negative errno. */
int64_t cw_cache_table_write(int fd, uint64_t offset, const struct cw_cache_row *rows, size_t n, uint64_t cost_us);
int cw_cache_write_at(int fd, uint64_t offset, const void *data, size_t size); /* 0 or a negative errno */
int cw_cache_read_at(int fd, uint64_t offset, void *to, size_t size);          /* the same; 1: it ends before */
/* A segment, to be read. */
struct stat;
struct cw_file;
int cw_cache_file_new(const char *path, const struct stat *st, struct cw_file **ret, struct cw_error *err);
bool cw_cache_entry_sound(const struct cw_cache_entry *e, const struct cw_cache_key *key, const struct iovec *v, int n_v);

/* store.c */
void cw_cache_chunk_free(struct cw_cache_chunk *k);
void cw_cache_release(struct cw_cache *c); /* by one of its holders */

/* read.c: 0, 1: not in memory, 2: can't be read. */
int cw_cache_segment_read(struct cw_cache_segment *g, uint64_t offset, struct iovec *v, int n_v, size_t bytes, bool nowait);

/* readers.c */
/* Reads what may take long. 0; 2: can't be read; 3: not in time, and nothing is written to v later on. The caller has the set. */
int cw_cache_read_until(struct cw_cache_set *s, struct cw_cache_segment *g, uint64_t offset, const struct iovec *v, size_t bytes, uint64_t deadline_ns);
void cw_cache_readers_stop(struct cw_cache *c); /* waits for all but those that are stuck */

/* probe.c: of a segment that was published */
void cw_cache_probe(struct cw_cache *c, const char *path);

/* writer.c */
void *cw_cache_main(void *cache);

/* room.c: the directory's lock. What gets another name needs it: who lists a directory meanwhile may see neither, and counts too little. 0 or a negative errno. */
int cw_cache_lock(const struct cw_cache *c) _must_check_;
void cw_cache_unlock(const struct cw_cache *c);
/* Those that follow take it. */
/* Makes a file with a temporary name in a directory, locked as being written, of `size` bytes for the quota. value: microseconds of computing per MiB that will lie
 * in it; less valuable segments give way. 0; 1: there is no room. Else a negative errno. */
int cw_cache_room(struct cw_cache *c, const char *dir, uint64_t size, uint64_t value, char **ret_path, int *ret_fd);
/* Removes what dead processes left, and what is left of sets that nobody has used for long. Returns the bytes of all files. */
uint64_t cw_cache_sweep(struct cw_cache *c);

/* admin.c: all of a set; the directory is locked. 0; 1: it is in use. */
int cw_cache_set_remove(const char *dir, struct cw_error *err) _must_check_;
