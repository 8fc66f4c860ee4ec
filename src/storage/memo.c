/*
 * The file consists of buckets of BUCKET bytes, in levels: level 0 has FIRST buckets, each further level
 * GROWTH times as many. The key chooses one bucket of each level. A value goes to the first level whose
 * bucket has room for it; in the last level, it replaces the oldest values of its bucket. So the file
 * grows with its values, needs no index in memory, and is never rewritten.
 *
 * A bucket is a list of entries, the newest first. Each entry carries a checksum of itself: what is
 * zero, half written, damaged, of another version or byte order is not an entry, and ends the list. Two
 * processes that write to a bucket at the same time can lose a value, which is then stored again later.
 */
#include "storage/memo.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "storage/file.h"

#define BUCKET ((size_t)8192)
#define FIRST 64u    /* 512 KiB */
#define GROWTH 4u    /* a level holds three times as much as all levels before it */
#define LEVELS 12u   /* at most */
#define FREE_SHARE 8 /* a level is begun only if the file system has this many times its bytes free */
#define SEED UINT64_C(0x314F4D454D5743) /* of checksums: "CWMEMO1"; another version has another one */

struct entry {      /* followed by `size` bytes, padded to 8 */
    uint64_t check; /* XXH3_64 of the rest of the entry */
    struct cw_hash128 key;
    uint64_t size;
};

struct cw_memo {
    char *dir, *path;
    pthread_mutex_t mutex;
    atomic_int opened; /* 0: not tried yet; 1: fd is open; -1: the file can't be used */
    int fd;            /* written before `opened` */
    unsigned levels;   /* at most so many; immutable */
    atomic_int waits;  /* the file system can't say what is in memory, so reads wait for it */
    atomic_int full;   /* writing failed: nothing more is stored */
};

_Static_assert(sizeof(struct entry) + CW_MEMO_VALUE_MOST <= BUCKET / 2, "a bucket holds at least two values");

/* A bucket's bytes, followed by a header of zeros, which ends the list. */
union bucket {
    uint8_t bytes[BUCKET + sizeof(struct entry)];
    uint64_t words[1];
};

static uint64_t level_buckets(unsigned level)
{
    uint64_t n = FIRST;
    while (level-- > 0)
        n *= GROWTH;
    return n;
}

/* Returns the offset of a level, which is also how many bytes the levels before it have. */
static uint64_t level_begin(unsigned level)
{
    return (level_buckets(level) - FIRST) / (GROWTH - 1) * BUCKET;
}

int cw_memo_new(const char *dir, const char *name, uint64_t max_bytes, struct cw_memo **ret,
                struct cw_error *err)
{
    struct cw_memo *m = calloc(1, sizeof(*m));
    if (!m)
        return cw_error_nomem(err, sizeof(*m), "a memo");
    m->fd = -1;
    while (m->levels < LEVELS && level_begin(m->levels + 1) <= max_bytes)
        m->levels++;
    m->dir = strdup(dir);
    if (asprintf(&m->path, "%s/%s-%u", dir, name, (unsigned)geteuid()) < 0)
        m->path = NULL;
    pthread_mutex_init(&m->mutex, NULL);
    if (!m->dir || !m->path) {
        cw_memo_free(m);
        return cw_error_nomem(err, 0, "a path");
    }
    *ret = m;
    return 0;
}

struct cw_memo *cw_memo_free(struct cw_memo *m)
{
    if (!m)
        return NULL;
    cw_closep(&m->fd);
    pthread_mutex_destroy(&m->mutex);
    free(m->dir);
    free(m->path);
    free(m);
    return NULL;
}

/* ---- the file ---- */

/* Opens the file. Others than its user could have forged its values, so it must be theirs alone to write. */
static int memo_open(struct cw_memo *m)
{
    struct stat s;
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    if (cw_make_dirs(m->dir, NULL) == 0)
        m->fd = open(m->path, O_RDWR | O_CREAT | flags, 0600);
    if (m->fd < 0) {
        m->fd = open(m->path, O_RDONLY | flags);
        m->full = 1;
    }
    if (m->fd >= 0 && fstat(m->fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() &&
        !(s.st_mode & (S_IWGRP | S_IWOTH)))
        return 1;
    cw_closep(&m->fd);
    return -1;
}

static bool memo_usable(struct cw_memo *m)
{
    int opened = atomic_load_explicit(&m->opened, memory_order_acquire);
    if (opened)
        return opened > 0;
    pthread_mutex_lock(&m->mutex);
    if (!m->opened)
        atomic_store_explicit(&m->opened, memo_open(m), memory_order_release);
    opened = m->opened;
    pthread_mutex_unlock(&m->mutex);
    return opened > 0;
}

static uint64_t bucket_offset(unsigned level, struct cw_hash128 key)
{
    return level_begin(level) + key.lo % level_buckets(level) * BUCKET;
}

static uint64_t memo_bytes(const struct cw_memo *m)
{
    struct stat s;
    return fstat(m->fd, &s) == 0 ? (uint64_t)s.st_size : 0;
}

/* Whether the level exists, or the file system has room for it. */
static bool level_usable(const struct cw_memo *m, unsigned level)
{
    struct statvfs s;
    if (level >= m->levels)
        return false;
    return memo_bytes(m) > level_begin(level) ||
           (fstatvfs(m->fd, &s) == 0 &&
            (uint64_t)s.f_bavail * s.f_frsize / FREE_SHARE > level_buckets(level) * BUCKET);
}

/* Reads a bucket. False: it is not in memory, and the kernel reads it in the background. */
static bool bucket_read(struct cw_memo *m, uint64_t offset, bool wait, union bucket *ret)
{
    struct iovec v = {.iov_base = ret->bytes, .iov_len = BUCKET};
    ssize_t n = -1;
    if (!wait && !atomic_load_explicit(&m->waits, memory_order_relaxed)) {
        n = preadv2(m->fd, &v, 1, (off_t)offset, RWF_NOWAIT);
        if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
            atomic_store_explicit(&m->waits, 1, memory_order_relaxed);
        else if (n < (ssize_t)BUCKET && offset + (uint64_t)CW_MAX(n, 0) < memo_bytes(m)) {
            (void)posix_fadvise(m->fd, (off_t)offset, BUCKET, POSIX_FADV_WILLNEED);
            return false;
        }
    }
    if (n < 0)
        n = pread(m->fd, ret->bytes, BUCKET, (off_t)offset);
    n = CW_MAX(n, 0);
    memset(ret->bytes + n, 0, sizeof(ret->bytes) - (size_t)n);
    return true;
}

/* ---- entries ---- */

static size_t entry_bytes(uint64_t size)
{
    return sizeof(struct entry) + CW_ALIGN_UP((size_t)size, sizeof(uint64_t));
}

static uint64_t entry_check(const uint8_t *entry, uint64_t size)
{
    const size_t from = sizeof(uint64_t);
    return XXH3_64bits_withSeed(entry + from, sizeof(struct entry) - from + (size_t)size, SEED);
}

/* Reads the header of the entry at offset `at`. False: there is none, or it is no entry. */
static bool entry_at(const union bucket *b, size_t at, struct entry *ret)
{
    if (at + sizeof(*ret) > BUCKET)
        return false;
    memcpy(ret, b->bytes + at, sizeof(*ret));
    return ret->size >= 1 && ret->size <= CW_MEMO_VALUE_MOST && at + entry_bytes(ret->size) <= BUCKET;
}

static bool same_key(struct cw_hash128 a, struct cw_hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

enum cw_memo_found cw_memo_get(struct cw_memo *m, struct cw_hash128 key, void *to, size_t *ret_size)
{
    union bucket b;
    struct entry e;
    bool known = true;
    if (!memo_usable(m))
        return CW_MEMO_UNKNOWN;
    unsigned level = 0;
    for (uint64_t bytes = memo_bytes(m); level < m->levels && level_begin(level) < bytes;)
        level++;
    while (level-- > 0) {
        if (!bucket_read(m, bucket_offset(level, key), false, &b)) {
            known = false;
            continue;
        }
        for (size_t at = 0; entry_at(&b, at, &e); at += entry_bytes(e.size)) {
            if (!same_key(e.key, key) || e.check != entry_check(b.bytes + at, e.size))
                continue;
            memcpy(to, b.bytes + at + sizeof(e), (size_t)e.size);
            *ret_size = (size_t)e.size;
            return CW_MEMO_FOUND;
        }
    }
    return known ? CW_MEMO_ABSENT : CW_MEMO_UNKNOWN;
}

/* Puts an entry before those of a bucket, and leaves out others of its key. Returns false if that would
 * leave out the oldest entries, unless `evict` is set. ret_size: bytes of the list. */
static bool bucket_add(const union bucket *old, const struct entry *e, const void *value, bool evict,
                       union bucket *ret, size_t *ret_size)
{
    struct entry o;
    size_t size = entry_bytes(e->size);
    memset(ret->bytes + size - sizeof(uint64_t), 0, sizeof(uint64_t));
    memcpy(ret->bytes, e, sizeof(*e));
    memcpy(ret->bytes + sizeof(*e), value, (size_t)e->size);
    uint64_t check = entry_check(ret->bytes, e->size);
    memcpy(ret->bytes, &check, sizeof(check));
    for (size_t at = 0; entry_at(old, at, &o); at += entry_bytes(o.size)) {
        if (o.check != entry_check(old->bytes + at, o.size))
            break;
        if (same_key(o.key, e->key))
            continue;
        if (size + entry_bytes(o.size) > BUCKET) {
            if (evict)
                break;
            return false;
        }
        memcpy(ret->bytes + size, old->bytes + at, entry_bytes(o.size));
        size += entry_bytes(o.size);
    }
    memset(ret->bytes + size, 0, sizeof(o));
    *ret_size = CW_MIN(size + sizeof(o), BUCKET);
    return true;
}

void cw_memo_put(struct cw_memo *m, struct cw_hash128 key, const void *value, size_t size)
{
    union bucket old, b;
    size_t used;
    struct entry e = {.key = key, .size = size};
    if (size < 1 || size > CW_MEMO_VALUE_MOST || !memo_usable(m) || m->full)
        return;
    for (unsigned level = 0; level_usable(m, level); level++) {
        uint64_t offset = bucket_offset(level, key);
        bool evict = false;
        bucket_read(m, offset, true, &old);
        if (!bucket_add(&old, &e, value, false, &b, &used)) {
            evict = !level_usable(m, level + 1);
            if (!evict)
                continue;
            bucket_add(&old, &e, value, true, &b, &used);
        }
        if (pwrite(m->fd, b.bytes, used, (off_t)offset) != (ssize_t)used)
            m->full = 1;
        return;
    }
}
