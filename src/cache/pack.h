/* Compressing entries before they are written, where that pays (docs/adr/0018). The store's thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "cache/queue.h"

struct cw_cache_packer {
    struct ZSTD_CCtx_s *context;
    struct cw_cache_chunk out; /* what a chunk became; as large as the largest chunk */
    uint8_t *back;             /* a sample, decompressed again */
    size_t back_capacity;
};

/* Whether the entries of a set are compressed. */
struct cw_cache_packing {
    bool on;
    /* When the storage was probed that says that compression pays, if that is the only time so far; else 0.
     */
    uint64_t unsure_ns;
    uint64_t every, left; /* bytes between two samples; until the next one */
};

void cw_cache_packer_deinit(struct cw_cache_packer *p);
/* Returns what is to be written of a chunk: the chunk itself, or a smaller one that is valid until the next
 * call. */
struct cw_cache_chunk *cw_cache_pack(struct cw_cache_set *s, struct cw_cache_chunk *k);
