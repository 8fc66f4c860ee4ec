/*
 * Writing entries into a segment under a temporary name, and publishing it. The store's thread only. A
 * published segment has its table and its final name, so that every process can read it.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "cache/files.h"

struct cw_cache_chunk;
struct cw_cache_set;

/* A segment under construction. */
struct cw_cache_writing {
    struct cw_cache_segment *segment;        /* NULL: none */
    char temporary[CW_CACHE_TEMPORARY_SIZE]; /* name */
    /* Opened for direct I/O; -1: the file system can't. Kept entries are read an epoch later, and writing
     * them into the page cache would cost twenty times the CPU. */
    int direct_fd;
    uint64_t size, reserved; /* bytes written; bytes that count against the quota */
    /* Of the entries: time to compute them, and bytes without the zeros that fill blocks. The value of a
     * segment does not depend on how full it is. */
    uint64_t cost_us, filled;
    struct cw_cache_row *rows; /* the table so far */
    size_t n, capacity;        /* rows */
    uint64_t since_ns;
};

/* Adds the entries of a chunk to the segment that is being written. They are counted as kept or refused. */
void cw_cache_write(struct cw_cache_chunk *k);
/* Publishes the segment that is being written, if there is one. */
void cw_cache_publish(struct cw_cache_set *s);
