/* Contexts of zstd for decompression, and the list of unused contexts. */
#include "cache/unpack.h"

#include <stdlib.h>
#include <zstd.h>

#include "base/thread.h"

struct cw_cache_unpacker {
    struct cw_cache_unpacker *next;
    ZSTD_DCtx *context;
};

void cw_cache_unpackers_deinit(struct cw_cache_unpackers *l)
{
    while (l->idle) {
        struct cw_cache_unpacker *u = CW_POP(l->idle);
        ZSTD_freeDCtx(u->context);
        free(u);
    }
    pthread_mutex_destroy(&l->mutex);
}

struct cw_cache_unpacker *cw_cache_unpacker_get(struct cw_cache_unpackers *l, struct cw_error *err)
{
    struct cw_cache_unpacker *u = CW_LOCKED(&l->mutex, l->idle ? CW_POP(l->idle) : NULL);
    if (u)
        return u;
    if (!(u = calloc(1, sizeof(*u))) || !(u->context = ZSTD_createDCtx())) {
        free(u);
        cw_error_nomem(err, sizeof(*u), "a compressed entry");
        return NULL;
    }
    return u;
}

void cw_cache_unpacker_put(struct cw_cache_unpackers *l, struct cw_cache_unpacker *u)
{
    if (!u)
        return;
    CW_GUARD(&l->mutex);
    u->next = l->idle;
    l->idle = u;
}

int cw_cache_unpack(struct cw_cache_unpacker *u, const void *from, size_t stored, void *to, size_t length)
{
    size_t n = ZSTD_decompressDCtx(u->context, to, length, from, stored);
    return ZSTD_isError(n) || n != length;
}
