/* How fast the store gives back what was written: a little of what was just published is read again, past the
 * page cache where that can be. The store's thread only. */
#include <fcntl.h>
#include <unistd.h>

#include "base/cost_clock.h"
#include "cache/internal.h"
#include "storage/throttle.h"

#define PROBE_BYTES \
    ((size_t)256 << 10) /* enough that it is speed that counts, little enough for a store that has none */
/* The quickest of some counts, for this thread may have waited for a CPU; of a store that is slow all the
 * same, the first. */
#define PROBES 4
#define SLOW_NS UINT64_C(100000000)
#define PROBE_NS UINT64_C(1000000000) /* at most one in this time */

static ssize_t read_some(int dir_fd, const char *name, int flags, void *to, off_t at)
{
    int fd = cw_cache_open_file(dir_fd, name, O_RDONLY | flags);
    ssize_t n = fd >= 0 ? pread(fd, to, PROBE_BYTES, at) : -1;
    if (fd >= 0)
        close(fd);
    return n;
}

/* Bytes that were read, and how long that took; 0: none were. */
static size_t probe(int dir_fd, const char *name, void *to, off_t at, uint64_t *ret_ns)
{
    uint64_t start = cw_cost_now_ns(), delay_ns = cw_cost_delay_ns();
    ssize_t n = read_some(dir_fd, name, O_DIRECT, to, at);
    if (n < 0)
        n = read_some(dir_fd, name, 0, to, at);
    if (n <= 0)
        return 0;
    cw_throttle_read(CW_THROTTLE_STORE, (size_t)n);
    uint64_t passed_ns = cw_cost_now_ns() - start;
    delay_ns = cw_cost_delay_ns() - delay_ns;
    *ret_ns = CW_MAX(passed_ns - CW_MIN(delay_ns, passed_ns), (uint64_t)1);
    return (size_t)n;
}

void cw_cache_speed_add(struct cw_cache_speed *s, size_t bytes, uint64_t ns)
{
    s->bytes = s->bytes / 2 + (double)bytes;
    s->ns = s->ns / 2 + (double)ns;
}

void cw_cache_probe(struct cw_cache_set *s, const char *name)
{
    struct cw_cache *c = s->cache;
    uint64_t start = cw_now_ns(), best_ns = 0, ns = 0;
    size_t best = 0, n;
    if (start - c->probed_ns < PROBE_NS && !s->packing.unsure_ns)
        return;
    _cleanup_free_ void *to = aligned_alloc(CW_CACHE_BLOCK, PROBE_BYTES);
    for (int i = 0; to && i < PROBES && cw_now_ns() - start < SLOW_NS &&
                    (n = probe(s->dir_fd, name, to, (off_t)(PROBE_BYTES * (size_t)i), &ns)) > 0;
         i++)
        if (!best || (double)n / (double)ns > (double)best / (double)best_ns) {
            best = n;
            best_ns = ns;
        }
    if (!best)
        return;
    c->probed_ns = cw_now_ns();
    c->last_probe = (struct cw_cache_speed){.bytes = (double)best, .ns = (double)best_ns};
    cw_cache_speed_add(&c->probed, best, best_ns);
    double unpacked = (double)CW_MAX(atomic_load(&c->bytes_written), 1) /
                      (double)CW_MAX(atomic_load(&c->bytes_stored), 1);
    atomic_store(&c->probe_bytes, (uint64_t)(c->probed.bytes * unpacked));
    atomic_store(&c->probe_ns, (uint64_t)c->probed.ns);
}
