/* Decompressing entries. An unpacker is a context of zstd; unused unpackers are kept for later reads. Any
 * thread may call. */
#pragma once
#include <pthread.h>
#include <stddef.h>

#include "base/error.h"

struct cw_cache_unpackers {
    pthread_mutex_t mutex;
    struct cw_cache_unpacker *idle; /* guarded by mutex */
};

#define CW_CACHE_UNPACKERS {.mutex = PTHREAD_MUTEX_INITIALIZER}
void cw_cache_unpackers_deinit(struct cw_cache_unpackers *l);
/* Returns an unpacker for the caller alone, until it is put back; NULL: out of memory. */
struct cw_cache_unpacker *cw_cache_unpacker_get(struct cw_cache_unpackers *l, struct cw_error *err);
/* Accepts NULL. */
void cw_cache_unpacker_put(struct cw_cache_unpackers *l, struct cw_cache_unpacker *u);
/* Decompresses one zstd frame of `stored` bytes into exactly `length` bytes. Returns 0; 1: the frame is
 * damaged or has another length. */
int cw_cache_unpack(struct cw_cache_unpacker *u, const void *from, size_t stored, void *to, size_t length);
