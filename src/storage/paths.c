/* Names of files: status, directories, and writing a file atomically. Any thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "storage/internal.h"

#include "base/array.h"
#include "base/clock.h"

/* Nanoseconds after which a further change gets another time. Linux stamps a change with the time of its last
 * timer tick. Ticks are at most 10 ms apart (CONFIG_HZ=100), and a tick may be late by as much. */
#define SETTLED_NS 20000000

static int stat_object(const char *address, struct cw_stat *ret, struct cw_error *err)
{
    struct cw_object_stat s;
    int r = cw_object_known(address, &s) ? 0 : cw_object_stat(address, &s, err);
    if (r == 1) {
        errno = ENOENT;
        return cw_error_at_file(err, CW_E_IO, address, ENOENT, "%s", address);
    }
    if (r == 0)
        *ret = (struct cw_stat){.size = s.size, .ctime_ns = s.version};
    return r;
}

int cw_stat(const char *path, struct cw_stat *ret, struct cw_error *err)
{
    struct stat s;
    if (cw_object_is_address(path))
        return stat_object(path, ret, err);
    if (stat(path, &s) < 0)
        return cw_error_at_file(err, CW_E_IO, path, errno, "%s", path);
    *ret = (struct cw_stat){
        .size = (uint64_t)s.st_size,
        .mtime_ns = cw_timespec_ns(&s.st_mtim),
        .ctime_ns = cw_timespec_ns(&s.st_ctim),
        .is_dir = S_ISDIR(s.st_mode),
    };
    return 0;
}

bool cw_settle(int64_t ctime_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = cw_timespec_ns(&now) - ctime_ns;
    if (age < 0 || age >= SETTLED_NS) /* age < 0: another machine's clock is ahead; waiting would not help */
        return false;
    nanosleep(&(struct timespec){.tv_nsec = SETTLED_NS - age}, NULL);
    return true;
}

int cw_stat_settled(const char *path, struct cw_stat *ret, struct cw_error *err)
{
    int r = cw_stat(path, ret, err);
    bool settle = r == 0 && !ret->is_dir && !cw_object_is_address(path);
    return settle && cw_settle(ret->ctime_ns) ? cw_stat(path, ret, err) : r;
}

void cw_paths_deinit(struct cw_paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->paths[i]);
    free(p->paths);
    *p = (struct cw_paths){0};
}

static int path_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void cw_paths_sort(struct cw_paths *p)
{
    if (p->n)
        qsort(p->paths, p->n, sizeof(*p->paths), path_order);
}

int cw_paths_add(struct cw_paths *p, const char *path, struct cw_error *err)
{
    int r = CW_ARRAY_ROOM(p->paths, p->room, p->n + 1, "the names of files", err);
    if (r < 0)
        return r;
    char *copy = strdup(path);
    if (!copy)
        return cw_error_nomem(err, strlen(path), "the names of files");
    p->paths[p->n++] = copy;
    return 0;
}

const char *cw_mode_name(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

int cw_list(const char *dir, struct cw_paths *ret, struct cw_error *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return cw_error_at_file(err, CW_E_IO, dir, errno, "%s", dir);
    struct cw_paths found = {0};
    int r = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                r = cw_error_errno(err, CW_E_IO, errno, "%s: reading the directory", dir);
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if ((r = cw_paths_add(&found, e->d_name, err)) < 0)
            break;
    }
    closedir(d);
    if (r < 0) {
        cw_error_file(err, dir);
        cw_paths_deinit(&found);
        return r;
    }
    cw_paths_sort(&found);
    *ret = found;
    return 0;
}

int cw_write_all(int fd, const void *bytes, size_t size)
{
    const uint8_t *data = bytes;
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

void cw_sync_directory(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

/* Makes a temporary file beside path. Returns a descriptor for writing, or a negative status. The caller
 * frees *ret, its name. */
static int put_open_temporary(const char *path, char **ret, struct cw_error *err)
{
    static atomic_uint counter; /* two threads of a process may write the same file */
    size_t room = strlen(path) + 48;
    char *temporary = malloc(room);
    if (!temporary)
        return cw_error_nomem(err, room, "a file name");
    snprintf(temporary, room, "%s" CW_PUT_TEMPORARY "%ld-%u", path, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        int e = errno;
        free(temporary);
        return cw_error_at_file(err, CW_E_IO, path, e, "%s: can't be written", path);
    }
    *ret = temporary;
    return fd;
}

int cw_put_check(const char *path, struct cw_error *err)
{
    struct stat st;
    _cleanup_free_ char *temporary = NULL;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return cw_error_at_file(err, CW_E_OPTION, path, 0, "%s is %s: expected a file", path,
                                cw_mode_name(st.st_mode));
    int fd = put_open_temporary(path, &temporary, err);
    if (fd == CW_E_IO)
        return err->status = CW_E_OPTION;
    if (fd < 0)
        return fd;
    close(fd);
    (void)unlink(temporary);
    return 0;
}

int cw_put(const char *path, const void *data, size_t size, struct cw_error *err)
{
    _cleanup_free_ char *temporary = NULL;
    int fd = put_open_temporary(path, &temporary, err);
    if (fd < 0)
        return fd;
    int e = cw_write_all(fd, data, size) < 0 || fsync(fd) < 0 ? errno : 0;
    if (close(fd) < 0 && !e)
        e = errno;
    if (!e && rename(temporary, path) < 0)
        e = errno;
    if (e) {
        (void)unlink(temporary);
        return cw_error_at_file(err, CW_E_IO, path, e, "%s: can't be written", path);
    }
    memcpy(temporary, path, strlen(path) + 1); /* which is shorter */
    cw_sync_directory(dirname(temporary));
    return 0;
}

char *cw_absolute(const char *path)
{
    _cleanup_free_ char *here = *path == '/' || !*path ? NULL : getcwd(NULL, 0);
    char *ret = NULL;
    if (!here) /* out of memory, or the current directory was removed: then no relative name leads anywhere */
        return strdup(path);
    return asprintf(&ret, "%s/%s", here, path) < 0 ? NULL : ret;
}

int cw_make_dirs(const char *path, struct cw_error *err)
{
    _cleanup_free_ char *copy = strdup(path);
    if (!copy)
        return cw_error_nomem(err, strlen(path), "a path");
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            break; /* the last mkdir below reports why */
        *slash = '/';
    }
    struct stat st;
    int e = mkdir(path, 0777) < 0 ? errno : 0;
    if (e == EEXIST)
        e = stat(path, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (e == 0)
        return 0;
    int r = e == ENOTDIR
                ? cw_error_set(err, CW_E_IO, "%s: expected a directory that exists or can be made", path)
                : cw_error_errno(err, CW_E_IO, e, "can't make directory %s", path);
    errno = e;
    return r;
}
