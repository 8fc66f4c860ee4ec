/* Entries that were compressed, back as they were: contexts of zstd, kept for who comes next. */
#include <string.h>
#include <zstd.h>

#include "cache/internal.h"

#include "base/thread.h"

struct cw_cache_unpacker {
    struct cw_cache_unpacker *next;
    ZSTD_DCtx *context;
};

struct cw_cache_unpacker *cw_cache_unpacker_get(struct cw_cache *c, struct cw_error *err)
{
    struct cw_cache_unpacker *u = CW_LOCKED(&c->mutex, c->unpackers ? CW_POP(c->unpackers) : NULL);
    if (u)
        return u;
    if (!(u = calloc(1, sizeof(*u))) || !(u->context = ZSTD_createDCtx())) {
        free(u);
        cw_error_nomem(err, sizeof(*u), "a compressed entry");
        return NULL;
    }
    return u;
}

void cw_cache_unpacker_put(struct cw_cache *c, struct cw_cache_unpacker *u)
{
    if (!u)
        return;
    CW_GUARD(&c->mutex);
    u->next = c->unpackers;
    c->unpackers = u;
}

struct cw_cache_unpacker *cw_cache_unpacker_free(struct cw_cache_unpacker *u)
{
    while (u) {
        struct cw_cache_unpacker *next = u->next;
        ZSTD_freeDCtx(u->context);
        free(u);
        u = next;
    }
    return NULL;
}

int cw_cache_unpack(struct cw_cache_unpacker *u, const void *from, size_t stored, void *to, size_t length)
{
    size_t n = ZSTD_decompressDCtx(u->context, to, length, from, stored);
    return ZSTD_isError(n) || n != length;
}
