/* Counting the files of a cache directory, and evicting the segments that are worth least. */
#include "cache/room.h"

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
#include "cache/files.h"
#include "storage/file.h"
#include "storage/throttle.h"

/* The entries of a set that no process uses count half as much as those of a set in use, and half of that
 * again after each day. */
#define UNUSED_SHARE 0.5
#define HALF_LIFE_S 86400.0
/* A segment is evicted only if its value is below this part of the new segment's value. Otherwise two sets
 * could evict each other in turn. */
#define CLEARLY 0.9
/* Seconds after which a small file under a temporary name is taken to be left by a dead process. */
#define META_S 60.0
/* Seconds after which an unused set without segments is removed, its profile included. */
#define EMPTY_S (30 * 86400.0)

/* Segments are made so small that the quota has room for at least this many, but not smaller than
 * LEAST_SEGMENT bytes. */
#define QUOTA_SEGMENTS 8
#define LEAST_SEGMENT ((uint64_t)64 << 10)

struct candidate { /* a segment that may be evicted */
    char set[33], *name;
    uint64_t bytes;
    double value; /* microseconds of computing saved per MiB, times the likelihood that it is read again */
};

/* The files of a cache directory, as counted. */
struct census {
    struct candidate *files; /* segments that may be evicted */
    size_t n, capacity;
    uint64_t used; /* bytes of all files */
};

/* Removes a file that is needed only while a process uses the set, if none does. No process can begin to use
 * the set meanwhile. Returns whether the file stays. */
static bool file_keep_used(int set, const char *name)
{
    _cleanup_close_ int fd = -1;
    return cw_cache_try_lock(set, CW_CACHE_USED, &fd) != 0 || unlinkat(set, name, 0) < 0;
}

/* Returns the likelihood that a set is read again, relative to a set in use (1). Negative: the set is pinned.
 */
static double set_likelihood(int set)
{
    struct stat st;
    if (fstatat(set, CW_CACHE_PIN, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -1;
    if (fstatat(set, CW_CACHE_USED, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (cw_cache_locked(set, CW_CACHE_USED) == 1)
        return 1;
    double age_s = difftime(time(NULL), st.st_mtime);
    return UNUSED_SHARE * exp2(-CW_MAX(age_s, 0.0) / HALF_LIFE_S);
}

/* Adds a segment that may be evicted. If memory is short, the segment is counted but can't be evicted. */
static void census_add(struct census *census, const char *set, const char *name, uint64_t bytes, double value)
{
    char *copy = strdup(name);
    if (!copy || CW_ARRAY_ROOM(census->files, census->capacity, census->n + 1, "files", NULL) < 0) {
        free(copy);
        return;
    }
    struct candidate *f = &census->files[census->n++];
    *f = (struct candidate){.name = copy, .bytes = bytes, .value = value};
    memcpy(f->set, set, sizeof(f->set));
}

/* Reads the status of a file of a set into *ret. Removes the file if a dead process left it. Returns whether
 * the file stays. */
static bool file_sweep(int set, const char *name, struct stat *ret)
{
    enum cw_cache_name kind = cw_cache_name(name);
    if (fstatat(set, name, ret, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(ret->st_mode))
        return false;
    if (kind == CW_CACHE_NAME_WRITTEN && cw_cache_locked(set, name) == 0) /* its writer is dead */
        return unlinkat(set, name, 0) < 0;
    if (kind != CW_CACHE_NAME_PUT)
        return true;
    return difftime(time(NULL), ret->st_mtime) > META_S ? unlinkat(set, name, 0) < 0
                                                        : file_keep_used(set, name);
}

/* Returns whether no process has used a set for EMPTY_S. */
static bool set_is_old(int set)
{
    struct stat st;
    return fstatat(set, CW_CACHE_USED, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           difftime(time(NULL), st.st_mtime) >= EMPTY_S;
}

/* Counts the files of a set. sweep: removes a set that has no segment, is not pinned and was not used for
 * EMPTY_S. */
static void census_count_set(struct census *census, int root, const char *key, bool sweep)
{
    _cleanup_close_ int set = cw_cache_open_dir(root, key);
    _cleanup_(cw_closedirp) DIR *d = cw_cache_open_names(set);
    double share = d ? set_likelihood(set) : 0;
    bool kept = share < 0 || !d;
    uint64_t bytes = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        const char *worth = strchr(e->d_name, '-');
        bool segment = cw_cache_name(e->d_name) == CW_CACHE_NAME_SEGMENT;
        kept |= segment;
        if (e->d_name[0] == '.' || !file_sweep(set, e->d_name, &st))
            continue;
        bytes += (uint64_t)st.st_size;
        if (segment && worth && share >= 0)
            census_add(census, key, e->d_name, (uint64_t)st.st_size,
                       (double)strtoull(worth + 1, NULL, 10) * share);
    }
    /* a set that can't be removed is counted */
    if (!sweep || kept || !set_is_old(set) || cw_cache_set_remove(root, key, NULL) != 0)
        census->used += bytes;
}

/* Counts all files below a cache directory. sweep: removes sets that were not used for long. The caller holds
 * the directory's lock. */
static void census_take(int root, struct census *census, bool sweep)
{
    _cleanup_(cw_closedirp) DIR *d = cw_cache_open_names(root);
    *census = (struct census){0};
    for (struct dirent *e; d && (e = readdir(d));)
        if (cw_cache_is_set(e->d_name))
            census_count_set(census, root, e->d_name, sweep);
}

static void census_deinit(struct census *census)
{
    for (size_t i = 0; i < census->n; i++)
        free(census->files[i].name);
    free(census->files);
}

int cw_cache_room_lock(struct cw_cache_room *room)
{
    /* The file is opened only when the lock is first needed, so that a read-only directory can be read. */
    if (room->lock_fd < 0 &&
        (room->lock_fd = cw_cache_open_file(room->dir_fd, CW_CACHE_LOCK, O_RDWR | O_CREAT)) < 0)
        return room->lock_fd;
    if (flock(room->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    const char *step = room->monitor->step;
    int r;
    cw_cache_monitor_step(room->monitor, "waiting for the lock of the cache directory");
    do {
        r = flock(room->lock_fd, LOCK_EX) < 0 ? -errno : 0;
    } while (r == -EINTR);
    cw_cache_monitor_step(room->monitor, step);
    return r;
}

void cw_cache_room_unlock(const struct cw_cache_room *room)
{
    (void)flock(room->lock_fd, LOCK_UN);
}

/* Removes the files of dead processes and sets that were not used for long. Returns the bytes of all files
 * that stay. */
static uint64_t room_sweep(struct cw_cache_room *room)
{
    struct census census;
    if (cw_cache_room_lock(room) < 0)
        return 0;
    census_take(room->dir_fd, &census, true);
    cw_cache_room_unlock(room);
    census_deinit(&census);
    atomic_store(&room->used, census.used);
    return census.used;
}

static int candidate_order(const void *a, const void *b)
{
    double x = ((const struct candidate *)a)->value, y = ((const struct candidate *)b)->value;
    return x < y ? -1 : x > y;
}

static void room_evict(struct cw_cache_room *room, const struct candidate *f)
{
    cw_crash_point("cache-evict");
    _cleanup_close_ int set = cw_cache_open_dir(room->dir_fd, f->set);
    if (set >= 0 && unlinkat(set, f->name, 0) == 0)
        atomic_fetch_add(&room->evicted, 1);
}

/* Returns the quota that follows from the disk: the directory's bytes at the start plus half of the free
 * space at the start. Bytes that the cache writes do not change the quota; bytes that other programs free or
 * write do. */
static uint64_t room_disk_quota(const struct cw_cache_room *room, uint64_t used)
{
    struct statvfs v;
    return fstatvfs(room->dir_fd, &v) < 0 ? UINT64_MAX
                                          : (room->first_used + used + (uint64_t)v.f_bavail * v.f_frsize) / 2;
}

/* Sets quota and segment size. used: bytes of all files in the directory. */
static void room_set_quota(struct cw_cache_room *room, uint64_t used)
{
    uint64_t quota = room->wanted_quota ? room->wanted_quota : room_disk_quota(room, used);
    /* one segment that is not published yet must not fill a small quota */
    atomic_store(&room->segment_bytes,
                 CW_MIN(room->wanted_segment, CW_MAX(quota / QUOTA_SEGMENTS, LEAST_SEGMENT)));
    atomic_store(&room->quota, quota);
}

/* Evicts segments of clearly less than `value` until `bytes` more bytes fit. Returns 0; 1: they can't fit,
 * and nothing was evicted. The caller holds the directory's lock. */
static int room_make(struct cw_cache_room *room, uint64_t bytes, uint64_t value)
{
    struct census census;
    uint64_t left, n = 0;
    census_take(room->dir_fd, &census, false);
    room_set_quota(room, census.used);
    if (census.n > 1)
        qsort(census.files, census.n, sizeof(*census.files), candidate_order);
    for (left = census.used; left + bytes > atomic_load(&room->quota) && n < census.n &&
                             census.files[n].value < CLEARLY * (double)value;
         n++)
        left -= census.files[n].bytes;
    int r = left + bytes > atomic_load(&room->quota);
    for (uint64_t i = 0; i < n && r == 0; i++)
        room_evict(room, &census.files[i]);
    atomic_store(&room->used, r == 0 ? left + bytes : census.used);
    census_deinit(&census);
    return r;
}

/* Makes a file of `size` bytes under a temporary name and locks it. The caller holds the directory's lock. */
static int file_create(int set, uint64_t size, char ret_name[CW_CACHE_TEMPORARY_SIZE], int *ret_fd)
{
    uint64_t id = 0;
    (void)!getrandom(&id, sizeof(id), 0);
    snprintf(ret_name, CW_CACHE_TEMPORARY_SIZE, CW_CACHE_TEMPORARY "%016" PRIx64, id);
    _cleanup_close_ int fd = cw_cache_open_file(set, ret_name, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    /* The file's lock says that a process writes it. Until that lock is taken, the directory's lock keeps
     * other processes from removing the file as left by a dead process. */
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || ftruncate(fd, (off_t)size) < 0) {
        int e = errno;
        (void)unlinkat(set, ret_name, 0);
        return -e;
    }
    *ret_fd = CW_STEAL_FD(fd);
    return 0;
}

int cw_cache_room_reserve(struct cw_cache_room *room, int set, uint64_t size, uint64_t value,
                          char ret_name[CW_CACHE_TEMPORARY_SIZE], int *ret_fd)
{
    int r = cw_cache_room_lock(room);
    if (r < 0)
        return r;
    r = room_make(room, size, value);
    if (r == 0)
        r = file_create(set, size, ret_name, ret_fd);
    cw_cache_room_unlock(room);
    return r;
}

/* ---- from the start to the end ---- */

void cw_cache_room_init(struct cw_cache_room *room, struct cw_cache_monitor *m, uint64_t quota,
                        size_t segment_bytes)
{
    *room = (struct cw_cache_room){.monitor = m,
                                   .wanted_quota = quota,
                                   .wanted_segment = segment_bytes,
                                   .dir_fd = -1,
                                   .lock_fd = -1,
                                   .quota = quota,
                                   .segment_bytes = segment_bytes};
}

void cw_cache_room_deinit(struct cw_cache_room *room)
{
    cw_closep(&room->lock_fd);
    cw_closep(&room->dir_fd);
}

int cw_cache_room_open(struct cw_cache_room *room, struct cw_error *err)
{
    const char *dir = room->monitor->dir;
    cw_throttle_read(CW_THROTTLE_STORE_DIR, 0);
    errno = 0;
    if (cw_make_dirs(dir, err) < 0)
        return errno ? -errno : -ENOMEM;
    room->dir_fd = open(dir, O_RDONLY | O_DIRECTORY |
                                 O_CLOEXEC); /* the user chose this name, so links are followed */
    if (room->dir_fd < 0) {
        int e = errno;
        cw_error_errno(err, CW_E_IO, e, "%s: can't be opened", dir);
        return -e;
    }
    room->first_used = room_sweep(room);
    room_set_quota(room, room->first_used);
    return 0;
}
