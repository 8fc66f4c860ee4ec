/* Segments on disk: the table at their end, and what makes an entry sound. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/internal.h"
#include "cache/sum.h"
#include "storage/file.h"
#include "storage/throttle.h"

/* More would be no table of ours: a segment's entries are at least this large. */
#define MAX_ROWS(size) ((size) / sizeof(struct cw_cache_entry))

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

int cw_cache_file_new(const char *path, const struct stat *st, struct cw_file **ret, struct cw_error *err)
{
    /* A segment is removed while others read it, which moves its change time; entries have their checksums.
     */
    const struct cw_stat was = {.size = (uint64_t)st->st_size,
                                .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
                                .ctime_ns = CW_ANY_TIME};
    return cw_file_new(path, &was, ret, err);
}

int cw_cache_read_at(int fd, uint64_t offset, void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (uint8_t *)to + done, size - done, (off_t)(offset + done));
        if (n == 0)
            return 1;
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int cw_cache_write_at(int fd, uint64_t offset, const void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, (const uint8_t *)data + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Every number is checked before it is used. */
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
    struct cw_cache_row *rows = malloc(t->n * sizeof(*rows) + 1);
    if (!rows)
        return -ENOMEM;
    r = cw_cache_read_at(fd, t->table_offset, rows, t->n * sizeof(*rows));
    if (r == 0 && cw_hash64(rows, t->n * sizeof(*rows)) != t->table_hash)
        r = 1;
    /* one behind the other: those that are read together are as long as from the first to the end of the last
     */
    uint64_t end = sizeof(h);
    for (size_t i = 0; i < t->n && r == 0; i++) {
        if (rows[i].offset < end || rows[i].offset > t->table_offset || rows[i].stored > rows[i].length ||
            cw_cache_entry_bytes(rows[i].stored) > t->table_offset - rows[i].offset)
            r = 1;
        end = rows[i].offset + cw_cache_entry_bytes(rows[i].stored);
    }
    if (r != 0) {
        free(rows);
        return r;
    }
    *ret = rows;
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
