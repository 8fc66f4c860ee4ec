/* What the files of the chunk store share. */
#pragma once
#include <dirent.h>
#include <errno.h>
#include <pthread.h>

#include "base/list.h"
#include "base/map.h"
#include "cache/format.h"

struct cw_file;

/* What the store's thread is at, so that who waits for it can say so, and wait no longer than that may take.
 * Guarded by the cache's mutex. */
struct cw_cache_doing {
    const char *what; /* NULL: nothing that takes long */
    uint64_t since_ns;
};

/* After trouble: left alone for a while, longer each time. */
struct cw_cache_backoff {
    uint64_t ns, until_ns;
};

struct cw_cache_segment {
    struct cw_map_node node; /* by name, once published; the store's thread (and the opener) only */
    char *name;              /* in the set's directory, once published */
    atomic_bool dead;        /* gone or not to be trusted: its entries are none */
    pthread_rwlock_t lock;   /* who reads: fd or file; who publishes changes them */
    int fd;                  /* while it is written, else -1 */
    struct cw_file *file;    /* once it is published */
    bool seen;               /* by the scan under way; the store's thread only */
};

struct cw_cache_index_slot {
    uint64_t hash;    /* of the key */
    uint32_t segment; /* 0: free; else its number + 1 */
    uint32_t length, stored;
    bool dropped;
    uint64_t offset;
};

/* Whether what is written is compressed (pack.c). The store's thread only. */
struct cw_cache_packing {
    bool on;
    /* when the store was probed that says that it pays, if that is the only time so far, else 0 */
    uint64_t unsure_ns;
    uint64_t every, left; /* bytes between two looks; until the next one */
};

/* A segment under construction. The store's thread only. */
struct writing {
    struct cw_cache_segment *segment; /* NULL: none */
    uint32_t number;
    char *temporary; /* name */
    /* past the page cache; -1: the file system can't. What is kept is read again in an epoch's time: writing
     * it there costs twenty times the CPU */
    int direct_fd;
    uint64_t size, reserved; /* bytes written; size of the file, which is what counts against the quota */
    /* of the entries, and their bytes without what fills blocks up: what a segment is worth is not to depend
     * on how full it got */
    uint64_t cost_us, filled;
    struct cw_cache_row *rows;
    size_t n, capacity;
    uint64_t since_ns;
};

struct cw_cache_set {
    struct cw_link link;            /* in the cache's list; guarded by its mutex, like the next two */
    unsigned refs;                  /* by users, by chunks, and by the store's thread while it is at it */
    struct cw_cache_chunk *current; /* entries go there */
    struct cw_cache *cache;
    struct cw_hash128 key;
    char *meta; /* for who opens it */
    /* guarded by the cache's mutex: what was there when it was opened, then what is to be there */
    char *profile;
    /* guarded by the cache's mutex: opening it has come to an end, whatever that was; profile is to be
     * written */
    bool tried, profiled;
    pthread_rwlock_t lock; /* index and segments */
    struct cw_cache_index_slot *slots;
    size_t n_slots, n_used;
    struct cw_cache_segment **segments;
    uint32_t n_segments;
    size_t capacity;
    /* the store's thread only: */
    char *dir;           /* path; NULL: it is not open yet, or can't be */
    int dir_fd, used_fd; /* used: held with a shared lock: the set is in use */
    struct writing w;
    struct cw_map names; /* of published segments */
    int64_t scanned_mtime_ns;
    struct cw_cache_backoff backoff;
    uint64_t opened_ns, touched_ns;
    struct cw_cache_packing packing;
};

struct cw_cache_chunk {
    struct cw_cache_chunk *next;
    struct cw_cache_set *set; /* with a reference */
    size_t capacity, used;
    unsigned pending; /* entries that are being filled in */
    uint64_t since_ns;
    uint8_t *data; /* a multiple of blocks, aligned to one */
};

struct cw_cache_speed {
    double bytes, ns;
}; /* those before count half, and half of that */

struct cw_cache {
    char *dir;
    bool plain;                 /* nothing is compressed */
    uint64_t wanted_quota;      /* 0: what follows from the disk */
    size_t wanted_segment;      /* bytes; fewer where the quota is small */
    uint64_t first_used;        /* bytes that were there at first; the store's thread only */
    atomic_uint_fast64_t quota; /* 0: not known yet */
    size_t queue_bytes;
    bool waits; /* for room in the queue */
    atomic_size_t segment_bytes;
    /* the store's thread only: */
    int dir_fd, lock_fd;             /* lock: who publishes or evicts locks it; -1: not open yet */
    struct cw_cache_backoff backoff; /* of opening the directory */
    struct cw_cache_packer *packer;
    struct cw_cache_speed written, probed; /* past the page cache: how fast it was lately */
    struct cw_cache_speed last_probe;      /* by itself; ns 0: nothing could be read yet */
    uint64_t probed_ns;                    /* when that was */

    pthread_mutex_t mutex;
    pthread_cond_t work, told; /* told: what somebody may wait for of the store's thread */
    struct cw_link sets;       /* guarded by mutex, like everything from here on */
    struct cw_cache_doing doing;
    struct cw_error failed;                     /* why the directory can't be opened */
    bool tried;                                 /* opening it has come to an end, whatever that was */
    struct cw_cache_chunk *queue, **queue_tail; /* full ones */
    struct cw_cache_chunk *spare;               /* kept, for the kernel would zero their pages again */
    size_t chunk_bytes;                         /* of all chunks there are */
    bool stop, flush;
    bool said_slow, said_file, said_disk; /* each once */
    pthread_t thread;
    bool started, ended;
    atomic_uint holders; /* who opened it, and its threads: the last one frees it */

    struct { /* readers.c; guarded by its own mutex, inside which the other one may be taken */
        pthread_mutex_t mutex;
        pthread_cond_t gone;
        struct cw_cache_reader *idle;
        unsigned n;
        bool stop, warned;
        atomic_uint stuck; /* reads that nobody waited for, and that have not come back */
    } readers;
    struct cw_cache_unpacker *unpackers; /* unpack.c; guarded by mutex: those that nobody uses */
    atomic_uint_fast64_t hits, misses, bad, gone, late, kept, skipped, refused, bytes_read, read_ns,
        bytes_written, bytes_stored, write_ns, published, evicted, probe_bytes, probe_ns, used;
};

/* files.c. Functions return a descriptor, 0, or a negative errno, or one of these, negative. */
#define CW_CACHE_NO_FILE \
    EMEDIUMTYPE /* a link, a pipe, a device, a directory: what a regular file is expected of */
#define CW_CACHE_NO_DIR ENOTDIR
const char *cw_cache_why(int e);
bool cw_cache_is_set(const char *name);

enum cw_cache_name {
    CW_CACHE_NAME_FOREIGN,
    CW_CACHE_NAME_SEGMENT,
    CW_CACHE_NAME_WRITTEN,
    CW_CACHE_NAME_PUT,
    CW_CACHE_NAME_OTHER
};
enum cw_cache_name cw_cache_name(const char *name); /* of a file in a set */
int cw_cache_open_dir(int at, const char *name);
/* The names in a directory, read from the first on; NULL: it can't be read, or dir is negative. */
DIR *cw_cache_open_names(int dir);
int cw_cache_open_file(int at, const char *name, int flags);
char *cw_cache_read_text(int at, const char *name, size_t most); /* NULL: there is none to be had */
/* readers see the old or the new one, also after the machine went down */
int cw_cache_put_text(int at, const char *name, const char *text);
/* alone, until it is closed; 1: somebody else has it */
int cw_cache_try_lock(int at, const char *name, int *ret_fd);
bool cw_cache_locked(int at, const char *name);

/* open.c: by the store's thread. 0, or a negative errno: then *err says more, if it was filled in */
int cw_cache_dir_open(struct cw_cache *c, struct cw_error *err) _must_check_;
int cw_cache_set_enter(struct cw_cache_set *s) _must_check_;

/* set.c */
struct cw_cache_set *cw_cache_set_new(struct cw_cache *c, struct cw_hash128 key, const char *meta,
                                      struct cw_error *err);
void cw_cache_set_free(struct cw_cache_set *s);
/* takes g over, also on failure */
int cw_cache_set_add_segment(struct cw_cache_set *s, struct cw_cache_segment *g, uint32_t *ret,
                             struct cw_error *err);
int cw_cache_set_insert(struct cw_cache_set *s, uint32_t segment, const struct cw_cache_row *rows, size_t n,
                        struct cw_error *err);
void cw_cache_set_forget(struct cw_cache_set *s, const struct cw_cache_get *get);
struct cw_cache_segment *cw_cache_segment_new(void);
void cw_cache_segment_free(struct cw_cache_segment *g);

/* scan.c: looks for segments that others published or removed. always: without looking whether anything
 * changed. */
void cw_cache_set_scan(struct cw_cache_set *s, bool always);
void cw_cache_segment_named(struct cw_cache_set *s, struct cw_cache_segment *g); /* it has its name now */

/* segment.c: the table of a published segment. 0; 1: it is damaged, torn or of another set. A negative errno:
 * it can't be read. */
int cw_cache_table_read(int fd, struct cw_hash128 set, struct cw_cache_row **ret, size_t *ret_n,
                        struct cw_cache_trailer *ret_trailer);
/* Writes table and trailer behind the entries. Returns the size of the file, or a negative errno. */
int64_t cw_cache_table_write(int fd, uint64_t offset, const struct cw_cache_row *rows, size_t n,
                             uint64_t cost_us);
int cw_cache_write_at(int fd, uint64_t offset, const void *data, size_t size); /* 0 or a negative errno */
int cw_cache_read_at(int fd, uint64_t offset, void *to, size_t size); /* the same; 1: it ends before */
/* A segment, to be read. */
struct stat;
struct cw_file;
int cw_cache_file_new(const char *path, const struct stat *st, struct cw_file **ret, struct cw_error *err);
bool cw_cache_entry_sound(const struct cw_cache_entry *e, const struct cw_cache_key *key,
                          const struct iovec *v, int n_v);

/* store.c */
void cw_cache_chunk_free(struct cw_cache_chunk *k);
void cw_cache_release(struct cw_cache *c); /* by one of its holders */
/* Says it once, and leaves alone for a while what b is of (NULL: nothing). what: below the directory, and
 * gone without; NULL: it can't be written. e: an errno; 0: no room, not said. */
void cw_cache_trouble(struct cw_cache *c, struct cw_cache_backoff *b, const char *what, int e);
/* the store's thread, the mutex not held; NULL: done */
void cw_cache_doing(struct cw_cache *c, const char *what);

/* pack.c: what is to be written of a chunk: itself, or another one that is smaller. The store's thread. */
struct cw_cache_chunk *cw_cache_pack(struct cw_cache_set *s, struct cw_cache_chunk *k);
struct cw_cache_packer *cw_cache_packer_free(struct cw_cache_packer *p);

/* unpack.c: any thread. */
struct cw_cache_unpacker *cw_cache_unpacker_get(struct cw_cache *c, struct cw_error *err);
void cw_cache_unpacker_put(struct cw_cache *c, struct cw_cache_unpacker *u); /* NULL is fine */
/* 0; 1: that is no frame of so many bytes */
int cw_cache_unpack(struct cw_cache_unpacker *u, const void *from, size_t stored, void *to, size_t length);
struct cw_cache_unpacker *cw_cache_unpacker_free(struct cw_cache_unpacker *u); /* all of a list */

/* read.c */
enum cw_cache_way {
    CW_CACHE_WAIT,
    CW_CACHE_NOWAIT,
    CW_CACHE_COPY /* nor wait; it has just been found in memory */
};

/* 0; 1: not in memory; 2: can't be read. */
int cw_cache_segment_read(struct cw_cache_segment *g, uint64_t offset, struct iovec *v, int n_v, size_t bytes,
                          enum cw_cache_way way);

/* readers.c */
/* Reads what may take long. 0; 2: can't be read; 3: not in time, and nothing is written to v later on. The
 * caller has the set. */
int cw_cache_read_until(struct cw_cache_set *s, struct cw_cache_segment *g, uint64_t offset,
                        const struct iovec *v, size_t bytes, uint64_t deadline_ns);
void cw_cache_readers_stop(struct cw_cache *c); /* waits for all but those that are stuck */

/* probe.c: of a segment that was published */
void cw_cache_probe(struct cw_cache_set *s, const char *name);
void cw_cache_speed_add(struct cw_cache_speed *s, size_t bytes, uint64_t ns);

/* thread.c */
void *cw_cache_main(void *cache);

/* writer.c: the store's thread */
/* adds its entries to what is being written */
void cw_cache_write(struct cw_cache *c, struct cw_cache_chunk *k);
void cw_cache_publish(struct cw_cache_set *s); /* what is being written, if anything is */
/* how many it has, and what they took */
size_t cw_cache_entries(const struct cw_cache_chunk *k, uint64_t *ret_cost_us);

/* room.c: the directory's lock. What gets another name needs it: who lists a directory meanwhile may see
 * neither, and counts too little. 0 or a negative errno. */
int cw_cache_lock(struct cw_cache *c) _must_check_;
void cw_cache_unlock(const struct cw_cache *c);
/* How much may lie there, where `used` bytes do: as the disk is now, where nobody said. */
void cw_cache_bound(struct cw_cache *c, uint64_t used);
/* Those that follow take it. */
/* Makes a file with a temporary name in a set, locked as being written, of `size` bytes for the quota. value:
 * microseconds of computing per MiB that will lie in it; less valuable segments give way. 0; 1: there is no
 * room. Else a negative errno. */
int cw_cache_room(struct cw_cache_set *s, uint64_t size, uint64_t value, char **ret_name, int *ret_fd);
/* Removes what dead processes left, and what is left of sets that nobody has used for long. Returns the bytes
 * of all files. */
uint64_t cw_cache_sweep(struct cw_cache *c);

/* admin.c: all of a set in the directory; that is locked. 0; 1: it is in use. */
int cw_cache_set_remove(int at, const char *key, struct cw_error *err) _must_check_;
