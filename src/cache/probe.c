/* Reads a part of the segment that was just published, to measure how fast storage is. */
#include "cache/probe.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/cost_clock.h"
#include "cache/files.h"
#include "cache/internal.h"
#include "cache/set.h"
#include "storage/throttle.h"

/* Bytes of one read: enough that throughput matters more than latency, and few enough that slow storage
 * delivers them soon. */
#define PROBE_BYTES ((size_t)256 << 10)
/* Reads of a probe. The fastest of them counts, because this thread may have waited for a CPU during others.
 * After SLOW_NS no further read is begun. */
#define PROBES 4
#define SLOW_NS UINT64_C(100000000)
#define PROBE_NS UINT64_C(1000000000) /* between two probes */

static ssize_t probe_read_file(int dir_fd, const char *name, int flags, void *to, off_t at)
{
    _cleanup_close_ int fd = cw_cache_open_file(dir_fd, name, O_RDONLY | flags);
    return fd >= 0 ? pread(fd, to, PROBE_BYTES, at) : -1;
}

/* Reads PROBE_BYTES at an offset. Returns the bytes read; 0: nothing could be read. *ret_ns: the time that
 * the read took, without waits for a CPU. */
static size_t probe_read(int dir_fd, const char *name, void *to, off_t at, uint64_t *ret_ns)
{
    uint64_t start = cw_cost_now_ns(), delay_ns = cw_cost_delay_ns();
    ssize_t n = probe_read_file(dir_fd, name, O_DIRECT, to, at);
    if (n < 0)
        n = probe_read_file(dir_fd, name, 0, to, at);
    if (n <= 0)
        return 0;
    cw_throttle_read(CW_THROTTLE_STORE, (size_t)n);
    uint64_t passed_ns = cw_cost_now_ns() - start;
    delay_ns = cw_cost_delay_ns() - delay_ns;
    *ret_ns = CW_MAX(passed_ns - CW_MIN(delay_ns, passed_ns), (uint64_t)1);
    return (size_t)n;
}

void cw_cache_probe(struct cw_cache_set *s, const char *name)
{
    struct cw_cache *c = s->cache;
    uint64_t start = cw_now_ns(), best_ns = 0, ns = 0;
    size_t best = 0, n;
    if (start - c->probes.last_ns < PROBE_NS && !s->packing.unsure_ns)
        return;
    _cleanup_free_ void *to = aligned_alloc(CW_CACHE_BLOCK, PROBE_BYTES);
    for (int i = 0; to && i < PROBES && cw_now_ns() - start < SLOW_NS &&
                    (n = probe_read(s->dir_fd, name, to, (off_t)(PROBE_BYTES * (size_t)i), &ns)) > 0;
         i++)
        if (!best || (double)n / (double)ns > (double)best / (double)best_ns) {
            best = n;
            best_ns = ns;
        }
    if (!best)
        return;
    c->probes.last_ns = cw_now_ns();
    c->probes.last = (struct cw_cache_speed){.bytes = (double)best, .ns = (double)best_ns};
    cw_cache_speed_add(&c->probes.lately, best, best_ns);
    double unpacked = (double)CW_MAX(atomic_load(&c->counters.bytes_written), 1) /
                      (double)CW_MAX(atomic_load(&c->counters.bytes_stored), 1);
    atomic_store(&c->counters.probe_bytes, (uint64_t)(c->probes.lately.bytes * unpacked));
    atomic_store(&c->counters.probe_ns, (uint64_t)c->probes.lately.ns);
}
