/*
 * The layout of a segment on disk. Numbers are in the machine's byte order. A machine of the other byte order
 * reads another magic number, and so does not take the file for a segment.
 *
 * A segment is a header, then entries, then a table with one row per entry, then a trailer.
 */
#pragma once
#include "cache/cache.h"

#define CW_CACHE_MAGIC UINT64_C(0x3153574548434143) /* "CACHEWS1" */
#define CW_CACHE_TRAILER_MAGIC UINT64_C(0x3154574548434143)
#define CW_CACHE_ENTRY_MAGIC 0x4543
#define CW_CACHE_VERSION 2
#define CW_CACHE_ALIGN 8 /* bytes; each entry begins at a multiple */
/* Bytes. Direct I/O requires each write to begin and end at a multiple; zeros fill the last block. */
#define CW_CACHE_BLOCK ((size_t)4096)

enum { CW_CACHE_DROPPED = 1 }; /* a bit of `flags`: a filter rejected the element, so there is no content */

struct cw_cache_header {
    uint64_t magic;
    uint64_t version;
    struct cw_hash128 set; /* the key of the set that the segment belongs to */
};

/* Followed by `stored` bytes, padded to CW_CACHE_ALIGN. */
struct cw_cache_entry {
    uint64_t hash; /* XXH3_64 of the rest of this struct and of the stored bytes */
    uint16_t magic, flags;
    uint32_t cost_us; /* time that computing the entry took */
    struct cw_cache_key key;
    uint32_t length; /* bytes of the content */
    uint32_t stored; /* equal to length: the content itself; less: one zstd frame */
};

struct cw_cache_row {
    struct cw_cache_key key;
    uint64_t offset; /* of the entry, in bytes from the start of the file */
    uint32_t length, stored, flags, zero;
};

struct cw_cache_trailer {
    uint64_t n; /* rows */
    uint64_t table_offset, cost_us, table_hash;
    uint64_t hash; /* of the four fields above */
    uint64_t magic;
};

/* Bytes that an entry takes in a segment. */
static inline size_t cw_cache_entry_bytes(size_t stored)
{
    return sizeof(struct cw_cache_entry) + CW_ALIGN_UP(stored, CW_CACHE_ALIGN);
}
