/* The directory of a worker's Unix socket, if no path was given: a new directory in $XDG_RUNTIME_DIR or /tmp,
 * which only its user may enter. */
#include "service/worker/socket_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"

#define PREFIX "cachew-worker-"
/* most bytes of the directory's path; the path of a Unix socket has at most 107 */
#define PATH_MAX_BYTES 90
#define TRIES 16 /* a try fails only if another worker starts at the same moment */

/* Returns a descriptor that holds the lock of the directory. -1: the directory belongs to another user, or
 * another process holds the lock. */
static int socket_dir_take(int below, const char *name)
{
    struct stat st;
    _cleanup_close_ int fd = openat(below, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool taken = fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
                 flock(fd, LOCK_EX | LOCK_NB) == 0;
    return taken ? CW_STEAL_FD(fd) : -1;
}

/* Removes the directories of killed workers in the directory `below`. */
static void socket_dir_reap(const char *below)
{
    _cleanup_(cw_closedirp) DIR *d = opendir(below);
    for (struct dirent *e; d && (e = readdir(d));) {
        _cleanup_close_ int fd = strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0
                                     ? socket_dir_take(dirfd(d), e->d_name)
                                     : -1;
        if (fd < 0)
            continue;
        (void)unlinkat(fd, "socket", 0);
        (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    }
}

/* Locks a directory that was just made. Returns 0; or 1 if another worker mistook it for the directory of a
 * killed worker, and removes it; or a negative errno. */
static int socket_dir_lock(const char *path, int *ret)
{
    struct stat st;
    *ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret < 0)
        return errno == ENOENT ? 1 : -errno;
    bool ours = flock(*ret, LOCK_EX | LOCK_NB) == 0 ||
                errno != EWOULDBLOCK; /* also if the file system has no locks */
    if (ours && fstat(*ret, &st) == 0 && st.st_nlink > 0)
        return 0;
    close(*ret);
    return 1;
}

/* Makes and locks a directory in the directory `below`. Returns 0 or a negative errno. */
static int socket_dir_make(const char *below, char **ret_path, int *ret_lock)
{
    for (int i = 0; i < TRIES; i++) {
        _cleanup_free_ char *path = NULL;
        if (asprintf(&path, "%s/" PREFIX "XXXXXX", below) < 0) {
            path = NULL;
            return -ENOMEM;
        }
        errno = ENAMETOOLONG;
        if (strlen(path) >= PATH_MAX_BYTES || !mkdtemp(path)) /* 0700 */
            return -errno;
        int r = socket_dir_lock(path, ret_lock);
        if (r == 0)
            *ret_path = CW_STEAL(path);
        else
            (void)rmdir(path);
        if (r <= 0)
            return r;
    }
    return -EAGAIN;
}

int cw_socket_dir_new(char **ret_path, int *ret_lock, struct cw_error *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const char *places[] = {runtime && *runtime ? runtime : "/tmp", "/tmp"};
    int r = -1;
    for (size_t i = 0; i < CW_COUNT_OF(places) && r < 0; i++) {
        socket_dir_reap(places[i]);
        r = socket_dir_make(places[i], ret_path, ret_lock);
    }
    if (r < 0)
        return cw_error_errno(err, CW_E_IO, -r,
                              "can't make a directory for the worker's socket in %s or /tmp", places[0]);
    return 0;
}

char *cw_socket_dir_free(char *path, int lock)
{
    if (path)
        (void)rmdir(path);
    if (lock >= 0)
        close(lock);
    free(path);
    return NULL;
}
