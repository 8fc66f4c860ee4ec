/* XXH3 under the project's names, and an incremental form that takes integers little-endian. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#define XXH_STATIC_LINKING_ONLY /* XXH3_state_t on the stack */
#include <xxhash.h>

#include "base/macro.h"

struct cw_hash128 {
    uint64_t lo, hi;
};

static inline uint64_t cw_hash64(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

/* Hashes one of several pieces of data. before: the result for the piece before it; 0 for the first piece. */
static inline uint64_t cw_hash64_next(uint64_t before, const void *data, size_t size)
{
    return XXH3_64bits_withSeed(data, size, before);
}

/* Short keys made of a few fields: append the fields, then call cw_key_hash. Longer input needs struct
 * cw_hasher. */
struct cw_key {
    size_t size;
    uint8_t bytes[256];
};

void cw_key_u64(struct cw_key *k, uint64_t v);
/* Appends the text without its length. Text longer than the room left is cut. */
void cw_key_text(struct cw_key *k, const char *text);

static inline uint64_t cw_key_hash(const struct cw_key *k)
{
    return XXH3_64bits(k->bytes, k->size);
}

/* 128-bit sums modulo 2^128. */
static inline struct cw_hash128 cw_hash128_add(struct cw_hash128 a, struct cw_hash128 b)
{
    struct cw_hash128 r = {.lo = a.lo + b.lo, .hi = a.hi + b.hi};
    r.hi += r.lo < a.lo;
    return r;
}

/* 32 hex digits and a NUL. */
void cw_hash128_print(struct cw_hash128 h, char out[33]);
/* Reads what cw_hash128_print writes. False: the text (may be NULL) is something else. */
bool cw_hash128_parse(const char *text, struct cw_hash128 *ret) _must_check_;
