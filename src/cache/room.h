/*
 * The cache directory as a whole: its lock, its quota, and the segments that are evicted to make room. The
 * store's thread only, except for the atomic fields.
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
    uint64_t wanted_quota;        /* bytes; 0: what is there and half of what is free, as that changes */
    size_t wanted_segment;        /* bytes */
    int dir_fd;                   /* -1: the directory is not open yet */
    int lock_fd;                  /* locked by the process that publishes or evicts; -1: not needed yet */
    uint64_t first_used;          /* bytes of all files when the directory was opened */
    atomic_uint_fast64_t quota;   /* bytes; 0: not known yet */
    atomic_size_t segment_bytes;  /* of a full segment: less than wanted_segment where the quota is small */
    atomic_uint_fast64_t used;    /* bytes of all files when that was counted last */
    atomic_uint_fast64_t evicted; /* segments */
};

void cw_cache_room_init(struct cw_cache_room *room, struct cw_cache_monitor *m, uint64_t quota,
                        size_t segment_bytes);
void cw_cache_room_deinit(struct cw_cache_room *room);
/* Makes and opens the directory, removes what dead processes and forsaken sets left, and sets the quota. 0,
 * or a negative errno; then *err says more. */
int cw_cache_room_open(struct cw_cache_room *room, struct cw_error *err) _must_check_;
/* Locks the directory against other processes. Renaming needs it: a process that lists a directory meanwhile
 * may see neither name, and would count too little. 0, or a negative errno. */
int cw_cache_room_lock(struct cw_cache_room *room) _must_check_;
void cw_cache_room_unlock(const struct cw_cache_room *room);
/* Makes a file under a temporary name in a set's directory, locked as being written, that counts as `size`
 * bytes. value: microseconds of computing per MiB of it; clearly less valuable segments are evicted. 0; 1:
 * there is no room; a negative errno. */
int cw_cache_room_reserve(struct cw_cache_room *room, int set, uint64_t size, uint64_t value,
                          char ret_name[CW_CACHE_TEMPORARY_SIZE], int *ret_fd) _must_check_;
