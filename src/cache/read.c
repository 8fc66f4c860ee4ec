/* Reading entries: large ones straight to where they go, small neighbours together. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cost_clock.h"
#include "cache/internal.h"
#include "storage/file.h"
#include "storage/throttle.h"

/* A read of its own costs about what copying this much does. */
#define SMALL_BYTES ((size_t)8 << 10)
/* What lies between two entries is read too, if it is no more than this. */
#define GAP_BYTES ((uint64_t)4 << 10)
#define RUN_BYTES ((uint64_t)1 << 20)
/* From here on it pays to copy from a mapped file: what is copied has a checksum. */
#define MAPPED_BYTES ((size_t)32 << 10)
/* Looked at together before they are copied. What goes away meanwhile is waited for, so these are a fraction
 * of a millisecond. */
#define LOOK_BYTES ((uint64_t)4 << 20)

int cw_cache_segment_read(struct cw_cache_segment *g, uint64_t offset, struct iovec *v, int n_v, size_t bytes,
                          enum cw_cache_way way)
{
    int r = 2;
    bool nowait = way != CW_CACHE_WAIT;
    if (nowait && cw_throttled(CW_THROTTLE_STORE))
        return 1;
    cw_throttle_read(CW_THROTTLE_STORE, bytes);
    pthread_rwlock_rdlock(&g->lock);
    if (g->fd >= 0) { /* being written by this process, past the page cache if that can be */
        ssize_t n = preadv2(g->fd, v, n_v, (off_t)offset, nowait ? RWF_NOWAIT : 0);
        r = n >= 0 && (size_t)n == bytes ? 0 : nowait ? 1 : 2;
    } else if (g->file) {
        struct cw_error err = {0};
        bool copied = way == CW_CACHE_COPY && bytes >= MAPPED_BYTES &&
                      cw_file_copy(g->file, offset, v, n_v, bytes);
        r = copied ? 0 : cw_file_readv(g->file, offset, v, n_v, nowait, &err);
        r = r < 0 ? 2 : r;
    }
    pthread_rwlock_unlock(&g->lock);
    return r;
}

/* A call of cw_cache_read. */
struct reading {
    struct cw_cache_set *set;
    struct cw_arena *arena;
    uint64_t deadline_ns;
    struct cw_cache_unpacker *unpacker; /* once it is needed */

    /* what was looked at last, from where is read next on */
    struct {
        struct cw_cache_segment *segment;
        uint64_t end;
        bool resident;
    } looked;
    struct cw_error *err;
};

static int read_bytes(struct reading *x, struct cw_cache_segment *g, uint64_t offset, struct iovec *v,
                      int n_v, size_t bytes)
{
    if (x->deadline_ns != CW_CACHE_AT_ONCE && x->deadline_ns != CW_CACHE_FOREVER)
        return cw_cache_read_until(x->set, g, offset, v, bytes, x->deadline_ns);
    return cw_cache_segment_read(g, offset, v, n_v, bytes,
                                 x->deadline_ns == CW_CACHE_FOREVER ? CW_CACHE_WAIT
                                 : x->looked.resident               ? CW_CACHE_COPY
                                                                    : CW_CACHE_NOWAIT);
}

static int lost(struct cw_cache_set *s, const struct cw_cache_get *get, bool damaged)
{
    cw_cache_set_forget(s, get);
    atomic_fetch_add(damaged ? &s->cache->bad : &s->cache->gone, 1);
    return 2;
}

static bool packed(const struct cw_cache_get *get)
{
    return get->place.stored < get->place.length;
}

static bool fits(const struct cw_cache_entry *e, const struct cw_cache_get *get)
{
    return e->length == get->place.length && e->stored == get->place.stored;
}

static void scatter(const struct cw_cache_get *get, const uint8_t *from)
{
    for (int i = 0; i < get->n_v; i++) {
        if (get->v[i].iov_len)
            memcpy(get->v[i].iov_base, from, get->v[i].iov_len);
        from += get->v[i].iov_len;
    }
}

static int unpack(struct reading *x, const struct cw_cache_get *get, const uint8_t *from)
{
    size_t length = get->place.length;
    struct cw_arena_mark mark = cw_arena_mark(x->arena);
    uint8_t *to = get->n_v == 1 ? get->v[0].iov_base : cw_arena_alloc(x->arena, length, x->err);
    if (!to || (!x->unpacker && !(x->unpacker = cw_cache_unpacker_get(x->set->cache, x->err))))
        return x->err->status;
    int r = cw_cache_unpack(x->unpacker, from, get->place.stored, to, length) == 0 ? 0
                                                                                   : lost(x->set, get, true);
    if (r == 0 && get->n_v != 1)
        scatter(get, to);
    cw_arena_release(x->arena, mark);
    return r;
}

/* An entry as it is stored, in memory. */
static int take(struct reading *x, const struct cw_cache_get *get, const uint8_t *from)
{
    struct cw_cache_entry e;
    memcpy(&e, from, sizeof(e));
    from += sizeof(e);
    struct iovec whole = {.iov_base = (void *)(uintptr_t)from, .iov_len = get->place.stored};
    if (!fits(&e, get) || !cw_cache_entry_sound(&e, &get->key, &whole, 1))
        return lost(x->set, get, true);
    if (packed(get))
        return unpack(x, get, from);
    scatter(get, from);
    return 0;
}

/* Straight to where it goes. */
static int read_plain(struct reading *x, const struct cw_cache_get *get)
{
    struct cw_cache_entry e;
    struct iovec v[CW_CACHE_PARTS + 2];
    uint8_t pad[CW_CACHE_ALIGN];
    size_t bytes = cw_cache_entry_bytes(get->place.length);
    v[0] = (struct iovec){.iov_base = &e, .iov_len = sizeof(e)};
    memcpy(v + 1, get->v, (size_t)get->n_v * sizeof(*v));
    v[get->n_v + 1] = (struct iovec){.iov_base = pad, .iov_len = bytes - sizeof(e) - get->place.length};
    int r = read_bytes(x, get->place.segment, get->place.offset, v, get->n_v + 2, bytes);
    if (r == 0 && (!fits(&e, get) || !cw_cache_entry_sound(&e, &get->key, get->v, get->n_v)))
        return lost(x->set, get, true);
    return r == 2 ? lost(x->set, get, false) : r;
}

static int by_place(const void *a, const void *b)
{
    const struct cw_cache_place *x = &((const struct cw_cache_get *)a)->place,
                                *y = &((const struct cw_cache_get *)b)->place;
    if (x->segment != y->segment)
        return (uintptr_t)x->segment < (uintptr_t)y->segment ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint64_t end_of(const struct cw_cache_get *g)
{
    return g->place.offset + cw_cache_entry_bytes(g->place.stored);
}

static bool near(const struct cw_cache_get *g, const struct cw_cache_get *next)
{
    return next->place.segment == g->place.segment && next->place.offset <= end_of(g) + GAP_BYTES;
}

/* Whether gets[0 .. n) are in memory: asked once for all that lies together with them, of so many in all, and
 * is copied without taking time in between. */
static void look(struct reading *x, const struct cw_cache_get *gets, size_t n, size_t n_all)
{
    struct cw_cache_segment *g = gets[0].place.segment;
    uint64_t from = gets[0].place.offset, end = end_of(&gets[n - 1]);
    if (x->deadline_ns != CW_CACHE_AT_ONCE || (g == x->looked.segment && end <= x->looked.end))
        return;
    for (size_t i = n; i < n_all && near(&gets[i - 1], &gets[i]) && !packed(&gets[i]) &&
                       end_of(&gets[i]) - from <= LOOK_BYTES;
         i++)
        end = end_of(&gets[i]);
    pthread_rwlock_rdlock(&g->lock);
    bool resident = end - from >= MAPPED_BYTES && g->fd < 0 && g->file &&
                    cw_file_resident(g->file, from, end - from);
    pthread_rwlock_unlock(&g->lock);
    x->looked.segment = g;
    x->looked.end = end;
    x->looked.resident = resident;
}

/* Entries get[0 .. n) lie near each other in one segment, or there is but one. */
static int read_run(struct reading *x, const struct cw_cache_get *gets, size_t n)
{
    uint64_t from = gets[0].place.offset, bytes = end_of(&gets[n - 1]) - from;
    struct cw_arena_mark mark = cw_arena_mark(x->arena);
    uint8_t *data = cw_arena_alloc(x->arena, bytes, x->err);
    if (!data)
        return x->err->status;
    struct iovec v = {.iov_base = data, .iov_len = bytes};
    int r = read_bytes(x, gets[0].place.segment, from, &v, 1, bytes);
    if (r == 2)
        r = lost(x->set, &gets[0], false);
    for (size_t i = 0; i < n && r == 0; i++)
        r = take(x, &gets[i], data + (gets[i].place.offset - from));
    cw_arena_release(x->arena, mark);
    return r;
}

int cw_cache_read(struct cw_cache_set *s, struct cw_cache_get *gets, size_t n, struct cw_arena *arena,
                  uint64_t patience_ns, struct cw_error *err)
{
    uint64_t start = cw_cost_now_ns(), bytes = 0, deadline_ns = patience_ns;
    if (patience_ns != CW_CACHE_AT_ONCE && patience_ns != CW_CACHE_FOREVER)
        deadline_ns += cw_now_ns();
    struct reading x = {.set = s, .arena = arena, .deadline_ns = deadline_ns, .err = err};
    int r = patience_ns != CW_CACHE_FOREVER && atomic_load(&s->cache->readers.stuck) ? 3 : 0;
    if (n > 1)
        qsort(gets, n, sizeof(*gets), by_place);
    for (size_t i = 0, next; i < n && r == 0; i = next) {
        next = i + 1;
        while (gets[i].place.stored <= SMALL_BYTES && next < n && gets[next].place.stored <= SMALL_BYTES &&
               near(&gets[next - 1], &gets[next]) && end_of(&gets[next]) - gets[i].place.offset <= RUN_BYTES)
            next++;
        look(&x, gets + i, next - i, n - i);
        r = next == i + 1 && !packed(&gets[i]) ? read_plain(&x, &gets[i]) : read_run(&x, gets + i, next - i);
        for (size_t k = i; k < next; k++)
            bytes += gets[k].place.length;
    }
    cw_cache_unpacker_put(s->cache, x.unpacker);
    cw_cost_operator("cache", n);
    if (r == 0) {
        atomic_fetch_add_explicit(&s->cache->hits, n, memory_order_relaxed);
        atomic_fetch_add_explicit(&s->cache->bytes_read, bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&s->cache->read_ns, cw_cost_now_ns() - start, memory_order_relaxed);
    }
    if (r == 3)
        atomic_fetch_add_explicit(&s->cache->late, n, memory_order_relaxed);
    return r;
}
