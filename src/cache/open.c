/* Opening the directory, and sets in it. All of it may take as long as storage likes: the store's thread. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"
#include "cache/internal.h"
#include "storage/file.h"
#include "storage/throttle.h"

int cw_cache_dir_open(struct cw_cache *c, struct cw_error *err)
{
    cw_throttle_read(CW_THROTTLE_STORE_DIR, 0);
    errno = 0;
    if (cw_make_dirs(c->dir, err) < 0)
        return errno ? -errno : -ENOMEM;
    if ((c->dir_fd = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        /* the user's name for it: links are followed */
        int e = errno;
        cw_error_errno(err, CW_E_IO, e, "%s: can't be opened", c->dir);
        return -e;
    }
    c->first_used = cw_cache_sweep(c);
    cw_cache_bound(c, c->first_used);
    return 0;
}

/*
 * Locks the file that says the set is in use. Who removes a set holds it alone meanwhile: then 1, and both
 * are to be made anew. Where nothing can be written, others may take the set for unused: what they remove of
 * it is gone, and computed.
 */
static int use(struct cw_cache_set *s, const char *name)
{
    struct stat ours, there;
    _cleanup_close_ int fd = cw_cache_open_file(s->dir_fd, CW_CACHE_USED, O_RDWR | O_CREAT);
    if (fd == -CW_CACHE_NO_FILE || fd == -ENOENT)
        return fd == -ENOENT ? 1 : fd;
    if (fd < 0)
        fd = cw_cache_open_file(s->dir_fd, CW_CACHE_USED, O_RDONLY);
    if (fd < 0 || flock(fd, LOCK_SH) < 0 || fstat(fd, &ours) < 0)
        return 0;
    _cleanup_free_ char *path = NULL;
    if (asprintf(&path, "%s/" CW_CACHE_USED, name) < 0)
        path = NULL;
    if (!path || fstatat(s->cache->dir_fd, path, &there, AT_SYMLINK_NOFOLLOW) < 0 ||
        ours.st_ino != there.st_ino)
        return path ? 1 : -ENOMEM;
    (void)futimens(fd, NULL);
    s->used_fd = CW_STEAL_FD(fd);
    return 0;
}

/* A directory that is there, or is made; locked as in use. */
static int enter(struct cw_cache_set *s, const char *name)
{
    int r;
    do {
        if (s->dir_fd >= 0)
            close(s->dir_fd);
        int e = mkdirat(s->cache->dir_fd, name, 0777) < 0 ? errno : 0;
        s->dir_fd = cw_cache_open_dir(s->cache->dir_fd, name);
        if (s->dir_fd < 0)
            return s->dir_fd == -ENOENT && e ? -e : s->dir_fd;
        r = use(s, name);
    } while (r == 1);
    return r;
}

int cw_cache_set_enter(struct cw_cache_set *s)
{
    struct cw_cache *c = s->cache;
    char name[33];
    char *dir;
    struct stat st;
    cw_hash128_print(s->key, name);
    if (asprintf(&dir, "%s/%s", c->dir, name) < 0)
        return -ENOMEM;
    cw_throttle_read(CW_THROTTLE_STORE_DIR, 0);
    int r = enter(s, name);
    if (r < 0) {
        if (s->dir_fd >= 0)
            close(s->dir_fd);
        s->dir_fd = -1;
        free(dir);
        return r;
    }
    if (fstatat(s->dir_fd, CW_CACHE_META, &st, AT_SYMLINK_NOFOLLOW) < 0)
        (void)!cw_cache_put_text(s->dir_fd, CW_CACHE_META, s->meta); /* for people only */
    char *profile = cw_cache_read_text(s->dir_fd, CW_CACHE_PROFILE, CW_CACHE_PROFILE_BYTES);
    CW_WITH (&c->mutex) {
        if (s->profiled) /* there is a newer one by now */
            free(profile);
        else
            s->profile = profile;
    }
    s->dir = dir;
    cw_cache_set_scan(s, true);
    return 0;
}
