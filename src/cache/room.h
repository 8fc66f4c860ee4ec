/*
 * The cache directory as a whole: its lock, its quota, and the eviction of segments to make room. Only the
 * store's thread calls these functions; other threads may read the atomic fields.
 */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cache/files.h"
#include "cache/monitor.h"

struct cw_cache_room {
    struct cw_cache_monitor *monitor;
    uint64_t wanted_quota; /* bytes; 0: follow the free space of the disk */
    size_t wanted_segment; /* bytes of a full segment, if the quota allows */
    int dir_fd;            /* -1: the directory is not open yet */
    /* lock on the directory: descriptor of the file that is locked; -1: not opened yet */
    int lock_fd;
    uint64_t first_used;         /* bytes of all files when the directory was opened */
    atomic_uint_fast64_t quota;  /* bytes in force; 0: not known yet */
    atomic_size_t segment_bytes; /* bytes of a full segment: less than wanted_segment if the quota is small */
    atomic_uint_fast64_t used;   /* bytes of all files when they were last counted */
    atomic_uint_fast64_t evicted; /* number of segments */
};

void cw_cache_room_init(struct cw_cache_room *room, struct cw_cache_monitor *m, uint64_t quota,
                        size_t segment_bytes);
void cw_cache_room_deinit(struct cw_cache_room *room);
/* Makes and opens the directory, and determines the quota. Removes files that dead processes left, and the
 * sets that have not been used for long. Returns 0, or a negative errno and the error in *err. */
int cw_cache_room_open(struct cw_cache_room *room, struct cw_error *err) _must_check_;
/* Locks the directory against other processes, waiting if need be. Renaming a file requires this lock: a
 * process that lists the directory during the rename may see neither name, and would count too few bytes.
 * Returns 0, or a negative errno. */
int cw_cache_room_lock(struct cw_cache_room *room) _must_check_;
void cw_cache_room_unlock(const struct cw_cache_room *room);
/* Makes a file of `size` bytes under a temporary name in the set's directory (descriptor `set`), and locks it
 * to mark it as being written. value: microseconds of computing per MiB of the file. If there is no room,
 * segments are evicted whose value is less by a margin (room.c). Returns 0; 1: there is no room; a negative
 * errno. */
int cw_cache_room_reserve(struct cw_cache_room *room, int set, uint64_t size, uint64_t value,
                          char ret_name[CW_CACHE_TEMPORARY_SIZE], int *ret_fd) _must_check_;
