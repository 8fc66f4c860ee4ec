/*
 * Deciding whether compression pays, and compressing. Compression pays if storage needs more time to write
 * and read the saved bytes than the CPUs need to compress and decompress them. A sample of the entries shows
 * the bytes that compression saves and the CPU time that it costs.
 */
#include "cache/pack.h"

#include <string.h>
#include <zstd.h>

#include "base/cost_clock.h"
#include "cache/internal.h"
#include "cache/set.h"
#include "cache/sum.h"

/* zstd's fastest level, which gives most of the possible saving; connections use this level too
 * (docs/adr/0013). */
#define LEVEL 1
/* Bytes of content; smaller entries do not shrink, because each zstd frame adds 13 bytes. */
#define PACK_MIN 64
/* Bytes of a sample: enough to represent the data; compressing them takes about 1/1000 of the time of a
 * segment. */
#define SAMPLE_BYTES ((size_t)128 << 10)
/* Bytes between two samples: at first one segment; twice as many each time that a sample confirms the
 * decision, up to SAMPLE_RARELY. */
#define SAMPLE_EVERY ((uint64_t)16 << 20)
#define SAMPLE_RARELY (16 * SAMPLE_EVERY)
/* Factor on the CPU time, for costs that a sample does not show: a further copy, displaced data in the
 * processor's caches, entries that are read one by one. */
#define WORTH 1.5

struct pack_sample { /* raw, packed: bytes; others: nanoseconds of CPU time */
    double raw, packed, pack_ns, unpack_ns;
};

void cw_cache_packer_deinit(struct cw_cache_packer *p)
{
    ZSTD_freeCCtx(p->context);
    free(p->out.data);
    free(p->back);
}

/* Makes the compression context if need be. False: out of memory; then nothing is compressed. */
static bool packer_init(struct cw_cache_packer *p)
{
    if (!p->context && (p->context = ZSTD_createCCtx())) {
        (void)ZSTD_CCtx_setParameter(p->context, ZSTD_c_compressionLevel, LEVEL);
        /* a checksum of the content, so that decompression detects corruption */
        (void)ZSTD_CCtx_setParameter(p->context, ZSTD_c_checksumFlag, 1);
    }
    return p->context;
}

/* Compresses n bytes. Returns the compressed size; 0: it would not be smaller than n. */
static size_t packer_compress(struct cw_cache_packer *p, void *to, const void *from, size_t n)
{
    size_t size = n < PACK_MIN ? 0 : ZSTD_compress2(p->context, to, n - 1, from, n);
    return ZSTD_isError(size) ? 0 : size;
}

static bool packer_reserve(uint8_t **data, size_t *capacity, size_t wanted)
{
    if (wanted <= *capacity)
        return true;
    uint8_t *grown = aligned_alloc(CW_CACHE_BLOCK, CW_ALIGN_UP(wanted, CW_CACHE_BLOCK));
    if (!grown)
        return false;
    free(*data);
    *data = grown;
    *capacity = CW_ALIGN_UP(wanted, CW_CACHE_BLOCK);
    return true;
}

/* Compresses and decompresses the first entries of a chunk, and adds sizes and times to *s. False: out of
 * memory. */
static bool pack_take_sample(struct cw_cache *c, const struct cw_cache_chunk *k, struct pack_sample *s)
{
    struct cw_cache_packer *p = &c->packer;
    struct cw_cache_unpacker *u = packer_init(p) ? cw_cache_unpacker_get(&c->unpackers, NULL) : NULL;
    bool ok = u != NULL;
    for (size_t at = 0; ok && at < k->used && s->raw < SAMPLE_BYTES;) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        size_t n = CW_MIN((size_t)e.length, SAMPLE_BYTES);
        if (!(ok = packer_reserve(&p->out.data, &p->out.capacity, n) &&
                   packer_reserve(&p->back, &p->back_capacity, n)))
            break;
        uint64_t start = cw_cost_cpu_ns();
        size_t size = packer_compress(p, p->out.data, k->data + at + sizeof(e), n);
        s->pack_ns += (double)(cw_cost_cpu_ns() - start);
        s->raw += (double)n;
        s->packed += (double)(size ? size : n);
        start = cw_cost_cpu_ns();
        if (size)
            (void)cw_cache_unpack(u, p->out.data, size, p->back, n);
        s->unpack_ns += (double)(cw_cost_cpu_ns() - start);
        at += cw_cache_entry_bytes(e.stored);
    }
    cw_cache_unpacker_put(&c->unpackers, u);
    return ok && s->raw > 0;
}

/* Returns the nanoseconds that reading a byte takes: as the last probe measured it from storage or, if that
 * is less, as the reads of this run show, part of which were served from memory. */
static double pack_read_ns(const struct cw_cache *c)
{
    const struct cw_cache_speed reads = {.bytes = (double)atomic_load(&c->counters.bytes_read),
                                         .ns = (double)atomic_load(&c->counters.read_ns)};
    double probed = cw_cache_speed_ns_per_byte(&c->probes.last), seen = cw_cache_speed_ns_per_byte(&reads);
    return seen > 0 ? CW_MIN(probed, seen) : probed;
}

/* Returns whether compression pays both for an entry that is read many times (the first condition) and for an
 * entry that is read once (the second). */
static bool pack_pays(const struct cw_cache *c, const struct pack_sample *s)
{
    double saved = 1 - s->packed / s->raw, cpus = cw_cpu_budget(), read = pack_read_ns(c),
           write = cw_cache_speed_ns_per_byte(&c->written);
    double unpack = WORTH * s->unpack_ns / s->raw / cpus, both = unpack + WORTH * s->pack_ns / s->raw / cpus;
    return saved * read > unpack && saved * (read + write) > both;
}

/* Compresses a chunk into p->out. False: out of memory. */
static bool packer_pack(struct cw_cache_packer *p, const struct cw_cache_chunk *k)
{
    struct cw_cache_chunk *out = &p->out;
    if (!packer_reserve(&out->data, &out->capacity, k->capacity))
        return false;
    out->used = 0;
    for (size_t at = 0; at < k->used;) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        const uint8_t *content = k->data + at + sizeof(e);
        at += cw_cache_entry_bytes(e.stored);
        uint8_t *to = out->data + out->used;
        size_t size = packer_compress(p, to + sizeof(e), content, e.length);
        if (size) {
            e.stored = (uint32_t)size;
            memcpy(to, &e, sizeof(e));
            e.hash = cw_sum(to + sizeof(e.hash), sizeof(e) - sizeof(e.hash) + size);
        } else {
            memcpy(to + sizeof(e), content, e.stored);
        }
        memcpy(to, &e, sizeof(e));
        size_t bytes = cw_cache_entry_bytes(e.stored);
        memset(to + sizeof(e) + e.stored, 0, bytes - sizeof(e) - e.stored);
        out->used += bytes;
    }
    return true;
}

/* Decides with a new sample whether the set's entries are compressed. Compression begins only after two tests
 * in a row, with two different probes of the storage, found that it pays: a disk that is disturbed for a
 * moment seems slow. */
static void pack_decide(struct cw_cache *c, struct cw_cache_packing *p, const struct cw_cache_chunk *k)
{
    struct pack_sample sample = {0};
    bool now = pack_take_sample(c, k, &sample) && pack_pays(c, &sample), on = now && (p->on || p->unsure_ns);
    p->unsure_ns = now && !on ? c->probes.last_ns : 0;
    p->every = now == p->on ? CW_MIN(CW_MAX(2 * p->every, SAMPLE_EVERY), SAMPLE_RARELY) : SAMPLE_EVERY;
    p->on = on;
    p->left = p->every;
}

struct cw_cache_chunk *cw_cache_pack(struct cw_cache_set *s, struct cw_cache_chunk *k)
{
    struct cw_cache *c = s->cache;
    struct cw_cache_packing *p = &s->packing;
    if (!c->plain && c->probes.last.ns > 0 &&
        (p->unsure_ns ? p->unsure_ns != c->probes.last_ns : p->left < k->used))
        pack_decide(c, p, k);
    p->left -= CW_MIN(p->left, k->used);
    return p->on && packer_pack(&c->packer, k) ? &c->packer.out : k;
}
