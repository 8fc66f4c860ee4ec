/* Compressing ("packing") entries before they are written, if that saves time (docs/adr/0018). The store's
 * thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "cache/queue.h"

struct cw_cache_packer {
    struct ZSTD_CCtx_s *context;
    struct cw_cache_chunk out; /* the compressed form of a chunk; its data grow to the largest chunk's size */
    uint8_t *back;             /* memory for decompressing a sample again */
    size_t back_capacity;      /* bytes of back */
};

/* Whether the entries of a set are compressed. */
struct cw_cache_packing {
    bool on;
    /* If exactly one test so far found that compression pays: probes.last_ns of the probe that it used. Else
     * 0. Compression begins once a test with a later probe agrees. */
    uint64_t unsure_ns;
    uint64_t every, left; /* bytes between two samples; bytes until the next sample */
};

void cw_cache_packer_deinit(struct cw_cache_packer *p);
/* Returns the chunk to be written in place of k: k itself, or its compressed form, which is valid until the
 * next call. */
struct cw_cache_chunk *cw_cache_pack(struct cw_cache_set *s, struct cw_cache_chunk *k);
