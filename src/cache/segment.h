/*
 * A segment: a file of many entries, and its handle in memory. The store's thread makes handles; a segment is
 * first written by this process (fd), then published under a name (file). Any thread may read one.
 */
#pragma once
#include <pthread.h>

#include "base/map.h"
#include "cache/format.h"

struct cw_cache_segment {
    struct cw_map_node node; /* in cw_cache_set.names once it has a name; the store's thread only */
    char *name;              /* in the set's directory, once published */
    bool seen;               /* by the scan under way; the store's thread only */
    atomic_bool dead;        /* removed or damaged: its entries do not exist */
    pthread_rwlock_t lock;   /* guards fd and file: held shared to read, exclusively to change them */
    int fd;                  /* while it is written, else -1 */
    struct cw_file *file;    /* once it is published */
    /* of file, made when a large read first wants it; NULL: none yet */
    _Atomic(struct cw_mapped *) mapped;
    atomic_bool unmappable; /* no mapping can be made */
};

/* NULL: out of memory. */
struct cw_cache_segment *cw_cache_segment_new(void);
/* Accepts NULL. No other thread may use the segment any more. */
void cw_cache_segment_free(struct cw_cache_segment *g);
/* Makes the handle of a published segment's file, for cw_cache_segment.file. */
struct stat;
int cw_cache_segment_file(const char *path, const struct stat *st, struct cw_file **ret,
                          struct cw_error *err) _must_check_;
/* Ends the writing of g: its descriptor is closed. name and file, which g owns from here on, are those under
 * which it was published; NULL: it was not. */
void cw_cache_segment_written(struct cw_cache_segment *g, char *name, struct cw_file *file);
/* Closes the file of a dead segment, so that its disk space becomes free. Does nothing while a read is under
 * way. */
void cw_cache_segment_let_go(struct cw_cache_segment *g);

enum cw_cache_way {
    CW_CACHE_WAIT,
    CW_CACHE_NOWAIT, /* only what is in the page cache */
    CW_CACHE_COPY    /* like NOWAIT, for bytes that cw_cache_segment_resident has just confirmed */
};

/* Reads bytes at an offset into v. 0; 1: they are not in memory; 2: they can't be read. */
int cw_cache_segment_read(struct cw_cache_segment *g, uint64_t offset, struct iovec *v, int n_v, size_t bytes,
                          enum cw_cache_way way);
/* Returns whether all these bytes are in memory and large enough that copying them from a mapping pays. */
bool cw_cache_segment_resident(struct cw_cache_segment *g, uint64_t offset, size_t bytes);

/* Reads the table of a published segment; *ret is new. 0; 1: the file is damaged, torn or of another set. A
 * negative errno: it can't be read. */
int cw_cache_table_read(int fd, struct cw_hash128 set, struct cw_cache_row **ret, size_t *ret_n,
                        struct cw_cache_trailer *ret_trailer);
/* Writes table and trailer behind the entries. Returns the size of the file, or a negative errno. */
int64_t cw_cache_table_write(int fd, uint64_t offset, const struct cw_cache_row *rows, size_t n,
                             uint64_t cost_us);
/* Returns whether an entry, with the stored bytes in v, has this key and the right checksum. */
bool cw_cache_entry_sound(const struct cw_cache_entry *e, const struct cw_cache_key *key,
                          const struct iovec *v, int n_v);
