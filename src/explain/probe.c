/* Measures how fast a cache in a directory would be. Called by explain_run.c. */
#include "explain/probe.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cost_clock.h"
#include "base/text.h"
#include "cache/cache.h"

/* Two sizes of entries: about that of a number with a label, and that of a small image. The time to read an
 * entry is assumed to be linear in its size. */
#define SMALL_BYTES ((size_t)256)
#define LARGE_BYTES ((size_t)128 << 10)
/* Number of entries of each size, which take some milliseconds to read. */
#define N_SMALL 8192
#define N_LARGE 128
/* Number of entries that one call reads, as the engine does for a block of elements. */
#define AT_ONCE 32
/* Scattered reading goes through the entries in steps of this number. It is a prime that divides neither
 * N_SMALL nor N_LARGE, so that all entries are visited. */
#define STRIDE 37
#define SCRATCH_BYTES ((size_t)64 << 20)

/* ---- a directory ---- */

int cw_scratch_dir(const char *dir, char **ret, struct cw_error *err)
{
    const char *tmp = getenv("TMPDIR");
    _cleanup_(cw_text_deinit) struct cw_text t = {0};
    cw_text_add(&t, "%s/cachew-explain-XXXXXX", dir ? dir : tmp && *tmp ? tmp : "/tmp");
    if (t.failed)
        return cw_error_nomem(err, 0, "a path");
    if (!mkdtemp(t.data))
        return cw_error_errno(err, CW_E_OPTION, errno, "can't make a directory for a cache (--cache-dir): %s",
                              t.data);
    *ret = CW_STEAL(t.data);
    return 0;
}

static int scratch_remove_one(const char *path, const struct stat *s CW_UNUSED, int type CW_UNUSED,
                              struct FTW *f CW_UNUSED)
{
    (void)remove(path); /* a failure leaves a file below a directory for temporary files */
    return 0;
}

void cw_scratch_remove(const char *path)
{
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- reading ---- */

struct probe {
    const char *dir;
    const volatile int *interrupt;
    size_t n, bytes; /* entries, and the size of each */
};

static int probe_interrupted(const struct probe *p, struct cw_error *err)
{
    return p->interrupt && *p->interrupt ? cw_error_set(err, CW_E_INTERRUPTED, "interrupted") : 0;
}

static int probe_fill(const struct probe *p, struct cw_cache_set *set, struct cw_error *err)
{
    for (uint64_t row = 0; row < p->n; row++) {
        const struct cw_cache_key key = {.file_key = 1, .row = row};
        struct cw_cache_slot slot;
        void *to = cw_cache_reserve(set, &key, p->bytes, false, 1, &slot);
        if (!to)
            return cw_error_set(err, CW_E_IO, "the cache directory has no room for %zu bytes",
                                p->n * p->bytes);
        int r = probe_interrupted(p, err);
        if (r < 0)
            return r;
        memset(to, (int)row, p->bytes);
        cw_cache_commit(&slot);
    }
    return 0;
}

/* Reads all entries and sets *ret to the seconds per entry by a clock: the wall clock for a disk; this
 * thread's CPU time for memory, so that the load of other processes does not count. */
static int probe_read(const struct probe *p, struct cw_cache_set *set, size_t stride,
                      uint64_t (*clock_ns)(void), uint8_t *to, double *ret, struct cw_error *err)
{
    struct cw_budget budget;
    struct cw_arena arena;
    size_t n = p->n, bytes = p->bytes;
    uint64_t start = clock_ns();
    int r = 0;
    cw_budget_init(&budget, SCRATCH_BYTES);
    cw_arena_init(&arena, &budget);
    for (size_t i = 0; i < n && r == 0; i += AT_ONCE) {
        struct cw_cache_key keys[AT_ONCE];
        struct cw_cache_place places[AT_ONCE];
        struct cw_cache_get gets[AT_ONCE];
        struct iovec v[AT_ONCE];
        for (size_t k = 0; k < AT_ONCE; k++)
            keys[k] = (struct cw_cache_key){.file_key = 1, .row = (i + k) * stride % n};
        if (cw_cache_find(set, keys, AT_ONCE, places) != AT_ONCE)
            r = 2;
        for (size_t k = 0; k < AT_ONCE; k++) {
            v[k] = (struct iovec){.iov_base = to + k * bytes, .iov_len = bytes};
            gets[k] = (struct cw_cache_get){.key = keys[k], .place = places[k], .v = &v[k], .n_v = 1};
        }
        if (r == 0)
            r = cw_cache_read(set, gets, AT_ONCE, &arena, CW_CACHE_FOREVER, err);
        if (r == 0)
            r = probe_interrupted(p, err);
        cw_arena_reset(&arena, SCRATCH_BYTES);
    }
    cw_arena_deinit(&arena);
    *ret = (double)(clock_ns() - start) * 1e-9 / (double)n;
    return r == 2
               ? cw_error_set(err, CW_E_IO, "a cache in that directory lost entries that were just written")
               : r;
}

/* Measures a new cache with entries of one size. Reads it in steps of `first` entries, from the disk if
 * written data bypassed the page cache, and then in steps of `second` entries, from memory. */
static int probe_size(const struct probe *p, size_t first, size_t second, double *ret_first,
                      double *ret_second, struct cw_error *err)
{
    /* plain: the entries consist of one repeated byte, and would compress */
    const struct cw_cache_options o = {.dir = p->dir, .plain = true};
    struct cw_cache *c;
    struct cw_cache_set *set = NULL;
    _cleanup_free_ uint8_t *to = malloc(AT_ONCE * p->bytes);
    int r = to ? cw_cache_open(&o, &c, err) : cw_error_nomem(err, AT_ONCE * p->bytes, "a cache");
    if (r < 0)
        return r;
    r = cw_cache_set_open(c, (struct cw_hash128){.lo = p->bytes, .hi = first}, "{}", &set, err);
    if (r >= 0)
        r = probe_fill(p, set, err);
    if (r >= 0) {
        memset(to, 0, AT_ONCE * p->bytes); /* so that page faults of this buffer are not measured */
        r = cw_cache_flush(c, err);
    }
    if (r >= 0)
        r = probe_read(p, set, first, cw_cost_now_ns, to, ret_first, err);
    if (r >= 0)
        r = probe_read(p, set, second, cw_cost_cpu_ns, to, ret_second, err);
    cw_cache_set_unref(set);
    cw_cache_close(c);
    return r;
}

/* Sets the time per entry and per byte from the times of a small and a large entry. */
static void speed_line(double small, double large, double *ret_entry, double *ret_byte)
{
    *ret_byte = CW_MAX(large - small, 0) / (double)(LARGE_BYTES - SMALL_BYTES);
    *ret_entry = CW_MAX(small - *ret_byte * (double)SMALL_BYTES, 0);
}

int cw_probe_cache(const char *dir, bool scattered, const volatile int *interrupt, struct cw_cache_speed *ret,
                   struct cw_error *err)
{
    static const struct {
        size_t n, bytes;
    } sizes[] = {{N_SMALL, SMALL_BYTES}, {N_LARGE, LARGE_BYTES}};

    size_t step = scattered ? STRIDE : 1;
    _cleanup_free_ char *path = NULL;
    double cold[2], warm[2], other;
    int r = cw_scratch_dir(dir, &path, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < 2 && r >= 0; i++) {
        const struct probe p = {
            .dir = path, .interrupt = interrupt, .n = sizes[i].n, .bytes = sizes[i].bytes};
        r = probe_size(&p, step, step, &cold[i], &warm[i], err);
        /* A real epoch takes seconds. By then the kernel has read ahead into large pages of the page cache,
         * which are faster to read than the pages of single entries. So memory is measured after reading in
         * order. */
        if (r >= 0 && scattered)
            r = probe_size(&p, 1, step, &other, &warm[i], err);
    }
    cw_scratch_remove(path);
    if (r < 0)
        return r;
    speed_line(cold[0], cold[1], &ret->cold_entry_s, &ret->cold_byte_s);
    speed_line(warm[0], warm[1], &ret->entry_s, &ret->byte_s);
    return 0;
}
