/*
 * A segment: a file of many entries, and its handle in memory. The store's thread makes the handles. A
 * segment of this process is first being written (fd is open), then published under its final name (file is
 * set). A segment of another process is published from the start. Any thread may read a segment.
 */
#pragma once
#include <pthread.h>

#include "base/map.h"
#include "cache/format.h"

struct cw_cache_segment {
    struct cw_map_node node; /* in cw_cache_set.names once the segment has a name; the store's thread only */
    char *name;              /* in the set's directory, once published; owned */
    bool seen;               /* the scan in progress found the name; the store's thread only */
    atomic_bool dead;        /* removed or damaged: its entries count as missing */
    pthread_rwlock_t lock;   /* guards fd and file: held shared to read, exclusively to change them */
    int fd;                  /* while the segment is being written, else -1 */
    struct cw_file *file;    /* once the segment is published; owned */
    /* mapping of file, made at the first large read; NULL: none yet */
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
/* Ends the writing of g and closes its descriptor. name and file: the final name of g and its file, which g
 * owns from now on; both NULL if g was not published. */
void cw_cache_segment_written(struct cw_cache_segment *g, char *name, struct cw_file *file);
/* Closes the file of a dead segment, so that its disk space becomes free. Does nothing if the segment is
 * alive or a thread reads it. */
void cw_cache_segment_let_go(struct cw_cache_segment *g);

enum cw_cache_way {
    CW_CACHE_WAIT,   /* read from storage if need be */
    CW_CACHE_NOWAIT, /* read only bytes that are in the page cache */
    CW_CACHE_COPY    /* like NOWAIT, for bytes that cw_cache_segment_resident has just confirmed */
};

/* Reads `bytes` bytes at an offset into v. Returns 0; 1: the bytes are not in memory (not with
 * CW_CACHE_WAIT); 2: the bytes can't be read. */
int cw_cache_segment_read(struct cw_cache_segment *g, uint64_t offset, struct iovec *v, int n_v, size_t bytes,
                          enum cw_cache_way way);
/* Returns whether all these bytes are in memory and large enough that copying them from a mapping pays. */
bool cw_cache_segment_resident(struct cw_cache_segment *g, uint64_t offset, size_t bytes);

/* Reads the table of a published segment; the caller frees *ret. Returns 0; 1: the file is damaged, torn or
 * of another set; a negative errno: the file can't be read. */
int cw_cache_table_read(int fd, struct cw_hash128 set, struct cw_cache_row **ret, size_t *ret_n,
                        struct cw_cache_trailer *ret_trailer);
/* Writes table and trailer at `offset`, the end of the entries. Returns the size of the file, or a negative
 * errno. */
int64_t cw_cache_table_write(int fd, uint64_t offset, const struct cw_cache_row *rows, size_t n,
                             uint64_t cost_us);
/* Returns whether an entry, with the stored bytes in v, has this key and the right checksum. */
bool cw_cache_entry_sound(const struct cw_cache_entry *e, const struct cw_cache_key *key,
                          const struct iovec *v, int n_v);
