/*
 * Compressing what is written, entry by entry, where that pays (docs/adr/0018). It pays where storage gives,
 * and takes, the bytes that are saved more slowly than CPUs pack and unpack them: seconds of the store, which
 * are what the run waits for, beside seconds of CPU, of which there are as many at a time as CPUs. A sample
 * now and then tells what it gives and costs. The store's thread.
 */
#include <string.h>
#include <zstd.h>

#include "base/cost_clock.h"
#include "cache/internal.h"
#include "cache/sum.h"

/* The quickest that gives most of what there is to be had, as on connections (docs/adr/0013). */
#define LEVEL 1
/* Less gives nothing: a frame alone has 13 bytes of its own. */
#define PACK_MIN 64
/* Enough to tell what the data are like, and about a thousandth of a segment's time. */
#define SAMPLE_BYTES ((size_t)128 << 10)
/* Between two samples: a segment; while they say the same, twice as much each time, up to this. */
#define SAMPLE_EVERY ((uint64_t)16 << 20)
#define SAMPLE_RARELY (16 * SAMPLE_EVERY)
/* A little is not worth what is not measured: another copy, caches of the processor, entries that are read
 * one by one. */
#define WORTH 1.5

struct cw_cache_packer {
    ZSTD_CCtx *context;
    struct cw_cache_chunk out; /* what a chunk became; as large as the largest one */
    uint8_t *back;             /* a sample, unpacked again */
    size_t back_capacity;
};

struct sample {
    double raw, packed, pack_ns, unpack_ns;
};

struct cw_cache_packer *cw_cache_packer_free(struct cw_cache_packer *p)
{
    if (!p)
        return NULL;
    ZSTD_freeCCtx(p->context);
    free(p->out.data);
    free(p->back);
    free(p);
    return NULL;
}

/* NULL: no memory, and then nothing is compressed. */
static struct cw_cache_packer *packer(struct cw_cache *c)
{
    struct cw_cache_packer *p = c->packer ? c->packer : calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    c->packer = p;
    if (!p->context && (p->context = ZSTD_createCCtx())) {
        (void)ZSTD_CCtx_setParameter(p->context, ZSTD_c_compressionLevel, LEVEL);
        /* what is unpacked is what was put */
        (void)ZSTD_CCtx_setParameter(p->context, ZSTD_c_checksumFlag, 1);
    }
    return p->context ? p : NULL;
}

/* Bytes that it became; 0: not fewer. */
static size_t pack(struct cw_cache_packer *p, void *to, const void *from, size_t n)
{
    size_t size = n < PACK_MIN ? 0 : ZSTD_compress2(p->context, to, n - 1, from, n);
    return ZSTD_isError(size) ? 0 : size;
}

static bool room(uint8_t **data, size_t *capacity, size_t wanted)
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

/* Entries from the chunk's first one on. False: no memory. */
static bool take_sample(struct cw_cache *c, const struct cw_cache_chunk *k, struct sample *s)
{
    struct cw_cache_packer *p = packer(c);
    struct cw_error err = {0};
    struct cw_cache_unpacker *u = p ? cw_cache_unpacker_get(c, &err) : NULL;
    bool ok = u != NULL;
    *s = (struct sample){0};
    for (size_t at = 0; ok && at < k->used && s->raw < SAMPLE_BYTES;) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        size_t n = CW_MIN((size_t)e.length, SAMPLE_BYTES);
        if (!(ok = room(&p->out.data, &p->out.capacity, n) && room(&p->back, &p->back_capacity, n)))
            break;
        uint64_t start = cw_cost_cpu_ns();
        size_t size = pack(p, p->out.data, k->data + at + sizeof(e), n);
        s->pack_ns += (double)(cw_cost_cpu_ns() - start);
        s->raw += (double)n;
        s->packed += (double)(size ? size : n);
        start = cw_cost_cpu_ns();
        if (size)
            (void)cw_cache_unpack(u, p->out.data, size, p->back, n);
        s->unpack_ns += (double)(cw_cost_cpu_ns() - start);
        at += cw_cache_entry_bytes(e.stored);
    }
    cw_cache_unpacker_put(c, u);
    return ok && s->raw > 0;
}

static double ns_per_byte(double bytes, double ns)
{
    return bytes > 0 ? ns / bytes : 0;
}

/* Of plain bytes that are read: as quick as storage is, or memory, where that has them already. */
static double read_ns(const struct cw_cache *c)
{
    double probed = ns_per_byte(c->last_probe.bytes, c->last_probe.ns),
           seen = ns_per_byte((double)atomic_load(&c->bytes_read), (double)atomic_load(&c->read_ns));
    return seen > 0 ? CW_MIN(probed, seen) : probed;
}

/* It is to pay for who reads it ever again, and for who reads it once. */
static bool pays(const struct cw_cache *c, const struct sample *s)
{
    double saved = 1 - s->packed / s->raw, cpus = cw_cpu_budget(), read = read_ns(c),
           write = ns_per_byte(c->written.bytes, c->written.ns);
    double unpack = WORTH * s->unpack_ns / s->raw / cpus, both = unpack + WORTH * s->pack_ns / s->raw / cpus;
    return saved * read > unpack && saved * (read + write) > both;
}

static bool pack_chunk(struct cw_cache_packer *p, const struct cw_cache_chunk *k)
{
    struct cw_cache_chunk *out = &p->out;
    if (!room(&out->data, &out->capacity, k->capacity))
        return false;
    out->used = 0;
    for (size_t at = 0; at < k->used;) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        const uint8_t *content = k->data + at + sizeof(e);
        at += cw_cache_entry_bytes(e.stored);
        uint8_t *to = out->data + out->used;
        size_t size = pack(p, to + sizeof(e), content, e.length);
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

/* A disk that is disturbed for a moment seems slow: it has to pay by two probes in a row. Where the first one
 * said so, this is for the next. */
static void decide(struct cw_cache *c, struct cw_cache_packing *p, const struct cw_cache_chunk *k)
{
    struct sample sample;
    bool now = take_sample(c, k, &sample) && pays(c, &sample), on = now && (p->on || p->unsure_ns);
    p->unsure_ns = now && !on ? c->probed_ns : 0;
    p->every = now == p->on ? CW_MIN(CW_MAX(2 * p->every, SAMPLE_EVERY), SAMPLE_RARELY) : SAMPLE_EVERY;
    p->on = on;
    p->left = p->every;
}

struct cw_cache_chunk *cw_cache_pack(struct cw_cache_set *s, struct cw_cache_chunk *k)
{
    struct cw_cache *c = s->cache;
    struct cw_cache_packing *p = &s->packing;
    if (!c->plain && c->last_probe.ns > 0 &&
        (p->unsure_ns ? p->unsure_ns != c->probed_ns : p->left < k->used))
        decide(c, p, k);
    p->left -= CW_MIN(p->left, k->used);
    return p->on && pack_chunk(c->packer, k) ? &c->packer->out : k;
}
