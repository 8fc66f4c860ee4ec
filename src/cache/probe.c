/* How fast the store gives back what was written: a little of what was just published is read again, past the page cache where that can be. The store's thread only. */
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/internal.h"
#include "cache/throttle.h"

#define PROBE_BYTES ((size_t)256 << 10) /* enough that it is speed that counts, little enough for a store that has none */
#define PROBE_NS UINT64_C(1000000000) /* at most one in this time */

static ssize_t read_some(const char *path, int flags, void *to, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    ssize_t n = fd >= 0 ? pread(fd, to, bytes, 0) : -1;
    if (fd >= 0)
        close(fd);
    return n;
}

void cw_cache_probe(struct cw_cache *c, const char *path)
{
    uint64_t start = cw_now_ns();
    if (start - c->probed_ns < PROBE_NS)
        return;
    _cleanup_free_ void *to = aligned_alloc(CW_CACHE_BLOCK, PROBE_BYTES);
    if (!to)
        return;
    ssize_t n = read_some(path, O_DIRECT, to, PROBE_BYTES);
    if (n < 0)
        n = read_some(path, 0, to, PROBE_BYTES);
    if (n <= 0)
        return;
    cw_throttle_read((size_t)n);
    c->probed_ns = cw_now_ns();
    atomic_store(&c->probe_bytes, atomic_load(&c->probe_bytes) / 2 + (uint64_t)n); /* one says little: those before count half, and half of that */
    atomic_store(&c->probe_ns, atomic_load(&c->probe_ns) / 2 + (c->probed_ns - start));
}
