/* The quota: what may be written, and what gives way. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/crash.h"
#include "base/fd.h"
#include "cache/internal.h"

/* A set that nobody uses is worth half of one in use, and half of that after each day. */
#define UNUSED_SHARE 0.5
#define HALF_LIFE_S 86400.0
/* What gives way is worth clearly less than what comes: else two sets would push each other out in turn. */
#define CLEARLY 0.9
/* Nobody takes so long to write one of the small files beside segments. */
#define META_S 60.0
/* A set that has no segments any more, but says of itself what it took: for so long. */
#define EMPTY_S (30 * 86400.0)

/* Segments that a quota has room for; and the least that they have of bytes. */
#define QUOTA_SEGMENTS 8
#define LEAST_SEGMENT ((uint64_t)64 << 10)

struct found { /* a file of a set */
    char *set, *name;
    uint64_t bytes;
    double value; /* microseconds of computing saved per MiB, by how likely it is */
};

struct look {
    struct found *files; /* segments that may give way */
    size_t n, capacity;
    uint64_t used;
};

/* Nobody holds its lock: who wrote it is dead. */
static bool orphaned(int set, const char *name)
{
    _cleanup_close_ int fd = -1;
    return cw_cache_try_lock(set, name, &fd) == 0;
}

/* Removes a file that only a run which uses the set would need: those that want to use it wait meanwhile.
 * False: somebody does. */
static bool unlink_unused(int set, const char *name)
{
    _cleanup_close_ int fd = -1;
    int r = cw_cache_try_lock(set, CW_CACHE_USED, &fd);
    if (r == 0)
        (void)unlinkat(set, name, 0);
    return r == 0;
}

static int stat_at(int set, const char *name, struct stat *ret)
{
    return fstatat(set, name, ret, AT_SYMLINK_NOFOLLOW);
}

/* How likely a set is to be read again, beside one in use. Negative: it is pinned. */
static double likely(int set)
{
    struct stat st;
    if (stat_at(set, CW_CACHE_PIN, &st) == 0)
        return -1;
    if (stat_at(set, CW_CACHE_USED, &st) < 0)
        return 0;
    if (cw_cache_locked(set, CW_CACHE_USED))
        return 1;
    double age_s = difftime(time(NULL), st.st_mtime);
    return UNUSED_SHARE * exp2(-CW_MAX(age_s, 0.0) / HALF_LIFE_S);
}

/* Without memory it counts, but can't give way. */
static void add(struct look *l, const char *set, const char *name, uint64_t bytes, double value)
{
    if (CW_ARRAY_ROOM(l->files, l->capacity, l->n + 1, "files", NULL) < 0)
        return;
    _cleanup_free_ char *set_copy = strdup(set), *name_copy = strdup(name);
    if (set_copy && name_copy)
        l->files[l->n++] = (struct found){
            .set = CW_STEAL(set_copy), .name = CW_STEAL(name_copy), .bytes = bytes, .value = value};
}

/* A file of a set: whether it stays. */
static bool look_at_file(int set, const char *name, struct stat *ret)
{
    enum cw_cache_name kind = cw_cache_name(name);
    if (stat_at(set, name, ret) < 0 || !S_ISREG(ret->st_mode))
        return false;
    if (kind == CW_CACHE_NAME_WRITTEN && orphaned(set, name))
        return unlinkat(set, name, 0) < 0;
    if (kind != CW_CACHE_NAME_PUT)
        return true;
    return difftime(time(NULL), ret->st_mtime) > META_S ? unlinkat(set, name, 0) < 0
                                                        : !unlink_unused(set, name);
}

static void look_at_set(struct look *l, int root, const char *key)
{
    _cleanup_close_ int set = cw_cache_open_dir(root, key);
    _cleanup_(cw_closedirp) DIR *d = cw_cache_open_names(set);
    double share = d ? likely(set) : 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        const char *worth = strchr(e->d_name, '-');
        if (e->d_name[0] == '.' || !look_at_file(set, e->d_name, &st))
            continue;
        l->used += (uint64_t)st.st_size;
        if (cw_cache_name(e->d_name) == CW_CACHE_NAME_SEGMENT && worth && share >= 0)
            add(l, key, e->d_name, (uint64_t)st.st_size, (double)strtoull(worth + 1, NULL, 10) * share);
    }
}

/* Nobody has used a set for long, and nothing is kept in it. */
static bool is_forsaken(int root, const char *key)
{
    struct stat st;
    bool any = false;
    _cleanup_close_ int set = cw_cache_open_dir(root, key);
    bool old = set >= 0 && stat_at(set, CW_CACHE_USED, &st) == 0 &&
               difftime(time(NULL), st.st_mtime) >= EMPTY_S;
    _cleanup_(cw_closedirp) DIR *d = old ? cw_cache_open_names(set) : NULL;
    for (struct dirent *e; d && !any && (e = readdir(d));)
        any = cw_cache_name(e->d_name) == CW_CACHE_NAME_SEGMENT || strcmp(e->d_name, CW_CACHE_PIN) == 0;
    return d && !any;
}

/* sweep: what is forsaken goes. */
static void look(int root, struct look *l, bool sweep)
{
    _cleanup_(cw_closedirp) DIR *d = cw_cache_open_names(root);
    *l = (struct look){0};
    for (struct dirent *e; d && (e = readdir(d));) {
        struct cw_error ignored = {0}; /* then it stays, and counts */
        if (cw_cache_is_set(e->d_name) &&
            (!sweep || !is_forsaken(root, e->d_name) || cw_cache_set_remove(root, e->d_name, &ignored) != 0))
            look_at_set(l, root, e->d_name);
    }
}

static void look_deinit(struct look *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->files[i].set);
        free(l->files[i].name);
    }
    free(l->files);
}

/* The file is opened when it is first needed: a directory that can only be read is read. */
int cw_cache_lock(struct cw_cache *c)
{
    if (c->lock_fd < 0 && (c->lock_fd = cw_cache_open_file(c->dir_fd, CW_CACHE_LOCK, O_RDWR | O_CREAT)) < 0)
        return c->lock_fd;
    if (flock(c->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    const char *was = c->doing.what;
    int r;
    cw_cache_doing(c, "waiting for its lock");
    do {
        r = flock(c->lock_fd, LOCK_EX) < 0 ? -errno : 0;
    } while (r == -EINTR);
    cw_cache_doing(c, was);
    return r;
}

void cw_cache_unlock(const struct cw_cache *c)
{
    (void)flock(c->lock_fd, LOCK_UN);
}

uint64_t cw_cache_sweep(struct cw_cache *c)
{
    struct look l;
    if (cw_cache_lock(c) < 0)
        return 0;
    look(c->dir_fd, &l, true);
    cw_cache_unlock(c);
    look_deinit(&l);
    atomic_store(&c->used, l.used);
    return l.used;
}

static int by_value(const void *a, const void *b)
{
    double x = ((const struct found *)a)->value, y = ((const struct found *)b)->value;
    return x < y ? -1 : x > y;
}

static void evict(struct cw_cache *c, const struct found *f)
{
    cw_crash_point("cache-evict");
    _cleanup_close_ int set = cw_cache_open_dir(c->dir_fd, f->set);
    if (set >= 0 && unlinkat(set, f->name, 0) == 0)
        atomic_fetch_add(&c->evicted, 1);
}

/* Half of what is free besides what was there at first. What is written here changes nothing of that; what
 * others free or fill does. */
static uint64_t quota_of_disk(const struct cw_cache *c, uint64_t used)
{
    struct statvfs v;
    return fstatvfs(c->dir_fd, &v) < 0 ? UINT64_MAX
                                       : (c->first_used + used + (uint64_t)v.f_bavail * v.f_frsize) / 2;
}

void cw_cache_bound(struct cw_cache *c, uint64_t used)
{
    uint64_t quota = c->wanted_quota ? c->wanted_quota : quota_of_disk(c, used);
    /* a small quota is not to be filled by one segment that nothing has been published of */
    atomic_store(&c->segment_bytes, CW_MIN(c->wanted_segment, CW_MAX(quota / QUOTA_SEGMENTS, LEAST_SEGMENT)));
    atomic_store(&c->quota, quota);
}

/* Makes room for `bytes` more. 0; 1: there is none, and nothing was done. Directory locked. */
static int make_room(struct cw_cache *c, uint64_t bytes, uint64_t value)
{
    struct look l;
    uint64_t left, n = 0;
    look(c->dir_fd, &l, false);
    cw_cache_bound(c, l.used);
    if (l.n > 1)
        qsort(l.files, l.n, sizeof(*l.files), by_value);
    for (left = l.used;
         left + bytes > atomic_load(&c->quota) && n < l.n && l.files[n].value < CLEARLY * (double)value; n++)
        left -= l.files[n].bytes;
    int r = left + bytes > atomic_load(&c->quota);
    for (uint64_t i = 0; i < n && r == 0; i++)
        evict(c, &l.files[i]);
    atomic_store(&c->used, r == 0 ? left + bytes : l.used);
    look_deinit(&l);
    return r;
}

static int create(int set, uint64_t size, char **ret_name, int *ret_fd)
{
    uint64_t id = 0;
    char name[64];
    (void)!getrandom(&id, sizeof(id), 0);
    snprintf(name, sizeof(name), CW_CACHE_TEMPORARY "%016" PRIx64, id);
    _cleanup_close_ int fd = cw_cache_open_file(set, name, O_RDWR | O_CREAT | O_EXCL);
    int e = fd < 0 ? -fd : 0;
    /* The lock says that somebody writes; the directory's lock is held, so nobody takes it for an orphan
     * before. Its size is what it may grow to. */
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || ftruncate(fd, (off_t)size) < 0))
        e = errno;
    if (!e && !(*ret_name = strdup(name)))
        e = ENOMEM;
    if (e && fd >= 0)
        (void)unlinkat(set, name, 0);
    if (!e)
        *ret_fd = CW_STEAL_FD(fd);
    return -e;
}

int cw_cache_room(struct cw_cache_set *s, uint64_t size, uint64_t value, char **ret_name, int *ret_fd)
{
    int r = cw_cache_lock(s->cache);
    if (r < 0)
        return r;
    r = make_room(s->cache, size, value);
    if (r == 0)
        r = create(s->dir_fd, size, ret_name, ret_fd);
    cw_cache_unlock(s->cache);
    return r;
}
