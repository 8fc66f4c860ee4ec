/* How fast the store gives back what was written: a little of what was just published is read again, past the page cache where that can be. The store's thread only. */
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/internal.h"
#include "storage/throttle.h"

#define PROBE_BYTES ((size_t)256 << 10) /* enough that it is speed that counts, little enough for a store that has none */
/* The quickest of some counts, for this thread may have waited for a CPU; of a store that is slow all the same, the first. */
#define PROBES 4
#define SLOW_NS UINT64_C(100000000)
#define PROBE_NS UINT64_C(1000000000) /* at most one in this time */

static ssize_t read_some(const char *path, int flags, void *to, off_t at)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    ssize_t n = fd >= 0 ? pread(fd, to, PROBE_BYTES, at) : -1;
    if (fd >= 0)
        close(fd);
    return n;
}

/* Bytes that were read, and how long that took; 0: none were. */
static size_t probe(const char *path, void *to, off_t at, uint64_t *ret_ns)
{
    uint64_t start = cw_now_ns();
    ssize_t n = read_some(path, O_DIRECT, to, at);
    if (n < 0)
        n = read_some(path, 0, to, at);
    if (n <= 0)
        return 0;
    cw_throttle_read(CW_THROTTLE_STORE, (size_t)n);
    *ret_ns = CW_MAX(cw_now_ns() - start, (uint64_t)1);
    return (size_t)n;
}

void cw_cache_probe(struct cw_cache *c, const char *path)
{
    uint64_t start = cw_now_ns(), best_ns = 0, ns = 0;
    size_t best = 0, n;
    if (start - c->probed_ns < PROBE_NS)
        return;
    _cleanup_free_ void *to = aligned_alloc(CW_CACHE_BLOCK, PROBE_BYTES);
    for (int i = 0; to && i < PROBES && cw_now_ns() - start < SLOW_NS && (n = probe(path, to, (off_t)(PROBE_BYTES * (size_t)i), &ns)) > 0; i++)
        if (!best || (double)n / (double)ns > (double)best / (double)best_ns) {
            best = n;
            best_ns = ns;
        }
    c->probed_ns = cw_now_ns();
    if (!best)
        return;
    atomic_store(&c->probe_bytes, atomic_load(&c->probe_bytes) / 2 + best); /* those before count half, and half of that */
    atomic_store(&c->probe_ns, atomic_load(&c->probe_ns) / 2 + best_ns);
}
