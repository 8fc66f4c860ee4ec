/* What segments look like on disk. Native byte order: a file of the other one has another magic number, and
 * is none. */
#pragma once
#include "cache/cache.h"

#define CW_CACHE_MAGIC UINT64_C(0x3153574548434143) /* "CACHEWS1" */
#define CW_CACHE_TRAILER_MAGIC UINT64_C(0x3154574548434143)
#define CW_CACHE_ENTRY_MAGIC 0x4543
#define CW_CACHE_VERSION 2
#define CW_CACHE_ALIGN 8
#define CW_CACHE_BLOCK \
    ((size_t)4096) /* what is written at a time begins and ends at a multiple of it, as direct I/O wants it; \
                      zeros fill up */
#define CW_CACHE_SUFFIX ".cws"
#define CW_CACHE_TEMPORARY "tmp-"
#define CW_CACHE_LOCK "lock" /* of the directory; the others are a set's */
#define CW_CACHE_META "meta.json"
#define CW_CACHE_PROFILE "profile.json"
#define CW_CACHE_USED "used"
#define CW_CACHE_PIN "pin"
#define CW_CACHE_PUT ".tmp-" /* behind the name of a small file that is being written */
#define CW_CACHE_PROFILE_BYTES ((size_t)4 << 10)

enum { CW_CACHE_DROPPED = 1 };

struct cw_cache_header { /* a segment begins with it */
    uint64_t magic;
    uint64_t version;
    struct cw_hash128 set;
};

struct cw_cache_entry { /* then entries, each followed by what is stored of it, padded to 8 bytes */
    uint64_t hash;      /* XXH3_64 of the rest of this, and of what is stored */
    uint16_t magic, flags;
    uint32_t cost_us; /* what it took to compute */
    struct cw_cache_key key;
    uint32_t length; /* of the content */
    uint32_t stored; /* as many bytes: the content as it is; fewer: a frame of zstd */
};

struct cw_cache_row { /* then, once it is complete, a table of them */
    struct cw_cache_key key;
    uint64_t offset; /* of the entry */
    uint32_t length, stored, flags, zero;
};

struct cw_cache_trailer { /* and this at its end */
    uint64_t n, table_offset, cost_us, table_hash;
    uint64_t hash; /* of the four before */
    uint64_t magic;
};

static inline size_t cw_cache_entry_bytes(size_t stored)
{
    return sizeof(struct cw_cache_entry) + CW_ALIGN_UP(stored, CW_CACHE_ALIGN);
}
