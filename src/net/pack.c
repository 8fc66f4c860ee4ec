/* Makes and reads blocks of zstd. */
#include "net/pack.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define LEVEL 1 /* zstd's; docs/adr/0013 compares levels */

/* ---- packing ---- */

struct cw_packer {
    ZSTD_CCtx *context;
    uint8_t raw[CW_PACK_BLOCK];
    uint8_t block[CW_PACK_HEAD + CW_PACK_BLOCK];
};

int cw_packer_new(struct cw_packer **ret, struct cw_error *err)
{
    struct cw_packer *p = malloc(sizeof(*p));
    if (!p || !(p->context = ZSTD_createCCtx())) {
        free(p);
        return cw_error_nomem(err, sizeof(*p), "compressing");
    }
    *ret = p;
    return 0;
}

struct cw_packer *cw_packer_free(struct cw_packer *p)
{
    if (p)
        ZSTD_freeCCtx(p->context);
    free(p);
    return NULL;
}

uint8_t *cw_packer_room(struct cw_packer *p)
{
    return p->raw;
}

size_t cw_packer_block(struct cw_packer *p, const uint8_t *raw, size_t n, const uint8_t **ret)
{
    /* The compressed block must be smaller than n; otherwise zstd fails, and the raw bytes are stored. */
    size_t size = ZSTD_compressCCtx(p->context, p->block + CW_PACK_HEAD, n - 1, raw, n, LEVEL);
    uint32_t head = (uint32_t)size;
    if (ZSTD_isError(size)) {
        memcpy(p->block + CW_PACK_HEAD, raw, n);
        size = n;
        head = (uint32_t)n | CW_PACK_STORED;
    }
    head = htole32(head);
    memcpy(p->block, &head, sizeof(head));
    *ret = p->block;
    return CW_PACK_HEAD + size;
}

/* ---- unpacking ---- */

struct cw_unpacker {
    ZSTD_DCtx *context;
    uint8_t block[CW_PACK_BLOCK];
};

int cw_unpacker_new(struct cw_unpacker **ret, struct cw_error *err)
{
    struct cw_unpacker *u = malloc(sizeof(*u));
    if (!u || !(u->context = ZSTD_createDCtx())) {
        free(u);
        return cw_error_nomem(err, sizeof(*u), "a compressed payload");
    }
    *ret = u;
    return 0;
}

struct cw_unpacker *cw_unpacker_free(struct cw_unpacker *u)
{
    if (u)
        ZSTD_freeDCtx(u->context);
    free(u);
    return NULL;
}

uint8_t *cw_unpacker_room(struct cw_unpacker *u)
{
    return u->block;
}

int cw_unpack_head(const uint8_t head[CW_PACK_HEAD], size_t n, size_t *ret, bool *stored,
                   struct cw_error *err)
{
    uint32_t size;
    memcpy(&size, head, sizeof(size));
    size = le32toh(size);
    *stored = size & CW_PACK_STORED;
    *ret = size & ~CW_PACK_STORED;
    if (*stored ? *ret == n : *ret > 0 && *ret < n)
        return 0;
    return cw_error_set(
        err, CW_E_SERVICE,
        "the other side sent a%s block of %zu bytes for %zu bytes of a payload, expected %s" CW_OTHER_VERSION,
        *stored ? "n uncompressed" : " compressed", *ret, n, *stored ? "the same number" : "fewer bytes");
}

int cw_unpack(struct cw_unpacker *u, const uint8_t *from, size_t size, uint8_t *to, size_t n,
              struct cw_error *err)
{
    size_t got = ZSTD_decompressDCtx(u->context, to, n, from, size);
    if (!ZSTD_isError(got) && got == n)
        return 0;
    if (ZSTD_isError(got))
        return cw_error_set(
            err, CW_E_SERVICE,
            "the other side sent a compressed block of %zu bytes that can't be read (%s)" CW_OTHER_VERSION,
            size, ZSTD_getErrorName(got));
    return cw_error_set(err, CW_E_SERVICE,
                        "the other side sent a compressed block of %zu bytes that has %zu bytes of a "
                        "payload, expected %zu" CW_OTHER_VERSION,
                        size, got, n);
}
