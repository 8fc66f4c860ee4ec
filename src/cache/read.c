/* Reading entries: a large entry straight into its destination, small entries that lie near each other with
 * one read. Any thread. */
#include <string.h>

#include "base/cost_clock.h"
#include "cache/internal.h"
#include "cache/set.h"

/* Bytes of a small entry, at most. Copying this many bytes takes about as long as a separate read. */
#define SMALL_BYTES ((size_t)8 << 10)
/* Bytes that may lie between two entries that are read together. */
#define GAP_BYTES ((uint64_t)4 << 10)
/* Bytes that one read of several entries has at most. */
#define RUN_BYTES ((uint64_t)1 << 20)
/* Bytes for which one check finds out whether they are in memory. Copying them takes a fraction of a
 * millisecond, so few pages can leave memory between check and copy; the copy would have to wait for such a
 * page. */
#define RESIDENT_BYTES ((uint64_t)4 << 20)

/* The state of a call of cw_cache_read. */
struct reading {
    struct cw_cache_set *set;
    struct cw_arena *arena;
    uint64_t deadline_ns;
    struct cw_cache_unpacker *unpacker; /* NULL: not needed yet */
    /* the bytes that were last checked for being in memory: in this segment, up to the offset checked_end */
    struct cw_cache_segment *checked;
    uint64_t checked_end;
    bool resident; /* the checked bytes are in memory */
    struct cw_error *err;
};

static int reading_bytes(struct reading *x, struct cw_cache_segment *g, uint64_t offset, struct iovec *v,
                         int n_v, size_t bytes)
{
    if (x->deadline_ns != CW_CACHE_AT_ONCE && x->deadline_ns != CW_CACHE_FOREVER)
        return cw_cache_read_until(x->set, g, offset, v, bytes, x->deadline_ns);
    return cw_cache_segment_read(g, offset, v, n_v, bytes,
                                 x->deadline_ns == CW_CACHE_FOREVER ? CW_CACHE_WAIT
                                 : x->resident                      ? CW_CACHE_COPY
                                                                    : CW_CACHE_NOWAIT);
}

/* Removes an entry that is damaged or gone from the index, and counts it. Returns 2. */
static int reading_lost(struct reading *x, const struct cw_cache_get *get, bool damaged)
{
    struct cw_cache_counters *counters = &x->set->cache->counters;
    cw_cache_index_forget(&x->set->index, get);
    atomic_fetch_add(damaged ? &counters->bad : &counters->gone, 1);
    return 2;
}

static bool get_is_packed(const struct cw_cache_get *get)
{
    return get->place.stored < get->place.length;
}

/* Returns whether the entry's header has the sizes that the index states. */
static bool get_fits(const struct cw_cache_entry *e, const struct cw_cache_get *get)
{
    return e->length == get->place.length && e->stored == get->place.stored;
}

/* Decompresses an entry to its destination. */
static int reading_unpack(struct reading *x, const struct cw_cache_get *get, const uint8_t *from)
{
    size_t length = get->place.length;
    struct cw_arena_mark mark = cw_arena_mark(x->arena);
    uint8_t *to = get->n_v == 1 ? get->v[0].iov_base : cw_arena_alloc(x->arena, length, x->err);
    if (!to || (!x->unpacker && !(x->unpacker = cw_cache_unpacker_get(&x->set->cache->unpackers, x->err))))
        return x->err->status;
    int r = cw_cache_unpack(x->unpacker, from, get->place.stored, to, length) == 0
                ? 0
                : reading_lost(x, get, true);
    if (r == 0 && get->n_v != 1)
        cw_cache_scatter(get->v, 0, to, length);
    cw_arena_release(x->arena, mark);
    return r;
}

/* Checks an entry that was read into scratch memory (from), and copies or decompresses it to its destination.
 */
static int reading_take(struct reading *x, const struct cw_cache_get *get, const uint8_t *from)
{
    struct cw_cache_entry e;
    memcpy(&e, from, sizeof(e));
    from += sizeof(e);
    struct iovec whole = {.iov_base = (void *)(uintptr_t)from, .iov_len = get->place.stored};
    if (!get_fits(&e, get) || !cw_cache_entry_sound(&e, &get->key, &whole, 1))
        return reading_lost(x, get, true);
    if (get_is_packed(get))
        return reading_unpack(x, get, from);
    cw_cache_scatter(get->v, 0, from, get->place.length);
    return 0;
}

/* Reads one uncompressed entry straight to its destination. */
static int reading_plain(struct reading *x, const struct cw_cache_get *get)
{
    struct cw_cache_entry e;
    struct iovec v[CW_CACHE_PARTS + 2];
    uint8_t pad[CW_CACHE_ALIGN];
    size_t bytes = cw_cache_entry_bytes(get->place.length);
    v[0] = (struct iovec){.iov_base = &e, .iov_len = sizeof(e)};
    memcpy(v + 1, get->v, (size_t)get->n_v * sizeof(*v));
    v[get->n_v + 1] = (struct iovec){.iov_base = pad, .iov_len = bytes - sizeof(e) - get->place.length};
    int r = reading_bytes(x, get->place.segment, get->place.offset, v, get->n_v + 2, bytes);
    if (r == 0 && (!get_fits(&e, get) || !cw_cache_entry_sound(&e, &get->key, get->v, get->n_v)))
        return reading_lost(x, get, true);
    return r == 2 ? reading_lost(x, get, false) : r;
}

static int get_order(const void *a, const void *b)
{
    const struct cw_cache_place *x = &((const struct cw_cache_get *)a)->place,
                                *y = &((const struct cw_cache_get *)b)->place;
    if (x->segment != y->segment)
        return (uintptr_t)x->segment < (uintptr_t)y->segment ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint64_t get_end(const struct cw_cache_get *g)
{
    return g->place.offset + cw_cache_entry_bytes(g->place.stored);
}

static bool get_is_near(const struct cw_cache_get *g, const struct cw_cache_get *next)
{
    return next->place.segment == g->place.segment && next->place.offset <= get_end(g) + GAP_BYTES;
}

/* Finds out whether gets[0 .. n) are in memory, unless an earlier check covers them. One check covers as many
 * of the n_all gets as lie near each other. */
static void reading_check(struct reading *x, const struct cw_cache_get *gets, size_t n, size_t n_all)
{
    struct cw_cache_segment *g = gets[0].place.segment;
    uint64_t from = gets[0].place.offset, end = get_end(&gets[n - 1]);
    if (x->deadline_ns != CW_CACHE_AT_ONCE || (g == x->checked && end <= x->checked_end))
        return;
    for (size_t i = n; i < n_all && get_is_near(&gets[i - 1], &gets[i]) && !get_is_packed(&gets[i]) &&
                       get_end(&gets[i]) - from <= RESIDENT_BYTES;
         i++)
        end = get_end(&gets[i]);
    x->checked = g;
    x->checked_end = end;
    x->resident = cw_cache_segment_resident(g, from, end - from);
}

/* Reads entries that lie near each other in one segment, with one read. */
static int reading_run(struct reading *x, const struct cw_cache_get *gets, size_t n)
{
    uint64_t from = gets[0].place.offset, bytes = get_end(&gets[n - 1]) - from;
    struct cw_arena_mark mark = cw_arena_mark(x->arena);
    uint8_t *data = cw_arena_alloc(x->arena, bytes, x->err);
    if (!data)
        return x->err->status;
    struct iovec v = {.iov_base = data, .iov_len = bytes};
    int r = reading_bytes(x, gets[0].place.segment, from, &v, 1, bytes);
    if (r == 2)
        r = reading_lost(x, &gets[0], false);
    for (size_t i = 0; i < n && r == 0; i++)
        r = reading_take(x, &gets[i], data + (gets[i].place.offset - from));
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
        qsort(gets, n, sizeof(*gets), get_order);
    for (size_t i = 0, next; i < n && r == 0; i = next) {
        next = i + 1;
        while (gets[i].place.stored <= SMALL_BYTES && next < n && gets[next].place.stored <= SMALL_BYTES &&
               get_is_near(&gets[next - 1], &gets[next]) &&
               get_end(&gets[next]) - gets[i].place.offset <= RUN_BYTES)
            next++;
        reading_check(&x, gets + i, next - i, n - i);
        r = next == i + 1 && !get_is_packed(&gets[i]) ? reading_plain(&x, &gets[i])
                                                      : reading_run(&x, gets + i, next - i);
        for (size_t k = i; k < next; k++)
            bytes += gets[k].place.length;
    }
    cw_cache_unpacker_put(&s->cache->unpackers, x.unpacker);
    cw_cost_operator("cache", n);
    if (r == 0) {
        atomic_fetch_add_explicit(&s->cache->counters.hits, n, memory_order_relaxed);
        atomic_fetch_add_explicit(&s->cache->counters.bytes_read, bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&s->cache->counters.read_ns, cw_cost_now_ns() - start,
                                  memory_order_relaxed);
    }
    if (r == 3)
        atomic_fetch_add_explicit(&s->cache->counters.late, n, memory_order_relaxed);
    return r;
}
