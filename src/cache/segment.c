/* The handle of a segment: reading the segment, and its table of entries. */
#include "cache/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/files.h"
#include "cache/sum.h"
#include "storage/file.h"
#include "storage/mapped.h"
#include "storage/throttle.h"

/* Limit of the rows in the table of a file: each row stands for an entry, which has at least a struct
 * cw_cache_entry. */
#define MAX_ROWS(size) ((size) / sizeof(struct cw_cache_entry))
/* From this number of bytes on, copying from a mapping is faster than read(2) (docs/adr/0021). */
#define MAPPED_BYTES ((size_t)32 << 10)

/* ---- the handle ---- */

struct cw_cache_segment *cw_cache_segment_new(void)
{
    struct cw_cache_segment *g = malloc(sizeof(*g));
    if (g)
        *g = (struct cw_cache_segment){.lock = PTHREAD_RWLOCK_INITIALIZER, .fd = -1};
    return g;
}

static void segment_drop_file(struct cw_cache_segment *g)
{
    cw_mapped_free(atomic_exchange(&g->mapped, NULL));
    g->file = cw_file_free(g->file);
}

void cw_cache_segment_free(struct cw_cache_segment *g)
{
    if (!g)
        return;
    cw_closep(&g->fd);
    segment_drop_file(g);
    pthread_rwlock_destroy(&g->lock);
    free(g->name);
    free(g);
}

int cw_cache_segment_file(const char *path, const struct stat *st, struct cw_file **ret, struct cw_error *err)
{
    /* The change time is not compared, because removing a segment while other processes read it sets that
     * time. The entries have checksums. */
    const struct cw_stat was = {
        .size = (uint64_t)st->st_size, .mtime_ns = cw_timespec_ns(&st->st_mtim), .ctime_ns = CW_ANY_TIME};
    return cw_file_new(path, &was, ret, err);
}

void cw_cache_segment_written(struct cw_cache_segment *g, char *name, struct cw_file *file)
{
    pthread_rwlock_wrlock(&g->lock);
    g->name = name;
    g->file = file;
    close(g->fd);
    g->fd = -1;
    pthread_rwlock_unlock(&g->lock);
}

void cw_cache_segment_let_go(struct cw_cache_segment *g)
{
    if (!atomic_load(&g->dead) || !g->file || pthread_rwlock_trywrlock(&g->lock) != 0)
        return;
    segment_drop_file(g);
    pthread_rwlock_unlock(&g->lock);
}

/* ---- reading ---- */

int cw_cache_segment_read(struct cw_cache_segment *g, uint64_t offset, struct iovec *v, int n_v, size_t bytes,
                          enum cw_cache_way way)
{
    int r = 2;
    bool nowait = way != CW_CACHE_WAIT;
    if (nowait && !cw_throttle_read_at_once(CW_THROTTLE_STORE, bytes))
        return 1;
    if (!nowait)
        cw_throttle_read(CW_THROTTLE_STORE, bytes);
    pthread_rwlock_rdlock(&g->lock);
    if (g->fd >= 0) { /* this process is still writing the segment, past the page cache if possible */
        ssize_t n = preadv2(g->fd, v, n_v, (off_t)offset, nowait ? RWF_NOWAIT : 0);
        r = n >= 0 && (size_t)n == bytes ? 0 : nowait ? 1 : 2;
    } else if (g->file) {
        struct cw_mapped *m = atomic_load(&g->mapped);
        bool copied = way == CW_CACHE_COPY && bytes >= MAPPED_BYTES && m &&
                      cw_mapped_copy(m, offset, v, n_v, bytes);
        r = copied ? 0 : cw_file_readv(g->file, offset, v, n_v, nowait, NULL);
        r = r < 0 ? 2 : r;
    }
    pthread_rwlock_unlock(&g->lock);
    return r;
}

/* Returns the mapping of a published segment, which is made if need be; NULL: no mapping can be made. Several
 * threads may make one at the same time; the first one is kept. The caller holds g->lock. */
static struct cw_mapped *segment_map(struct cw_cache_segment *g)
{
    struct cw_mapped *m = atomic_load(&g->mapped), *other = NULL;
    int fd;
    bool own;
    if (m || atomic_load(&g->unmappable) || cw_file_acquire(g->file, true, &fd, &own, NULL) != 0)
        return m;
    m = cw_mapped_new(fd, cw_file_size(g->file));
    cw_file_release(g->file, fd, own);
    if (!m) {
        atomic_store(&g->unmappable, true);
    } else if (!atomic_compare_exchange_strong(&g->mapped, &other, m)) {
        cw_mapped_free(m);
        m = other;
    }
    return m;
}

bool cw_cache_segment_resident(struct cw_cache_segment *g, uint64_t offset, size_t bytes)
{
    pthread_rwlock_rdlock(&g->lock);
    struct cw_mapped *m = bytes >= MAPPED_BYTES && g->file ? segment_map(g) : NULL;
    bool resident = m && cw_mapped_resident(m, offset, bytes);
    pthread_rwlock_unlock(&g->lock);
    return resident;
}

/* ---- the table ---- */

bool cw_cache_entry_sound(const struct cw_cache_entry *e, const struct cw_cache_key *key,
                          const struct iovec *v, int n_v)
{
    if (e->magic != CW_CACHE_ENTRY_MAGIC || memcmp(&e->key, key, sizeof(*key)) != 0)
        return false;
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    cw_sum_update(&state, (const uint8_t *)e + sizeof(e->hash), sizeof(*e) - sizeof(e->hash));
    for (int i = 0; i < n_v; i++)
        cw_sum_update(&state, v[i].iov_base, v[i].iov_len);
    return XXH3_64bits_digest(&state) == e->hash;
}

int cw_cache_table_read(int fd, struct cw_hash128 set, struct cw_cache_row **ret, size_t *ret_n,
                        struct cw_cache_trailer *t)
{
    struct cw_cache_header h;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    uint64_t size = (uint64_t)st.st_size;
    if (size < sizeof(h) + sizeof(*t))
        return 1;
    cw_throttle_read(CW_THROTTLE_STORE_DIR, 0);
    int r = cw_cache_read_at(fd, 0, &h, sizeof(h));
    if (r == 0)
        r = cw_cache_read_at(fd, size - sizeof(*t), t, sizeof(*t));
    if (r != 0)
        return r;
    if (h.magic != CW_CACHE_MAGIC || h.version != CW_CACHE_VERSION || h.set.lo != set.lo ||
        h.set.hi != set.hi || t->magic != CW_CACHE_TRAILER_MAGIC ||
        t->hash != cw_hash64(t, offsetof(struct cw_cache_trailer, hash)) || t->n > MAX_ROWS(size) ||
        t->table_offset < sizeof(h) || t->table_offset != size - sizeof(*t) - t->n * sizeof(**ret))
        return 1;
    _cleanup_free_ struct cw_cache_row *rows = malloc(t->n * sizeof(*rows) + 1);
    if (!rows)
        return -ENOMEM;
    r = cw_cache_read_at(fd, t->table_offset, rows, t->n * sizeof(*rows));
    if (r == 0 && cw_hash64(rows, t->n * sizeof(*rows)) != t->table_hash)
        r = 1;
    /* Entries must ascend and not overlap: reading several entries with one read relies on this. */
    uint64_t end = sizeof(h);
    for (size_t i = 0; i < t->n && r == 0; i++) {
        if (rows[i].offset < end || rows[i].offset > t->table_offset || rows[i].stored > rows[i].length ||
            cw_cache_entry_bytes(rows[i].stored) > t->table_offset - rows[i].offset)
            r = 1;
        end = rows[i].offset + cw_cache_entry_bytes(rows[i].stored);
    }
    if (r != 0)
        return r;
    *ret = CW_STEAL(rows);
    *ret_n = t->n;
    return 0;
}

int64_t cw_cache_table_write(int fd, uint64_t offset, const struct cw_cache_row *rows, size_t n,
                             uint64_t cost_us)
{
    struct cw_cache_trailer t = {.n = n,
                                 .table_offset = offset,
                                 .cost_us = cost_us,
                                 .table_hash = cw_hash64(rows, n * sizeof(*rows)),
                                 .magic = CW_CACHE_TRAILER_MAGIC};
    t.hash = cw_hash64(&t, offsetof(struct cw_cache_trailer, hash));
    uint64_t end = offset + n * sizeof(*rows) + sizeof(t);
    int r = cw_cache_write_at(fd, offset, rows, n * sizeof(*rows));
    if (r == 0)
        r = cw_cache_write_at(fd, end - sizeof(t), &t, sizeof(t));
    if (r == 0 && ftruncate(fd, (off_t)end) < 0)
        r = -errno;
    return r < 0 ? r : (int64_t)end;
}
