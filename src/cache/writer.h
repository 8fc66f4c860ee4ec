/*
 * Writing entries into a segment under a temporary name, and publishing the segment. Only the store's thread
 * calls these functions. A published segment has its table and its final name, so that every process can read
 * it.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "cache/files.h"

struct cw_cache_chunk;
struct cw_cache_set;

/* A segment under construction. */
struct cw_cache_writing {
    struct cw_cache_segment *segment;        /* NULL: no segment is being written */
    char temporary[CW_CACHE_TEMPORARY_SIZE]; /* its temporary name */
    /* The file opened for direct I/O; -1: the file system does not support that. Entries are read only an
     * epoch later, and writing them through the page cache would take twenty times the CPU time. */
    int direct_fd;
    uint64_t size, reserved; /* bytes written; bytes that count against the quota */
    /* Time to compute the entries, and their bytes without the zeros that fill blocks. The value of a segment
     * is their ratio, which does not depend on how full the segment is. */
    uint64_t cost_us, filled;
    struct cw_cache_row *rows; /* the table so far */
    size_t n, capacity;        /* number of rows; room for rows */
    uint64_t since_ns;         /* when the segment was begun, by cw_now_ns */
};

/* Adds the entries of a chunk to the segment that is being written, or to a new one, and counts them as kept
 * or refused. */
void cw_cache_write(struct cw_cache_chunk *k);
/* Publishes the segment that is being written, if any. */
void cw_cache_publish(struct cw_cache_set *s);
